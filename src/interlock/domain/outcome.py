"""Side effects and failures of a call. Side effects are a list of facts, or `unknown`; an empty list means none."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal, TypeAlias

import msgspec

from .json import JsonObject, validate_fields


class SideEffect(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One change that a call made outside the runtime."""

    #: What was done: `modified`, `created`, `deleted`, `sent`, ...
    kind: str
    #: To what: a path, a host, a record.
    target: str
    detail: str = ""

    def __post_init__(self) -> None:
        validate_fields(self)


SideEffects: TypeAlias = tuple[SideEffect, ...] | Literal["unknown"]

NO_SIDE_EFFECTS: tuple[SideEffect, ...] = ()
UNKNOWN_SIDE_EFFECTS: Literal["unknown"] = "unknown"


def display_side_effects(effects: SideEffects) -> object:
    """Return the side effects as observations show them: `none`, `unknown` or the facts."""
    return effects or "none"


#: The kind of an artifact that has the whole output of a call.
TOOL_OUTPUT = "tool_output"


class ArtifactRef(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A reference to stored evidence: `id` is the digest of its content."""

    id: str
    kind: str
    size_bytes: int
    path: str = ""


class OutputSize(msgspec.Struct, frozen=True, gc=False, kw_only=True, forbid_unknown_fields=True):
    """Byte counts of an output: `produced = shown + omitted`; `kept` bytes are in the artifact."""

    produced: int
    kept: int
    shown: int
    omitted: int


class NextTool(msgspec.Struct, frozen=True, gc=False, kw_only=True, forbid_unknown_fields=True):
    """A tool that the model may call next."""

    tool: str
    input_hint: JsonObject


class Phase(StrEnum):
    """The stages of a call."""

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
    def label(self) -> str:
        """The name of this phase in observations."""
        return _PHASE_LABELS.get(self, self.value)


#: Observations keep the established names of two stages.
_PHASE_LABELS = {Phase.PERMIT: "permission", Phase.RECORD: "write_back"}


class ErrorCode(msgspec.Struct, frozen=True, gc=False):
    """An error code: its phase, whether a retry makes sense, and its assumed side effects."""

    phase: Phase
    retryable: bool
    side_effects: SideEffects
    meaning: str


ERROR_CODES: Mapping[str, ErrorCode] = {
    "call_id_invalid": ErrorCode(Phase.ACCEPT, True, NO_SIDE_EFFECTS, "The call has no usable id."),
    "call_id_conflict": ErrorCode(
        Phase.ACCEPT, True, NO_SIDE_EFFECTS, "The id was used for a call with other content."
    ),
    "arguments_malformed": ErrorCode(Phase.ACCEPT, True, NO_SIDE_EFFECTS, "The arguments are not a sane JSON object."),
    "arguments_too_large": ErrorCode(Phase.ACCEPT, True, NO_SIDE_EFFECTS, "The arguments are over the size limit."),
    "batch_too_large": ErrorCode(Phase.ACCEPT, True, NO_SIDE_EFFECTS, "One response holds more calls than the limit."),
    "unknown_tool": ErrorCode(Phase.LOOKUP, True, NO_SIDE_EFFECTS, "No tool has this name."),
    "tool_not_visible": ErrorCode(Phase.LOOKUP, True, NO_SIDE_EFFECTS, "The tool is not available now."),
    "tool_quarantined": ErrorCode(
        Phase.LOOKUP, False, NO_SIDE_EFFECTS, "Its definition changed, and no person has accepted the change."
    ),
    "schema_invalid": ErrorCode(Phase.VALIDATE, True, NO_SIDE_EFFECTS, "The arguments do not fit the schema."),
    "runtime_precondition_failed": ErrorCode(
        Phase.VALIDATE, True, NO_SIDE_EFFECTS, "It cannot be done in the current state."
    ),
    "ambiguous_target": ErrorCode(Phase.VALIDATE, True, NO_SIDE_EFFECTS, "The target is not unique."),
    "stale_file_baseline": ErrorCode(Phase.VALIDATE, True, NO_SIDE_EFFECTS, "The file changed since it was read."),
    "policy_denied": ErrorCode(Phase.PERMIT, False, NO_SIDE_EFFECTS, "A rule refused the call."),
    "effect_repeated": ErrorCode(
        Phase.PERMIT, False, NO_SIDE_EFFECTS, "Its effect happened before, and may not happen again."
    ),
    "budget_exceeded": ErrorCode(
        Phase.PERMIT, False, NO_SIDE_EFFECTS, "A budget of the policy has not enough left in its window."
    ),
    "budget_unavailable": ErrorCode(
        Phase.PERMIT, True, NO_SIDE_EFFECTS, "What was used of a budget of the policy cannot be read or written."
    ),
    "user_denied": ErrorCode(Phase.PERMIT, False, NO_SIDE_EFFECTS, "A person refused the call."),
    "approval_unavailable": ErrorCode(
        Phase.PERMIT, False, NO_SIDE_EFFECTS, "It needs an approval, and no person is available to ask."
    ),
    "approval_expired": ErrorCode(Phase.PERMIT, False, NO_SIDE_EFFECTS, "The question was not answered in time."),
    "too_many_questions": ErrorCode(
        Phase.PERMIT, True, NO_SIDE_EFFECTS, "The run waits for as many answers as it may."
    ),
    "consent_refused": ErrorCode(Phase.PERMIT, False, NO_SIDE_EFFECTS, "The user did not consent."),
    "consent_expired": ErrorCode(Phase.PERMIT, False, NO_SIDE_EFFECTS, "The user did not consent in time."),
    "consent_unavailable": ErrorCode(
        Phase.PERMIT, True, NO_SIDE_EFFECTS, "Whether the user consents could not be found out."
    ),
    "guardrail_refused": ErrorCode(Phase.PERMIT, False, NO_SIDE_EFFECTS, "An input guardrail refused the arguments."),
    "payload_changed": ErrorCode(Phase.PERMIT, True, NO_SIDE_EFFECTS, "What would run is not what was permitted."),
    "skipped": ErrorCode(Phase.SCHEDULE, True, NO_SIDE_EFFECTS, "The run stopped before it was this call's turn."),
    "cancelled_before_start": ErrorCode(
        Phase.SCHEDULE, True, NO_SIDE_EFFECTS, "The call was cancelled before it started."
    ),
    "no_capacity": ErrorCode(Phase.SCHEDULE, True, NO_SIDE_EFFECTS, "No worker is free; earlier calls hang."),
    "hook_failed": ErrorCode(Phase.EXECUTE, False, NO_SIDE_EFFECTS, "A pre-hook failed; the handler did not run."),
    "tool_failed": ErrorCode(Phase.EXECUTE, True, UNKNOWN_SIDE_EFFECTS, "The handler raised."),
    "timed_out": ErrorCode(Phase.EXECUTE, False, UNKNOWN_SIDE_EFFECTS, "The tool did not finish in time."),
    "cancelled": ErrorCode(Phase.EXECUTE, False, UNKNOWN_SIDE_EFFECTS, "The call was cancelled while it ran."),
    "outcome_unknown": ErrorCode(
        Phase.EXECUTE, False, UNKNOWN_SIDE_EFFECTS, "It started, and nothing recorded its end."
    ),
    "upstream_error": ErrorCode(
        Phase.EXECUTE, False, UNKNOWN_SIDE_EFFECTS, "The server that has the tool answered with an error."
    ),
    "post_hook_failed": ErrorCode(
        Phase.EXECUTE, False, UNKNOWN_SIDE_EFFECTS, "The handler ran, then a post-hook failed."
    ),
    "sandbox_setup_failed": ErrorCode(
        Phase.EXECUTE, False, NO_SIDE_EFFECTS, "The command could not be confined; it did not run."
    ),
    "sandbox_denied": ErrorCode(Phase.EXECUTE, False, UNKNOWN_SIDE_EFFECTS, "The sandbox refused what the tool tried."),
    "normalize_failed": ErrorCode(
        Phase.NORMALIZE, False, UNKNOWN_SIDE_EFFECTS, "The tool ran; its result could not be shaped."
    ),
    "upstream_invalid_output": ErrorCode(
        Phase.NORMALIZE, False, UNKNOWN_SIDE_EFFECTS, "The tool ran; its result does not fit the schema it declares."
    ),
    "output_refused": ErrorCode(
        Phase.OBSERVE, False, UNKNOWN_SIDE_EFFECTS, "The tool ran; a guardrail withheld its output."
    ),
    "artifact_lost": ErrorCode(
        Phase.OBSERVE, False, UNKNOWN_SIDE_EFFECTS, "The tool ran; its output could not be kept."
    ),
}


class Failure(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Why a call stopped: phase, code, message and side effects."""

    phase: Phase
    code: str
    message: str
    retryable: bool
    side_effects: SideEffects = NO_SIDE_EFFECTS
    #: More details: invalid fields, matching rules.
    details: dict[str, Any] = {}

    @classmethod
    def from_code(
        cls,
        code: str,
        message: str,
        *,
        side_effects: SideEffects | None = None,
        details: dict[str, Any] | None = None,
    ) -> "Failure":
        """Build a failure with the phase and defaults that belong to its code."""
        row = ERROR_CODES[code]
        return cls(
            phase=row.phase,
            code=code,
            message=message,
            retryable=row.retryable,
            side_effects=row.side_effects if side_effects is None else side_effects,
            details=details or {},
        )
