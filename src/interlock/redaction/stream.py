"""Redaction of streamed bytes, as if they had come at once.

What `redact` makes of a text is what it makes of the two parts of it wherever no secret, nor anything that could become
one, spans the border. Almost every end of a line is such a border, because few forms of secrets span a
line break; `split_points` has those. So whole lines are released as they come, and what is withheld is the last line
and the few lines before it that may not be over.

A text without such a border is not held for ever. When it gets too long it is cut, outside of everything found, so far
from its end that a secret of `_TAIL_CHARS` is either found as a whole or still held as a whole; the characters before
the cut are kept for a while because a form may look at what stands before it. Of a secret that is longer than all of
that, such as an endless run of base64, the middle is forgotten: it becomes a mark and nothing else.

Bytes that are no UTF-8 pass unchanged.
"""

from codecs import getincrementaldecoder
from collections.abc import Sequence
from typing import Protocol

from .matches import merge_overlapping, replace_matches
from .patterns import SecretMatch
from .split_points import SplitPoints

#: The most that is withheld, in characters, unless a declared secret is larger than a quarter of the tail.
MAX_HELD_CHARS = 64 * 1024
_TAIL_CHARS = 16 * 1024
#: What is left of the beginning of a secret that is longer than what may be held.
_HEAD_CHARS = 8 * 1024
#: How far a form looks back.
_BEFORE_CHARS = 256
#: A long text is looked at in pieces, and closer where a piece is not plain, so that one suspicious line does not make
#: all of it slow.
_PIECE_CHARS = 8 * 1024
_CLOSE_CHARS = 512
_decoder = getincrementaldecoder("utf-8")


class SecretFinder(Protocol):
    """The part of a redactor that a stream needs."""

    @property
    def literals(self) -> Sequence[str]: ...

    def is_plain(self, text: str) -> bool: ...

    def redact(self, text: str) -> str: ...

    def find(self, text: str) -> list[SecretMatch]: ...


