"""Rules, checked and made ready to match. What cannot mean anything is refused here, in words, before it can decide."""

import inspect
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from hashlib import sha256
from math import isfinite
from typing import Any, TypeAlias, cast, get_args

import msgspec

from ...domain import json
from ...domain.decision import SCOPES, Decision, Scope, Verdict
from ...domain.errors import ConfigurationError
from ...domain.resources import elements, values_at
from ...domain.tool import Mode, Origin, Risk, Situation, ToolDefinition
from ..shell.command import SimpleCommand
from ..shell.match import concerns, covers, program_name
from .hosts import plain_host
from .patterns import glob_pattern, host_fits, path_patterns, regex
from .rule import (
    Access,
    ArgumentGlob,
    ArgumentIs,
    ArgumentRegex,
    ArgumentTest,
    CommandPattern,
    Condition,
    ResourceDeclaration,
    Rule,
)
from .subject import Subject

Test: TypeAlias = Callable[[Any], bool]

_OTHER_WORDS = {"defer": "ask", "request_approval": "ask", "request_user_input": "request_input"}
#: A name, an address, or any.
_HOST = re.compile(r"[\w-]+(?:\.[\w-]+)*|[0-9a-f:.]+|\*", re.ASCII)
#: Conditions that mean nothing when they name nothing.
_CONDITIONS = ("server", "path", "command", "host", "agent", "mode")
#: A pattern with anything else in it could never match the name of a tool.
_PATTERN = re.compile(r"[a-zA-Z0-9_\-*?!\[\]]+")


