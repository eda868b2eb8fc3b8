"""A clock that a test moves."""

from msgspec import field
from msgspec.structs import force_setattr

from ..pipeline.parts import Clock

_START_NS = 1_800_000_000_000_000_000
_SECOND_NS = 1_000_000_000


class FakeClock(Clock, frozen=True, kw_only=True):
    """Time that changes only by `advance`: what is recorded, when approvals expire, and what budgets count.

    Timeouts of running handlers are those of the event loop and stay real.
    """

    _advanced_ns: list[int] = field(default_factory=lambda: [0])

    def __post_init__(self) -> None:
        force_setattr(self, "now", lambda: _START_NS + self._advanced_ns[0])
        force_setattr(self, "elapsed", lambda: self._advanced_ns[0])

    def advance(self, seconds: float) -> None:
        """Move the time forward."""
        self._advanced_ns[0] += round(seconds * _SECOND_NS)
