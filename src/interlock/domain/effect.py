"""Effect keys: calls with the same key have the same effect outside, whatever their ids, tools or runs.

A key is a template over the arguments (`refund:{order}`), or what a function of the arguments returns. Values are
rendered so that two spellings of one value give one key (`1`, `1.0` and `"1"`; full-width digits; invisible
characters), and so that no value can imitate the text around it.
"""

import re
import unicodedata
from collections.abc import Collection, Iterable
from hashlib import sha256
from typing import TYPE_CHECKING, Any, cast

import msgspec

from .. import lazy_module, lazy_pattern
from .json import JsonObject, encode_sorted, validate_fields
from .template import check_argument, check_braces, parse_template
from .tool import Repeat, values_at

if TYPE_CHECKING:
    from urllib import parse
else:
    parse = lazy_module("urllib.parse")

#: Longer keys are shown as their digest.
MAX_SHOWN_KEY_CHARS = 200
MAX_TEMPLATE_CHARS = 500

#: What a rendered value never has, so that two values next to each other cannot be separated in two ways.
_SEPARATOR = lazy_pattern(r"[^\w.~%-]", re.ASCII)
#: Characters that are not seen: controls and format characters, and variation selectors and fillers.
_INVISIBLE_CATEGORIES = frozenset({"Cc", "Cf"})
_INVISIBLE = lazy_pattern(
    r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


class EffectRule(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a policy says about the effect of a call."""

    #: A template over the arguments; empty: the tool's own key.
    key: str = ""
    #: What happens to a call whose effect happened before. The stricter of this and the tool's counts.
    repeat: Repeat = "ask"
    #: After this time the effect may happen again. None: it never counts as new.
    repeat_after_seconds: float | None = None

    def __post_init__(self) -> None:
        validate_fields(self)


class Effect(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The effect of one call, as it was evaluated."""

    #: The key, as far as it may be shown; empty: the call has none.
    key: str = ""
    #: The digest of the whole key, which claims are stored under.
    digest: str = ""
    #: The number of the newest claim that was considered.
    seen: int = 0
    #: The earlier call with the same effect that a question or a refusal is about.
    earlier_run_id: str = ""
    earlier_call_id: str = ""

    @property
    def earlier(self) -> tuple[str, str]:
        """The earlier call, by its run and id."""
        return self.earlier_run_id, self.earlier_call_id


_STRICTNESS: tuple[Repeat, ...] = ("allow", "ask", "deny")


def pick_strictest_repeat(repeats: Iterable[Repeat]) -> Repeat:
    """Return the strictest of several rules about repeating a call."""
    return max(repeats, key=_STRICTNESS.index)


def check_template(template: str, arguments: Collection[str] | None = None) -> None:
    """Raise `ValueError` unless the template makes keys. With `arguments`, it may name no others."""
    if not template.strip() or len(template) > MAX_TEMPLATE_CHARS:
        raise ValueError(f"an effect key has 1 to {MAX_TEMPLATE_CHARS} characters")
    texts, names = parsed = parse_template(template)
    check_braces(parsed, "refund:{order}")
    for before, between, after in zip(names, texts[1:-1], names[1:], strict=False):
        if not _SEPARATOR.search(between):
            one, other = ".".join(before), ".".join(after)
            raise ValueError(f"{{{one}}} and {{{other}}} need a separator between them, such as `:`")
    if arguments is None:
        return
    for name, *_ in names:
        check_argument(name, arguments)


def render_template(template: str, arguments: JsonObject) -> str:
    """Return the key of a call with these arguments. Raise `ValueError` when it has no such argument."""
    texts, names = parse_template(template)
    key = [texts[0]]
    for path, text in zip(names, texts[1:], strict=True):
        values = list(values_at(arguments, list(path)))
        if not values:
            check_template(template, list(arguments))
            raise ValueError(f"the call has no value at `{'.'.join(path)}`")
        key += [_render(values[0] if len(values) == 1 else values), text]
    return "".join(key)


def normalize_text(text: str) -> str:
    """Return a text in one spelling: compatible characters are the same, invisible ones and outer spaces go."""
    seen = _INVISIBLE.sub("", unicodedata.normalize("NFKC", text))
    seen = "".join(each for each in seen if unicodedata.category(each) not in _INVISIBLE_CATEGORIES)
    return unicodedata.normalize("NFKC", seen).strip()


def digest_key(key: str) -> str:
    """Return what a key is stored under."""
    return sha256(b"interlock/effect/v1\n" + key.encode(errors="surrogatepass")).hexdigest()


def _render(value: Any) -> str:
    simple = _simplify(value)
    text = simple if isinstance(simple, str) else encode_sorted(simple).decode()
    return parse.quote(text, safe="", errors="surrogatepass")


def _simplify(value: Any) -> Any:
    """Return a value with all numbers, texts and words as texts in one spelling."""
    match value:
        case str():
            return normalize_text(value)
        case float() if value.is_integer():
            return str(int(value))
        case list():
            return [_simplify(item) for item in cast(list[Any], value)]
        case dict():
            return {normalize_text(name): _simplify(item) for name, item in cast(JsonObject, value).items()}
        case _:
            return encode_sorted(value).decode()
