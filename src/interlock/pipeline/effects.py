"""Effects happen once: what other calls with the same effect did, and the claim that a call takes before it starts.

A call with an effect key claims the key in the log, shared by all runs, right before it starts. The claims are only an
index of who may have had the effect. Whether they had it is read from the log of their run: it started, it ended, its
end is not recorded. A claim is judged by the newest earlier call that did not end without effects; that call was itself
judged by the ones before it.

A call without a key is compared with calls of its own run whose outcome is unknown: the same tool and arguments ask.
"""

from typing import Any, Literal, TypeAlias

import msgspec

from ..domain.call import KnownCall, PermittedCall, ValidCall
from ..domain.decision import EFFECT_LAYER, Decision, Verdict, ask_also
from ..domain.effect import (
    MAX_SHOWN_KEY_CHARS,
    Effect,
    EffectRule,
    digest_key,
    normalize_text,
    pick_strictest_repeat,
    render_template,
)
from ..domain.errors import ArtifactError, LogCorruptError
from ..domain.event import (
    TERMINAL_EVENTS,
    CallObserved,
    CallProposed,
    Event,
    InvocationCompleted,
    InvocationStarted,
    RunStarted,
    decode_event,
)
from ..domain.json import InvalidJsonError, encode, encode_sorted, parse
from ..domain.outcome import Failure
from ..domain.tool import Repeat
from ..rendering.text import describe_error, quote_value, shorten
from ..rendering.times import format_utc
from ..storage.artifacts import ArtifactStore
from ..storage.event_log import EffectClaim
from .artifacts import use_store
from .context import RunContext
from .validate import validate

REPEATED_RULE = "interlock:effect-repeated"
UNKNOWN_RULE = "interlock:effect-unknown"
KEY_RULE = "interlock:effect-key"

#: How many claims of one key are looked at. When none of so many had an effect, a person decides.
_MAX_CLAIMS = 200
_MAX_ARGUMENT_CHARS = 500
_MAX_FOUND_CHARS = 80

#: What is known of an earlier call: it had no effect, it had it, it may have had it, it may still have it.
_Outcome: TypeAlias = Literal["none", "succeeded", "unknown", "running"]
_OUTCOMES: dict[_Outcome, str] = {
    "succeeded": "it succeeded",
    "unknown": "its outcome is unknown",
    "running": "it has no recorded end: it may be running",
    "none": "it had no effect",
}


class _EarlierCall(msgspec.Struct, gc=False):
    """A call that may have had the effect, as the log of its run describes it."""

    run_id: str
    call_id: str
    outcome: _Outcome = "unknown"
    tool: str = ""
    #: What ran, as far as it is recorded.
    arguments: Any = None
    #: Where they are, when they were too long for the event.
    arguments_artifact_id: str = ""
    digest: str = ""
    agent: str = ""
    requester: str = ""
    started_at: int = 0

    @property
    def place(self) -> str:
        """The call, as it can be found in the log."""
        return f"call {self.call_id} of run {self.run_id}"

    def describe(self) -> str:
        """Return who did what, when, and what came of it, for the person who is asked."""
        arguments = self.arguments if isinstance(self.arguments, str) else encode(self.arguments).decode()
        actor = f" by agent {self.agent}" if self.agent else ""
        requester = f" for {self.requester}" if self.requester else ""
        when = f", started at {format_utc(self.started_at)}" if self.started_at else ""
        what = f"{self.tool} {shorten(arguments, _MAX_ARGUMENT_CHARS)}" if self.tool else "a call that cannot be read"
        return f"{what}{actor}{requester} ({self.place}{when}); {_OUTCOMES[self.outcome]}"


async def judge_effect(valid: ValidCall, decision: Decision, rule: EffectRule | None, run: RunContext) -> Decision:
    """Return the decision with the effect of the call considered: allowed, asked about, or denied as a repeat."""
    if decision.verdict is Verdict.DENY:
        return decision
    try:
        key = await _compute_key(valid, rule, run)
    except Exception as error:
        reason = f"The effect key of {valid.tool.name} could not be computed ({describe_error(error)})."
        return msgspec.structs.replace(
            decision, verdict=Verdict.DENY, reason=reason, rule_ids=(KEY_RULE,), layer=EFFECT_LAYER, scope="once"
        )
    if key is None:
        return await _judge_without_key(valid, decision, run)
    digest = digest_key(key)
    is_shown = len(key) <= MAX_SHOWN_KEY_CHARS and run.parts.redactor.redact(key) == key
    claims = await run.log.effect_claims(digest, _MAX_CLAIMS)
    effect = Effect(key=key if is_shown else f"sha256:{digest}", digest=digest, seen=claims[0].number if claims else 0)
    earlier = await _find_earlier(valid, claims, rule, run) if claims else None
    return _judge_repeat(valid, msgspec.structs.replace(decision, effect=effect), effect, earlier, rule)


