"""Start, approve, resume and cancel runs."""
