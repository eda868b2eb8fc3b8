"""What test runners and checkers print, read as facts."""
