"""Keeps secrets out of what is shown, logged and stored."""

from typing import Protocol

from ..domain.tool import ByteFilter

#: How many names a redactor remembers: a model that makes up names does not fill the memory.
MAX_PLAIN_NAMES = 4096


class Redactor(Protocol):
    @property
    def declares(self) -> bool:
        """Were any secrets declared?"""
        ...

    @property
    def plain_names(self) -> set[str]:
        """Short texts that were looked at before and hold no secret: for callers to ask, and to add to."""
        ...

    def add_secret(self, value: str) -> None:
        """A secret that is used from now on. It counts as declared until it is forgotten as often as it was learned."""
        ...

    def remove_secret(self, value: str) -> None: ...

    def redact_declared(self, text: str) -> str:
        """The text without the declared secrets, in any of their spellings; nothing is guessed."""
        ...

    def redact(self, text: str) -> str:
        """The text with every known secret, and everything that looks like one, replaced by a named mark."""
        ...

    def stream(self) -> ByteFilter:
        """For bytes that come bit by bit: what comes out is what `redact` makes of them all."""
        ...
