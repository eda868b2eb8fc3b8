"""Thinking blocks of a model, stored with the response and sent back unchanged.

The messages API signs what a model thought, and wants it back with the calls that came of it: unchanged, and in its
place between texts and calls. Nothing else needs it. So an answer carries it as `private` text, which is JSON: the
model that thought it, and the blocks of the answer in their order. A thought stands there in full; a number stands for
so many characters of the answer's text, and null for its next call, because those are kept elsewhere.
"""

from collections.abc import Iterable
from itertools import takewhile
from typing import TypeAlias

import msgspec

from ..domain.json import JsonObject, encode

#: More than this is not kept: the answer then goes back without its thoughts.
MAX_PRIVATE_BYTES = 1 << 20


class _Thinking(msgspec.Struct, tag_field="type", tag="thinking", forbid_unknown_fields=True):
    thinking: str = ""
    signature: str = ""


class _RedactedThinking(msgspec.Struct, tag_field="type", tag="redacted_thinking", forbid_unknown_fields=True):
    data: str = ""


_Block: TypeAlias = _Thinking | _RedactedThinking | int | None


class _StoredThinking(msgspec.Struct, forbid_unknown_fields=True):
    model: str
    blocks: list[_Block]


_decode = msgspec.json.Decoder(_StoredThinking).decode


class ThinkingBlocks:
    """The blocks of one response as it grows."""

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._by_index: dict[int, _Thinking] = {}
        self._size_chars = 0

    def begin(self, index: int) -> None:
        """Begin a thinking block."""
        self._by_index[index] = thought = _Thinking()
        self._blocks.append(thought)

    def add(self, index: int, thinking: str, signature: str) -> None:
        """Add text and signature to a thinking block, within the size limit."""
        thought = self._by_index.get(index)
        if thought and self._has_room(thinking + signature):
            thought.thinking += thinking
            thought.signature += signature

    def add_redacted(self, secret: str) -> None:
        """Add a redacted thinking block."""
        if self._has_room(secret):
            self._blocks.append(_RedactedThinking(secret))

    def _has_room(self, text: str) -> bool:
        self._size_chars += len(text)
        return self._size_chars <= MAX_PRIVATE_BYTES

    def add_text(self, text: str) -> None:
        """Record the position of text between thinking blocks."""
        match self._blocks:
            case [*_, int(before)]:
                self._blocks[-1] = before + len(text)
            case _:
                self._blocks.append(len(text))

    def add_call(self) -> None:
        """Record the position of a tool call between thinking blocks."""
        self._blocks.append(None)

    def encode_private(self, model: str) -> str:
        """Return the private text; empty if no thinking can be sent back: a cut block has no signature."""
        blocks = [block for block in self._blocks if not isinstance(block, _Thinking) or block.signature]
        if not any(map(_is_thinking, blocks)):
            return ""
        try:
            written = encode(_StoredThinking(model, blocks))
        except UnicodeEncodeError:  # half a character cannot be sent back as it was
            return ""
        return written.decode() if max(len(written), self._size_chars) <= MAX_PRIVATE_BYTES else ""


def _is_thinking(block: _Block) -> bool:
    return isinstance(block, _Thinking | _RedactedThinking)


def restore_blocks(private: str, model: str, text: str, calls: Iterable[JsonObject]) -> list[JsonObject]:
    """Return text and calls, with this model's thinking in its place. That of another model is dropped."""
    left, made = iter(calls), list[JsonObject]()
    for block in _fit_to_text(_load_blocks(private, model), text):
        match block:
            case int():
                made += _text_blocks(text[:block])
                text = text[block:]
            case None:
                made += [call for call in [next(left, None)] if call]
            case _:
                made.append(msgspec.to_builtins(block))
    made += [*_text_blocks(text), *left]
    # The last thing that a model does is never a thought.
    while made and made[-1]["type"] in {"thinking", "redacted_thinking"}:
        made.pop()
    return made


def _text_blocks(text: str) -> list[JsonObject]:
    return [{"type": "text", "text": text}] if text.strip() else []


def _load_blocks(private: str, model: str) -> list[_Block]:
    """Decode the blocks from the log. Return none if they are invalid or of another model."""
    try:
        kept = _decode(private) if private else None
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return []
    return kept.blocks if kept and kept.model == model else []


def _fit_to_text(blocks: list[_Block], text: str) -> list[_Block]:
    """Fit the blocks to the text. A text that was changed becomes one block after the first thoughts."""
    sizes = [block for block in blocks if isinstance(block, int)]
    if sum(sizes) == len(text) and min(sizes, default=0) >= 0:
        return blocks
    first = list(takewhile(_is_thinking, blocks))
    return [*first, len(text), *(block for block in blocks[len(first) :] if not isinstance(block, int))]
