"""Send audit events to other systems: in order, at least once."""
