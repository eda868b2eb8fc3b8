"""Tools that read, write, edit and list files."""
