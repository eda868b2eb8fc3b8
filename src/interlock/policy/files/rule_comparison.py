"""Compare two rules that allow: is everything that one of them allows also allowed by the other?

The comparison is conservative. Every condition of the wider rule has to be implied by the same condition of the
narrower one in a way that is shown here; what cannot be shown counts as wider. Conditions that only the narrower rule
has (an agent, a mode, an end, a `when`) narrow it further.
"""

from collections.abc import Callable, Collection, Mapping
from fnmatch import fnmatchcase
from posixpath import normpath
from typing import Any, TypeVar

from ...domain.decision import Verdict
from ..engine.compiled_rule import CompiledRule, compile_rule, normalize_value
from ..engine.rule import ArgumentGlob, ArgumentIs, ArgumentRegex, ArgumentTest, CommandPattern, Rule
from ..patterns import compile_regex
from ..shell.command_match import ANY_WORD

_T = TypeVar("_T")
_WILDCARDS = frozenset("*?[")
#: How a pattern begins that matches in every folder of the workspace, see `patterns.py`.
_ANYWHERE = "r:(?:.*/)?"


def find_wider_condition(candidate: Rule, suggested: Rule) -> str:
    """Return the first key of the candidate that is not provably as narrow; empty when all of them are."""
    one, other = compile_rule(candidate), compile_rule(suggested)
    checks: Mapping[str, bool] = {
        "decision": one.verdict is other.verdict is Verdict.ALLOW,
        "tools": _is_each_within(one.tools, other.tools, _is_name_within),
        "risk": _is_subset(one.risk, other.risk),
        "origin": suggested.origin in (None, candidate.origin),
        "server": _is_each_within(one.servers, other.servers, _is_name_within),
        "mode": _is_subset(one.modes, other.modes),
        "interactive": suggested.interactive in (None, candidate.interactive),
        "agent": _is_each_within(one.agents, other.agents, _is_name_within),
        "workspace": _is_each_within(one.workspaces, other.workspaces, str.__eq__),
        "path": _is_each_within(one.paths or None, other.paths or None, str.__eq__)
        or _are_paths_within(candidate.path, other),
        "access": suggested.access in (None, candidate.access),
        "command": _is_each_within(one.commands or None, other.commands or None, _is_command_within)
        and not _covers_commands(one, other),
        "host": _is_each_within(one.hosts or None, other.hosts or None, _is_host_within),
        "arguments": _are_arguments_within(candidate.arguments, suggested.arguments),
        "when": suggested.when is None or _is_same_condition(candidate, suggested),
        "expires": not suggested.expires_at or 0 < candidate.expires_at <= suggested.expires_at,
    }
    return next((key for key, is_shown in checks.items() if not is_shown), "")


def _is_each_within(
    some: Collection[_T] | None, others: Collection[_T] | None, is_within: Callable[[_T, _T], bool]
) -> bool:
    """Return whether each alternative is within one of the others. None is no condition."""
    if others is None:
        return True
    return some is not None and all(any(is_within(one, other) for other in others) for one in some)


def _is_subset(some: frozenset[Any] | None, others: frozenset[Any] | None) -> bool:
    return others is None or (some is not None and some <= others)


def _is_name_within(one: str, other: str) -> bool:
    """Compare globs of names: equal ones, or a plain name that the other glob matches."""
    return one == other or (_WILDCARDS.isdisjoint(one) and fnmatchcase(one, other))


def _are_paths_within(paths: str | Collection[str] | None, other: CompiledRule) -> bool:
    """Return whether each is a plain path of the workspace that a glob of the other rule matches."""
    plain = (paths,) if isinstance(paths, str) else tuple(paths or ())
    return bool(plain) and all(
        _WILDCARDS.isdisjoint(path)
        and normpath(path) == path
        and not path.startswith(("/", "~"))
        # A name alone stands for every file of that name.
        and any(
            "/" in path or each.startswith(_ANYWHERE)
            for each in other.paths
            if compile_regex(each).fullmatch(f"r:{path}")
        )
        for path in plain
    )


def _is_command_within(one: CommandPattern, other: CommandPattern) -> bool:
    if len(one.words) < len(other.words) or (other.exact and (not one.exact or len(one.words) > len(other.words))):
        return False
    return all(wanted in (ANY_WORD, word) for wanted, word in zip(other.words, one.words, strict=False))


def _covers_commands(one: CompiledRule, other: CompiledRule) -> bool:
    """Return True if one allows commands that the other, about paths or hosts alone, allows only to read."""
    return bool(one.commands) and other.has_resource_conditions and not other.commands


def _is_host_within(one: str, other: str) -> bool:
    if other in ("*", one):
        return True
    bare = one.removeprefix("*.")
    return other.startswith("*.") and (bare == other[2:] or bare.endswith(other[1:]))


def _are_arguments_within(some: Mapping[str, ArgumentTest], others: Mapping[str, ArgumentTest]) -> bool:
    return all(name in some and _is_test_within(some[name], other) for name, other in others.items())


def _is_test_within(one: ArgumentTest, other: ArgumentTest) -> bool:
    match one, other:
        case ArgumentIs(), ArgumentIs():
            return normalize_value(one.value) == normalize_value(other.value)
        case (ArgumentGlob(), ArgumentGlob()) | (ArgumentRegex(), ArgumentRegex()):
            return one.pattern == other.pattern
        case _:
            return False


def _is_same_condition(candidate: Rule, suggested: Rule) -> bool:
    """Compare conditions by their text; of one in code nothing is known."""
    return bool(suggested.when_source) and candidate.when_source == suggested.when_source
