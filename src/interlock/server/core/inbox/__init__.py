"""The inbox as people work in it: filters and saved views, assignments, comments, and many decisions at once."""
