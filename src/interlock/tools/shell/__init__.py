"""`bash`, background tasks, and what a command changed."""
