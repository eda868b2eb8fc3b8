"""Settings, trusted projects, and where files of a user are."""
