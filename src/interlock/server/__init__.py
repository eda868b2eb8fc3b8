"""The server: core, REST and console."""