class RedactingStream:
    """Feed it bytes; it returns what can be released so far. `end` returns the rest."""

    def __init__(self, redactor: SecretFinder) -> None:
        self._redactor = redactor
        self._split_points = SplitPoints(redactor.literals)
        self._decoder = _decoder("surrogateescape")
        self._tail_chars = max(_TAIL_CHARS, 2 * max(map(len, redactor.literals), default=0))
        self._max_chars = max(MAX_HELD_CHARS, 4 * self._tail_chars)
        self._held: list[str] = []
        self._held_chars = 0
        #: How much of what is held was released before, and is only there to be looked back at.
        self._released_chars = 0
        #: A long text that has no border is not searched again for every line.
        self._enough_chars = 0

    def feed(self, chunk: bytes) -> bytes:
        """Add a chunk. Return what can be released redacted."""
        text = self._decoder.decode(chunk)
        self._held.append(text)
        self._held_chars += len(text)
        if self._held_chars <= self._max_chars and ("\n" not in text or self._held_chars < self._enough_chars):
            return b""
        return self._release("".join(self._held)).encode(errors="surrogateescape")

    def end(self) -> bytes:
        """Return the redacted rest."""
        text = "".join(self._held) + self._decoder.decode(b"", final=True)
        rest = self._redact(text)
        self._hold("")
        return rest.encode(errors="surrogateescape")

    def _hold(self, text: str, released_chars: int = 0) -> None:
        self._held = [text]
        self._held_chars = len(text)
        self._released_chars = released_chars
        self._enough_chars = 0

    def _redact(self, text: str) -> str:
        """Return the text, which ends at a border, without what was released of it before."""
        if self._released_chars:
            return _replace_after(text, self._redactor.find(text), self._released_chars)
        return self._redactor.redact(text)

    def _release(self, text: str) -> str:
        released, end = self._release_to_split(text)
        if end:
            self._hold(text[end:])
        else:
            self._hold(text, self._released_chars)
            self._enough_chars = len(text) + len(text) // 4 if len(text) > _CLOSE_CHARS else 0
        return released if self._held_chars <= self._max_chars else released + self._release_forced(text[end:])

    def _release_to_split(self, text: str) -> tuple[str, int]:
        """Return what can be released up to the last border, and where that is."""
        if self._released_chars:
            end = self._split_points.find_last(text)
            return self._redact(text[:end]) if end else "", end
        pieces: list[str] = []
        start, close_until, lines_end = 0, 0, text.rfind("\n") + 1
        while start < lines_end:
            close = start < close_until
            end = _line_end(text, start, _CLOSE_CHARS if close else _PIECE_CHARS)
            if self._is_plain(piece := text[start:end]):
                pieces.append(piece)
            elif not close:
                close_until = end
                continue
            else:
                end = start + self._find_split(
                    text, start, self._find_suspicious_end(text, end, close_until), lines_end
                )
                if end == start:
                    break
                pieces.append(self._redactor.redact(text[start:end]))
            start = end
        return "".join(pieces), start

    def _is_plain(self, piece: str) -> bool:
        return self._redactor.is_plain(piece) and self._split_points.is_safe_after_plain(piece)

    def _find_suspicious_end(self, text: str, end: int, until: int) -> int:
        """Return where the next plain piece begins."""
        while end < until and not self._is_plain(text[end : (next_end := _line_end(text, end, _CLOSE_CHARS))]):
            end = next_end
        return end

    def _find_split(self, text: str, start: int, *ends: int) -> int:
        return next((border for end in ends if (border := self._split_points.find_last(text[start:end]))), 0)

    def _release_forced(self, text: str) -> str:
        """Release what is far enough from the end, of a text in which no border was found."""
        found = self._redactor.find(text)
        end = len(text) - self._tail_chars
        secret = next((item for item in merge_overlapping(found) if item.start < end < item.end), None)
        if secret is None:
            return self._cut(text, found, end)
        if secret.start >= self._max_chars // 4:
            return self._cut(text, found, secret.start)
        left, right = _align_to_line_breaks(text, secret.start + _HEAD_CHARS, end)
        shorter = text[:left] + text[right:]
        ends = (secret.start, secret.end - (right - left))
        if any((item.start, item.end) == ends for item in merge_overlapping(self._redactor.find(shorter))):
            self._hold(shorter, self._released_chars)
            return ""
        # Many secrets that overlap: cut before one of them, and there will be two marks.
        near = end - self._tail_chars
        starts = (item.start for item in found if near < item.start < end < item.end)
        return self._cut(text, found, min(starts, default=end))

    def _cut(self, text: str, found: list[SecretMatch], end: int) -> str:
        before = max(0, end - _BEFORE_CHARS)
        released = _replace_after(text[:end], found, self._released_chars)
        self._hold(text[before:], end - before)
        return released


def _line_end(text: str, start: int, size: int) -> int:
    """Return the last end of a line up to that size, else the first; there is one."""
    return text.rfind("\n", start, start + size) + 1 or text.index("\n", start) + 1


def _replace_after(text: str, found: list[SecretMatch], start: int) -> str:
    """Return what comes after `start`. Of a secret that is only partly there, the part is replaced."""
    size = len(text)
    parts = (
        SecretMatch(max(0, begin - start), min(size, end) - start, name)
        for begin, end, name in found
        if begin < size and end > start
    )
    return replace_matches(text[start:], parts)


def _align_to_line_breaks(text: str, left: int, right: int) -> tuple[int, int]:
    """Move a cut to nearby line breaks, so that the remaining lines stay complete."""
    left_line = text.find("\n", left, left + _BEFORE_CHARS) + 1
    right_line = text.find("\n", right, right + _BEFORE_CHARS) + 1
    return (left_line, right_line) if left_line and right_line else (left, right)
