"""`grep` and `glob`, by ripgrep in a sandbox."""
