"""Run commands in bubblewrap, under Landlock, or unconfined."""
