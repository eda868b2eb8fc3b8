"""Usage and cost of responses, where prices are configured."""

from collections.abc import Callable, Mapping
from math import inf, isnan
from typing import Any, cast

import msgspec

from ..domain.messages import Usage

#: More than any answer takes, and so little that sums of them stay exact.
MAX_TOKENS = 10**12
MAX_COST = 1e9

_MAX_WRITTEN_CHARS = 64
_NONE = Usage()


def get_field(said: object, name: str) -> object:
    """Return a field of an object or a mapping, since the SDKs return either; None where there is none."""
    return cast(Mapping[str, Any], said).get(name) if isinstance(said, Mapping) else getattr(said, name, None)


def read_tokens(said: object) -> int | None:
    """Return a token count; None: not stated."""
    number = _number(said)
    return None if number is None else int(min(max(number, 0.0), MAX_TOKENS))


def read_cost(said: object) -> float | None:
    """Parse a cost reported by a provider. Return None if it is not a number."""
    number = _number(said)
    return None if number is None else min(max(number, 0.0), MAX_COST)


def clamp_usage(usage: Usage) -> Usage:
    """Return the usage within sane limits. A custom provider may return anything."""
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


_PER = 1_000_000


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """Prices per million tokens, in the currency of the run's cost limit."""

    input: float
    output: float
    #: Input that the provider had cached; None: as dear as any other.
    cached: float | None = None

    def compute_cost(self, usage: Usage) -> float:
        """Compute the cost of a request from its token counts."""
        usage = clamp_usage(usage)
        cached = min(usage.cached_tokens, usage.input_tokens)
        cached_price = self.input if self.cached is None else self.cached
        spent = (usage.input_tokens - cached) * self.input + cached * cached_price + usage.output_tokens * self.output
        return read_cost(spent / _PER) or 0.0


def estimate_cost(provider: object, usage: Usage, model: str) -> float | None:
    """Return the cost of a request by the prices of its provider. None: it has none for this model. A provider without
    `estimate_cost` reports the cost with its answer: 0 before.
    """
    estimate: Callable[[Usage, str], float | None] | None = getattr(provider, "estimate_cost", None)
    return 0.0 if estimate is None else estimate(usage, model)


def add_cost(usage: Usage, prices: Prices | None) -> Usage:
    """Return the usage with its cost. A cost stated by the provider is kept."""
    reported = clamp_usage(usage)
    return (
        reported
        if reported.cost or prices is None
        else msgspec.structs.replace(reported, cost=prices.compute_cost(reported))
    )
