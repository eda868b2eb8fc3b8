"""Pure data and state: calls, decisions, events, observations. No I/O."""
