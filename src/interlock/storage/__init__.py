"""Event log and artifacts: the interfaces, in memory, in files."""
