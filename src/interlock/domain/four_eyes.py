"""Which calls need the decision of a second person, who neither made the run nor is acted for."""

from collections.abc import Collection
from typing import Literal, TypeAlias

from .tool import Risk

FourEyes: TypeAlias = Literal["off", "high_risk", "all"]

#: The layer that asks about a call of which nobody knows whether it happened.
RECOVERY = "recovery"
#: Words of a question's risk that make it one for a second person.
HIGH_RISK = frozenset((Risk.EXECUTE, Risk.NETWORK, Risk.DELEGATE))


def needs_second_person(risk: Collection[str], layer: str, setting: FourEyes) -> bool:
    """Return whether a question with this risk, asked by this layer, needs a second person."""
    if setting == "high_risk":
        return layer == RECOVERY or not HIGH_RISK.isdisjoint(risk)
    return setting == "all"
