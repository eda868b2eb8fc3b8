"""Titles of questions: one line and a few key facts, made from the arguments of a call.

A title is a template of the policy rule that asks or of the tool; without one it is made from the tool's name and its
main arguments. Values are untrusted: secrets are left out first, then everything that is not seen is written as
`[U+202E]`, line breaks and spaces become one space, and long values end in `…`. A title is a summary: what runs is
shown with it, exactly.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Any, cast

from .. import lazy_pattern
from ..domain.call import KeyFact
from ..domain.json import InvalidJsonError, encode, escape_surrogates, parse
from ..domain.redaction import RedactFunction, redact_json
from ..domain.rendering import truncate
from ..domain.template import check_argument, check_braces, parse_template
from ..domain.tool import JsonObject, ToolDefinition, values_at
from .escaping import is_visible

MAX_TITLE_CHARS = 160
MAX_TEMPLATE_CHARS = 300
MAX_KEY_FACTS = 6
_MAX_VALUE_CHARS = 80
_MAX_NAME_CHARS = 40
#: Of a default title: how many arguments it shows, where none names what the call acts on.
_MAX_DEFAULT_ARGUMENTS = 3
_DEFAULT_KEY_FACTS = 4
#: More of a value is not looked at.
_MAX_READ_CHARS = 2_000
_REDACTED = "[redacted]"
_EXAMPLE = "Refund {amount} for {order}"
_SPACES = lazy_pattern(r"\s+")


def check_title(template: str, arguments: Collection[str] | None = None) -> None:
    """Raise `ValueError` unless the template makes titles. With `arguments`, it may name no others."""
    if not template.strip() or len(template) > MAX_TEMPLATE_CHARS:
        raise ValueError(f"a title has 1 to {MAX_TEMPLATE_CHARS} characters")
    if _clean(template) != template.strip():
        raise ValueError("a title is one line of visible text")
    parsed = parse_template(template)
    check_braces(parsed, _EXAMPLE)
    if arguments is not None:
        for name, *_ in parsed.names:
            check_argument(name, arguments)


def check_key_facts(names: Sequence[str], arguments: Collection[str]) -> None:
    """Raise `ValueError` unless each of these names an argument, and there are few enough."""
    if len(names) > MAX_KEY_FACTS:
        raise ValueError(f"a question shows at most {MAX_KEY_FACTS} key facts, not {len(names)}")
    for name in names:
        check_argument(name, arguments)


def make_title(templates: Sequence[str], tool: ToolDefinition, arguments: JsonObject, redact: RedactFunction) -> str:
    """Return the title of a question: from the first template whose values are all there, else the default."""
    for template in templates:
        title = _fill(template, arguments, redact) if template else None
        if title:
            return title
    return _make_default(tool, arguments, redact)


def make_key_facts(tool: ToolDefinition, arguments: JsonObject, redact: RedactFunction) -> tuple[KeyFact, ...]:
    """Return the values to look at first: those that the tool names, else its first short ones."""
    if tool.key_facts:
        found = ((name, _find_value(arguments, name.split("."), redact)) for name in tool.key_facts)
        named = [(name, value) for name, value in found if value is not None]
    else:
        named = list(islice(_list_scalars(arguments, redact), _DEFAULT_KEY_FACTS))
    return tuple(KeyFact(truncate(_clean(name), _MAX_NAME_CHARS), value) for name, value in named[:MAX_KEY_FACTS])


def _fill(template: str, arguments: JsonObject, redact: RedactFunction) -> str | None:
    """Return the filled template; None when it is malformed or a value is missing."""
    try:
        texts, names = parse_template(template[:MAX_TEMPLATE_CHARS])
    except ValueError:
        return None
    if not names:
        return _join_label(template, arguments, redact)
    filled = [texts[0]]
    for path, text in zip(names, texts[1:], strict=True):
        value = _find_value(arguments, list(path), redact)
        if value is None:
            return None
        filled += [value, text]
    return _finish("".join(filled), redact)


def _make_default(tool: ToolDefinition, arguments: JsonObject, redact: RedactFunction) -> str:
    label = f"{tool.label} ({tool.source})" if tool.label and tool.source else tool.label or tool.name
    named = (_find_value(arguments, name.split("."), redact, MAX_TITLE_CHARS) for name in tool.resources)
    target = next((value for value in named if value), None)
    if target is None:
        return _join_label(label, arguments, redact)
    return _finish(f"{label}: {target}", redact)


def _join_label(label: str, arguments: JsonObject, redact: RedactFunction) -> str:
    """Return a label, and the first short arguments behind it, so that two calls of one tool look different."""
    scalars = islice(_list_scalars(arguments, redact), _MAX_DEFAULT_ARGUMENTS)
    behind = ", ".join(f"{_clean(name)}={value}" for name, value in scalars)
    return _finish(f"{label}: {behind}" if behind else label, redact)


def _finish(title: str, redact: RedactFunction) -> str:
    return truncate(_clean(redact(title)), MAX_TITLE_CHARS)


def _list_scalars(arguments: JsonObject, redact: RedactFunction) -> Iterator[tuple[str, str]]:
    for name, value in arguments.items():
        if isinstance(value, str | int | float) and value != "":
            shown = _find_value(arguments, [name], redact)
            if shown:
                yield name, shown


def _find_value(
    arguments: JsonObject, path: list[str], redact: RedactFunction, max_chars: int = _MAX_VALUE_CHARS
) -> str | None:
    """Return a value as text to show; None when there is none."""
    found = [value for value in values_at(arguments, path) if value is not None]
    if not found:
        return None
    shown = [_to_text(_without_secrets(path[-1], value, redact)) for value in found[: _MAX_DEFAULT_ARGUMENTS + 1]]
    text = _clean(", ".join(shown)[:_MAX_READ_CHARS])
    return truncate(text, max_chars) or None


def _without_secrets(name: str, value: Any, redact: RedactFunction) -> Any:
    """Return a value without secrets. Its name counts: a password looks like any other word."""
    if isinstance(value, bool | int | float):
        return value
    named = escape_surrogates({name: value})
    clean = redact_json(named, redact)
    if clean is None:
        return next(iter(named.values()))
    try:
        return next(iter(cast(JsonObject, parse(clean)).values()), _REDACTED)
    except (InvalidJsonError, AttributeError):
        return _REDACTED


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else encode(value).decode()


def _clean(text: str) -> str:
    """Return a text as one line in which every character is seen."""
    if text.isascii() and text.isprintable():
        return " ".join(text.split())
    shown = "".join(each if is_visible(each) else f"[U+{ord(each):04X}]" for each in _SPACES.sub(" ", text))
    return shown.strip()
