"""Nobody is there. Every question is answered at once, in the way that was configured."""

from typing import get_args

from ..domain.call import Answer, Question
from ..domain.errors import ConfigurationError
from .interface import Fallback

#: The layer of questions whether a call may run again of which nobody knows whether it happened.
_RECOVERY_LAYER = "recovery"


class HeadlessInteractionProvider:
    """`deny` refuses, `approve` grants, `wait` leaves the question open for another process. Whether something may
    happen twice is for a person to say: `approve` refuses that."""

    interactive = False

    def __init__(self, approval_fallback: Fallback = "deny", approval_timeout_s: float | None = 300.0) -> None:
        if approval_fallback not in get_args(Fallback):
            raise ConfigurationError(f"approval_fallback is deny, approve or wait, not {approval_fallback!r}")
        self.approval_fallback: Fallback = approval_fallback
        self.approval_timeout_s = approval_timeout_s

    async def ask(self, question: Question) -> Answer | None:
        if self.approval_fallback == "wait":
            return None
        # A value cannot be approved: there is none.
        can_approve = question.kind == "approval" and question.layer != _RECOVERY_LAYER
        approved = self.approval_fallback == "approve" and can_approve
        return Answer(approved=approved, reason="Nobody is there to ask.", by="headless")
