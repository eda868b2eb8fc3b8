"""The web console: pages rendered by the server."""
