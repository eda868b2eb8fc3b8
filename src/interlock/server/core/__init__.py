"""The server without HTTP."""
