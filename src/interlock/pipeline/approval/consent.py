"""The consent that a tool needs from the user it acts for: requested before the call, and used right before its
start.
"""

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
from ..events import void_event
from ..permit import permission_event
from ..refusals import consent_unavailable
from .question import build_consent_question, consent_decision


async def require_consent(valid: ValidCall, decision: Decision, run: RunContext) -> WaitingCall | Failure | None:
    """Make a call wait until its user consented. None: they did, or the call would be refused anyway."""
    if decision.verdict is Verdict.DENY:
        return None
    token = await _token(valid, run)
    if isinstance(token, str):
        return None
    return token if isinstance(token, Failure) else _wait_for_consent(valid, decision, run)


async def use_consent(
    permitted: PermittedCall, context: ToolContext, run: RunContext
) -> PermittedCall | WaitingCall | Failure:
    """Fetch the access token right before the start. The user may have revoked their consent meanwhile."""
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
        return consent_unavailable(tool, "no user can be asked for one here.")
    if not run.situation.requester:
        return consent_unavailable(tool, "the run acts for no user.")
    try:
        return await asyncio.wait_for(consents.token(_binding(valid, run), consent), run.parts.limits.check_seconds)
    except Exception as error:  # also errors of the token store: the run continues, and this call is refused
        return consent_unavailable(tool, f"{consent.provider} could not be asked: {describe_error(error)}.")


def _binding(valid: ValidCall, run: RunContext) -> ConsentBinding:
    """Return what a consent to this call is bound to: this definition of the tool, the agent that acts now, the first
    agent of the run, and its parent agents.
    """
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
    question = build_consent_question(valid, _binding(valid, run), run, run.parts.limits.consent_seconds)
    waits = consent_decision(decision, question)
    run.recorder.add(permission_event(valid.call_id, valid.tool, waits, run), valid.call_id)
    return WaitingCall(valid, waits, question)
