"""The trial of a call: it ran where its effects are kept apart, so that a person approves what it does.

A tool that can be tried declares `trial`, a `TrialRunner`. Where policy asks `after`, the call is tried first, and the
question shows its effect. An approval is bound to the digest of that effect; the handler then applies exactly this
effect and runs nothing again.
"""

from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import msgspec

from .json import JsonObject, validate_fields

if TYPE_CHECKING:
    from .payload import BindingChange
    from .tool import CallContext, ToolContext

#: When a person is asked: before a call runs, or after its trial.
AskTime: TypeAlias = Literal["before", "after"]
ChangeKind: TypeAlias = Literal["created", "modified", "deleted", "mode", "skipped"]


class TriedChange(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """One file that the call changed in its trial."""

    path: str
    kind: ChangeKind
    #: Lines added and removed, the size, a mode, where a link leads, why it is not kept.
    detail: str = ""


class Trial(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a call did in its trial, for the person who is asked. Untrusted, like all output."""

    #: Identifies the whole effect, also what is not shown. An approval is bound to it.
    digest: str
    #: How it ended: `exit code 0 after 1.2 s`.
    outcome: str = ""
    #: The first changes, and how many there are.
    changes: tuple[TriedChange, ...] = ()
    change_count: int = 0
    #: The changes of text files as a unified diff, and whether more was cut off.
    diff: str = ""
    is_diff_cut: bool = False
    #: The end of what it printed.
    output: str = ""
    #: Hosts that it tried to reach; none can be reached in a trial.
    hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        validate_fields(self)

    @property
    def has_effect(self) -> bool:
        """True when there is something to approve."""
        return self.change_count > 0


class TrialRunner(Protocol):
    """How calls of a tool are tried."""

    def find_obstacle(self, arguments: JsonObject, situation: "CallContext") -> str:
        """Return why a call cannot be tried, for the person who is asked before it runs; empty when it can."""
        ...

    async def run(self, arguments: JsonObject, context: "ToolContext") -> Trial:
        """Try the call. Nothing of it stays but what `digest` stands for."""
        ...

    def find_drift(self, digest: str) -> "tuple[BindingChange, ...]":
        """Return what the tried effect is based on and differs now. It may block."""
        ...

    def was_applied(self, digest: str) -> bool | None:
        """Return whether the effect was applied by a process that died; None when that is unknown. It may block."""
        ...

    def discard(self, digest: str) -> None:
        """Forget a tried effect that will not be applied. It may block."""
        ...
