r"""Were these edits made? Told from the text alone, for a call that started and whose end nobody recorded.

A text was made by edits, or waits for them, or somebody changed it since; only what excludes the others is an answer:

- True: they cannot be made in it, and there is a text of which they make exactly this one;
- False: they can be made in it, and some of what they write is nowhere in it;
- None: it may be either. What was inserted leaves the old text as it was, so that it could be inserted again, and
  what was removed leaves nothing to be known by.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from .edits import Edit, Edited, apply_edits

#: Texts that may have been there before: more are not looked at.
_MAX_TRIED = 8


def were_made(text: str, edits: Sequence[Edit]) -> bool | None:
    if isinstance(apply_edits(text, edits), Edited):
        return None if all(_is_there(text, edit.new_string) for edit in edits) else False
    return True if any(_makes(before, edits, text) for before in _before(text, edits)) else None


def _is_there(text: str, new: str) -> bool:
    return any(written in text for written in _with_line_breaks(new))


def _makes(before: str, edits: Sequence[Edit], text: str) -> bool:
    made = apply_edits(before, edits)
    return isinstance(made, Edited) and made.text == text


def _before(text: str, edits: Sequence[Edit]) -> Sequence[str]:
    """Some texts with the edits taken back: each where it may have been made."""
    texts = [text]
    for edit in edits:
        texts = list(islice((before for made in texts for before in _taken_back(made, edit)), _MAX_TRIED))
    return texts


def _taken_back(text: str, edit: Edit) -> Iterator[str]:
    if not edit.new_string:
        return
    for new in _with_line_breaks(edit.new_string):
        for old in _with_line_breaks(edit.old_string):
            if edit.replace_all and new in text:
                yield text.replace(new, old)
            elif not edit.replace_all:
                yield from (text[:at] + old + text[at + len(new) :] for at in _places(text, new))


def _places(text: str, part: str) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + 1)


def _with_line_breaks(part: str) -> tuple[str, ...]:
    r"""As it is, and with each of the line breaks that a place in a file may give to it."""
    plain = part.replace("\r\n", "\n")
    return tuple(dict.fromkeys((part, plain, plain.replace("\n", "\r\n"))))
