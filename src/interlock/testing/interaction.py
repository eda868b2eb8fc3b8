"""An interaction provider that answers by a script."""

from collections.abc import Iterable
from typing import Any

from ..domain.call import Answer, Question
from ..interaction.interface import Fallback
from ..interaction.providers import CallbackInteractionProvider


class ScriptedInteractionProvider(CallbackInteractionProvider):
    """Give the answers in their order, and keep the questions for assertions.

    An answer is True, False, an `Answer`, None to leave the question open, or the value that is asked for. A question
    after the last answer is refused.
    """

    def __init__(
        self,
        answers: Iterable[Any],
        *,
        approval_timeout_s: float | None = 300.0,
        approval_fallback: Fallback = "deny",
    ) -> None:
        super().__init__(self._answer_next, approval_timeout_s, approval_fallback)
        self._answers = iter(answers)
        self.questions: list[Question] = []

    async def _answer_next(self, question: Question) -> Any:
        self.questions.append(question)
        for answer in self._answers:
            return answer
        reason = f"The script has no answer to question {len(self.questions)}, about {question.tool_name}."
        return Answer(approved=False, reason=reason, by="script")
