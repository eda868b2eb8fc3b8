"""Compiled rules: checked and ready to match. Meaningless rules are rejected here with a message, before they can
decide.
"""

import inspect
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from hashlib import sha256
from math import isfinite
from os.path import isabs
from typing import Any, Literal, TypeAlias, TypeVar, cast, get_args

import msgspec

from ...domain import json
from ...domain.budget import BudgetRule
from ...domain.decision import (
    APPROVAL_SCOPES,
    QUESTION_VERDICTS,
    VERDICT_WORDS,
    Approver,
    Decision,
    Verdict,
)
from ...domain.effect import check_template
from ...domain.egress import EgressRule
from ...domain.errors import ConfigurationError
from ...domain.hosts import host_matches, normalize_host
from ...domain.tool import CallContext, PermissionMode, Repeat, Risk, ToolDefinition, ToolOrigin, flatten, values_at
from ...domain.trial import AskTime
from ...rendering.question_title import check_title
from ..patterns import compile_regex, glob_to_regex, path_glob_to_regexes
from ..shell.command import SimpleCommand
from ..shell.command_match import matches_narrowly, matches_widely, normalize_program_name
from .call_parts import CallPart
from .rule import (
    Access,
    ArgumentGlob,
    ArgumentIs,
    ArgumentRegex,
    ArgumentTest,
    CommandPattern,
    EffectDeclaration,
    ResourceDeclaration,
    Rule,
)

ArgumentPredicate: TypeAlias = Callable[[Any], bool]
_Word = TypeVar("_Word", Risk, PermissionMode)

#: A name, an address, or any.
_HOST = re.compile(r"[\w-]+(?:\.[\w-]+)*|[0-9a-f:.]+|\*", re.ASCII)
#: Conditions that mean nothing when they name nothing.
_CONDITIONS = ("server", "path", "command", "host", "agent", "workspace", "mode")
#: A pattern with anything else in it could never match the name of a tool.
_TOOL_PATTERN = re.compile(r"[a-zA-Z0-9_\-*?!\[\]]+")


def names_tool(pattern: str, tool: ToolDefinition) -> bool:
    """Return True if a glob matches the name of a tool, or `mcp__server__tool` as other clients call it."""
    if fnmatchcase(tool.name, pattern):
        return True
    return bool(tool.source_name) and fnmatchcase(f"mcp__{tool.source}__{tool.source_name}", pattern)


class CompiledRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that is ready to match."""

    #: As it was declared.
    rule: Rule
    id: str
    verdict: Verdict
    tools: tuple[str, ...]
    risk: frozenset[Risk] | None
    servers: tuple[str, ...] | None
    modes: frozenset[PermissionMode] | None
    agents: tuple[str, ...] | None
    workspaces: tuple[str, ...] | None
    #: Regular expressions over the texts of a place, see `patterns.py`.
    paths: tuple[str, ...]
    commands: tuple[CommandPattern, ...]
    hosts: tuple[str, ...]
    arguments: tuple[tuple[tuple[str, ...], ArgumentTest, ArgumentPredicate], ...]
    digest: str

    @property
    def is_wide(self) -> bool:
        """True for rules that deny or ask, which match widely; rules that allow match narrowly."""
        return self.verdict is not Verdict.ALLOW

    @property
    def has_resource_conditions(self) -> bool:
        """True if the rule has conditions on paths, commands or hosts."""
        return bool(self.paths or self.commands or self.hosts)

    @property
    def is_conditional(self) -> bool:
        """True when tool and mode are not enough to know whether it matches."""
        about_call = self.has_resource_conditions or self.arguments or self.rule.when
        return bool(about_call or self.agents or self.workspaces or self.rule.expires_at)

    def matches_tool(self, tool: ToolDefinition, situation: CallContext) -> bool:
        """Return True if the conditions that do not depend on the arguments match."""
        rule = self.rule
        if rule.origin is not None and rule.origin != tool.origin:
            return False
        if self.risk is not None and not self._matches_risk(tool.risk):
            return False
        if self.modes is not None and situation.mode not in self.modes:
            return False
        if rule.interactive is not None and rule.interactive != situation.interactive:
            return False
        if self.servers is not None and not _any_matches(self.servers, tool.source):
            return False
        # A rule about a server may name its tools as the server does.
        is_own_name = self.servers is not None and bool(tool.source_name) and _any_matches(self.tools, tool.source_name)
        return is_own_name or _any_matches(self.tools, tool.name)

    def matches_situation(self, situation: CallContext) -> bool:
        """Return True if the rule applies to the agent and the workspace of a call."""
        if self.workspaces is not None and situation.workspace not in self.workspaces:
            return False
        return self.agents is None or _any_matches(self.agents, situation.agent)

    def matches_command(self, command: SimpleCommand) -> bool:
        """Return True if the rule matches the command: a deny of `git reset --hard` also with more words, an allow of
        `npm test` exactly.
        """
        if self.is_wide:
            return any(matches_widely(pattern.words, False, command) for pattern in self.commands)
        starts_here = command.bases == ("",)
        return starts_here and any(matches_narrowly(pattern.words, pattern.exact, command) for pattern in self.commands)

    def is_mentioned_in(self, words: frozenset[str]) -> bool:
        """Return True if all plain words of one of its commands are among these."""
        return any(
            all(
                normalize_program_name(word) in words
                for word in pattern.words
                if not word.startswith("-") and word != "*"
            )
            for pattern in self.commands
        )

    def matches_hosts(self, subject: CallPart) -> bool:
        """Return True if the hosts match: any of them for deny and ask, all for allow."""
        every = any if self.is_wide else all
        return bool(subject.hosts) and every(
            any(host_matches(pattern, host) for pattern in self.hosts) for host in subject.hosts
        )

    def matches_arguments(self, arguments: Mapping[str, Any]) -> bool:
        """Return True if every named argument is present and passes; of a list, one value is enough to deny, all are
        needed to allow.
        """
        for names, declared, test in self.arguments:
            found = values_at(arguments, list(names))
            if not isinstance(declared, ArgumentIs):
                found = (element for value in found for element in flatten(value))
            passed = [test(value) for value in found]
            if not passed or not (any(passed) if self.is_wide else all(passed)):
                return False
        return True

    def make_decision(self, tool: ToolDefinition, policy_digest: str) -> Decision:
        """Build the decision of this rule."""
        rule = self.rule
        return Decision(
            verdict=self.verdict,
            rule_ids=(self.id,),
            risk=tuple(sorted(tool.risk)),
            policy_digest=policy_digest,
            scope=rule.scope if self.verdict is Verdict.ASK else "once",
            ask=rule.ask,
            answer_within_seconds=rule.answer_within_seconds,
            approver=rule.approver,
            reason=rule.reason or f"Rule {rule.id} says {self.verdict}.",
            layer=rule.layer,
            prompt=rule.prompt,
            title=rule.title,
            suggested_rule=rule.suggested_rule,
            advice=rule.advice,
            target_arg=rule.target_arg,
        )

    def _matches_risk(self, declared: frozenset[Risk]) -> bool:
        # To allow what reads must not allow what reads and executes.
        named = self.risk or frozenset()
        return bool(declared & named) if self.is_wide else bool(declared) and declared <= named


def compile_rule(rule: Rule) -> CompiledRule:
    """Validate and compile a rule. Raise `ConfigurationError` if it is invalid."""
    verdict = _parse_verdict(rule)
    _validate_rule(rule, verdict)
    wide = verdict is not Verdict.ALLOW
    return CompiledRule(
        rule=rule,
        id=rule.id,
        verdict=verdict,
        tools=_parse_tools(rule),
        risk=_parse_words(rule, "risk", Risk),
        servers=_sorted_texts(rule.server),
        modes=_parse_words(rule, "mode", PermissionMode),
        agents=_sorted_texts(rule.agent),
        workspaces=_sorted_texts(rule.workspace),
        paths=tuple(
            pattern
            for glob in _sorted_texts(rule.path) or ()
            for pattern in _with_rule_id(rule, partial(path_glob_to_regexes, glob, wide=wide))
        ),
        commands=tuple(_parse_command(rule, pattern) for pattern in _as_tuple(rule.command)),
        hosts=tuple(_parse_host(rule, host) for host in _sorted_texts(rule.host) or ()),
        arguments=tuple(
            (tuple(name.split(".")), test, _with_rule_id(rule, partial(_compile_test, test)))
            for name, test in rule.arguments.items()
        ),
        digest=_rule_digest(rule, verdict),
    )


def compute_policy_digest(
    default: str,
    rules: Sequence[CompiledRule],
    resources: Sequence[ResourceDeclaration],
    effects: Sequence[EffectDeclaration] = (),
    limits: Mapping[str, Sequence[EgressRule] | Sequence[BudgetRule]] | None = None,
) -> str:
    """Return the digest of everything that the rules declare, in any order. A condition in code counts by its name.
    `limits` are the declarations beside rules by their key in policy files; those without any do not count.
    """
    declared: list[Any] = [
        default,
        sorted(rule.digest for rule in rules),
        [[each.tools, each.arguments] for each in resources],
    ]
    if effects:
        declared.append(effects)
    declared += [{key: limit} for key, limit in (limits or {}).items() if limit]
    return "sha256:" + sha256(json.encode_sorted(declared)).hexdigest()


def check_effect(declared: EffectDeclaration) -> None:
    """Raise `ConfigurationError` when an effect cannot be declared like this."""
    if not _TOOL_PATTERN.fullmatch(declared.tools):
        raise ConfigurationError(f"no tool can be called {declared.tools[:80]!r}")
    if declared.repeat not in get_args(Repeat):
        raise ConfigurationError(f"repeat is one of {', '.join(get_args(Repeat))}, not {declared.repeat!r}")
    seconds = declared.repeat_after_seconds
    if seconds is not None and not (isfinite(seconds) and seconds > 0):
        raise ConfigurationError(f"an effect may repeat after more than 0 seconds, not {seconds!r}")
    if declared.key:
        try:
            check_template(declared.key)
        except ValueError as error:
            raise ConfigurationError(f"effect key {declared.key[:80]!r}: {error}") from None


def check_unique_ids(ids: Sequence[str], kind: str = "rule") -> None:
    """Raise `ConfigurationError` if ids of rules or budgets are empty or not unique."""
    seen: set[str] = set()
    duplicates = sorted({rule_id for rule_id in ids if rule_id in seen or seen.add(rule_id)})
    if duplicates or "" in seen:
        raise ConfigurationError(
            f"Every {kind} needs an id of its own; not so: {', '.join(duplicates) or 'an empty one'}"
        )


def _validate_rule(rule: Rule, verdict: Verdict) -> None:
    if (verdict is Verdict.REQUEST_INPUT) != bool(rule.target_arg):
        raise ConfigurationError(f"Rule {rule.id!r}: request_input needs a target_arg, and nothing else has one")
    if rule.origin is not None and rule.origin not in get_args(ToolOrigin):
        raise ConfigurationError(f"Rule {rule.id!r}: the origin is one of {', '.join(get_args(ToolOrigin))}")
    if rule.when is not None and (not callable(rule.when) or inspect.iscoroutinefunction(rule.when)):
        raise ConfigurationError(f"Rule {rule.id!r}: when must be a plain function")
    if rule.access is not None and (rule.access not in get_args(Access) or not rule.path):
        raise ConfigurationError(f"Rule {rule.id!r}: access is read or write, and says something about a path")
    if rule.risk is not None and not _as_tuple(rule.risk):
        raise ConfigurationError(f"Rule {rule.id!r}: no tool has a risk out of none; leave risk out for all tools")
    empty = [name for name in _CONDITIONS if (given := getattr(rule, name)) is not None and not _as_tuple(given)]
    if empty:
        raise ConfigurationError(f"Rule {rule.id!r}: {', '.join(empty)} names nothing; leave it out, or say what")
    if not all(map(isabs, _as_tuple(rule.workspace))):
        raise ConfigurationError(f"Rule {rule.id!r}: a workspace is an absolute folder")
    _validate_question(rule, verdict)


def _validate_question(rule: Rule, verdict: Verdict) -> None:
    if rule.scope not in APPROVAL_SCOPES:
        raise ConfigurationError(
            f"Rule {rule.id!r}: the scope is one of {', '.join(APPROVAL_SCOPES)}, not {rule.scope!r}"
        )
    if rule.ask not in get_args(AskTime) or (rule.ask == "after" and verdict is not Verdict.ASK):
        raise ConfigurationError(f"Rule {rule.id!r}: ask is before or after, and after is for rules that ask")
    if rule.approver not in get_args(Approver) or (rule.approver == "client" and verdict not in QUESTION_VERDICTS):
        raise ConfigurationError(f"Rule {rule.id!r}: approver is person or client, and client is for rules that ask")
    if rule.title:
        try:
            check_title(rule.title)
        except ValueError as error:
            raise ConfigurationError(f"Rule {rule.id!r}: title {rule.title[:80]!r}: {error}") from None
    seconds = rule.answer_within_seconds
    if seconds is not None and not (isfinite(seconds) and seconds > 0):
        raise ConfigurationError(f"Rule {rule.id!r}: a question stays open for more than 0 seconds, not {seconds!r}")


def _parse_verdict(rule: Rule) -> Verdict:
    try:
        return Verdict(rule.verdict)
    except ValueError:
        words = ", ".join(VERDICT_WORDS)
        raise ConfigurationError(f"Rule {rule.id!r}: the verdict is one of {words}, not {rule.verdict!r}") from None


def _parse_tools(rule: Rule) -> tuple[str, ...]:
    patterns = _sorted_texts(rule.tools) or ()
    if not patterns or not all(map(_TOOL_PATTERN.fullmatch, patterns)):
        raise ConfigurationError(f"Rule {rule.id!r}: no tool can be called {', '.join(patterns) or 'nothing'}")
    return patterns


def _parse_words(rule: Rule, name: Literal["risk", "mode"], kind: type[_Word]) -> frozenset[_Word] | None:
    given = getattr(rule, name)
    if given is None:
        return None
    try:
        return frozenset(map(kind, _as_tuple(given)))
    except ValueError as error:
        raise ConfigurationError(f"Rule {rule.id!r}: {error}; a {name} is one of {', '.join(kind)}") from None


def _parse_command(rule: Rule, pattern: str | CommandPattern) -> CommandPattern:
    try:
        words = pattern.words if isinstance(pattern, CommandPattern) else tuple(shlex.split(pattern))
    except ValueError as error:
        raise ConfigurationError(f"Rule {rule.id!r}: {pattern!r} is no command: {error}") from None
    if not words or not words[0]:
        raise ConfigurationError(f"Rule {rule.id!r}: a command has at least one word")
    return CommandPattern(words, isinstance(pattern, CommandPattern) and pattern.exact)


def _parse_host(rule: Rule, pattern: str) -> str:
    """Return the host in the one spelling that hosts are compared in."""
    under = "*." if pattern.startswith("*.") else ""
    host = "*" if pattern == "*" else normalize_host(pattern[len(under) :])
    if host is None or not _HOST.fullmatch(host):
        raise ConfigurationError(f"Rule {rule.id!r}: {pattern!r} is no host")
    return under + host


def _with_rule_id(rule: Rule, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except ConfigurationError as error:
        raise ConfigurationError(f"Rule {rule.id!r}: {error}") from None


def _compile_test(test: ArgumentTest) -> ArgumentPredicate:
    match test:
        case ArgumentIs():
            expected = normalize_value(test.value)
            return lambda value: normalize_value(value) == expected
        case ArgumentGlob():
            whole = compile_regex(glob_to_regex(test.pattern))
            return lambda value: isinstance(value, str) and whole.fullmatch(value) is not None
        case ArgumentRegex():
            part = compile_regex(test.pattern)
            return lambda value: isinstance(value, str) and part.search(value) is not None
        case _:
            raise ConfigurationError(
                f"a test of an argument is ArgumentIs, ArgumentGlob or ArgumentRegex, not {test!r}"
            )


def normalize_value(value: Any) -> bytes:
    """Return a value in the form used for comparison: 100 and 100.0 are the same number."""
    return json.encode_sorted(_normalize_numbers(value))


def _normalize_numbers(value: Any) -> Any:
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_normalize_numbers(item) for item in cast(list[Any], value)]
        case dict():
            return {name: _normalize_numbers(item) for name, item in cast(dict[str, Any], value).items()}
        case _:
            return value


def _rule_digest(rule: Rule, verdict: Verdict) -> str:
    """Return a digest that is the same for rules that say the same, however their lists are ordered."""
    declared, when = msgspec.structs.asdict(rule), rule.when
    name = None if when is None else f"{when.__module__}.{getattr(when, '__qualname__', type(when).__qualname__)}"
    declared |= {"verdict": verdict, "when": rule.when_source or name}
    if rule.workspace is None:
        del declared["workspace"]  # As before there was such a condition.
    if rule.ask == "before":
        del declared["ask"]
    if rule.approver == "person":
        del declared["approver"]
    if not rule.title:
        del declared["title"]
    for name in {"tools", "risk", *_CONDITIONS} & declared.keys():
        declared[name] = sorted(msgspec.json.encode(each).decode() for each in _as_tuple(declared[name]))
    return sha256(msgspec.json.encode(declared, order="sorted")).hexdigest()


def _sorted_texts(given: str | Collection[str] | None) -> tuple[str, ...] | None:
    return None if given is None else tuple(sorted(_as_tuple(given)))


def _as_tuple(given: Any) -> tuple[Any, ...]:
    if given is None:
        return ()
    return (given,) if isinstance(given, str) else tuple(cast(Iterable[Any], given))


def _any_matches(patterns: tuple[str, ...], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
