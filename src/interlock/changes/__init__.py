"""Change sets: what a command changed in its workspace, read from an overlay, committed or dropped, and undone."""
