"""Build messages: whole sentences of bounded length, whatever they are made of.

Nothing is escaped here. A message is redacted first and escaped then: see `redaction`.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from .. import lazy_module
from ..domain.rendering import truncate
from ..domain.suggestions import suggest_name

if TYPE_CHECKING:
    import json
else:
    json = lazy_module("json")

#: More than that is not read in a line of a list.
MAX_LINE_CHARS = 200


def end_sentence(text: str) -> str:
    """Return the text with a full stop, so that another sentence can follow."""
    text = text.strip()
    return text if not text or text[-1] in ".!?…" else text + "."


def describe_error(error: BaseException) -> str:
    """Return the type and the text of an exception. Its text may come from anywhere, and may not even be text."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def describe_unknown(kind: str, given: object, known: Iterable[str]) -> str:
    """Return a message for a name that does not exist: with the one that was probably meant, else with all of them."""
    names = tuple(known)
    hint = suggest_name(str(given), names) or f"Known: {', '.join(names)}."
    return f"Unknown {kind} `{shorten(str(given), 100)}`. {hint}"


def quote_value(value: object, max_chars: int) -> str:
    """Return a value to be quoted: all of it, or its kind. Never a part, which may end in a secret."""
    try:
        text = _quote(value)
    except Exception:
        return f"a {type(value).__name__}"
    return text if len(text) <= max_chars else f"a {type(value).__name__} of {len(text):,} characters"


def _quote(value: object) -> str:
    """Return what `repr` does, with every text as it is: in an escaped one no secret is recognized."""
    match value:
        case str():
            return f"'{value}'" if "'" not in value else f'"{value}"'
        case dict():
            items = cast(dict[Any, Any], value).items()
            return "{" + ", ".join(f"{_quote(name)}: {_quote(inner)}" for name, inner in items) + "}"
        case list():
            return "[" + ", ".join(map(_quote, cast(list[Any], value))) + "]"
        case _:
            return repr(value)


def shorten(text: str, max_chars: int) -> str:
    """Return the text, or its beginning and how much is missing. For texts without secrets: cut after redacting."""
    if len(text) <= max_chars:
        return text
    return f"{text[:max_chars]} [... {len(text) - max_chars:,} more characters]"


def shorten_line(text: str, max_chars: int = MAX_LINE_CHARS) -> str:
    """Return the beginning of a text as one line."""
    line = " ".join(text[: 4 * max_chars].split())
    return truncate(line, max_chars) if len(text) <= 4 * max_chars else f"{line[: max_chars - 1]}…"


def pluralize(number: int, noun: str) -> str:
    """Return `1 call` or `2 calls`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def to_compact_json(value: Any) -> str:
    """Return a value as JSON on one line, for people. What is no JSON is written as text."""
    return json.dumps(value, ensure_ascii=False, default=str)
