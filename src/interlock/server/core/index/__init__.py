"""Lists of runs and questions, derived from the log."""
