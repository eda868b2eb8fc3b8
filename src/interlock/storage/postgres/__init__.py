"""The log in Postgres: for runs on many hosts."""
