"""Stage 4: may it start? Deny wins; ask waits for a person; whatever cannot be decided is denied."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from os.path import join, normpath
from typing import cast

import msgspec

from ..domain.call import Answer, PermittedCall, Question, ValidCall
from ..domain.decision import RECOVERY, SCOPES, Decision, Verdict, joined
from ..domain.ids import new_action_id
from ..domain.json import BadJson, check
from ..domain.outcome import Failure
from ..domain.payload import Bound
from ..domain.resources import declared_paths, place_in, values_at
from ..domain.tool import Consent, ConsentBinding, Guardrail, ResourceKind, Risk, Situation, ToolContext
from ..interaction.interface import InteractionProvider
from ..policy.interface import PolicyEngine, PolicyEvent
from ..rendering.sentences import error_text, sentence, shorten, shown

#: The layer that asks a user to let a tool act for them.
CONSENT = "consent"
_MAX_REASON_CHARS = 500
_MAX_CAPABILITY_CHARS = 200
_SHOWN_DIGEST_CHARS = 12


async def evaluate(valid: ValidCall, policy: PolicyEngine, situation: Situation, seconds: float) -> Decision:
    """The policy's decision and the tool's own opinion, the strictest of both. An error is a deny."""
    tool = valid.tool
    try:
        event = PolicyEvent(valid.call_id, tool, valid.checked, situation)
        said: object = policy.evaluate(event)
        match said:
            case Decision():
                decision = said
            case Awaitable():
                decision = await asyncio.wait_for(said, seconds)
            case _:
                decision = said
        if type(decision) is not Decision:
            return _undecided(f"it returned {type(decision).__name__}")
        opinion = tool.authorize(valid.copy(), situation) if tool.authorize is not None else None
        decision = decision if opinion is None else joined(decision, opinion)
        return _with_judged_paths(decision, valid, event) if tool.resources else decision
    except Exception as error:
        return _undecided(error_text(error))


def _with_judged_paths(decision: Decision, valid: ValidCall, event: PolicyEvent) -> Decision:
    """Name the places that were judged: where each path argument leads as it is written, and as it was resolved."""
    # The folder that an approved call starts in is bound to the approval in another way.
    kinds: tuple[ResourceKind, ...] = ("path", "folder") if decision.verdict is Verdict.ALLOW else ("path",)
    named = declared_paths(valid.tool, valid.arguments, kinds)
    if not named or decision.verdict is Verdict.DENY:
        return decision
    roots = (event.folder, event.real_path("."))
    places = dict.fromkeys(decision.paths)
    for path in named:
        with suppress(OSError, ValueError):  # no file has such a name
            for place in (normpath(join(event.folder, path)), event.real_path(path)):
                places[place_in(place, roots) or place] = None
    return msgspec.structs.replace(decision, paths=tuple(places))


def permit(valid: ValidCall, decision: Decision, cause: int) -> PermittedCall | Failure | None:
    """None when it is for a person to say."""
    match decision.verdict:
        case Verdict.ALLOW:
            return PermittedCall(valid, decision, cause)
        case Verdict.DENY:
            return denied_by_policy(valid, decision)
        case Verdict.ASK | Verdict.REQUEST_INPUT:
            return None


def denied_by_policy(valid: ValidCall, decision: Decision) -> Failure:
    reason = decision.reason or "A rule refuses it."
    message = f"{valid.tool.name} was refused by policy ({decision.layer}): {sentence(reason)} Nothing was executed."
    details = {
        "reason": reason,
        "rule_ids": list(decision.rule_ids),
        "layer": decision.layer,
        "advice": decision.advice,
    }
    return Failure.of("policy_denied", message, details=details)


def denied_before(tool_name: str) -> Failure:
    """It was refused, and the run stopped before that was shown."""
    return Failure.of("policy_denied", f"{tool_name} was refused before. Nothing was executed.")


def unknown_outcome(tool_name: str, why: str) -> Failure:
    """It started, and nobody knows how it ended."""
    message = (
        f"{tool_name} started, and the run stopped before its end was recorded, {why}. It is not run again."
        " Before you try again, look at what it may have done: read the files that it was to change, or git status."
    )
    return Failure.of("outcome_unknown", message)


def repeat_decision(tool_name: str, decision: Decision) -> Decision:
    """A person decides whether a call may run again of which nobody knows whether it happened."""
    reason = f"{tool_name} started before, and the run stopped before its end was recorded: it may have happened."
    return Decision(
        verdict=Verdict.ASK,
        reason=reason,
        rule_ids=("interlock:unknown-outcome",),
        layer=RECOVERY,
        risk=("it may happen twice", *decision.risk),
        prompt=f"Run {tool_name} again? It started before, and whether it happened is not known.",
        policy_digest=decision.policy_digest,
        paths=decision.paths,
    )


def build_question(valid: ValidCall, decision: Decision, bound: Bound, situation: Situation, now: int) -> Question:
    """The question about a call, still without the hash of what would run."""
    asks_value = decision.verdict is Verdict.REQUEST_INPUT
    seconds = decision.answer_within_seconds
    return Question(
        action_id=new_action_id(),
        run_id=situation.run_id,
        agent=situation.agent,
        call_id=valid.call_id,
        tool_name=valid.tool.name,
        kind="input" if asks_value else "approval",
        prompt=decision.prompt or f"Run {valid.tool.name}? {decision.reason}",
        arguments=valid.copy(),
        payload_hash="",
        risk=_risks(valid, decision, bound),
        rule_ids=decision.rule_ids,
        layer=decision.layer,
        reason=decision.reason,
        target_arg=decision.target_arg,
        asked_at=now,
        expires_at=now + int(seconds * 1e9) if seconds is not None else 0,
        bound=bound,
        capability=_capability(valid),
        scope="once" if asks_value else decision.scope,
        suggested_rule="" if asks_value else decision.suggested_rule,
    )


def _risks(valid: ValidCall, decision: Decision, bound: Bound) -> tuple[str, ...]:
    """What a person should know before they say yes."""
    known = decision.risk or tuple(sorted(valid.tool.risk))
    # Whoever judged may have words of their own for it; those that others go by must not be lost by that.
    declared = () if any(word in set(Risk) for word in known) else tuple(sorted(valid.tool.risk))
    unbound = [f"{file.path} cannot be held fast: {file.unbound}" for file in bound.surroundings.unbound]
    limit = f"output is cut at {valid.tool.max_output_chars} characters"
    hosts = ("hosts can be reached",) if bound.surroundings.sandbox.endswith("+network") else ()
    return (*known, f"sandbox: {bound.surroundings.sandbox}", *hosts, limit, *unbound, *declared)


def _capability(valid: ValidCall) -> str:
    """The operation and the first thing that it acts on, as operators know it from a request's method and path."""
    named = (values_at(valid.arguments, name.split(".")) for name in valid.tool.resources)
    target = next((value for values in named for value in values if isinstance(value, str)), "")
    return shorten(f"{valid.tool.name} {target}".strip(), _MAX_CAPABILITY_CHARS)