def _judge_repeat(
    valid: ValidCall, decision: Decision, effect: Effect, earlier: _EarlierCall | None, rule: EffectRule | None
) -> Decision:
    """Return the decision in view of the earlier call that had the effect, or may have had it."""
    if earlier is None:
        return decision
    said: list[Repeat] = [rule.repeat] if rule is not None else []
    repeat = pick_strictest_repeat([*said, valid.tool.repeat] if valid.tool.effect is not None else said)
    if earlier.outcome == "succeeded" and repeat == "allow":
        return decision
    effect = msgspec.structs.replace(effect, earlier_run_id=earlier.run_id, earlier_call_id=earlier.call_id)
    if earlier.outcome != "succeeded" or repeat == "ask":
        return _ask(valid, decision, effect, earlier)
    return msgspec.structs.replace(
        decision,
        verdict=Verdict.DENY,
        reason=f"Its effect ({effect.key}) happened before: {earlier.place}.",
        rule_ids=(REPEATED_RULE,),
        layer=EFFECT_LAYER,
        scope="once",
        effect=effect,
    )


async def claim_effect(permitted: PermittedCall, effect: Effect, run: RunContext) -> bool:
    """Claim the effect of a call that is about to start. Return False when another call claimed it meanwhile."""
    claim = EffectClaim(0, run.ledger.run_id, permitted.valid.call_id, run.parts.clock.now())
    return await run.log.claim_effect(effect.digest, claim, effect.seen)


async def _compute_key(valid: ValidCall, rule: EffectRule | None, run: RunContext) -> str | None:
    """Return the canonical key of the call; None when it has none. Raise an error when it cannot be computed."""
    if rule is not None and rule.key:
        return render_template(rule.key, valid.arguments)
    declared = valid.tool.effect
    if declared is None or isinstance(declared, str):
        return None if declared is None else render_template(declared, valid.arguments)
    key = await run.parts.check(declared, valid.copy_arguments())
    if key is None:
        return None
    if not isinstance(key, str) or not normalize_text(key):
        raise TypeError(f"expected a text or None, found {quote_value(key, _MAX_FOUND_CHARS)}")
    return normalize_text(key)


def _ask(valid: ValidCall, decision: Decision, effect: Effect, earlier: _EarlierCall) -> Decision:
    """Return the decision that asks a person and shows the earlier call, together with what the policy asks."""
    happened = earlier.outcome == "succeeded"
    what = f"The same effect ({effect.key})" if effect.key else "The same call"
    what += " happened before" if happened else " may have happened before"
    reason, prompt = f"{what}: {earlier.place}.", f"Run {valid.tool.name}? {what}: {earlier.describe()}."
    asked = Decision(
        verdict=Verdict.ASK,
        reason=reason,
        rule_ids=(REPEATED_RULE if happened else UNKNOWN_RULE,),
        layer=EFFECT_LAYER,
        risk=("it may happen twice",),
        prompt=prompt,
    )
    return msgspec.structs.replace(ask_also(decision, asked), effect=effect)


async def _find_earlier(
    valid: ValidCall, claims: list[EffectClaim], rule: EffectRule | None, run: RunContext
) -> _EarlierCall | None:
    """Return the newest earlier call that had the effect, or may have had it."""
    window = rule.repeat_after_seconds if rule is not None else None
    oldest = run.parts.clock.now() - int(window * 1e9) if window is not None else None
    await run.recorder.commit()  # calls of this run are read from the log, too
    reader, earlier = _CallReader(run), None
    looked_at: set[tuple[str, str]] = {(run.ledger.run_id, valid.call_id)}
    for claim in claims:
        if oldest is not None and claim.at < oldest:
            return None
        if (claim.run_id, claim.call_id) in looked_at:
            continue
        looked_at.add((claim.run_id, claim.call_id))
        earlier = await reader.read(claim.run_id, claim.call_id)
        earlier.outcome = await _find_out(earlier, valid, run)
        if earlier.outcome != "none":
            return earlier
    if len(claims) < _MAX_CLAIMS or earlier is None:
        return None
    earlier.outcome = "unknown"  # it had no effect, nor had the many calls after it; older ones were not looked at
    return earlier


async def _judge_without_key(valid: ValidCall, decision: Decision, run: RunContext) -> Decision:
    """Ask about a call that is the same as one of this run with an unknown outcome."""
    tool, ledger = valid.tool, run.ledger
    if tool.read_only or tool.idempotent:
        return decision
    unknown = {call_id for call_id in run.executions.lost if ledger.calls[call_id].observed_seq < 0}
    unknown.update(ledger.unknown_calls.values())
    same_tool = [each for each in unknown if each != valid.call_id and ledger.calls[each].tool == tool.name]
    if same_tool:
        await run.recorder.commit()
    reader = _CallReader(run)
    for call_id in sorted(same_tool):
        earlier = await reader.read(ledger.run_id, call_id)
        if not _is_same_call(valid, earlier, run):
            continue
        earlier.outcome = await _find_out(earlier, valid, run)
        if earlier.outcome != "none":
            effect = Effect(earlier_run_id=earlier.run_id, earlier_call_id=earlier.call_id)
            return _ask(valid, decision, effect, earlier)
    return decision


