"""What a person or a model probably meant with a name that does not exist."""

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

from .. import lazy_module

if TYPE_CHECKING:
    import difflib
else:
    difflib = lazy_module("difflib")

#: Longer names and longer lists are not compared: that takes long, and anybody may send them.
_MAX_CHARS = 200
_MAX_NAMES = 1_000
#: Ids are random, so that two of them have much in common by chance.
_ID_CUTOFF = 0.8
_MIN_ID_CHARS = 6


def find_near_name(given: str, known: Iterable[str]) -> str | None:
    """Return the nearest known name; None when none is near."""
    near = difflib.get_close_matches(given, islice(known, _MAX_NAMES), n=1) if len(given) <= _MAX_CHARS else []
    return near[0] if near else None


def suggest_name(given: str, known: Iterable[str]) -> str:
    """Return `Did you mean ...?` with the nearest known name; empty when none is near."""
    near = find_near_name(given, known)
    return f"Did you mean `{near}`?" if near is not None else ""


def suggest_id(given: str, known: Iterable[str]) -> str:
    """Return `Did you mean ...?` with the known id that begins nearly as given; empty when none does."""
    if not _MIN_ID_CHARS <= len(given) <= _MAX_CHARS:
        return ""
    starts = {each[: len(given)]: each for each in islice(known, _MAX_NAMES)}
    near = difflib.get_close_matches(given, starts, n=1, cutoff=_ID_CUTOFF)
    return f"Did you mean `{starts[near[0]]}`?" if near else ""