def inexact_payload(valid: ValidCall, why: str) -> Failure:
    return denied_by_policy(valid, _undecided(f"nobody can approve this exactly as it would run: {why}"))


def build_consent_question(
    valid: ValidCall, binding: ConsentBinding, situation: Situation, now: int, seconds: float | None
) -> Question:
    """Build the question to the user that the run acts for. They answer it at the provider, and nobody else can."""
    tool, consent = valid.tool, cast(Consent, valid.tool.consent)
    what = f" to {', '.join(consent.scopes)}" if consent.scopes else ""
    whose = f" of the agent {binding.agent}" if binding.agent else ""
    defined = binding.definition.removeprefix("sha256:")[:_SHOWN_DIGEST_CHARS]
    acts = f"{tool.name}{whose} (definition {defined}) acts for {binding.user} at {consent.provider}"
    return Question(
        action_id=new_action_id(),
        run_id=situation.run_id,
        agent=binding.agent,
        call_id=valid.call_id,
        tool_name=tool.name,
        kind="consent",
        prompt=f"{acts}, and needs their consent{what}.",
        arguments=valid.copy(),
        payload_hash="",
        risk=tuple(sorted(tool.risk)),
        bound=Bound(
            tool_origin=tool.origin,
            tool_source=tool.source,
            tool_version=tool.version,
            tool_definition=binding.definition,
        ),
        layer=CONSENT,
        reason=f"The tool declares that it acts for a user at {consent.provider}.",
        asked_at=now,
        expires_at=now + int(seconds * 1e9) if seconds is not None else 0,
        capability=_capability(valid),
        provider=consent.provider,
        scopes=consent.scopes,
    )


def consent_decision(decision: Decision, question: Question) -> Decision:
    """What is recorded about a call that policy lets go on and that waits for its user."""
    return Decision(
        verdict=Verdict.ASK,
        reason=question.prompt,
        rule_ids=("interlock:consent",),
        layer=CONSENT,
        policy_digest=decision.policy_digest,
    )


def too_many_questions(tool_name: str, most: int | None) -> Failure:
    message = f"{tool_name} needs an answer, and {most} questions of this run are open already. Nothing was executed."
    return Failure.of("too_many_questions", message)


def consent_unavailable(tool_name: str, why: str) -> Failure:
    return Failure.of(
        "consent_unavailable", f"{tool_name} needs the consent of a user, and {why} Nothing was executed."
    )


async def ask_provider(asked: Question, provider: InteractionProvider, now: Callable[[], int]) -> Answer | None:
    """What the person says; None leaves the question open. A provider that fails has not said yes."""
    try:
        answer = await asyncio.wait_for(provider.ask(asked), _answer_timeout(asked, provider, now))
    except TimeoutError:
        return _timeout_answer(asked, provider, now())
    except Exception as error:
        return Answer(approved=False, reason=f"The question could not be asked: {error_text(error)}.")
    if answer is None:
        return None
    if not isinstance(answer, Answer):  # pyright: ignore[reportUnnecessaryIsInstance] - a provider is not typed
        return Answer(approved=False, reason=f"The provider answered with {type(answer).__name__}.")
    if asked.layer == RECOVERY and answer.approved and answer.by == "headless":
        return Answer(approved=False, reason="Only a person can say that it may run again.", by=answer.by)
    fault = find_answer_problem(asked, answer)
    return Answer(approved=False, reason=fault, by=answer.by) if fault else answer


