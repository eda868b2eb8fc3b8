"""Interface of redaction: keeps secrets out of what is shown, logged and stored."""

from typing import Protocol

from ..domain.tool import ByteFilter

#: How many names a redactor remembers: a model that makes up names does not fill the memory.
MAX_PLAIN_NAMES = 4096


class Redactor(Protocol):
    """Redacts secrets."""

    @property
    def declares(self) -> bool:
        """True when secrets were declared."""
        ...

    @property
    def plain_names(self) -> set[str]:
        """A cache of short texts without secrets, for callers to read and extend."""
        ...

    def add_secret(self, value: str) -> None:
        """Declare a secret from now on, until it is removed as often as it was added."""
        ...

    def remove_secret(self, value: str) -> None: ...

    def redact_declared(self, text: str) -> str:
        """Return the text without the declared secrets, in any of their spellings; nothing is guessed."""
        ...

    def redact(self, text: str) -> str:
        """Return the text with every known secret, and everything that looks like one, replaced by a named mark."""
        ...

    def stream(self) -> ByteFilter:
        """Return a filter for streamed bytes, with the same result as `redact` on all of them."""
        ...
