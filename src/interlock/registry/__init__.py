"""Which tools exist: the `tool` decorator, the registry, and sets of tools."""
