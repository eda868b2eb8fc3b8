"""What changed outside: a list of facts, or the word `unknown`. An empty list means that nothing did."""

from typing import Literal, TypeAlias

import msgspec

from .checked import check_fields


class SideEffect(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    #: What was done: `modified`, `created`, `deleted`, `sent`, ...
    kind: str
    #: To what: a path, a host, a record.
    target: str
    detail: str = ""

    def __post_init__(self) -> None:
        check_fields(self)


SideEffects: TypeAlias = tuple[SideEffect, ...] | Literal["unknown"]

NONE: tuple[SideEffect, ...] = ()
UNKNOWN: Literal["unknown"] = "unknown"


def shown(effects: SideEffects) -> object:
    """As observations show it: `none`, `unknown` or the facts."""
    return effects or "none"
