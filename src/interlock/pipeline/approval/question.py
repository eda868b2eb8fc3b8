"""The question to a person about a call, and the decision that is recorded with it."""

from typing import TYPE_CHECKING, cast

import msgspec

from ... import lazy_module
from ...domain.budget import is_budget_rule
from ...domain.call import Question, ValidCall, WaitingCall
from ...domain.decision import RECOVERY_LAYER, Decision, FourEyes, Verdict, needs_second_person
from ...domain.ids import new_action_id
from ...domain.outcome import Failure
from ...domain.payload import ApprovalBinding
from ...domain.tool import CAPABILITY_ARGUMENT, Consent, ConsentBinding, Risk, values_at
from ...domain.trial import TrialRunner
from ...rendering.question_title import make_key_facts, make_title
from ...rendering.text import describe_error, shorten
from ..context import RunContext
from .binding import bind_approval, canonicalize

if TYPE_CHECKING:
    from urllib import parse
else:
    parse = lazy_module("urllib.parse")

#: The layer that asks a user to let a tool act for them.
CONSENT = "consent"


_MAX_CAPABILITY_CHARS = 200


_SHOWN_DIGEST_CHARS = 12


def repeat_decision(tool_name: str, decision: Decision) -> Decision:
    """Return the decision that asks a person whether a call with an unknown outcome may run again."""
    reason = f"{tool_name} started before, and the run stopped before its end was recorded: it may have happened."
    prompt = f"Run {tool_name} again? It started before, and whether it happened is not known."
    if decision.effect is not None and decision.effect.earlier_call_id:  # nor did only this call try
        reason, prompt = f"{reason} {decision.reason}", f"{prompt}\n{decision.prompt}"
    budgets = tuple(filter(is_budget_rule, decision.rule_ids))
    if budgets and decision.verdict is Verdict.ASK:  # its approval is one of both
        reason, prompt = f"{reason} {decision.reason}", f"{prompt}\n{decision.prompt}"
    return Decision(
        verdict=Verdict.ASK,
        reason=reason,
        rule_ids=("interlock:unknown-outcome", *budgets),
        layer=RECOVERY_LAYER,
        risk=("it may happen twice", *decision.risk),
        prompt=prompt,
        policy_digest=decision.policy_digest,
        paths=decision.paths,
        effect=decision.effect,
        budgets=decision.budgets,
    )


def build_question(valid: ValidCall, decision: Decision, bound: ApprovalBinding, run: RunContext) -> Question:
    """Build the question about a call, still without the hash of its payload."""
    situation, now = run.situation, run.parts.clock.now()
    redact = run.parts.redactor.redact
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
        arguments=valid.copy_arguments(),
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
        title=make_title((decision.title, valid.tool.title), valid.tool, valid.arguments, redact),
        key_facts=make_key_facts(valid.tool, valid.arguments, redact),
        scope="once" if asks_value else decision.scope,
        approver=decision.approver,
        suggested_rule="" if asks_value else decision.suggested_rule,
        effect=decision.effect,
    )


def _risks(valid: ValidCall, decision: Decision, bound: ApprovalBinding) -> tuple[str, ...]:
    """Return the risks that a person should know before approving."""
    known = decision.risk or tuple(sorted(valid.tool.risk))
    # A policy may give its own risk words; those that other checks depend on must not be lost.
    declared = () if any(word in set(Risk) for word in known) else tuple(sorted(valid.tool.risk))
    unbound = [f"{file.path} cannot be held fast: {file.unbound}" for file in bound.surroundings.unbound_files]
    limit = f"output is cut at {valid.tool.max_output_chars} characters"
    sandbox = bound.surroundings.sandbox
    hosts = ("hosts can be reached",) if sandbox.endswith("+network") else ()
    hosts = ("named hosts can be reached",) if sandbox.endswith("+hosts") else hosts
    return (*known, f"sandbox: {sandbox}", *hosts, limit, *unbound, *declared)


