"""Where handlers and commands run, and what they can reach."""
