"""Ask people: at a terminal, by a callback, or not at all (headless)."""