def _capability(valid: ValidCall) -> str:
    """Return the operation and the main thing it acts on, as operators know it from a request's method and path."""
    arguments, tool = valid.arguments, valid.tool
    if tool.capability:
        # Quoted, so that a value cannot look like another part of the path.
        quote = parse.quote
        filled = CAPABILITY_ARGUMENT.sub(lambda name: quote(str(arguments.get(name[1])), safe=""), tool.capability)
        return shorten(filled, _MAX_CAPABILITY_CHARS)
    named = (values_at(arguments, name.split(".")) for name in tool.resources)
    target = next((value for values in named for value in values if isinstance(value, str)), "")
    return shorten(f"{tool.name} {target}".strip(), _MAX_CAPABILITY_CHARS)


def build_consent_question(
    valid: ValidCall, binding: ConsentBinding, run: RunContext, seconds: float | None
) -> Question:
    """Build the question to the user that the run acts for. Only they can answer it, at the provider."""
    situation, now, redact = run.situation, run.parts.clock.now(), run.parts.redactor.redact
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
        arguments=valid.copy_arguments(),
        payload_hash="",
        risk=tuple(sorted(tool.risk)),
        bound=ApprovalBinding(
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
        title=make_title((tool.title,), tool, valid.arguments, redact),
        key_facts=make_key_facts(tool, valid.arguments, redact),
        provider=consent.provider,
        scopes=consent.scopes,
    )


def consent_decision(decision: Decision, question: Question) -> Decision:
    """Return the decision recorded for a call that policy allows and that waits for its user."""
    return Decision(
        verdict=Verdict.ASK,
        reason=question.prompt,
        rule_ids=("interlock:consent",),
        layer=CONSENT,
        policy_digest=decision.policy_digest,
    )


def require_approval(valid: ValidCall, decision: Decision, run: RunContext) -> WaitingCall | Failure:
    """Return the call as waiting for an approval, bound to exactly what would run."""
    if decision.answer_within_seconds is None and run.parts.limits.approval_seconds is not None:
        decision = msgspec.structs.replace(decision, answer_within_seconds=run.parts.limits.approval_seconds)
    runner = valid.tool.trial if decision.verdict is Verdict.ASK and decision.ask == "after" else None
    obstacle = _find_obstacle(runner, valid, run) if runner is not None else ""
    if obstacle:
        decision = ask_before(decision, obstacle)
    question = build_question(valid, decision, bind_approval(valid, decision, run), run)
    if question.approver == "client" and requires_person(question, run.parts.limits.four_eyes):
        question = msgspec.structs.replace(question, approver="person")
    waiting = hash_question(valid, decision, question)
    if isinstance(waiting, Failure) or runner is None or obstacle:
        return waiting
    return msgspec.structs.replace(waiting, is_to_try=True)


def requires_person(question: Question, four_eyes: FourEyes) -> bool:
    """Return True if no client can answer the question, whatever the rule that asked says: something may happen twice,
    a second person has to look, or a person edited what would run.
    """
    if question.kind == "consent" or question.needs_person or question.edited_by:
        return True
    return needs_second_person(question.risk, question.layer, four_eyes)


def _find_obstacle(runner: TrialRunner, valid: ValidCall, run: RunContext) -> str:
    """Return why the call cannot be tried. A runner that fails cannot try it either."""
    try:
        return runner.find_obstacle(valid.copy_arguments(), run.situation)
    except Exception as error:
        return describe_error(error).rstrip(".")


def ask_before(decision: Decision, obstacle: str) -> Decision:
    """Return the decision that asks before the call runs, because it cannot be tried."""
    reason = f"{decision.reason} It could not be tried first: {obstacle}."
    return msgspec.structs.replace(decision, ask="before", reason=reason)


def hash_question(valid: ValidCall, decision: Decision, question: Question) -> WaitingCall | Failure:
    """Return the call as waiting for this question, with the hash of exactly what would run."""
    exact = canonicalize(valid, question)
    if isinstance(exact, Failure):
        return exact
    again, payload_hash = exact
    return WaitingCall(
        again, decision, msgspec.structs.replace(question, arguments=again.copy_arguments(), payload_hash=payload_hash)
    )
