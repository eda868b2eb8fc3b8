"""Keeps secrets out of what is shown, logged and stored."""

from typing import Protocol


class Redactor(Protocol):
    def redact(self, text: str) -> str:
        """The text with every known secret, and everything that looks like one, replaced by a named mark."""
        ...
