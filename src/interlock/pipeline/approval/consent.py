"""The consent that a tool needs of the user it acts for: asked for before the call, and used right before its start."""

import asyncio

from ...domain.call import PermittedCall, ValidCall, WaitingCall
from ...domain.decision import Decision, Verdict
from ...domain.outcome import Failure
from ...domain.payload import (
    BindingChange,
    definition_digest,
)
from ...domain.tool import (
    ConsentBinding,
    ToolContext,
    agent_path,
)
from ...rendering.text import describe_error
from ..context import RunContext
from ..events import permission_event, void_event
from ..refusals import consent_unavailable
from .question import build_consent_question, consent_decision


async def require_consent(valid: ValidCall, decision: Decision, run: RunContext) -> WaitingCall | Failure | None:
    """A tool that acts for a user elsewhere waits until that user let it. None: they did, or nothing would come of
    it."""
    if decision.verdict is Verdict.DENY:
        return None
    token = await _token(valid, run)
    if isinstance(token, str):
        return None
    return token if isinstance(token, Failure) else _wait_for_consent(valid, decision, run)


async def use_consent(
    permitted: PermittedCall, context: ToolContext, run: RunContext
) -> PermittedCall | WaitingCall | Failure:
    """Right before the start: what lets the tool act for the user, which they may have taken back meanwhile."""
    valid, token = permitted.valid, await _token(permitted.valid, run)
    match token:
        case str():
            context.access_token = token
            return permitted
        case Failure():
            return token
        case None:
            if permitted.action_id:
                taken_back = BindingChange("consent", "given", "not there any more")
                question = run.ledger.actions[permitted.action_id].question
                run.recorder.add(void_event(question, (taken_back,), run), valid.call_id)
            return _wait_for_consent(valid, permitted.decision, run)


async def _token(valid: ValidCall, run: RunContext) -> str | Failure | None:
    consent, tool, consents = valid.tool.consent, valid.tool.name, run.parts.consents
    if consent is None or not consents.can_ask:
        return consent_unavailable(tool, "nobody can be asked for one here.")
    if not run.situation.requester:
        return consent_unavailable(tool, "the run acts for nobody.")
    try:
        return await asyncio.wait_for(consents.token(_binding(valid, run), consent), run.parts.limits.check_seconds)
    except Exception as error:  # also of whoever keeps the tokens: the run goes on, and this call is refused
        return consent_unavailable(tool, f"{consent.provider} could not be asked: {describe_error(error)}.")


def _binding(valid: ValidCall, run: RunContext) -> ConsentBinding:
    """Return what a consent to this call is given for: this definition of the tool, of the agent that acts now, in the
    run of the agent that it began with, inside the agents around it."""
    situation = run.situation
    began = run.ledger.agent or situation.agent
    acting = () if situation.agent == began else (situation.agent,)
    return ConsentBinding(
        user=situation.requester,
        agent=agent_path((*situation.parent_agents, began, *acting)),
        tool=valid.tool.name,
        definition=definition_digest(valid.tool),
    )


def _wait_for_consent(valid: ValidCall, decision: Decision, run: RunContext) -> WaitingCall:
    parts = run.parts
    question = build_consent_question(
        valid, _binding(valid, run), run.situation, parts.clock.now(), parts.limits.consent_seconds
    )
    waits = consent_decision(decision, question)
    run.recorder.add(permission_event(valid.call_id, valid.tool, waits, run), valid.call_id)
    return WaitingCall(valid, waits, question)
