"""From what a policy file says to rules: every entry checked, each problem with its line, all of them at once.

A file belongs to a layer. Managed, user and session files say what they like; a project file comes with somebody's
repository, so it can only tighten: it has no allow rules, no default of allow, and does not say what the arguments of
tools mean.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Literal, TypeAlias, TypeVar, cast

import msgspec

from ...domain import json
from ...domain.decision import Verdict
from ...domain.errors import ConfigurationError
from ..engine.compiled import compile_rule
from ..engine.patterns import path_patterns
from ..engine.rule import ArgumentTest, CommandPattern, Default, ResourceDeclaration, Rule
from .cel import compile_condition
from .document import SHORT_LISTS, Document, Entry, RuleEntry, ShortEntry
from .places import Location, PolicyFileError, Problem, Source
from .shorthand import Shorthand, parse_shorthand, tool_names
from .unreachable import unreachable
from .values import argument_test, check_host, command_entry, nanoseconds, seconds

Layer: TypeAlias = Literal["managed", "user", "project", "session"]
LAYERS: Mapping[Layer, str] = {
    "managed": "enterprise policy",
    "user": "user rule",
    "project": "project rule",
    "session": "session rule",
}
_MAX_ID_CHARS = 100
#: What a rule says beside the calls that it is about.
_WORDS = frozenset({"id", "decision", "reason", "message", "prompt", "target_arg", "matches", "does_not_match"})

_T = TypeVar("_T")


class PlacedRule(msgspec.Struct, frozen=True):
    """A rule, where it stands in its file, and what it was made from."""

    rule: Rule
    location: Location
    entry: Entry


class LayerRules(msgspec.Struct, frozen=True, kw_only=True):
    """What one file adds to a policy."""

    layer: Layer
    path: str
    default: Default | None = None
    resources: tuple[ResourceDeclaration, ...] = ()
    placed: tuple[PlacedRule, ...] = ()
    lines: Mapping[str, int] = {}
    warnings: tuple[Problem, ...] = ()

    @property
    def rules(self) -> tuple[Rule, ...]:
        return tuple(placed.rule for placed in self.placed)


def compile_layer(source: Source, document: Document, layer: Layer, now: Callable[[], int]) -> LayerRules:
    """`PolicyFileError` with everything that is wrong."""
    problems = _beyond_a_project(source, document) if layer == "project" else []
    resources, wrong = _resources(source, document)
    problems += wrong
    placed: list[PlacedRule] = []
    warnings: list[Problem] = []
    for location, verdict, entry in _entries(document):
        reader = _EntryReader(source, layer, location, verdict, entry)
        rule = reader.read()
        problems += reader.problems
        if rule is not None:
            placed.append(PlacedRule(rule, location, entry))
            warnings += _warnings(source, placed[-1], now())
    problems += _given_twice(source, placed)
    problems += [source.problem(placed[late].location, reason) for late, reason in _unreachable(source, placed)]
    if problems:
        raise PolicyFileError(sorted(problems, key=lambda problem: problem.line))
    return LayerRules(
        layer=layer,
        path=source.path,
        default=document.default,
        resources=resources,
        placed=tuple(placed),
        lines={each.rule.id: source.line(each.location) for each in placed},
        warnings=tuple(warnings),
    )


def _entries(document: Document) -> Iterator[tuple[Location, Verdict, Entry]]:
    for name in SHORT_LISTS:
        items: Sequence[str | ShortEntry] = getattr(document, name)
        for index, item in enumerate(items):
            entry = ShortEntry.model_validate({"tools": [item]}) if isinstance(item, str) else item
            yield (name, index), Verdict(name), entry
    for index, entry in enumerate(document.rules):
        yield ("rules", index), Verdict(entry.decision), entry


def _beyond_a_project(source: Source, document: Document) -> list[Problem]:
    only = "a project file can only tighten"
    problems: list[Problem] = []
    if document.default == "allow":
        problems.append(source.problem(("default",), f"{only}: its default may be risk, ask or deny"))
    if document.resources:
        problems.append(source.problem(("resources",), f"{only}: what arguments mean is said in the user's file"))
    for location, verdict, _ in _entries(document):
        if verdict is Verdict.ALLOW:
            problems.append(source.problem(location, f"{only}: put what is allowed into the user's file"))
    return problems


def _resources(source: Source, document: Document) -> tuple[tuple[ResourceDeclaration, ...], list[Problem]]:
    problems: list[Problem] = []
    for index, declared in enumerate(document.resources):
        for name in declared.arguments:
            if not all(name.split(".")):
                reason = f"{name[:80]!r} is no dotted name of an argument"
                problems.append(source.problem(("resources", index, "arguments", name), reason))
    return tuple(ResourceDeclaration(each.tools, each.arguments) for each in document.resources), problems


def _given_twice(source: Source, placed: Sequence[PlacedRule]) -> list[Problem]:
    first: dict[str, Location] = {}
    problems: list[Problem] = []
    for each in placed:
        known = first.setdefault(each.rule.id, each.location)
        if known is not each.location:
            what = f"the id {each.rule.id} is" if each.entry.id else "the same rule is"
            problems.append(source.problem(each.location, f"{what} given twice; first in line {source.line(known)}"))
    return problems


def _unreachable(source: Source, placed: Sequence[PlacedRule]) -> Iterator[tuple[int, str]]:
    for late, stricter in unreachable([each.rule for each in placed]):
        line, verdict = source.line(placed[stricter].location), placed[stricter].rule.verdict
        yield late, f"this can never decide: line {line} says {verdict} about the same calls"


def _warnings(source: Source, placed: PlacedRule, now: int) -> Iterator[Problem]:
    rule, entry = placed.rule, placed.entry
    if rule.expires_at and rule.expires_at <= now:
        yield source.problem((*placed.location, "expires"), f"the rule {rule.id} has ended; it says nothing any more")
    if rule.verdict in (Verdict.DENY, Verdict.ASK) and rule.path and not entry.path:
        tools = ", ".join(rule.tools)
        reason = (
            f"this holds for {tools} only; {{path: ...}} without a tool holds for commands and all other tools, too"
        )
        yield source.problem(placed.location, reason)


class _EntryReader:
    """One entry of a file, key by key, so that each problem has the line of its key."""

    def __init__(self, source: Source, layer: Layer, location: Location, verdict: Verdict, entry: Entry) -> None:
        self.problems: list[Problem] = []
        self._source = source
        self._layer: Layer = layer
        self._location = location
        self._verdict = verdict
        self._entry = entry

    def read(self) -> Rule | None:
        entry = self._entry
        self._check_words()
        short = self._try("tools", lambda: _short(entry.tools), Shorthand(tools=("*",)))
        rule = Rule(
            id=entry.id or _made_id(self._layer, self._verdict, entry),
            verdict=self._verdict.value,
            tools=short.tools,
            risk=entry.risk,
            origin=self._one("origin", short.origin, entry.origin),
            server=self._one("server", short.server, entry.server),
            arguments=self._arguments(),
            path=self._paths(self._one("path", short.path, entry.path)),
            access=entry.access,
            command=self._one("command", short.command and [short.command], self._commands()),
            host=self._hosts(self._one("host", short.host, entry.host)),
            agent=entry.agent,
            mode=entry.mode,
            interactive=entry.interactive,
            when=self._try("when", lambda: compile_condition(entry.when) if entry.when else None, None),
            when_source=entry.when or "",
            reason=entry.reason,
            layer=LAYERS[self._layer],
            prompt=entry.prompt,
            advice=entry.message,
            target_arg=(entry.target_arg or "") if isinstance(entry, RuleEntry) else "",
            scope=entry.scope or "run",
            answer_within_seconds=self._try("answer_within", lambda: seconds(entry.answer_within), None),
            expires_at=self._try("expires", lambda: nanoseconds(entry.expires), 0),
        )
        return self._checked(rule) if not self.problems else None

    def _checked(self, rule: Rule) -> Rule | None:
        """The engine refuses what is left: it knows best what it can match."""
        before = f"Rule {rule.id!r}: "
        self._try("", lambda: compile_rule(rule), None, before)
        return rule if not self.problems else None

    def _check_words(self) -> None:
        entry, verdict = self._entry, self._verdict
        asks = verdict in (Verdict.ASK, Verdict.REQUEST_INPUT)
        if not asks and (entry.prompt or entry.answer_within is not None):
            key = "prompt" if entry.prompt else "answer_within"
            self._refuse(key, f"{key} is for rules that ask; this one says {verdict.value}")
        if entry.scope is not None and verdict is not Verdict.ASK:
            self._refuse("scope", f"scope is for rules that ask; this one says {verdict.value}")

    def _arguments(self) -> dict[str, ArgumentTest]:
        tests: dict[str, ArgumentTest] = {}
        for name, given in self._entry.arguments.items():
            test = self._try(("arguments", name), lambda name=name, given=given: argument_test(name, given), None)
            if test is not None:
                tests[name] = test
        return tests

    def _commands(self) -> list[CommandPattern] | None:
        given: Any = self._entry.command
        if given is None:
            return None
        several = cast(list[Any], given) if isinstance(given, list) else [given]
        found = [
            self._try(("command", index), lambda item=item: command_entry(item), None)
            for index, item in enumerate(several)
        ]
        return [pattern for pattern in found if pattern is not None]

    def _paths(self, given: Any) -> Any:
        for index, glob in enumerate([given] if isinstance(given, str) else given or ()):
            check = lambda glob=glob: path_patterns(glob, wide=self._verdict is not Verdict.ALLOW)  # noqa: E731
            self._try(("path", index), check, "")
        return given

    def _hosts(self, given: Any) -> Any:
        for index, host in enumerate([given] if isinstance(given, str) else given or ()):
            self._try(("host", index), lambda host=host: check_host(host), None)
        return given

    def _one(self, key: str, short: Any, given: Any) -> Any:
        if short is not None and given is not None:
            self._refuse(key, f"{key} is said twice: here and in tools")
        return given if given is not None else short

    def _try(self, key: str | Location, make: Callable[[], _T], otherwise: _T, before: str = "") -> _T:
        try:
            return make()
        except ConfigurationError as error:
            self._refuse(key, str(error).removeprefix(before))
            return otherwise

    def _refuse(self, key: str | Location, reason: str) -> None:
        place = (key,) if isinstance(key, str) else key
        self.problems.append(self._source.problem((*self._location, *place), reason))


def _short(tools: list[str] | None) -> Shorthand:
    """One text may be a `Tool(pattern)`; several are names."""
    if tools is None:
        return Shorthand(tools=("*",))
    if len(tools) == 1:
        return parse_shorthand(tools[0])
    for text in tools:
        if "(" in text:
            raise ConfigurationError(f"{text[:80]!r}: a pattern stands alone, not in a list of tools")
    return Shorthand(tools=tuple(dict.fromkeys(name for text in tools for name in tool_names(text))))


def _made_id(layer: Layer, verdict: Verdict, entry: Entry) -> str:
    """From what the rule is about, so that it stays the same when other rules come and go."""
    says = entry.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude=set(_WORDS))
    tools = says.pop("tools", [])
    pieces = [*tools, *(f"{key}={_compact(value)}" for key, value in sorted(says.items()))]
    made = f"{layer}:{verdict.value}:{' '.join(pieces) or '*'}"
    if len(made) <= _MAX_ID_CHARS:
        return made
    digest = sha256(made.encode()).hexdigest()[:12]
    return f"{made[: _MAX_ID_CHARS - 13]}~{digest}"


def _compact(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(item, str) for item in cast(list[Any], value)):
        return ",".join(cast(list[str], value))
    return value if isinstance(value, str) else json.encode_sorted(value).decode()