def find_answer_problem(asked: Question, answer: Answer) -> str:
    """Why this cannot be the answer to the question; empty when it can."""
    try:
        check(answer.value)
        check(answer.arguments)
    except BadJson as error:
        return f"The value is not JSON: {error}."
    if SCOPES.index(answer.scope) > SCOPES.index(asked.scope):
        return f"A yes to this question reaches no further than {asked.scope!r}, and this one was for {answer.scope!r}."
    if asked.kind == "consent" and (answer.arguments, answer.value) != (None, None):
        return "A consent is given or refused; it has no arguments and no value."
    if answer.arguments is not None and (asked.kind == "input" or answer.scope != "once"):
        return "Arguments that a person edited are approved once, where an approval was asked for."
    if (answer.scope == "window") != bool(answer.until) or (answer.scope == "rule") != bool(answer.rule):
        return "A window needs its end, and a rule to keep needs its text."
    return ""


def _answer_timeout(asked: Question, provider: InteractionProvider, now: Callable[[], int]) -> float | None:
    """How long to wait: the provider's time, or the question's own where that ends earlier."""
    seconds = provider.approval_timeout_s
    if not asked.expires_at:
        return seconds
    left = max(0.0, (asked.expires_at - now()) / 1e9)
    return left if seconds is None else min(seconds, left)


def rejection_failure(asked: Question, answer: Answer) -> Failure:
    """The failure for an answer that is not a yes. Expired is not denied."""
    if asked.layer == RECOVERY:
        return unknown_outcome(asked.tool_name, "and nobody said that it may run again")
    if asked.kind == "consent":
        return _consent_failure(asked, answer)
    if answer.by == "headless":
        message = f"{asked.tool_name} needs the approval of a person, and nobody is there to ask. Nothing was executed."
        return Failure.of("user_denied", message, details={"action_id": asked.action_id, "by": answer.by})
    if answer.expired:
        message = f"Nobody approved {asked.tool_name} in time. Nothing was executed."
        return Failure.of("approval_expired", message, details={"action_id": asked.action_id})
    because = f": {answer.reason}" if answer.reason else ""
    message = f"{sentence(f'A person declined {asked.tool_name}{because}')} Nothing was executed."
    details = {"action_id": asked.action_id, "reason": answer.reason, "by": answer.by}
    return Failure.of("user_denied", message, details=details)


def _consent_failure(asked: Question, answer: Answer) -> Failure:
    details = {"action_id": asked.action_id, "provider": asked.provider, "reason": answer.reason, "by": answer.by}
    code = "consent_expired" if answer.expired else "consent_refused"
    what = "not given in time" if answer.expired else "refused"
    because = f": {answer.reason}" if answer.reason and not answer.expired else ""
    message = sentence(f"The consent that {asked.tool_name} needs at {asked.provider} was {what}{because}")
    return Failure.of(code, f"{message} Nothing was executed.", details=details)


def payload_changed(asked: Question, actual: str) -> Failure:
    """What would run is not what was shown."""
    message = f"{asked.tool_name} was approved for {asked.payload_hash}, but {actual} would run. Nothing was executed."
    return Failure.of("payload_changed", message, details={"approved": asked.payload_hash, "actual": actual})


async def run_guardrails(
    guardrails: tuple[Guardrail, ...], value: object, context: ToolContext, seconds: float
) -> str | None:
    """The first reason to refuse, or None. A guardrail that fails refuses."""
    for guardrail in guardrails:
        try:
            reason = guardrail(value, context)
            if isinstance(reason, Awaitable):
                reason = await asyncio.wait_for(reason, seconds)
        except Exception as error:
            return f"a guardrail failed: {error_text(error)}"
        match reason:
            case None:
                continue
            case str():
                return reason
            case _:
                return shown(reason, _MAX_REASON_CHARS)
    return None


def guardrail_failure(valid: ValidCall, reason: str) -> Failure:
    message = f"A guardrail of {valid.tool.name} refused the call: {sentence(reason)} Nothing was executed."
    return Failure.of("guardrail_refused", message, details={"reason": reason})


def _timeout_answer(asked: Question, provider: InteractionProvider, now: int) -> Answer | None:
    """What happens when nobody answers in time. A yes cannot stand for a value that nobody gave."""
    if provider.approval_fallback == "wait":
        return None
    is_open = not asked.expires_at or now < asked.expires_at
    may = asked.kind == "approval" and asked.layer != RECOVERY and is_open
    approved = provider.approval_fallback == "approve" and may
    return Answer(approved=approved, reason="Nobody answered in time.", expired=True, by="fallback")


def _undecided(why: str) -> Decision:
    reason = f"The policy could not decide ({why}), so the answer is no."
    return Decision(verdict=Verdict.DENY, reason=reason, rule_ids=("interlock:policy-error",), layer="policy error")
