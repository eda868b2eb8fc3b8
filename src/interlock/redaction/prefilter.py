"""A fast check that a text has nothing to redact, as most texts have not.

An undeclared secret has a keyword of a pattern in it, or it is an encoded token in a long run of characters, or
something invisible splits it. A text without any of these, and without a sign of a declared secret, is plain.
"""

import re

from ..domain.rendering import INVISIBLE_CHARACTERS
from .encodings import MIN_ENCODED_CHARS, RUN_CHARACTERS, find_encoded

#: Every byte becomes a sign for its kind, and the signs are searched.
_RUN, _PLAIN, ODD = b"r", b"p", b"o"
LONG_RUN = _RUN * MIN_ENCODED_CHARS
#: A line of base64 is wrapped at no fewer.
_WRAPPED_LINE = _RUN * 60
_UNSEEN = rf"[{INVISIBLE_CHARACTERS}\ufe0e\ufe0f]"


def _classify_character(character: str) -> bytes:
    if character in RUN_CHARACTERS:
        return _RUN
    return _PLAIN if character in "\t\n" or (character.isascii() and character.isprintable()) else ODD


CHARACTER_CLASSES = b"".join([_classify_character(chr(code)) for code in range(256)])


def may_be_split(text: str) -> bool:
    """Return True if there is an invisible character, or a run long enough for a line of wrapped base64."""
    return not _is_unsplit(_classify_text(text))


def may_be_secret(text: str) -> bool:
    """Return True if there may be an undeclared secret without a keyword. Called for every text, so in one piece."""
    try:
        kinds = text.encode("ascii").translate(CHARACTER_CLASSES)
    except UnicodeEncodeError:
        kinds = _classify_text(text)
    if ODD in kinds or _WRAPPED_LINE in kinds:
        return True
    return LONG_RUN in kinds and bool(find_encoded(text))


def _classify_text(text: str) -> bytes:
    if not text.isascii() and re.search(_UNSEEN, text):
        return ODD
    return text.encode("ascii", "replace").translate(CHARACTER_CLASSES)


def _is_unsplit(kinds: bytes) -> bool:
    return ODD not in kinds and _WRAPPED_LINE not in kinds
