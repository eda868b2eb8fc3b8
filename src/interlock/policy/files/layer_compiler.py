"""Compiles a policy file to rules: every entry checked, each problem with its line, all of them at once.

A file belongs to a layer. Managed, user and session files may contain anything; a project file comes with a repository,
so it can only tighten: it has no allow rules, no default of allow, and does not declare the arguments of tools.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, Literal, TypeAlias, TypeVar, cast

import msgspec

from ...domain import json
from ...domain.budget import BudgetRule, check_budget
from ...domain.decision import QUESTION_VERDICTS, Verdict
from ...domain.egress import DEFAULT_HEADER, EgressRule, EgressVerdict, compile_egress_rule
from ...domain.errors import ConfigurationError
from ..engine.compiled_rule import check_effect, compile_rule
from ..engine.rule import ArgumentTest, DefaultVerdict, EffectDeclaration, ResourceDeclaration, Rule
from ..patterns import path_glob_to_regexes
from .cel import compile_condition
from .document import SHORT_LISTS, Entry, PolicyDocument, RuleEntry, ShortEntry
from .problems import DocumentPath, PolicyFileError, PolicyProblem, PolicySource
from .shorthand import Shorthand, expand_tool_name, parse_shorthand
from .unreachable_rules import find_unreachable_rules
from .values import check_host, parse_argument_test, parse_command_entry, parse_duration, parse_timestamp

Layer: TypeAlias = Literal["managed", "user", "project", "session"]
LAYER_LABELS: Mapping[Layer, str] = {
    "managed": "enterprise policy",
    "user": "user rule",
    "project": "project rule",
    "session": "session rule",
}
_MAX_ID_CHARS = 100
#: Keys of a rule that are no conditions.
_NON_CONDITION_KEYS = frozenset(
    {"id", "decision", "reason", "message", "prompt", "title", "target_arg", "matches", "does_not_match"}
)

_T = TypeVar("_T")


class LocatedRule(msgspec.Struct, frozen=True):
    """A rule, its location in its file, and its source entry."""

    rule: Rule
    location: DocumentPath
    entry: Entry


class LayerRules(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of one file."""

    layer: Layer
    path: str
    default: DefaultVerdict | None = None
    resources: tuple[ResourceDeclaration, ...] = ()
    effects: tuple[EffectDeclaration, ...] = ()
    egress: tuple[EgressRule, ...] = ()
    budgets: tuple[BudgetRule, ...] = ()
    located_rules: tuple[LocatedRule, ...] = ()
    lines: Mapping[str, int] = {}
    warnings: tuple[PolicyProblem, ...] = ()

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules without their locations."""
        return tuple(placed.rule for placed in self.located_rules)


def compile_layer(source: PolicySource, document: PolicyDocument, layer: Layer, now: Callable[[], int]) -> LayerRules:
    """Compile a file. Raise `PolicyFileError` with all problems."""
    problems = _find_project_violations(source, document) if layer == "project" else []
    resources, resource_problems = _compile_resources(source, document)
    effects, effect_problems = _compile_effects(source, document)
    egress, egress_problems = _compile_egress(source, document, layer)
    budgets, budget_problems = _compile_budgets(source, document, layer)
    problems += resource_problems + effect_problems + egress_problems + budget_problems
    placed: list[LocatedRule] = []
    warnings: list[PolicyProblem] = []
    for location, verdict, entry in _iterate_entries(document):
        builder = _RuleBuilder(source, layer, location, verdict, entry)
        rule = builder.build()
        problems += builder.problems
        if rule is not None:
            placed.append(LocatedRule(rule, location, entry))
            warnings += _find_warnings(source, placed[-1], now())
    problems += _find_duplicates(source, placed)
    problems += [
        source.make_problem(placed[late].location, reason) for late, reason in _describe_unreachable(source, placed)
    ]
    if problems:
        raise PolicyFileError(sorted(problems, key=lambda problem: problem.line))
    return LayerRules(
        layer=layer,
        path=source.path,
        default=document.default,
        resources=resources,
        effects=effects,
        egress=egress,
        budgets=budgets,
        located_rules=tuple(placed),
        lines={each.rule.id: source.line_at(each.location) for each in placed},
        warnings=tuple(warnings),
    )


def _iterate_entries(document: PolicyDocument) -> Iterator[tuple[DocumentPath, Verdict, Entry]]:
    for name in SHORT_LISTS:
        items: Sequence[str | ShortEntry] = getattr(document, name)
        for index, item in enumerate(items):
            entry = ShortEntry.model_validate({"tools": [item]}) if isinstance(item, str) else item
            yield (name, index), Verdict(name), entry
    for index, entry in enumerate(document.rules):
        yield ("rules", index), Verdict(entry.decision), entry


def _find_project_violations(source: PolicySource, document: PolicyDocument) -> list[PolicyProblem]:
    only = "a project file can only tighten"
    problems: list[PolicyProblem] = []
    if document.default == "allow":
        problems.append(source.make_problem(("default",), f"{only}: its default may be risk, ask or deny"))
    if document.resources:
        problems.append(source.make_problem(("resources",), f"{only}: what arguments mean is said in the user's file"))
    if document.effects:
        problems.append(source.make_problem(("effects",), f"{only}: effects are declared in the user's file"))
    for index, entry in enumerate(document.egress):
        if entry.allow is not None:
            place = ("egress", index, "allow")
            problems.append(source.make_problem(place, f"{only}: put hosts that are allowed into the user's file"))
    for location, verdict, entry in _iterate_entries(document):
        if entry.approver == "client":
            place = (*location, "approver")
            problems.append(source.make_problem(place, f"{only}: say in the user's file that a client may answer"))
        if verdict is Verdict.ALLOW:
            problems.append(source.make_problem(location, f"{only}: put what is allowed into the user's file"))
    return problems


def _compile_resources(
    source: PolicySource, document: PolicyDocument
) -> tuple[tuple[ResourceDeclaration, ...], list[PolicyProblem]]:
    problems: list[PolicyProblem] = []
    for index, declared in enumerate(document.resources):
        for name in declared.arguments:
            if not all(name.split(".")):
                reason = f"{name[:80]!r} is no dotted name of an argument"
                problems.append(source.make_problem(("resources", index, "arguments", name), reason))
    return tuple(ResourceDeclaration(each.tools, each.arguments) for each in document.resources), problems


def _compile_effects(
    source: PolicySource, document: PolicyDocument
) -> tuple[tuple[EffectDeclaration, ...], list[PolicyProblem]]:
    effects: list[EffectDeclaration] = []
    problems: list[PolicyProblem] = []
    for index, entry in enumerate(document.effects):
        key = "repeat_after"
        try:
            seconds = parse_duration(entry.repeat_after)
            key = "key" if entry.key else "tools"
            effects.append(
                EffectDeclaration(
                    tools=entry.tools, key=entry.key or "", repeat=entry.repeat, repeat_after_seconds=seconds
                )
            )
            check_effect(effects[-1])
        except ConfigurationError as error:
            problems.append(source.make_problem(("effects", index, key), str(error)))
    return tuple(effects), problems


def _compile_budgets(
    source: PolicySource, document: PolicyDocument, layer: Layer
) -> tuple[tuple[BudgetRule, ...], list[PolicyProblem]]:
    """Compile the budgets. Any file may have some: they only tighten."""
    rules: dict[str, BudgetRule] = {}
    problems: list[PolicyProblem] = []
    for index, entry in enumerate(document.budgets):
        try:
            if entry.sum is not None and entry.of is not None:
                raise ConfigurationError("a budget has either of or sum")
            rule = BudgetRule(
                id=entry.id,
                limit=entry.max,
                measure="sum" if entry.sum is not None else entry.of or "calls",
                argument=entry.sum or "",
                per=tuple(entry.per or ()),
                window=entry.window,
                tools=tuple(entry.tools or ("*",)),
                agents=tuple(entry.agent or ()),
                then=entry.then,
                reason=entry.reason,
                layer=LAYER_LABELS[layer],
            )
            check_budget(rule)
            if rule.id in rules:
                raise ConfigurationError(f"the budget {rule.id} is given twice")
            rules[rule.id] = rule
        except ConfigurationError as error:
            problems.append(source.make_problem(("budgets", index), str(error)))
    return tuple(rules.values()), problems


def _compile_egress(
    source: PolicySource, document: PolicyDocument, layer: Layer
) -> tuple[tuple[EgressRule, ...], list[PolicyProblem]]:
    rules: dict[str, EgressRule] = {}
    problems: list[PolicyProblem] = []
    for index, entry in enumerate(document.egress):
        named: dict[EgressVerdict, list[str] | None] = {"allow": entry.allow, "ask": entry.ask, "deny": entry.deny}
        given: list[tuple[EgressVerdict, list[str]]] = [(verdict, hosts) for verdict, hosts in named.items() if hosts]
        try:
            if len(given) != 1:
                raise ConfigurationError("an egress rule has exactly one of allow, ask and deny")
            if entry.header is not None and entry.credential is None:
                raise ConfigurationError("header goes with credential")
            verdict, hosts = given[0]
            rule = compile_egress_rule(
                EgressRule(
                    verdict=verdict,
                    hosts=hosts,
                    ports=entry.ports or (),
                    methods=entry.methods or (),
                    credential=entry.credential or "",
                    header=entry.header or DEFAULT_HEADER,
                    id=entry.id or "",
                    layer=LAYER_LABELS[layer],
                )
            )
            if rule.id in rules:
                raise ConfigurationError(f"the egress rule {rule.id} is given twice")
            rules[rule.id] = rule
        except ConfigurationError as error:
            problems.append(source.make_problem(("egress", index), str(error)))
    return tuple(rules.values()), problems


def _find_duplicates(source: PolicySource, placed: Sequence[LocatedRule]) -> list[PolicyProblem]:
    first: dict[str, DocumentPath] = {}
    problems: list[PolicyProblem] = []
    for each in placed:
        known = first.setdefault(each.rule.id, each.location)
        if known is not each.location:
            what = f"the id {each.rule.id} is" if each.entry.id else "the same rule is"
            problems.append(
                source.make_problem(each.location, f"{what} given twice; first in line {source.line_at(known)}")
            )
    return problems


def _describe_unreachable(source: PolicySource, placed: Sequence[LocatedRule]) -> Iterator[tuple[int, str]]:
    for index, stricter in find_unreachable_rules([each.rule for each in placed]):
        line, verdict = source.line_at(placed[stricter].location), placed[stricter].rule.verdict
        yield index, f"this can never decide: line {line} says {verdict} about the same calls"


def _find_warnings(source: PolicySource, placed: LocatedRule, now: int) -> Iterator[PolicyProblem]:
    rule, entry = placed.rule, placed.entry
    if rule.expires_at and rule.expires_at <= now:
        yield source.make_problem(
            (*placed.location, "expires"), f"the rule {rule.id} has ended; it says nothing any more"
        )
    if rule.verdict in (Verdict.DENY, Verdict.ASK) and rule.path and not entry.path:
        tools = ", ".join(rule.tools)
        reason = (
            f"this holds for {tools} only; {{path: ...}} without a tool holds for commands and all other tools, too"
        )
        yield source.make_problem(placed.location, reason)


class _RuleBuilder(msgspec.Struct):
    """One entry of a file, key by key, so that each problem has the line of its key."""

    source: PolicySource
    layer: Layer
    location: DocumentPath
    verdict: Verdict
    entry: Entry
    problems: list[PolicyProblem] = msgspec.field(default_factory=list[PolicyProblem])

    def build(self) -> Rule | None:
        entry = self.entry
        self._check_verdict_keys()
        short = self._attempt("tools", lambda: _parse_tool_list(entry.tools), Shorthand(tools=("*",)))
        path = self._choose_value("path", short.path, entry.path)
        host = self._choose_value("host", short.host, entry.host)
        commands = None if entry.command is None else self._for_each("command", entry.command, parse_command_entry)
        self._for_each("path", path, partial(path_glob_to_regexes, wide=self.verdict is not Verdict.ALLOW))
        self._for_each("host", host, check_host)
        rule = Rule(
            id=entry.id or _generate_id(self.layer, self.verdict, entry),
            verdict=self.verdict.value,
            tools=short.tools,
            risk=entry.risk,
            origin=self._choose_value("origin", short.origin, entry.origin),
            server=self._choose_value("server", short.server, entry.server),
            arguments=self._build_arguments(),
            path=path,
            access=entry.access,
            command=self._choose_value("command", short.command and [short.command], commands),
            host=host,
            agent=entry.agent,
            workspace=entry.workspace,
            mode=entry.mode,
            interactive=entry.interactive,
            when=self._attempt("when", lambda: compile_condition(entry.when) if entry.when else None, None),
            when_source=entry.when or "",
            reason=entry.reason,
            layer=LAYER_LABELS[self.layer],
            prompt=entry.prompt,
            title=entry.title,
            advice=entry.message,
            target_arg=(entry.target_arg or "") if isinstance(entry, RuleEntry) else "",
            scope=entry.scope or "run",
            ask=entry.ask or "before",
            answer_within_seconds=self._attempt("answer_within", lambda: parse_duration(entry.answer_within), None),
            approver=entry.approver or "person",
            expires_at=self._attempt("expires", lambda: parse_timestamp(entry.expires), 0),
        )
        if not self.problems:
            # The engine refuses what is left: it knows best what it can match.
            self._attempt("", lambda: compile_rule(rule), None, before=f"Rule {rule.id!r}: ")
        return rule if not self.problems else None

    def _check_verdict_keys(self) -> None:
        entry, verdict = self.entry, self.verdict
        if verdict not in QUESTION_VERDICTS:
            keys = {
                "prompt": entry.prompt,
                "title": entry.title,
                "answer_within": entry.answer_within,
                "approver": entry.approver,
            }
            for key in [key for key, value in keys.items() if value not in (None, "")][:1]:
                self._add_problem(key, f"{key} is for rules that ask; this one says {verdict.value}")
        if entry.scope is not None and verdict is not Verdict.ASK:
            self._add_problem("scope", f"scope is for rules that ask; this one says {verdict.value}")
        if entry.ask is not None and verdict is not Verdict.ASK:
            self._add_problem("ask", f"ask: {entry.ask} is for rules that ask; this one says {verdict.value}")

    def _build_arguments(self) -> dict[str, ArgumentTest]:
        items = self.entry.arguments.items()
        tests = {
            name: self._attempt(("arguments", name), partial(parse_argument_test, name, given), None)
            for name, given in items
        }
        return {name: test for name, test in tests.items() if test is not None}

    def _for_each(self, key: str, given: Any, make: Callable[[Any], _T]) -> list[_T]:
        """Make something of one value or of several, without those that have a problem."""
        items = cast(list[Any], given) if isinstance(given, list) else [] if given is None else [given]
        made = [self._attempt((key, index), partial(make, item), None) for index, item in enumerate(items)]
        return [each for each in made if each is not None]

    def _choose_value(self, key: str, short: Any, given: Any) -> Any:
        if short is not None and given is not None:
            self._add_problem(key, f"{key} is said twice: here and in tools")
        return given if given is not None else short

    def _attempt(self, key: str | DocumentPath, make: Callable[[], _T], otherwise: _T, before: str = "") -> _T:
        try:
            return make()
        except ConfigurationError as error:
            self._add_problem(key, str(error).removeprefix(before))
            return otherwise

    def _add_problem(self, key: str | DocumentPath, reason: str) -> None:
        place = (key,) if isinstance(key, str) else key
        self.problems.append(self.source.make_problem((*self.location, *place), reason))


def _parse_tool_list(tools: list[str] | None) -> Shorthand:
    """Read one text, which may be a `Tool(pattern)`, or several names."""
    if tools is None:
        return Shorthand(tools=("*",))
    if len(tools) == 1:
        return parse_shorthand(tools[0])
    for text in tools:
        if "(" in text:
            raise ConfigurationError(f"{text[:80]!r}: a pattern stands alone, not in a list of tools")
    return Shorthand(tools=tuple(dict.fromkeys(name for text in tools for name in expand_tool_name(text))))


def _generate_id(layer: Layer, verdict: Verdict, entry: Entry) -> str:
    """Make an id from what the rule is about, so that it stays the same when other rules come and go."""
    content = entry.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude=set(_NON_CONDITION_KEYS))
    tools = content.pop("tools", [])
    pieces = [*tools, *(f"{key}={_format_value(value)}" for key, value in sorted(content.items()))]
    generated = f"{layer}:{verdict.value}:{' '.join(pieces) or '*'}"
    if len(generated) <= _MAX_ID_CHARS:
        return generated
    digest = sha256(generated.encode()).hexdigest()[:12]
    return f"{generated[: _MAX_ID_CHARS - 13]}~{digest}"


def _format_value(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(item, str) for item in cast(list[Any], value)):
        return ",".join(cast(list[str], value))
    return value if isinstance(value, str) else json.encode_sorted(value).decode()
