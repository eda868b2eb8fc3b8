"""Interaction providers: answer open questions in the same process. Answers are recorded like any other."""

from typing import Literal, Protocol, TypeAlias, get_args

from ..domain.call import Answer, Question
from ..domain.errors import ConfigurationError

#: After the timeout: reject, approve, or leave the question open for another process.
Fallback: TypeAlias = Literal["deny", "approve", "wait"]
_FALLBACKS = get_args(Fallback)


def check_fallback(fallback: Fallback) -> None:
    """Raise `ConfigurationError` for a fallback that there is none of."""
    if fallback not in _FALLBACKS:
        raise ConfigurationError(f"approval_fallback is deny, approve or wait, not {fallback!r}")


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
