"""What an answer costs, where somebody says what tokens cost."""

import msgspec

from ..domain.conversation import Usage

_PER = 1_000_000


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """Per million tokens, in whatever currency the run's cost limit is in."""

    input: float
    output: float
    #: Input that the provider had cached; None: as dear as any other.
    cached: float | None = None

    def of(self, usage: Usage) -> float:
        cached = min(usage.cached_tokens, usage.input_tokens)
        cached_price = self.input if self.cached is None else self.cached
        spent = (usage.input_tokens - cached) * self.input + cached * cached_price + usage.output_tokens * self.output
        return spent / _PER


def with_cost(usage: Usage, prices: Prices | None) -> Usage:
    """What the provider says it costs is kept."""
    return usage if usage.cost or prices is None else msgspec.structs.replace(usage, cost=prices.of(usage))
