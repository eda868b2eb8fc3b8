"""What changed outside: a list of facts, or the word `unknown`. An empty list means that nothing did."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal, TypeAlias

import msgspec

from .json import JsonObject
from .validation import check_fields


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


class ArtifactRef(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Full evidence kept by reference: `id` is the digest of its content."""

    id: str
    kind: str
    size_bytes: int
    path: str = ""


class OutputSize(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Byte-exact: `produced = shown + omitted`; `kept` bytes are in the artifact."""

    produced: int
    kept: int
    shown: int
    omitted: int


class NextTool(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    tool: str
    input_hint: JsonObject


class Phase(StrEnum):
    ACCEPT = "accept"
    LOOKUP = "lookup"
    VALIDATE = "validate"
    PERMIT = "permit"
    SCHEDULE = "schedule"
    EXECUTE = "execute"
    NORMALIZE = "normalize"
    OBSERVE = "observe"
    RECORD = "record"

    @property
    def word(self) -> str:
        """The word that observations show for this phase."""
        return _WORDS.get(self, self.value)


#: Observations keep the field's older words for two stages.
_WORDS = {Phase.PERMIT: "permission", Phase.RECORD: "write_back"}


class Code(msgspec.Struct, frozen=True, gc=False):
    phase: Phase
    retryable: bool
    side_effects: SideEffects
    meaning: str


CODES: Mapping[str, Code] = {
    "call_id_invalid": Code(Phase.ACCEPT, True, NONE, "The call has no usable id."),
    "call_id_conflict": Code(Phase.ACCEPT, True, NONE, "The id was used for a call with other content."),
    "arguments_malformed": Code(Phase.ACCEPT, True, NONE, "The arguments are not a sane JSON object."),
    "arguments_too_large": Code(Phase.ACCEPT, True, NONE, "The arguments are over the size limit."),
    "batch_too_large": Code(Phase.ACCEPT, True, NONE, "One response holds more calls than the limit."),
    "unknown_tool": Code(Phase.LOOKUP, True, NONE, "No tool has this name."),
    "tool_not_visible": Code(Phase.LOOKUP, True, NONE, "The tool is not available now."),
    "schema_invalid": Code(Phase.VALIDATE, True, NONE, "The arguments do not fit the schema."),
    "runtime_precondition_failed": Code(Phase.VALIDATE, True, NONE, "It cannot be done in the current state."),
    "ambiguous_target": Code(Phase.VALIDATE, True, NONE, "The target is not unique."),
    "stale_file_baseline": Code(Phase.VALIDATE, True, NONE, "The file changed since it was read."),
    "policy_denied": Code(Phase.PERMIT, False, NONE, "A rule refused the call."),
    "user_denied": Code(Phase.PERMIT, False, NONE, "A person refused the call."),
    "approval_expired": Code(Phase.PERMIT, False, NONE, "Nobody answered in time."),
    "too_many_questions": Code(Phase.PERMIT, True, NONE, "The run waits for as many answers as it may."),
    "consent_refused": Code(Phase.PERMIT, False, NONE, "The user did not consent."),
    "consent_expired": Code(Phase.PERMIT, False, NONE, "The user did not consent in time."),
    "consent_unavailable": Code(Phase.PERMIT, True, NONE, "Whether the user consents could not be found out."),
    "guardrail_refused": Code(Phase.PERMIT, False, NONE, "An input guardrail refused the arguments."),
    "payload_changed": Code(Phase.PERMIT, True, NONE, "What would run is not what was permitted."),
    "skipped": Code(Phase.SCHEDULE, True, NONE, "The run stopped before it was this call's turn."),
    "cancelled_before_start": Code(Phase.SCHEDULE, True, NONE, "The call was cancelled before it started."),
    "no_capacity": Code(Phase.SCHEDULE, True, NONE, "No worker is free; earlier calls hang."),
    "hook_failed": Code(Phase.EXECUTE, False, NONE, "A pre-hook failed; the handler did not run."),
    "tool_failed": Code(Phase.EXECUTE, True, UNKNOWN, "The handler raised."),
    "timed_out": Code(Phase.EXECUTE, False, UNKNOWN, "The tool did not finish in time."),
    "cancelled": Code(Phase.EXECUTE, False, UNKNOWN, "The call was cancelled while it ran."),
    "outcome_unknown": Code(Phase.EXECUTE, False, UNKNOWN, "It started, and nothing recorded its end."),
    "post_hook_failed": Code(Phase.EXECUTE, False, UNKNOWN, "The handler ran, then a post-hook failed."),
    "sandbox_setup_failed": Code(Phase.EXECUTE, False, NONE, "The command could not be confined; it did not run."),
    "sandbox_denied": Code(Phase.EXECUTE, False, UNKNOWN, "The sandbox refused what the tool tried."),
    "normalize_failed": Code(Phase.NORMALIZE, False, UNKNOWN, "The tool ran; its result could not be shaped."),
    "output_refused": Code(Phase.OBSERVE, False, UNKNOWN, "The tool ran; a guardrail withheld its output."),
    "artifact_lost": Code(Phase.OBSERVE, False, UNKNOWN, "The tool ran; its output could not be kept."),
}


class Failure(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    phase: Phase
    code: str
    message: str
    retryable: bool
    side_effects: SideEffects = NONE
    #: More facts for a reader that wants them: fields that were wrong, rules that refused.
    details: dict[str, Any] = {}

    @classmethod
    def of(
        cls,
        code: str,
        message: str,
        *,
        side_effects: SideEffects | None = None,
        details: dict[str, Any] | None = None,
    ) -> "Failure":
        row = CODES[code]
        return cls(
            phase=row.phase,
            code=code,
            message=message,
            retryable=row.retryable,
            side_effects=row.side_effects if side_effects is None else side_effects,
            details=details or {},
        )
