"""What an answer costs, where somebody says what tokens cost."""

import msgspec

from ..domain.messages import Usage
from .usage import read_cost, sane

_PER = 1_000_000


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """Per million tokens, in whatever currency the run's cost limit is in."""

    input: float
    output: float
    #: Input that the provider had cached; None: as dear as any other.
    cached: float | None = None

    def of(self, usage: Usage) -> float:
        usage = sane(usage)
        cached = min(usage.cached_tokens, usage.input_tokens)
        cached_price = self.input if self.cached is None else self.cached
        spent = (usage.input_tokens - cached) * self.input + cached * cached_price + usage.output_tokens * self.output
        return read_cost(spent / _PER) or 0.0


def with_cost(usage: Usage, prices: Prices | None) -> Usage:
    """What the provider says it costs is kept."""
    told = sane(usage)
    return told if told.cost or prices is None else msgspec.structs.replace(told, cost=prices.of(told))
