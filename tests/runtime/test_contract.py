"""What every run publishes, records and answers, whatever its calls are: one model of a turn beside the real one."""

import asyncio
import json
import random
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock import (
    AgentRunEvent,
    BatchResult,
    CallbackInteractionProvider,
    Decision,
    PolicyEvent,
    ToolIntent,
    ToolRuntime,
    Verdict,
    tool,
)
from interlock.domain.event import Fact, InvocationCompleted, InvocationStarted
from tests.pipeline.batch.stage import others_ran
from tests.support import facts, handle_events


class Kind(NamedTuple):
    """A kind of call, and everything that must follow from it."""

    tool: str
    code: str
    arguments: Any
    #: What policy decides; empty where the call does not get that far.
    action: str = ""
    #: How its invocation ends; empty where it does not start.
    exit: str = ""
    #: The phase of its failure, in the words of the model's JSON.
    phase: str = ""


KINDS = {
    "text": Kind("echo", "ok", {"value": "tea"}, "allow", "ok"),
    "data": Kind("echo", "ok", {"value": {"a": [1, None]}}, "allow", "ok"),
    "odd": Kind("odd", "ok", {}, "allow", "ok"),
    "raises": Kind("fail", "tool_failed", {}, "allow", "error", "execute"),
    "hangs": Kind("hang", "timed_out", {}, "allow", "timeout", "execute"),
    "denied": Kind("closed", "policy_denied", {}, "deny", "", "permission"),
    "approved": Kind("approve", "ok", {}, "defer", "ok"),
    "rejected": Kind("reject", "user_denied", {}, "defer", "", "permission"),
    "unknown": Kind("no_such", "unknown_tool", {}, "", "", "lookup"),
    "malformed": Kind("echo", "arguments_malformed", '{"value": 1, "value": 2}', "", "", "accept"),
    "misfit": Kind("echo", "schema_invalid", {"vlaue": 1}, "", "", "validate"),
}
TURNS = st.lists(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=5), min_size=1, max_size=3)
COMPLETED = {"tool_name", "success", "output", "error", "tool_call_id"}


