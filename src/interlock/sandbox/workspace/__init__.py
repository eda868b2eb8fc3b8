"""The one way to files: paths are resolved beneath one folder."""