class Compiled(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    verdict: Verdict
    tools: tuple[str, ...]
    risk: frozenset[Risk] | None
    origin: Origin | None
    servers: tuple[str, ...] | None
    modes: frozenset[Mode] | None
    interactive: bool | None
    agents: tuple[str, ...] | None
    #: Regular expressions over the texts of a place, see `patterns.py`.
    paths: tuple[str, ...]
    access: Access | None
    commands: tuple[CommandPattern, ...]
    hosts: tuple[str, ...]
    arguments: tuple[tuple[tuple[str, ...], ArgumentTest, Test], ...]
    when: Condition | None
    expires_at: int
    scope: Scope
    answer_within_seconds: float | None
    texts: dict[str, Any]
    digest: str

    @property
    def wide(self) -> bool:
        """What refuses or asks is matched widely, what allows narrowly."""
        return self.verdict is not Verdict.ALLOW

    @property
    def about_resources(self) -> bool:
        return bool(self.paths or self.commands or self.hosts)

    @property
    def conditional(self) -> bool:
        """Does it take more than the tool and the mode to know whether it speaks?"""
        return bool(self.about_resources or self.arguments or self.when or self.agents or self.expires_at)

    def fits_tool(self, tool: ToolDefinition, situation: Situation) -> bool:
        if self.origin is not None and self.origin != tool.origin:
            return False
        if self.risk is not None and not self._risk_fits(tool.risk):
            return False
        if self.modes is not None and situation.mode not in self.modes:
            return False
        if self.interactive is not None and self.interactive != situation.interactive:
            return False
        if self.servers is not None and not _any_fits(self.servers, tool.source):
            return False
        return _any_fits(self.tools, tool.name)

    def fits_agent(self, agent: str) -> bool:
        return self.agents is None or _any_fits(self.agents, agent)

    def fits_command(self, command: SimpleCommand) -> bool:
        """To refuse `git reset --hard` is to refuse it with more words; to allow `npm test` is to allow it here."""
        if self.wide:
            return any(concerns(pattern.words, False, command) for pattern in self.commands)
        starts_here = command.bases == ("",)
        return starts_here and any(covers(pattern.words, pattern.exact, command) for pattern in self.commands)

    def is_within(self, words: frozenset[str]) -> bool:
        """Do all plain words of one of its commands stand among these?"""
        return any(
            all(program_name(word) in words for word in pattern.words if not word.startswith("-") and word != "*")
            for pattern in self.commands
        )

    def fits_hosts(self, subject: Subject) -> bool:
        every = any if self.wide else all
        return bool(subject.hosts) and every(
            any(host_fits(pattern, host) for pattern in self.hosts) for host in subject.hosts
        )

    def fits_arguments(self, arguments: Mapping[str, Any]) -> bool:
        """Every named argument is there and passes; of several values in a list, one for a refusal, all for a yes."""
        for names, declared, test in self.arguments:
            found = values_at(arguments, list(names))
            if not isinstance(declared, ArgumentIs):
                found = (element for value in found for element in elements(value))
            passed = [test(value) for value in found]
            if not passed or not (any(passed) if self.wide else all(passed)):
                return False
        return True

    def decision(self, tool: ToolDefinition, policy_digest: str) -> Decision:
        return Decision(
            verdict=self.verdict,
            rule_ids=(self.id,),
            risk=tuple(sorted(tool.risk)),
            policy_digest=policy_digest,
            scope=self.scope if self.verdict is Verdict.ASK else "once",
            answer_within_seconds=self.answer_within_seconds,
            **self.texts,
        )

    def _risk_fits(self, declared: frozenset[Risk]) -> bool:
        # To allow what reads must not allow what reads and executes.
        named = self.risk or frozenset()
        return bool(declared & named) if self.wide else bool(declared) and declared <= named


def compile_rule(rule: Rule) -> Compiled:
    verdict = _verdict(rule)
    _check(rule, verdict)
    wide = verdict is not Verdict.ALLOW
    return Compiled(
        id=rule.id,
        verdict=verdict,
        tools=_tools(rule),
        risk=_risks(rule),
        origin=rule.origin,
        servers=_words(rule.server),
        modes=_modes(rule),
        interactive=rule.interactive,
        agents=_words(rule.agent),
        paths=tuple(
            pattern
            for glob in _words(rule.path) or ()
            for pattern in _said(rule, partial(path_patterns, glob, wide=wide))
        ),
        access=rule.access,
        commands=tuple(_command(rule, pattern) for pattern in _several(rule.command)),
        hosts=tuple(_host(rule, host) for host in _words(rule.host) or ()),
        arguments=tuple(
            (tuple(name.split(".")), test, _said(rule, partial(_test, test))) for name, test in rule.arguments.items()
        ),
        when=rule.when,
        expires_at=rule.expires_at,
        scope=rule.scope,
        answer_within_seconds=rule.answer_within_seconds,
        texts={
            "reason": rule.reason or f"Rule {rule.id} says {verdict}.",
            "layer": rule.layer,
            "prompt": rule.prompt,
            "suggested_rule": rule.suggested_rule,
            "advice": rule.advice,
            "target_arg": rule.target_arg,
        },
        digest=_digest(rule, verdict),
    )


def policy_digest(default: str, rules: Sequence[Compiled], resources: Sequence[ResourceDeclaration]) -> str:
    """Over everything that the rules declare, in whatever order. Of a condition in code only its name is known."""
    declared = [default, sorted(rule.digest for rule in rules), [[each.tools, each.arguments] for each in resources]]
    return "sha256:" + sha256(json.encode_sorted(declared)).hexdigest()


def check_unique(ids: Sequence[str]) -> None:
    seen: set[str] = set()
    twice = sorted({rule_id for rule_id in ids if rule_id in seen or seen.add(rule_id)})
    if twice or "" in seen:
        raise ConfigurationError(f"Every rule needs an id of its own; not so: {', '.join(twice) or 'an empty one'}")


def _check(rule: Rule, verdict: Verdict) -> None:
    if (verdict is Verdict.REQUEST_INPUT) != bool(rule.target_arg):
        raise ConfigurationError(f"Rule {rule.id!r}: request_input needs a target_arg, and nothing else has one")
    if rule.origin is not None and rule.origin not in get_args(Origin):
        raise ConfigurationError(f"Rule {rule.id!r}: the origin is one of {', '.join(get_args(Origin))}")
    if rule.when is not None and (not callable(rule.when) or inspect.iscoroutinefunction(rule.when)):
        raise ConfigurationError(f"Rule {rule.id!r}: when must be a plain function")
    if rule.access is not None and (rule.access not in get_args(Access) or not rule.path):
        raise ConfigurationError(f"Rule {rule.id!r}: access is read or write, and says something about a path")
    empty = [name for name in _CONDITIONS if (given := getattr(rule, name)) is not None and not _several(given)]
    if empty:
        raise ConfigurationError(f"Rule {rule.id!r}: {', '.join(empty)} names nothing; leave it out, or say what")
    if rule.scope not in SCOPES:
        raise ConfigurationError(f"Rule {rule.id!r}: the scope is one of {', '.join(SCOPES)}, not {rule.scope!r}")
    seconds = rule.answer_within_seconds
    if seconds is not None and not (isfinite(seconds) and seconds > 0):
        raise ConfigurationError(f"Rule {rule.id!r}: a question stays open for more than 0 seconds, not {seconds!r}")


def _verdict(rule: Rule) -> Verdict:
    try:
        return Verdict(_OTHER_WORDS.get(rule.verdict, rule.verdict))
    except ValueError:
        words = ", ".join((*Verdict, *_OTHER_WORDS))
        raise ConfigurationError(f"Rule {rule.id!r}: the verdict is one of {words}, not {rule.verdict!r}") from None


def _tools(rule: Rule) -> tuple[str, ...]:
    patterns = _words(rule.tools) or ()
    if not patterns or not all(map(_PATTERN.fullmatch, patterns)):
        raise ConfigurationError(f"Rule {rule.id!r}: no tool can be called {', '.join(patterns) or 'nothing'}")
    return patterns


def _risks(rule: Rule) -> frozenset[Risk] | None:
    if rule.risk is None:
        return None
    try:
        risks = frozenset(map(Risk, _words(rule.risk) or ()))
    except ValueError as error:
        raise ConfigurationError(f"Rule {rule.id!r}: {error}; a risk is one of {', '.join(Risk)}") from None
    if not risks:
        raise ConfigurationError(f"Rule {rule.id!r}: no tool has a risk out of none; leave risk out for all tools")
    return risks


def _modes(rule: Rule) -> frozenset[Mode] | None:
    if rule.mode is None:
        return None
    try:
        return frozenset(map(Mode, _several(rule.mode)))
    except ValueError as error:
        raise ConfigurationError(f"Rule {rule.id!r}: {error}; a mode is one of {', '.join(Mode)}") from None


def _command(rule: Rule, pattern: str | CommandPattern) -> CommandPattern:
    try:
        words = pattern.words if isinstance(pattern, CommandPattern) else tuple(shlex.split(pattern))
    except ValueError as error:
        raise ConfigurationError(f"Rule {rule.id!r}: {pattern!r} is no command: {error}") from None
    if not words or not words[0]:
        raise ConfigurationError(f"Rule {rule.id!r}: a command has at least one word")
    return CommandPattern(words, isinstance(pattern, CommandPattern) and pattern.exact)


def _host(rule: Rule, pattern: str) -> str:
    """In the one spelling that hosts are compared in."""
    under = "*." if pattern.startswith("*.") else ""
    host = "*" if pattern == "*" else plain_host(pattern[len(under) :])
    if host is None or not _HOST.fullmatch(host):
        raise ConfigurationError(f"Rule {rule.id!r}: {pattern!r} is no host")
    return under + host


def _said(rule: Rule, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except ConfigurationError as error:
        raise ConfigurationError(f"Rule {rule.id!r}: {error}") from None


def _test(test: ArgumentTest) -> Test:
    match test:
        case ArgumentIs():
            expected = one_form(test.value)
            return lambda value: one_form(value) == expected
        case ArgumentGlob():
            whole = regex(glob_pattern(test.pattern))
            return lambda value: isinstance(value, str) and whole.fullmatch(value) is not None
        case ArgumentRegex():
            part = regex(test.pattern)
            return lambda value: isinstance(value, str) and part.search(value) is not None


def one_form(value: Any) -> bytes:
    """A value in the one form that values are compared in: 100 and 100.0 are the same number."""
    return json.encode_sorted(_whole_numbers(value))


def _whole_numbers(value: Any) -> Any:
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_whole_numbers(item) for item in cast(list[Any], value)]
        case dict():
            return {name: _whole_numbers(item) for name, item in cast(dict[str, Any], value).items()}
        case _:
            return value


def _digest(rule: Rule, verdict: Verdict) -> str:
    """The same for rules that say the same, however their lists are ordered."""
    declared = msgspec.structs.asdict(rule)
    declared |= {"verdict": verdict, "when": rule.when_source or _name(rule.when)}
    for name in ("tools", "risk", *_CONDITIONS):
        declared[name] = sorted(msgspec.json.encode(each).decode() for each in _several(declared[name]))
    return sha256(msgspec.json.encode(declared, order="sorted")).hexdigest()


def _name(when: Condition | None) -> str | None:
    if when is None:
        return None
    return f"{when.__module__}.{getattr(when, '__qualname__', type(when).__qualname__)}"


def _words(given: str | Collection[str] | None) -> tuple[str, ...] | None:
    if given is None:
        return None
    return (given,) if isinstance(given, str) else tuple(sorted(given))


def _several(given: Any) -> tuple[Any, ...]:
    if given is None:
        return ()
    return (given,) if isinstance(given, str) else tuple(cast(Iterable[Any], given))


def _any_fits(patterns: tuple[str, ...], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
