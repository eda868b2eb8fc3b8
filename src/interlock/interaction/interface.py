"""Interaction providers: answer open questions in the same process. Answers are recorded like any other."""

from typing import Literal, Protocol, TypeAlias

from ..domain.call import Answer, Question

#: After the timeout: reject, approve, or leave the question open for another process.
Fallback: TypeAlias = Literal["deny", "approve", "wait"]


class InteractionProvider(Protocol):
    """Ask a person. Implement it to bring questions to your own users; see also `CallbackInteractionProvider`."""

    @property
    def approval_timeout_s(self) -> float | None:
        """How long `ask` may take; None: no limit."""
        ...

    @property
    def approval_fallback(self) -> Fallback: ...

    @property
    def interactive(self) -> bool:
        """True when a person is available right now."""
        ...

    async def ask(self, question: Question) -> Answer | None:
        """Return the answer, or None to leave the question open: then the call stays waiting."""
        ...
