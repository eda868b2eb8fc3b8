"""Somebody who may answer an open question in the same process. The answer is recorded like any other."""

from typing import Literal, Protocol, TypeAlias

from ..domain.call import Answer, Question

#: When nobody answers in time: refuse, grant, or leave the question open for another process.
Fallback: TypeAlias = Literal["deny", "approve", "wait"]


class InteractionProvider(Protocol):
    @property
    def approval_timeout_s(self) -> float | None:
        """How long `ask` may take; None waits for ever."""
        ...

    @property
    def approval_fallback(self) -> Fallback: ...

    @property
    def interactive(self) -> bool:
        """Is there a person at the other end right now?"""
        ...

    async def ask(self, question: Question) -> Answer | None:
        """The answer, or None to leave the question open: then the call stays waiting."""
        ...
