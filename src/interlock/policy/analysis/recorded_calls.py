"""The calls of recorded runs as events that a policy can evaluate again, as far as the log has them.

Of every evaluated call, the last evaluation counts: a call that was evaluated again was asked about again. Its
arguments are those that were evaluated. For a call that a person was asked about, the question has them; for one that
started, the start does, where defaults were filled in; otherwise they are what the model wrote. What was redacted, or
is too large for the log, cannot be evaluated again, and says so.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, Literal, TypeAlias, cast

import msgspec

from ...domain import event as facts
from ...domain import json
from ...domain.call import Answer, Question
from ...domain.decision import TRIAL_LAYER, Decision, Verdict
from ...domain.event import Event
from ...domain.messages import Usage
from ...domain.tool import CallContext, JsonObject, Risk, ToolDefinition
from ..engine.example_event import TOOL_DEFAULTS, ToolDeclaration, example_event
from ..interface import PolicyEvent

#: The person's answer. `edited`: approved with other arguments. `none`: no person was asked or available.
RecordedAnswer: TypeAlias = Literal["granted", "edited", "rejected", "expired", "none"]

#: The layer of a decision made by an earlier approval, where the policy itself asked.
_GRANT_LAYER = "standing approval"
_AUTOMATIC_ANSWERERS = frozenset({"headless", "fallback", "clock"})
#: A user was asked, and policy was evaluated again after that.
_CONSENT_LAYER = "consent"
_RISKS: frozenset[str] = frozenset(Risk)


class RecordedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded call with its decision, and the event to evaluate it again."""

    run_id: str
    call_id: str
    tool: str
    #: The decision of that time. Where an earlier approval covered the call, the policy had asked.
    decision: Decision
    said: RecordedAnswer = "none"
    #: The call as a policy can be asked about it; None when it cannot be evaluated again.
    event: PolicyEvent | None = None
    #: When it started, else when it was decided about last, in nanoseconds since 1970.
    at: int = 0
    is_started: bool = False
    #: Why it cannot be evaluated again.
    lost: str = ""


class RecordedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded model request that was answered, with what it used."""

    run_id: str
    situation: CallContext
    usage: Usage
    #: When it was sent, in nanoseconds since 1970.
    at: int


def read_recorded_requests(events: Iterable[Event]) -> list[RecordedRequest]:
    """Return the answered model requests of one or more runs, in the order of their answers."""
    requests: list[RecordedRequest] = []
    runs: dict[str, tuple[CallContext, int]] = {}
    for event in events:
        fact, run_id = event.fact, event.run_id
        situation, at = runs.get(run_id, (CallContext(run_id=run_id), event.at))
        match fact:
            case facts.RunStarted():
                known = msgspec.structs.replace(situation, agent=fact.agent, requester=fact.requester)
                runs[run_id] = known, event.at
            case facts.ModelRequested():
                agent = fact.agent or situation.agent
                runs[run_id] = msgspec.structs.replace(situation, agent=agent), event.at
            case facts.ModelResponded() | facts.ContextCompacted():
                requests.append(RecordedRequest(run_id=run_id, situation=situation, usage=fact.usage, at=at))
            case _:
                pass
    return requests


def read_recorded_calls(
    events: Iterable[Event], tools: Mapping[str, ToolDefinition] | None = None
) -> list[RecordedCall]:
    """Return the evaluated calls of one or more runs, in the order of their first events.

    What a tool declares is taken from `tools`; else from its name, where that is known, and from what the log says.
    """
    reader = _HistoryReader()
    for event in events:
        reader.feed(event)
    return [
        _to_recorded_call(call, reader.observed_tools, tools or {}) for call in reader.calls.values() if call.decision
    ]


class _ObservedTool(msgspec.Struct):
    """What the log says about a tool."""

    risk: set[str] = msgspec.field(default_factory=set[str])
    origin: Any = "local"
    source: str = ""


class _CallHistory(msgspec.Struct):
    """One call while its events are read."""

    run_id: str
    call_id: str
    proposed: facts.CallProposed
    situation: CallContext
    tool: str = ""
    decision: Decision | None = None
    question: Question | None = None
    started: facts.InvocationStarted | None = None
    said: RecordedAnswer = "none"
    at: int = 0


class _HistoryReader:
    def __init__(self) -> None:
        self.calls: dict[tuple[str, str], _CallHistory] = {}
        self.observed_tools: dict[str, _ObservedTool] = defaultdict(_ObservedTool)
        self._situations: dict[str, CallContext] = {}

    def feed(self, event: Event) -> None:
        fact, run_id = event.fact, event.run_id
        situation = self._situations.setdefault(run_id, CallContext(run_id=run_id))
        match fact:
            case facts.RunStarted():
                changes = {"agent": fact.agent, "workspace": fact.workspace, "requester": fact.requester}
                self._situations[run_id] = msgspec.structs.replace(situation, **changes)
            case facts.ModelRequested() if fact.agent:
                self._situations[run_id] = msgspec.structs.replace(situation, agent=fact.agent)
            case facts.BatchStarted():
                changes = {"mode": fact.mode, "interactive": fact.interactive}
                self._situations[run_id] = msgspec.structs.replace(situation, **changes)
            case facts.CallProposed() if not fact.duplicate:
                call = _CallHistory(run_id, fact.call_id, fact, situation)
                self.calls.setdefault((run_id, fact.call_id), call)
            case _:
                call = self.calls.get((run_id, getattr(fact, "call_id", "")))
                if call is not None:
                    self._update_call(call, fact)
                    if isinstance(fact, facts.PolicyEvaluated | facts.InvocationStarted):
                        call.at = event.at

    def _update_call(self, call: _CallHistory, fact: facts.Fact) -> None:
        match fact:
            case facts.PolicyEvaluated() if fact.decision.layer not in (_CONSENT_LAYER, TRIAL_LAYER):
                call.tool, call.decision, call.question, call.said = fact.tool, fact.decision, None, "none"
                call.situation = self._situations[call.run_id]
                # Beside risks, a decision has other words for the person who is asked.
                self.observed_tools[fact.tool].risk |= _RISKS & set(fact.decision.risk)
            case facts.ApprovalRequested() | facts.InputRequested():
                call.question = fact.question
                learned, bound = self.observed_tools[fact.question.tool_name], fact.question.bound
                learned.origin, learned.source = bound.tool_origin or "local", bound.tool_source
            case facts.ApprovalGranted() | facts.InputProvided():
                call.said = _classify_approval(fact.answer)
            case facts.ApprovalRejected() | facts.InputRefused():
                call.said = "none" if fact.answer.by in _AUTOMATIC_ANSWERERS else "rejected"
            case facts.ApprovalExpired() | facts.InputExpired():
                call.said = "expired"
            case facts.InvocationStarted():
                call.started = fact
            case _:
                pass


def _classify_approval(answer: Answer) -> RecordedAnswer:
    if answer.expired or answer.by in _AUTOMATIC_ANSWERERS:
        return "expired"
    return "edited" if answer.arguments is not None else "granted"


def _to_recorded_call(
    call: _CallHistory, observed_tools: Mapping[str, _ObservedTool], tools: Mapping[str, ToolDefinition]
) -> RecordedCall:
    arguments = _evaluated_arguments(call)
    lost = arguments if isinstance(arguments, str) else ""
    event = None
    if not isinstance(arguments, str):
        asked = example_event(call.tool, {}, call.situation, **_declaration_of(call.tool, observed_tools, tools))
        checked = asked.tool.args_model.model_validate(arguments)
        event = msgspec.structs.replace(asked, call_id=call.call_id, checked=checked)
    return RecordedCall(
        run_id=call.run_id,
        call_id=call.call_id,
        tool=call.tool,
        decision=_policy_decision(cast(Decision, call.decision)),
        said=call.said,
        event=event,
        at=call.at,
        is_started=call.started is not None,
        lost=lost,
    )


def _policy_decision(decision: Decision) -> Decision:
    if decision.layer != _GRANT_LAYER:
        return decision
    return msgspec.structs.replace(decision, verdict=Verdict.ASK)


def _declaration_of(
    tool: str, observed_tools: Mapping[str, _ObservedTool], tools: Mapping[str, ToolDefinition]
) -> ToolDeclaration:
    known = tools.get(tool)
    if known is not None:
        return {"risk": known.risk, "origin": known.origin, "source": known.source, "resources": known.resources}
    observed = observed_tools[tool]
    declared: ToolDeclaration = {"origin": observed.origin, "source": observed.source}
    if tool not in TOOL_DEFAULTS:
        declared["risk"] = observed.risk
    return declared


def _evaluated_arguments(call: _CallHistory) -> JsonObject | str:
    """Return the evaluated arguments, or why they are unknown."""
    proposed, question = call.proposed, call.question
    if proposed.raw_artifact_id:
        return "its arguments are too large for the log"
    raw: Any = proposed.raw_input
    if not isinstance(raw, dict) or not _is_unredacted(proposed, cast(JsonObject, raw)):
        return "its arguments were redacted"
    started: Any = call.started.arguments if call.started is not None else None
    if question is not None:
        evaluated: Any = question.arguments
        if evaluated.keys() == {"redacted"} and "redacted" not in raw:
            return "its arguments were redacted"
    elif started is not None:
        evaluated = started
    else:
        evaluated = cast(object, raw)
    return cast(JsonObject, evaluated) if isinstance(evaluated, dict) else "its arguments were redacted"


def _is_unredacted(proposed: facts.CallProposed, arguments: JsonObject) -> bool:
    """Return True if the arguments hold no redaction: a declared secret is redacted wherever it is stored."""
    try:
        digest = sha256(json.encode_sorted((proposed.tool, arguments))).hexdigest()
    except (TypeError, UnicodeEncodeError):
        return False
    return proposed.digest in ("", digest)
