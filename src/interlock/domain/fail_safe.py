"""What a refused or failed call does to its run: go on, end early with a message, or end in an error."""

from typing import Literal, TypeAlias

import msgspec

FailurePolicy: TypeAlias = Literal["continue", "degrade", "fail"]


class FailSafeConfig(msgspec.Struct, frozen=True, kw_only=True):
    #: After a tool ran and failed.
    tool_failure_policy: FailurePolicy = "continue"
    #: After policy or a person refused a call.
    approval_denial_policy: FailurePolicy = "continue"
    #: The same for people alone: they refused it, or did not answer in time. None: as after policy refused.
    rejection_policy: FailurePolicy | None = None
    #: After a call started and the process died before its end was recorded, and nobody can tell whether it happened:
    #: the model is told so, or a person is asked whether it may run again.
    unknown_outcome_policy: Literal["tell", "ask"] = "tell"
    #: After a model gave no answer, retries included: the run fails, or it is kept as it is, to be resumed later.
    model_failure_policy: Literal["fail", "keep"] = "fail"

    @property
    def after_rejection(self) -> FailurePolicy:
        return self.rejection_policy or self.approval_denial_policy
