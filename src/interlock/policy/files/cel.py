"""`when`: a condition written in CEL, for what the other conditions of a rule cannot say.

The library costs a good part of a second to load, so it is loaded when the first rule needs it. It reads an expression
by recursion in native code and has no limit on what an expression may cost, so both are bounded here: by length, by the
number of words and signs, and by one loop over a list. All are counted in the raw text, strings and comments included:
what is a string is for the library to say.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any

from ...domain.errors import ConfigurationError
from ..engine.rule import RuleCondition
from ..interface import PolicyEvent

VARIABLES = frozenset(
    {
        *("tool", "arguments", "agent", "mode", "interactive"),
        *("origin", "server", "risk", "requester", "workspace"),
    }
)
#: What the library knows. Operators have names such as `_==_`.
FUNCTIONS = frozenset(
    {
        *("size", "contains", "startsWith", "endsWith", "type", "dyn"),
        *("int", "uint", "double", "string", "bytes", "duration", "timestamp"),
        *("getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear"),
        *("getHours", "getMinutes", "getSeconds", "getMilliseconds"),
    }
)
_MAX_CHARS = 1_000
_MAX_TOKENS = 200
_TOKEN = re.compile(r"\w+|[^\w\s]")
_LOOP = re.compile(r"\b(?:all|exists|exists_one|map|filter)\b(?:\s*\(\s*(\w+))?")


def compile_condition(text: str) -> RuleCondition:
    """Compile a condition. Raise `ConfigurationError` when it cannot return a boolean for a call."""
    loops = _LOOP.findall(text)
    if len(text) > _MAX_CHARS or len(_TOKEN.findall(text)) > _MAX_TOKENS:
        raise ConfigurationError(f"when has at most {_MAX_CHARS:,} characters and {_MAX_TOKENS} words and signs")
    if len(loops) > 1:
        raise ConfigurationError("when says all, exists, exists_one, map or filter once at most")
    try:
        program = _call_without_panic(lambda: _load_cel().compile(text))
    except ValueError as error:
        raise ConfigurationError(f"when is not CEL: {_first_line(error)}") from None
    _check_names(program.references(), set(loops))
    return _CelCondition(program)


class _CelCondition:
    def __init__(self, program: Any) -> None:
        self._program = program

    def __call__(self, event: PolicyEvent) -> bool:
        tool, situation = event.tool, event.situation
        variables = {
            "tool": tool.name,
            "arguments": event.arguments,
            "agent": situation.agent,
            "mode": str(situation.mode),
            "interactive": situation.interactive,
            "origin": tool.origin,
            "server": tool.source,
            "risk": sorted(map(str, tool.risk)),
            "requester": situation.requester,
            "workspace": situation.workspace,
        }
        return _call_without_panic(lambda: self._program.execute(variables))


def _call_without_panic(work: Callable[[], Any]) -> Any:
    """Call the native library. Its panics are not `Exception`s and would end the process."""
    try:
        return work()
    except BaseException as error:
        if type(error).__name__ == "PanicException":
            raise ConfigurationError("the CEL library failed on this condition") from None
        raise


@cache
def _load_cel() -> Any:
    try:
        return import_module("cel")
    except ImportError:
        raise ConfigurationError("when needs CEL: install interlock[policy]") from None


def _check_names(references: Mapping[str, list[str]], bound: set[str]) -> None:
    unknown = sorted(set(references["variables"]) - VARIABLES - bound)
    if unknown:
        raise ConfigurationError(f"when knows no {unknown[0]!r}; it knows {', '.join(sorted(VARIABLES))}")
    named = {name for name in references["functions"] if name.isidentifier() and not name.startswith("_")}
    if "matches" in named:
        raise ConfigurationError("when has no matches: its cost has no bound; say arguments: {NAME: {regex: ...}}")
    if unknown := sorted(named - FUNCTIONS):
        raise ConfigurationError(f"when knows no function {unknown[0]!r}; it knows {', '.join(sorted(FUNCTIONS))}")


def _first_line(error: Exception) -> str:
    text = str(error)
    return text.partition("ERROR: <input>:")[2].partition("\n")[0][:200] or text[:200]
