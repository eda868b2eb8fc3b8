"""The tools of a replay: declared as today, with their external results taken from the record.

Lookup, schema, visibility, the tool's opinion and its guardrails are those of today. Its look at the world before a
call (`check`) finds what it found then; hooks, middleware and handler do not run, and what the handler returned is made
from the recorded observation, so that limits, redaction and shape are applied to it as today.
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from ..domain.decision import Decision, Verdict
from ..domain.event import CallObserved, Fact, InvocationCompleted
from ..domain.json import JsonObject
from ..domain.observation import Observation
from ..domain.outcome import UNKNOWN_SIDE_EFFECTS
from ..domain.tool import CheckProblem, NormalizedOutput, Risk, ToolContext, ToolDefinition
from ..pipeline.context import RunContext
from ..policy.engine.example_event import AnyArguments, never_called
from ..policy.interface import PolicyEvent
from ..registry.memory import ToolRegistry
from .recording import Recording, ReplayCall, read_side_effects, was_stopped_by_runtime

_STATE_CODES = frozenset({"runtime_precondition_failed", "ambiguous_target", "stale_file_baseline"})
_MAX_STUB_CHARS = 1 << 40
_NOTHING_EXECUTED = " Nothing was executed."
#: How a line ends that was too long. Cut once more it would be another one.
_was_shortened = re.compile(r" \[\.\.\. [\d,]+ more characters\]\Z").search


def recorded_tools(tools: Iterable[ToolDefinition], calls: dict[str, ReplayCall]) -> ToolRegistry:
    """Return a registry of the tools as they were recorded."""
    return ToolRegistry(_as_recorded_tool(tool, calls) for tool in tools)


def _as_recorded_tool(tool: ToolDefinition, calls: dict[str, ReplayCall]) -> ToolDefinition:
    return msgspec.structs.replace(
        tool,
        check=None if tool.check is None else _RecordedCheck(calls),
        normalize=_restore_output,
        consent=None,
        reconcile=None,
        diagnose=None,
        pre_hooks=(),
        middleware=(),
        post_hooks=(),
        failure_error_function=_error_text,
    )


def _error_text(context: ToolContext, error: BaseException) -> str:
    return str(error)


class _RecordedCheck:
    """What a tool found when it looked whether a call can be done: when it was planned, and right before its start."""

    def __init__(self, calls: dict[str, ReplayCall]) -> None:
        self._calls = calls
        self._looked: set[str] = set()

    def __call__(self, arguments: JsonObject, context: ToolContext) -> CheckProblem | None:
        call = self._calls.get(context.call_id)
        failure = call.observation.failure if call is not None and call.observation is not None else None
        first = context.call_id not in self._looked
        self._looked.add(context.call_id)
        if call is None or failure is None or failure.code not in _STATE_CODES or call.started:
            return None
        if first and call.valid:
            return None
        return msgspec.convert(
            {"message": failure.message.removesuffix(_NOTHING_EXECUTED), "code": failure.code},
            CheckProblem,
            strict=True,
        )


def _restore_output(call: Any) -> NormalizedOutput:
    """Return what the tool reported then. What the runtime adds is made again."""
    observation: Observation = call.observation
    failure, content, whole = observation.failure, observation.content, call.output
    return NormalizedOutput(
        ok=observation.ok,
        code=failure.code if failure is not None else "ok",
        summary=observation.summary,
        text=whole if whole is not None else content.text if content is not None else "",
        user_text=observation.user_text,
        format=content.format if content is not None else "text",
        exit_code=observation.exit_code,
        side_effects=None if observation.side_effects == UNKNOWN_SIDE_EFFECTS else observation.side_effects,
        retryable=failure.retryable if failure is not None else True,
        facts=observation.facts,
        size=observation.size if whole is None else None,
        next_hint=observation.next_hint if whole is None else "",
        next_tool=observation.next_tool if whole is None else None,
        kind=observation.kind,
        state=observation.state,
    )


def restore_outcomes(run: RunContext, calls: dict[str, ReplayCall]) -> None:
    """Record outcomes that cannot be made again: a stopped call has no result to make them from, and arguments that are
    not in the log determine nothing.
    """
    add_to_log = run.recorder.add

    def add(fact: Fact, correlation_id: str = "", causation_id: int | None = None) -> int:
        return add_to_log(_as_recorded(fact, calls), correlation_id, causation_id)

    run.recorder.add = add


def _as_recorded(fact: Fact, calls: dict[str, ReplayCall]) -> Fact:
    match fact:
        case CallObserved():
            call = _find_fixed_outcome(calls.get(fact.observation.call_id), fact.invocation_id)
            return fact if call is None else msgspec.structs.replace(fact, observation=call.observation)
        case InvocationCompleted():
            call = _find_fixed_outcome(calls.get(fact.call_id), fact.invocation_id)
            return fact if call is None else msgspec.structs.replace(fact, side_effects=read_side_effects(call))
        case _:
            return fact


def _find_fixed_outcome(call: ReplayCall | None, invocation_id: str) -> ReplayCall | None:
    if call is None or call.observation is None:
        return None
    unmade = was_stopped_by_runtime(call.observation) or _is_shortened(call.observation)
    return call if call.lost or (invocation_id and call.started and unmade) else None


def _is_shortened(observation: Observation) -> bool:
    return bool(_was_shortened(observation.summary) or _was_shortened(observation.user_text))


def stub_tools(recording: Recording) -> list[ToolDefinition]:
    """Return tools declared as last offered to the model, which take any arguments."""
    versions = {name: version for menu in recording.menus.values() for name, version in menu.items()}
    return [
        ToolDefinition(
            spec=spec,
            version=versions.get(spec.name, ""),
            handler=never_called,
            is_async=False,
            args_model=AnyArguments,
            # Seen in every mode; may have had effects, where it did not say which; and never cut: that was done.
            read_only=True,
            risk=frozenset({Risk.EXECUTE}),
            max_output_chars=_MAX_STUB_CHARS,
        )
        for spec in recording.tools
    ]


class RecordedPolicy:
    """Implementation of `PolicyEngine` that repeats the recorded decisions."""

    def __init__(self, calls: dict[str, ReplayCall]) -> None:
        self._calls = calls

    def evaluate(self, event: PolicyEvent) -> Decision:
        """Return the recorded decision; deny calls without one."""
        call = self._calls.get(event.call_id)
        if call is None or call.decision is None:
            return Decision(verdict=Verdict.DENY, reason="Nothing was decided about it when this was recorded.")
        return call.decision
