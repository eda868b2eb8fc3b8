"""Text as it comes bit by bit: whole characters, and no more of it than anybody needs.

A server may cut between the two halves of a character beyond U+FFFF, and a model may write half of one. Halves that
meet are joined; a half that stays alone is written as an escape, because it could not be stored.
"""

from ..domain.errors import ModelError
from ..domain.json import escape_surrogates
from .interface import MAX_ANSWER_CHARS

#: A character is a byte or more, so whatever passes here is within what an answer may be.
MAX_TEXT_BYTES = MAX_ANSWER_CHARS


def join_surrogates(text: str) -> str:
    """The text with halves of characters joined, or escaped where the other half is missing."""
    if text.isascii():
        return text
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return escape_surrogates(joined)


class TextAssembler:
    """What a model says, piece by piece."""

    def __init__(self) -> None:
        self._size_bytes = 0
        self._pending_surrogate = ""

    def add_delta(self, text: str) -> str:
        """What can be shown now: perhaps nothing yet."""
        text = self._pending_surrogate + text
        self._pending_surrogate = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        return self._check_size(text.removesuffix(self._pending_surrogate))

    def finish(self) -> str:
        half, self._pending_surrogate = self._pending_surrogate, ""
        return self._check_size(half)

    def _check_size(self, text: str) -> str:
        shown = join_surrogates(text)
        self._size_bytes += len(shown.encode())
        if self._size_bytes > MAX_TEXT_BYTES:
            raise ModelError(f"The model said more than {MAX_TEXT_BYTES} bytes in one answer. Nothing was executed.")
        return shown
