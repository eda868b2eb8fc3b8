"""Built-in tools for files, search, commands, skills and other agents."""
