"""Ask people: at a terminal, by a callback, or nobody (headless)."""