class _Odd:
    """A value that JSON does not know, and whose text cannot be had either."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


@tool
async def echo(value: Any) -> Any:
    """Return the value, after others had a turn."""
    await others_ran(1)
    return value


@tool
def odd() -> Any:
    """Return what JSON does not know."""
    return {"at": datetime(2026, 1, 1, tzinfo=UTC), "nan": float("nan"), "set": {1}, "bytes": b"\xff", "odd": _Odd()}


@tool
async def fail() -> None:
    """Raise."""
    raise ValueError("no such table")


@tool(timeout_seconds=0.005, idempotent=True)
async def hang() -> None:
    """Never end."""
    await asyncio.Event().wait()


@tool
def closed() -> None:
    """Is always denied."""


@tool
def approve() -> str:
    """Ask, and be approved."""
    return "done"


@tool
def reject() -> str:
    """Ask, and be rejected."""
    return "done"


class Policy:
    """Denies one tool and asks about two."""

    def evaluate(self, event: PolicyEvent) -> Decision:
        verdict = {"closed": Verdict.DENY, "approve": Verdict.ASK, "reject": Verdict.ASK}
        return Decision(verdict=verdict.get(event.tool_name, Verdict.ALLOW), reason="By the table.")


class Played(NamedTuple):
    """A run that was played: the calls and outcomes of its turns, and what is left of it."""

    turns: list[tuple[list[tuple[str, Kind]], BatchResult]]
    events: list[AgentRunEvent]
    facts: list[Fact]
    records: list[Any]


async def play(turns: list[list[str]]) -> Played:
    person = CallbackInteractionProvider(lambda question: question.tool_name == "approve")
    tools = [echo, odd, fail, hang, closed, approve, reject]
    played: list[tuple[list[tuple[str, Kind]], BatchResult]] = []
    async with ToolRuntime(tools=tools, policy=Policy(), interaction=person) as runtime:
        for number, names in enumerate(turns):
            calls = [(f"c{number}.{place}", KINDS[name]) for place, name in enumerate(names)]
            intents = [ToolIntent(call_id=id_, tool_name=kind.tool, arguments=kind.arguments) for id_, kind in calls]
            played.append((calls, await runtime.execute(intents)))
        return Played(played, await handle_events(runtime), await facts(runtime), await runtime.tool_executions())


@pytest.mark.requirement("R001", "R005", "R008", "R013")
@given(turns=TURNS)
async def test_run_handle_events_follow_from_the_calls(turns: list[list[str]]) -> None:
    played = await play(turns)
    assert all(type(event.type) is str and type(event.data) is dict for event in played.events)
    json.dumps([event.data for event in played.events], allow_nan=False)
    starts = [place for place, event in enumerate(played.events) if event.type == "tool_batch_started"]
    assert starts[:1] == [0]
    assert len(starts) == len(turns)
    for (calls, _), start, stop in zip(played.turns, starts, [*starts[1:], None], strict=True):
        batch = played.events[start:stop]
        assert batch[0].data == {"tool_call_count": len(calls)}
        decisions = [event.data for event in batch if event.type == "policy_decision"]
        assert [(data["tool_name"], data["action"]) for data in decisions] == [
            (kind.tool, kind.action) for _, kind in calls if kind.action
        ]
        assert all(data.keys() == {"tool_name", "action", "reason"} and data["reason"] for data in decisions)
        ends = {event.data["tool_call_id"]: event.data for event in batch if event.type == "tool_completed"}
        assert len(ends) == sum(event.type == "tool_completed" for event in batch) == len(calls)
        for call_id, kind in calls:
            end = ends[call_id]
            assert end.keys() == COMPLETED
            assert (end["tool_name"], end["success"]) == (kind.tool, kind.code == "ok")
            assert (end["error"] is None) is (kind.code == "ok")


@pytest.mark.requirement("R177", "R264", "R275")
@given(turns=TURNS)
async def test_only_permitted_calls_start_and_each_start_ends_once(turns: list[list[str]]) -> None:
    played = await play(turns)
    calls = dict(call for turn, _ in played.turns for call in turn)
    starts = [fact for fact in played.facts if isinstance(fact, InvocationStarted)]
    ends = [fact for fact in played.facts if isinstance(fact, InvocationCompleted)]
    expected = {call_id: kind.exit for call_id, kind in calls.items() if kind.exit}
    assert {fact.call_id: fact.exit for fact in ends} == expected
    assert sorted(fact.call_id for fact in starts) == sorted(expected) == sorted(fact.call_id for fact in ends)
    assert {fact.call_id: fact.invocation_id for fact in starts} == {fact.call_id: fact.invocation_id for fact in ends}
    assert len({fact.invocation_id for fact in starts}) == len(starts)
    assert all(fact.tool == calls[fact.call_id].tool and fact.timeout_seconds > 0 and fact.sandbox for fact in starts)
    for turn, result in played.turns:
        for (_, kind), message in zip(turn, result.messages, strict=True):
            body = json.loads(message["content"].partition("\n")[0])
            assert body["ok"] is (kind.code == "ok")
            if kind.phase:
                assert (body["phase"], body["code"]) == (kind.phase, kind.code)


@pytest.mark.requirement("R062", "R063", "R065", "R257")
@given(turns=TURNS)
async def test_every_call_has_one_message_and_one_record(turns: list[list[str]]) -> None:
    played = await play(turns)
    json.dumps([[record.output, record.error] for record in played.records], allow_nan=False)
    calls = [call for turn, _ in played.turns for call in turn]
    assert {record.tool_call_id: (record.tool_name, record.success) for record in played.records} == {
        call_id: (kind.tool, kind.code == "ok") for call_id, kind in calls
    }
    assert len(played.records) == len(calls)
    for turn, result in played.turns:
        assert [(m["role"], m["tool_call_id"]) for m in result.messages] == [("tool", call_id) for call_id, _ in turn]
        assert [observation.code for observation in result.observations] == [kind.code for _, kind in turn]
        contents = [o.content for o in result.observations if o.content is not None]
        assert all(content.trust == "tool_output_untrusted" for content in contents)
        assert {content.format for content in contents} <= {"text", "json", "diff", "image", "artifact_ref"}


class _ShuffledLoop(asyncio.SelectorEventLoop):
    """Runs what is ready in a random order, as no code may rely on another."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)

    def _run_once(self) -> None:
        self._random.shuffle(vars(self)["_ready"])
        super()._run_once()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


@pytest.mark.requirement("R106")
def test_outcomes_do_not_depend_on_the_order_of_tasks() -> None:
    turn = ["text", "hangs", "raises", "approved", "rejected", "denied", "data", "misfit"]

    def outcome(seed: int) -> list[Any]:
        with asyncio.Runner(loop_factory=lambda: _ShuffledLoop(seed)) as runner:
            played = runner.run(play([turn, turn]))
        return [
            [(o.call_id, o.code, o.content and o.content.text) for o in result.observations]
            for _, result in played.turns
        ]

    assert [outcome(seed) for seed in range(1, 12)] == [outcome(0)] * 11