def _is_same_call(valid: ValidCall, earlier: _EarlierCall, run: RunContext) -> bool:
    """Compare the arguments as they were written, and as they are with defaults."""
    if earlier.digest == run.ledger.calls[valid.call_id].digest:
        return True
    again = _validate_again(valid.known, earlier)
    return again is not None and encode_sorted(again.arguments) == encode_sorted(valid.arguments)


def _validate_again(known: KnownCall, earlier: _EarlierCall) -> ValidCall | None:
    if not isinstance(earlier.arguments, dict):
        return None  # they held a secret, or cannot be read
    again = validate(known, encode(earlier.arguments))  # pyright: ignore[reportUnknownMemberType] - it is JSON
    return None if isinstance(again, Failure) else again


async def _find_out(earlier: _EarlierCall, valid: ValidCall, run: RunContext) -> _Outcome:
    """Return the outcome of the earlier call, as recorded, or as the tool's `reconcile` finds where that is unknown."""
    if earlier.outcome in ("none", "succeeded") or earlier.tool != valid.tool.name:
        return earlier.outcome
    again = _validate_again(valid.known, earlier) if valid.tool.reconcile is not None else None
    happened = await reconcile(again, run) if again is not None else None
    if happened is None:
        return earlier.outcome
    if happened:
        return "succeeded"
    return earlier.outcome if await _is_alive(earlier, run) else "none"


async def reconcile(valid: ValidCall, run: RunContext) -> bool | None:
    """Return what the tool's `reconcile` finds: it happened, it did not, or unknown."""
    if valid.tool.reconcile is None:
        return None
    try:
        happened = await run.parts.check(valid.tool.reconcile, valid.copy_arguments())
    except Exception:
        return None
    return happened if isinstance(happened, bool) else None


async def _is_alive(earlier: _EarlierCall, run: RunContext) -> bool:
    """Return True if a process may be about to have the effect, so that it is too early to say that it did not."""
    if earlier.outcome != "running":
        return False
    if earlier.run_id == run.ledger.run_id:
        return earlier.call_id not in run.executions.lost
    return bool(await run.log.lease_holder(earlier.run_id))


class _CallReader:
    """Reads earlier calls from the log, each run once."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._events: dict[str, list[Event]] = {}

    async def read(self, run_id: str, call_id: str) -> _EarlierCall:
        """Return an earlier call as the log has it. What cannot be read is an unknown outcome."""
        if run_id not in self._events:
            try:
                self._events[run_id] = [decode_event(entry) for entry in await self._run.log.read(run_id)]
            except LogCorruptError:
                self._events[run_id] = []
        call = _EarlierCall(run_id, call_id)
        for event in self._events[run_id]:
            _apply(call, event)
        if call.arguments_artifact_id:
            artifacts = self._run.parts.artifacts
            call.arguments = await use_store(artifacts, _read_arguments, call.arguments_artifact_id, artifacts)
        return call


def _apply(call: _EarlierCall, event: Event) -> None:
    match event.fact:
        case RunStarted() as begun:
            call.agent, call.requester, call.outcome = begun.agent, begun.requester, "running"
        case CallProposed(call_id=call.call_id, duplicate=False) as proposed:
            call.tool, call.digest, call.arguments = proposed.tool, proposed.digest, proposed.raw_input
            if proposed.raw_artifact_id:
                call.arguments_artifact_id = proposed.raw_artifact_id
        case InvocationStarted(call_id=call.call_id) as started:
            call.started_at, call.outcome = event.at, "running"
            if started.arguments is not None:
                call.arguments, call.arguments_artifact_id = started.arguments, ""
        case InvocationCompleted(call_id=call.call_id) as ended:
            call.outcome = "succeeded" if ended.code == "ok" else "unknown" if ended.side_effects else "none"
        case CallObserved(observation=observation) if observation.call_id == call.call_id:
            if not call.started_at:
                call.outcome = "none"
            else:
                call.outcome = "succeeded" if observation.ok else "unknown" if observation.side_effects else "none"
        case ended if isinstance(ended, TERMINAL_EVENTS) and call.outcome == "running":
            call.outcome = "unknown" if call.started_at else "none"
        case _:
            pass


def _read_arguments(artifact_id: str, artifacts: ArtifactStore) -> Any:
    try:
        return parse(artifacts.read(artifact_id))
    except (ArtifactError, InvalidJsonError):
        return "(arguments that cannot be read)"
