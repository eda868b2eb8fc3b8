"""The server's database beside the log: one interface, in a SQLite file or in Postgres."""
