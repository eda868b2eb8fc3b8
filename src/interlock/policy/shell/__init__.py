"""Read shell commands: what a script would run, and what it would touch."""
