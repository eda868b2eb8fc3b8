"""Templates over the arguments of a call: text with `{name}` or `{name.field}`, and nothing else.

There are no format specifications, no attributes and no code: a name is a key of the arguments, or a dotted path of
keys. Effect keys and titles of questions are written like this.
"""

from collections.abc import Collection
from functools import lru_cache
from typing import NamedTuple

from .. import lazy_pattern
from .suggestions import suggest_name

_PLACEHOLDER = lazy_pattern(r"\{([^{}]*)\}")
_NAME = lazy_pattern(r"[^\s{}.]+(?:\.[^\s{}.]+)*")


class Template(NamedTuple):
    """A template in its parts."""

    #: The text before each name, and after the last one.
    texts: tuple[str, ...]
    names: tuple[tuple[str, ...], ...]


@lru_cache(maxsize=1_000)
def parse_template(template: str) -> Template:
    """Parse a template. Raise `ValueError` if braces are around anything but the name of an argument."""
    texts: list[str] = []
    names: list[tuple[str, ...]] = []
    position = 0
    for found in _PLACEHOLDER.finditer(template):
        texts.append(template[position : found.start()])
        if not _NAME.fullmatch(found[1]):
            raise ValueError(f"{found[0]} does not name an argument; write {{name}} or {{name.field}}")
        names.append(tuple(found[1].split(".")))
        position = found.end()
    texts.append(template[position:])
    return Template(tuple(texts), tuple(names))


def check_braces(template: Template, example: str) -> None:
    """Raise `ValueError` when a brace is left in the texts of a template."""
    if any("{" in text or "}" in text for text in template.texts):
        raise ValueError(f"braces stand around the name of an argument, as in {example}")


def check_argument(name: str, arguments: Collection[str]) -> None:
    """Raise `ValueError` unless the first part of a dotted name is one of these arguments."""
    first = name.partition(".")[0]
    if first not in arguments:
        hint = suggest_name(first, arguments) or f"It has {', '.join(arguments) or 'none'}."
        raise ValueError(f"there is no argument `{first}`. {hint}")
