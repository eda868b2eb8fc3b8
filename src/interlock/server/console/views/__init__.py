"""What pages show of questions, calls, events and diffs."""
