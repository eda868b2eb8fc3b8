"""Spellings of commands, paths and hosts: tables of the policy tests, each by its name in `spellings.json`."""

import json
from functools import cache
from pathlib import Path
from typing import Any


@cache
def _tables() -> dict[str, list[Any]]:
    return json.loads(Path(__file__).with_name("spellings.json").read_bytes())


def load(name: str) -> list[Any]:
    """Return a table: texts, or rows of texts."""
    return _tables()[name]
