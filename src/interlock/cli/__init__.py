"""The `interlock` command."""
