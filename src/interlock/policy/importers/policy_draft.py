"""The output of an importer: a policy document, and notes on what could not be translated exactly.

The rule of all importers: a deny or ask that has no exact translation becomes wider, an allow becomes narrower or is
left out, and a note says so. So an imported policy may ask too often, and never allows what the original did not.

Importers are functions of the text alone. A file that cannot be understood raises `ConfigurationError`.
"""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias, cast

import msgspec

from ...domain import json
from ...domain.errors import ConfigurationError
from ...rendering.text import quote_value

MAX_BYTES = 1 << 20
MAX_RULES = 5_000
_MAX_QUOTED_CHARS = 160

#: The conditions of a rule, as they stand in a policy file.
Conditions: TypeAlias = Mapping[str, Any]

#: The words of a policy file, from mild to strict.
STRICTNESS = ("allow", "ask", "deny")
_NON_CONDITION_KEYS = frozenset({"id", "decision", "reason", "message", "matches", "does_not_match"})
#: What the name of a tool, or a pattern of names, may be made of.
_INVALID_NAME_CHARACTER = re.compile(r"[^a-zA-Z0-9_\-*]")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=")
#: What a shell does not take literally. Quotes are read, where nothing else is special.
_SPECIAL = re.compile(r"[$`;|&<>()\\*?\[\]{}~#!\x00-\x1f\x7f]")


class ImportResult(msgspec.Struct, frozen=True):
    """An imported policy document, and the notes on it."""

    #: A policy file as plain data.
    document: dict[str, Any]
    #: What could not be said exactly, each with the entry that it is about.
    notes: tuple[str, ...] = ()


class PolicyDraft:
    """Rules and notes while they are collected. Ids are derived from the source and the position of the entry."""

    def __init__(self, source: str, slug: str) -> None:
        self.source = source
        self._slug = slug
        self._rules: list[dict[str, Any]] = []
        self._ids: set[str] = set()
        self._notes: dict[str, None] = {}

    def add_note(self, where: str, text: str) -> None:
        """Add a note about something that was not imported exactly."""
        self._notes[f"{where}: {text}"] = None

    def add_rule(self, decision: str, place: str, entry: str, conditions: Conditions, **words: Any) -> None:
        """Add a rule. `entry` is the original, for the person who reads the reason."""
        if len(self._rules) >= MAX_RULES:
            raise ConfigurationError(f"{self.source}: more than {MAX_RULES:,} rules")
        # Unique, and short of a change in the entries before it always the same.
        first = f"{self._slug}-{place}"
        numbered = (f"{first}-{number}" for number in range(2, MAX_RULES + 2))
        rule_id = next(name for name in chain((first,), numbered) if name not in self._ids)
        self._ids.add(rule_id)
        reason = words.pop("reason", "") or f"Imported from {self.source}: {entry}"
        rule = {"id": rule_id, "decision": decision, **conditions, "reason": reason, **words}
        self._rules.append({key: value for key, value in rule.items() if value not in (None, [], "")})

    def build(self, default: str = "risk") -> ImportResult:
        """Return the imported policy with its notes."""
        document = {"version": 1, "default": default, "rules": self._drop_unreachable()}
        try:
            json.check_value(document)
        except json.InvalidJsonError as error:
            raise ConfigurationError(f"{self.source}: {error}") from None
        return ImportResult(document, tuple(self._notes))

    def _drop_unreachable(self) -> list[dict[str, Any]]:
        """Drop rules that can never decide, because a stricter one says the same or more. A policy refuses them."""
        ranked = [(rule, STRICTNESS.index(rule["decision"]), _normalize_conditions(rule)) for rule in self._rules]
        strictest: dict[bytes, int] = {}
        whole_tools: dict[str, int] = {"*": 0}
        for _, rank, conditions in ranked:
            key = json.encode_sorted(conditions)
            strictest[key] = max(rank, strictest.get(key, 0))
            if conditions.keys() == {"tools"}:
                whole_tools |= {tool: max(rank, whole_tools.get(tool, 0)) for tool in conditions["tools"]}
        kept: list[dict[str, Any]] = []
        for rule, rank, conditions in ranked:
            whole = min(max(whole_tools["*"], whole_tools.get(tool, 0)) for tool in conditions["tools"])
            above = max(strictest[json.encode_sorted(conditions)], whole)
            if above > rank:
                text = f"left out, because another rule says {STRICTNESS[above]} to the same calls, and that decides"
                self.add_note(f"{rule['id']} ({rule['decision']})", text)
            else:
                kept.append(rule)
        return kept


class DraftEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the original, which becomes rules and notes."""

    draft: PolicyDraft
    decision: str
    #: Where it is, for notes; its part of the ids of rules; and how their reason names it.
    location: str
    place: str
    quoted: str

    @property
    def is_wide(self) -> bool:
        """True for what refuses or asks. It may become wider, never narrower."""
        return self.decision != "allow"

    def note(self, text: str) -> None:
        """Add a note about this entry."""
        self.draft.add_note(self.location, text)

    def add_rule(self, conditions: Conditions, note: str = "", **words: Any) -> None:
        """Add a rule with the decision of this entry."""
        self.draft.add_rule(self.decision, self.place, self.quoted, conditions, **words)
        if note:
            self.note(note)


def _normalize_conditions(rule: Mapping[str, Any]) -> dict[str, Any]:
    """Return the conditions in one form, whatever the order: each as a sorted list."""
    return {
        key: sorted(as_list(value), key=json.encode_sorted)
        for key, value in rule.items()
        if key not in _NON_CONDITION_KEYS
    }


def as_list(value: Any) -> list[Any]:
    """Return a list as it is and any other value in a list."""
    return cast(list[Any], value) if isinstance(value, list) else [value]


def unwrap_single(values: Iterable[Any]) -> Any:
    """Return the only distinct value, or the list of all."""
    unique = list(dict.fromkeys(values))
    return unique[0] if len(unique) == 1 else unique


def validate_text(text: str, source: str) -> str:
    """Return the text without a byte order mark. Raise if it is too large or cannot be encoded as UTF-8."""
    try:
        size = len(text) if len(text) > MAX_BYTES else len(text.encode())
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        raise ConfigurationError(f"{source}, line {line}: a character that is no text") from None
    if size > MAX_BYTES:
        raise ConfigurationError(f"{source}: the file has more than {MAX_BYTES:,} bytes")
    return text.removeprefix("\ufeff")


def quote_entry(entry: object) -> str:
    """Return an entry for a note: complete, or only its kind. A part of a command may end in a secret."""
    return quote_value(entry, _MAX_QUOTED_CHARS)


def widen_name(name: str) -> str:
    """Return a pattern of tool names that matches at least what the name does; `*` is the only wildcard in it."""
    return _INVALID_NAME_CHARACTER.sub("?", name)


def is_plain_name(name: str) -> bool:
    """Return True if a tool name contains no wildcard or invalid character."""
    return bool(name) and "*" not in name and not _INVALID_NAME_CHARACTER.search(name)


class CommandWords(msgspec.Struct, frozen=True):
    """A command as far as its words are plain text to every shell."""

    words: tuple[str, ...]
    #: Is this all of it?
    complete: bool


def split_plain_words(text: str) -> CommandWords:
    """Split a command into words, up to the first that needs a shell."""
    if not _SPECIAL.search(text):
        try:
            return CommandWords(tuple(shlex.split(text)), complete=True)
        except ValueError:  # An open quote.
            pass
    plain: list[str] = []
    for word in re.split(" +", text.strip(" ")):
        if not word or _SPECIAL.search(word) or "'" in word or '"' in word:
            break
        plain.append(word)
    return CommandWords(tuple(plain), complete=False)


def widen_prefix(words: Sequence[str]) -> str | None:
    """Return a command for a rule that refuses or asks; None where no word is left, and only all commands would do.

    Rules look at the program behind assignments, and at its name without the folder.
    """
    rest = list(words)
    while rest and _ASSIGNMENT.match(rest[0]):
        rest.pop(0)
    program = rest[0].rstrip("/").rsplit("/", 1)[-1] if rest else ""
    return shlex.join([program, *rest[1:]]) if program else None


def narrow_prefix(words: Sequence[str]) -> str | None:
    """Return a command for a rule that allows; None where it would mean more than these words, or nothing."""
    if not words or not words[0] or _ASSIGNMENT.match(words[0]) or "*" in words:
        return None
    return shlex.join(words)
