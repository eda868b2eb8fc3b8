"""Nobody is there. Every question is answered at once, in the way that was configured."""

from typing import get_args

from ..domain.call import Answer, Question
from ..domain.errors import ConfigurationError
from .interface import Fallback


class HeadlessInteractionProvider:
    """`deny` refuses, `approve` grants, `wait` leaves the question open for another process."""

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
        approved = self.approval_fallback == "approve" and question.kind == "approval"
        return Answer(approved=approved, reason="Nobody is there to ask.", by="headless")
