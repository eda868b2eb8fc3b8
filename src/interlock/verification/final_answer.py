"""Is the final answer what it has to be? Its form, and what it claims, held against the facts of the run."""

import re
from typing import Any

from pydantic import ValidationError

from ..agent.agent import Agent
from ..agent.model_turn import adapter_of
from ..domain.event import AnswerRefused, ClaimContradicted
from ..domain.state.ledger import Ledger
from ..rendering.sentences import shorten
from .claims import claim_in, contradiction

_FENCED = re.compile(r"\A\s*```(?:json)?\s*\n(.*)\n\s*```\s*\Z", re.DOTALL)
_MAX_ERRORS = 5
_MAX_TOLD_CHARS = 2_000


def objection(
    text: str, agent: Agent, ledger: Ledger, *, can_ask: bool = True
) -> AnswerRefused | ClaimContradicted | None:
    """What is wrong with the answer, as a fact; None when it can stand. `can_ask`: the model may still be told."""
    if ledger.dialogue.finish == "length":
        return AnswerRefused(message="The answer was cut because it became too long. Answer again, and shorter.")
    if ledger.dialogue.finish != "stop" and not text.strip():
        return AnswerRefused(message=f"There is no answer ({ledger.dialogue.finish}). Say what you found and did.")
    if agent.output_type is not None:
        try:
            read_output(text, agent.output_type)
        except ValueError as error:
            return AnswerRefused(message=_words(error))
    if not agent.check_claims:
        return None
    verification = ledger.checks.verdict()
    claim = claim_in(text)
    against = contradiction(claim, verification)
    if not against:
        return None
    told = can_ask and ledger.dialogue.conflicts == 0
    return ClaimContradicted(claim=claim, status=verification.status, message=against, told=told)


def read_output(text: str, output_type: Any) -> Any:
    """The answer as the type that was asked for. `ValueError` when it is not."""
    if output_type is str:
        return text
    fenced = _FENCED.match(text)
    return adapter_of(output_type).validate_json(fenced[1] if fenced else text, strict=False)


def _words(error: ValueError) -> str:
    if isinstance(error, ValidationError):
        problems = [f"{'.'.join(map(str, e['loc'])) or 'answer'}: {e['msg']}" for e in error.errors()[:_MAX_ERRORS]]
        told = "; ".join(problems)
    else:
        told = str(error)
    told = shorten(told, _MAX_TOLD_CHARS)
    return f"The answer does not have the form that was asked for: {told}. Answer again, as JSON of that form only."
