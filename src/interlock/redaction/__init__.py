"""Keep secrets out of what is shown, logged and stored."""
