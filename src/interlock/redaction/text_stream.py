"""Redaction of text as it is written, word by word: for people who read along.

Text is released up to a space, and the end of it is withheld: what was released was looked at together with what came
after it. As soon as something in sight looks like a secret, the rest is released line by line (`stream`).
"""

from ..domain.tool import ByteFilter
from .interface import Redactor

#: How much of the end is withheld, and how much of what was released is looked at again.
_HELD_CHARS = 80
_SEEN_CHARS = 200
#: A longer piece is looked at in parts, so that what stands long before a secret is released.
_PART_CHARS = 200


class RedactingText:
    """Feed it pieces of a text; it returns what can be released so far. `end` returns the rest."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        #: A declared secret may have spaces in it.
        self._held_chars = max(_HELD_CHARS, *(2 * len(text) for text in getattr(redactor, "literals", ())), 0)
        self._seen = ""
        self._held = ""
        self._lines: ByteFilter | None = None

    def feed(self, piece: str) -> str:
        """Add a piece. Return what can be released."""
        return "".join(self._feed_part(piece[at : at + _PART_CHARS]) for at in range(0, len(piece), _PART_CHARS))

    def _feed_part(self, piece: str) -> str:
        if self._lines is not None:
            return _decode(self._lines.feed(_encode(piece)))
        self._held += piece
        window = self._seen + self._held
        if self._redactor.redact(window) != window:
            return self._begin_lines()
        end = self._held.rfind(" ", 0, max(0, len(self._held) - self._held_chars)) + 1
        released, self._held = self._held[:end], self._held[end:]
        self._seen = (self._seen + released)[-_SEEN_CHARS:]
        return released

    def end(self) -> str:
        """Return the redacted rest."""
        if self._lines is None:
            rest, self._held = self._redactor.redact(self._held), ""
            return rest
        return _decode(self._lines.end())

    def _begin_lines(self) -> str:
        self._lines, held = self._redactor.stream(), self._held
        self._held = self._seen = ""
        return _decode(self._lines.feed(_encode(held)))


def _encode(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def _decode(content: bytes) -> str:
    return content.decode(errors="replace")
