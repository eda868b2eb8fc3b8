"""Validation of the final answer: its form, and its claims compared with the facts of the run."""

import re
from typing import TYPE_CHECKING, Any

from .. import lazy_module, lazy_pattern
from ..domain.event import ClaimContradicted, FinalAnswerRejected
from ..domain.state.ledger import Ledger
from ..rendering.text import shorten
from ..verification.claims import describe_contradiction, find_claim
from .agent import Agent
from .model_turn import get_type_adapter

if TYPE_CHECKING:
    import pydantic
else:
    pydantic = lazy_module("pydantic")

_CODE_FENCE = lazy_pattern(r"\A\s*```(?:json)?\s*\n(.*)\n\s*```\s*\Z", re.DOTALL)
_MAX_ERRORS = 5
_MAX_ERROR_CHARS = 2_000


def check_final_answer(
    text: str, agent: Agent, ledger: Ledger, *, can_ask: bool = True
) -> FinalAnswerRejected | ClaimContradicted | None:
    """Return what is wrong with the final answer, as an event; None when it is accepted. `can_ask`: the model may try
    again.
    """
    if ledger.dialogue.finish == "length":
        return FinalAnswerRejected(message="The answer was cut because it became too long. Answer again, and shorter.")
    if ledger.dialogue.finish != "stop" and not text.strip():
        return FinalAnswerRejected(
            message=f"There is no answer ({ledger.dialogue.finish}). Say what you found and did."
        )
    if agent.output_type is not None:
        try:
            parse_output(text, agent.output_type)
        except ValueError as error:
            return FinalAnswerRejected(message=_describe_error(error))
    if not agent.check_claims:
        return None
    verification = ledger.checks.summarize()
    claim = "" if verification.status == "passed" else find_claim(text)  # then none contradicts the facts
    message = describe_contradiction(claim, verification)
    if not message:
        return None
    told = can_ask and ledger.dialogue.conflicts == 0
    return ClaimContradicted(claim=claim, status=verification.status, message=message, told=told)


def parse_output(text: str, output_type: Any) -> Any:
    """Return the answer as the requested type. Raise `ValueError` when it does not fit."""
    if output_type is str:
        return text
    fenced = _CODE_FENCE.match(text)
    return get_type_adapter(output_type).validate_json(fenced[1] if fenced else text, strict=False)


def _describe_error(error: ValueError) -> str:
    if isinstance(error, pydantic.ValidationError):
        problems = [f"{'.'.join(map(str, e['loc'])) or 'answer'}: {e['msg']}" for e in error.errors()[:_MAX_ERRORS]]
        details = "; ".join(problems)
    else:
        details = str(error)
    details = shorten(details, _MAX_ERROR_CHARS)
    return f"The answer does not have the form that was asked for: {details}. Answer again, as JSON of that form only."
