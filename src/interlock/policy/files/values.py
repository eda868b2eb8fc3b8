"""Single values of a policy file, converted for rules. `ConfigurationError` says what is wrong with one."""

import calendar
import re
from datetime import datetime
from typing import Any

from ...domain.errors import ConfigurationError
from ..engine.rule import ArgumentGlob, ArgumentIs, ArgumentRegex, ArgumentTest, CommandPattern
from ..patterns import compile_regex
from .document import ArgumentEntry, CommandEntry
from .shorthand import split_command_words

_MAX_DURATION_SECONDS = 10 * 366 * 86_400
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)\s*([smhdw])")
_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:[Zz]|([+-])([01]\d|2[0-3]):([0-5]\d))", re.ASCII
)
_HOST = re.compile(r"\*|(?:\*\.)?[A-Za-z0-9_:\[\]-]+(?:\.[A-Za-z0-9_-]+)*\.?")


def parse_argument_test(name: str, given: Any) -> ArgumentTest:
    """Parse the condition on an argument."""
    if not all(name.split(".")):
        raise ConfigurationError(f"{name[:80]!r} is no dotted name of an argument")
    if not isinstance(given, ArgumentEntry):
        return ArgumentIs(given)
    if len(given.model_fields_set) != 1:
        raise ConfigurationError("exactly one of is, glob and regex")
    if given.glob is not None:
        return ArgumentGlob(given.glob)
    if given.regex is not None:
        compile_regex(given.regex)
        return ArgumentRegex(given.regex)
    return ArgumentIs(given.value)


def parse_command_entry(given: str | CommandEntry) -> CommandPattern:
    """Parse a command pattern, written as text or as an entry."""
    if isinstance(given, str):
        return CommandPattern(split_command_words(given))
    if (given.whole is None) == (given.words is None):
        raise ConfigurationError("exactly one of is and words")
    if given.words is not None:
        if not given.words[0]:
            raise ConfigurationError("a command has at least one word, and it is not empty")
        return CommandPattern(tuple(given.words), given.exact)
    if "exact" in given.model_fields_set:
        raise ConfigurationError("exact goes with words; `is` is always the whole command")
    return CommandPattern(split_command_words(given.whole or ""), exact=True)


def check_host(host: str) -> None:
    """Raise `ConfigurationError` if a host pattern is invalid."""
    if "/" in host:
        raise ConfigurationError(f"{host[:80]!r}: the host alone, without the rest of the address")
    if not host.isascii():
        raise ConfigurationError(f"{host[:80]!r}: write the name as it is sent, with xn--")
    if not _HOST.fullmatch(host):
        raise ConfigurationError(f"{host[:80]!r} is no host; * stands alone or first, as in *.example.com")


def parse_duration(given: float | str | None) -> float | None:
    """Parse a duration to seconds."""
    if given is None:
        return None
    if isinstance(given, str):
        found = _DURATION.fullmatch(given.strip())
        if found is None:
            raise ConfigurationError(f"{given[:80]!r} is no time: write seconds, or a number with s, m, h, d or w")
        open_for = float(found[1]) * _SECONDS[found[2]]
    else:
        open_for = given
    if not 0 < open_for <= _MAX_DURATION_SECONDS:
        raise ConfigurationError("a time is more than 0 seconds and at most 10 years")
    return open_for


def parse_timestamp(given: str | None) -> int:
    """Parse an RFC 3339 time to nanoseconds since the epoch; 0 for none."""
    if given is None:
        return 0
    found = _TIME.fullmatch(given)
    try:
        if found is None:
            raise ValueError
        whole = calendar.timegm(datetime.fromisoformat(f"{found[1]}T{found[2]}").timetuple())
    except ValueError:
        raise ConfigurationError(f"{given[:80]!r} is no time of RFC 3339, as in 2030-01-31T12:00:00Z") from None
    offset = (int(found[5]) * 3_600 + int(found[6]) * 60) * (1 if found[4] == "+" else -1) if found[4] else 0
    ends_at = (whole - offset) * 1_000_000_000 + int((found[3] or "").ljust(9, "0"))
    # Whatever ended before 1970 ended; 0 would be never.
    return max(ends_at, 1)
