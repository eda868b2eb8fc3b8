"""What servers say that an answer took, made into numbers that can be added up, compared and stored.

A server may say anything: a number as text, nothing, a number below zero or without end. What is no number counts as
not said. One that is too large counts as the largest, so a limit is reached rather than missed.
"""

from collections.abc import Mapping
from math import inf, isnan
from typing import Any, cast

from ..domain.messages import Usage

#: More than any answer takes, and so little that sums of them stay exact.
MAX_TOKENS = 10**12
MAX_COST = 1e9

_MAX_WRITTEN_CHARS = 64
_NONE = Usage()


def field_of(said: object, name: str) -> object:
    """Of an object or of a mapping, since the SDKs hand on either; None where there is none."""
    return cast(Mapping[str, Any], said).get(name) if isinstance(said, Mapping) else getattr(said, name, None)


def read_tokens(said: object) -> int | None:
    """None: it does not say."""
    number = _number(said)
    return None if number is None else int(min(max(number, 0.0), MAX_TOKENS))


def read_cost(said: object) -> float | None:
    number = _number(said)
    return None if number is None else min(max(number, 0.0), MAX_COST)


def sane(usage: Usage) -> Usage:
    """The same where it can be. Usage of a provider of one's own may hold anything, too."""
    if usage == _NONE:
        return usage
    return Usage(
        input_tokens=read_tokens(usage.input_tokens) or 0,
        output_tokens=read_tokens(usage.output_tokens) or 0,
        cached_tokens=read_tokens(usage.cached_tokens) or 0,
        cost=read_cost(usage.cost) or 0.0,
    )


def _number(said: object) -> float | None:
    if isinstance(said, bool) or not isinstance(said, int | float | str):
        return None
    if isinstance(said, str) and len(said) > _MAX_WRITTEN_CHARS:
        return None
    try:
        number = float(said)
    except OverflowError:  # an integer without end
        return inf if cast(int, said) > 0 else 0.0
    except ValueError:
        return None
    return None if isnan(number) else number
