"""A held action: what is recorded of it, how it is linked to run, call and events, and that it is used up."""

from typing import Any

import pytest

from interlock import (
    Action,
    AgentExecutionError,
    Answer,
    Event,
    FailSafeConfig,
    RunState,
    ToolRuntime,
    to_run_events,
    tool,
)
from interlock.domain.errors import IllegalTransitionError
from interlock.domain.event import ApprovalGranted, ApprovalRequested, InvocationStarted, RunStarted
from interlock.domain.state.ledger import Ledger
from tests.pipeline.batch.stage import codes
from tests.support import call, facts

from .scene import RUN, START, Person, Scene, action_of, ask_rule, soon, statuses

EDIT = call("c1", "edit", path="notes.txt")


async def event_at(runtime: ToolRuntime, seq: int | None) -> Event:
    return next(step.event for step in await runtime.replay() if step.event.seq == seq)


@pytest.mark.requirement("R143", "R144", "R145", "R146", "R147", "R158", "R162", "R163")
async def test_a_held_action_is_recorded_with_everything_and_the_run_pauses(scene: Scene) -> None:
    scene.policy = ask_rule(reason="Edits are asked about.")
    async with scene.runtime(agent="writer") as runtime:
        result = await runtime.execute([EDIT])
        [action] = await runtime.actions()
        asked = await event_at(runtime, action.asked_seq)
        shown = [shown for step in await runtime.replay() for shown in to_run_events(step.event)]

    [question] = result.questions
    assert scene.ran == []
    assert (result.status, result.observations) == ("PAUSED_APPROVAL", ())
    assert action == Action(
        action_id=question.action_id,
        run_id=RUN,
        agent="writer",
        call_id="c1",
        tool="edit",
        capability="edit notes.txt",
        title="edit: notes.txt",
        payload_hash=question.payload_hash,
        status="PENDING",
        asked_at=START,
        question=question,
        asked_seq=action.asked_seq,
    )
    assert action.payload_hash.startswith("sha256:")
    assert len(action.payload_hash) == len("sha256:") + 64
    assert isinstance(asked.fact, ApprovalRequested)
    assert (asked.fact.question, asked.fact.call_id, asked.correlation_id) == (question, "c1", "c1")
    [required] = [event for event in shown if event.type == "APPROVAL_REQUIRED"]
    assert required.seq == action.asked_seq
    assert required.data == {
        "tool": "edit",
        "capability": "edit notes.txt",
        "title": "edit: notes.txt",
        "call_id": "c1",
        "action_id": action.action_id,
        "kind": "approval",
        "prompt": question.prompt,
        "payload_hash": action.payload_hash,
        "status": "PENDING",
    }


@pytest.mark.requirement("R148", "R149")
async def test_an_open_question_is_listed_with_agent_tool_operation_hash_and_time(scene: Scene) -> None:
    async with scene.runtime(agent="writer") as runtime:
        await runtime.execute([EDIT])
        [question] = await runtime.questions()
        [started] = [fact for fact in await facts(runtime) if isinstance(fact, RunStarted)]
        situation = runtime.situation

    assert (situation.agent, started.agent, started.requester) == ("writer", "writer", "ada")
    assert (question.agent, question.tool_name, question.capability) == ("writer", "edit", "edit notes.txt")
    assert question.asked_at == START
    assert question.payload_hash


@pytest.mark.requirement("R144", "R146", "R150", "R163", "R164")
async def test_events_name_the_action_and_the_action_names_its_events(scene: Scene) -> None:
    async with scene.runtime() as runtime:
        [question] = (await runtime.execute([EDIT])).questions
        await runtime.decide(question.action_id, approved=True, by="bob", reason="Looks right.", scope="run")
        [approved] = await runtime.actions()
        await runtime.resume()
        [executed] = await runtime.actions()
        asked, answered, started = [
            await event_at(runtime, seq) for seq in (executed.asked_seq, executed.answered_seq, executed.executed_seq)
        ]
        naming = {step.event.type for step in await runtime.replay() if _names(step.event, question.action_id)}
        shown = [shown for step in await runtime.replay() for shown in to_run_events(step.event)]

    answer = Answer(approved=True, by="bob", reason="Looks right.", scope="run")
    assert (approved.status, approved.answer, approved.executed_seq) == ("APPROVED", answer, None)
    assert (executed.status, executed.answer) == ("EXECUTED", answer)
    assert isinstance(asked.fact, ApprovalRequested)
    assert isinstance(answered.fact, ApprovalGranted)
    assert isinstance(started.fact, InvocationStarted)
    assert asked.fact.question.action_id == answered.fact.action_id == started.fact.action_id == executed.action_id
    assert asked.seq < answered.seq < started.seq
    assert naming >= {"approval.requested", "approval.granted", "tool.invocation.started"}
    linked = {event.type: event.data["action_id"] for event in shown if "action_id" in event.data}
    assert linked == dict.fromkeys(("APPROVAL_REQUIRED", "APPROVAL_GRANTED", "TOOL_CALL"), executed.action_id)


def _names(event: Event, action_id: str) -> bool:
    asked = getattr(event.fact, "question", None)
    return getattr(event.fact, "action_id", "") == action_id or (asked is not None and asked.action_id == action_id)


@pytest.mark.requirement("R144", "R164")
@pytest.mark.parametrize("end", ["REJECTED", "EXPIRED", "VOID"])
async def test_an_action_that_was_not_executed_says_how_it_ended_and_where(scene: Scene, end: str) -> None:
    scene.policy = ask_rule(answer_within_seconds=60)
    async with scene.runtime() as runtime:
        [question] = (await runtime.execute([EDIT])).questions
        if end == "REJECTED":
            await runtime.decide(question.action_id, approved=False, by="bob")
        elif end == "EXPIRED":
            scene.time.passes(61)
        else:
            await runtime.decide(question.action_id, approved=True, by="bob")
            scene.file.write_text("changed meanwhile")
        await runtime.resume()
        action = await action_of(runtime, question.action_id)
        ended = await event_at(runtime, action.answered_seq)

    assert (action.status, action.executed_seq, scene.ran) == (end, None, [])
    assert getattr(ended.fact, "action_id", "") == question.action_id


@pytest.mark.requirement("R150", "R161", "P05")
async def test_an_approval_is_used_up_by_the_start_that_names_it(scene: Scene) -> None:
    async with scene.runtime() as runtime:
        [question] = (await runtime.execute([EDIT])).questions
        await runtime.decide(question.action_id, approved=True, by="bob")
        await runtime.resume()
        events = [step.event for step in await runtime.replay()]
    [start] = [event for event in events if isinstance(event.fact, InvocationStarted)]
    ledger = Ledger(run_id=RUN)
    for event in events[: start.seq + 1]:
        ledger.apply(event)

    again = Event(start.seq + 1, RUN, start.at, start.correlation_id, start.causation_id, start.fact)
    with pytest.raises(IllegalTransitionError):
        ledger.apply(again)

    action = ledger.actions[question.action_id]
    assert (action.state, action.executed_seq) == ("executed", start.seq)


@pytest.mark.requirement("R163", "R164")
async def test_an_action_that_replaces_another_says_which_and_why(scene: Scene) -> None:
    async with scene.runtime() as runtime:
        [question] = (await runtime.execute([EDIT])).questions
        await runtime.decide(question.action_id, approved=True, by="bob")
        scene.file.write_text("changed meanwhile")
        await runtime.resume()
        first, second = await runtime.actions()

    assert (first.status, first.replaces, first.changes) == ("VOID", "", ())
    assert (second.status, second.replaces) == ("PENDING", first.action_id)
    assert [change.what for change in second.changes] == ["file notes.txt"]
    assert (second.run_id, second.call_id, second.tool) == (first.run_id, first.call_id, first.tool)


THREE = [call(f"c{number}", "edit", path=f"{number}.txt") for number in (1, 2, 3)]


@pytest.mark.parametrize("concurrency", ["safe", "exclusive"])
async def test_a_batch_is_resolved_call_by_call_as_people_answer(scene: Scene, concurrency: Any) -> None:
    tools = [scene.tool(concurrency=concurrency)]
    async with scene.runtime(tools=tools) as runtime:
        one, two, three = (await runtime.execute(THREE)).questions
        await runtime.decide(two.action_id, approved=False, reason="Not that.", by="ada")
        await runtime.decide(one.action_id, approved=True, by="bob")
        first = await runtime.resume()
        assert (await statuses(runtime), first.state) == (["EXECUTED", "REJECTED", "PENDING"], RunState.PAUSED_APPROVAL)
        assert first.questions == (three,)
        await runtime.decide(three.action_id, approved=True, by="ada")
        last = await runtime.resume()
        assert await statuses(runtime) == ["EXECUTED", "REJECTED", "EXECUTED"]
        assert (await runtime.verify()).ok

    assert (codes(first), codes(last)) == ({"c1": "ok", "c2": "user_denied"}, {"c3": "ok"})
    assert [run["path"] for run in scene.ran] == ["1.txt", "3.txt"]
    assert last.state is RunState.RUNNING


async def test_an_approved_call_stays_behind_an_open_one_that_it_must_not_overtake(scene: Scene) -> None:
    async with scene.runtime() as runtime:
        one, two, three = (await runtime.execute(THREE)).questions
        await runtime.decide(three.action_id, approved=True, by="ada")
        waiting = await runtime.resume()
        assert (codes(waiting), scene.ran) == ({}, [])
        await runtime.decide(one.action_id, approved=True, by="ada")
        await runtime.decide(two.action_id, approved=True, by="ada")
        result = await runtime.resume()

    assert codes(result) == {"c1": "ok", "c2": "ok", "c3": "ok"}
    assert [run["path"] for run in scene.ran] == ["1.txt", "2.txt", "3.txt"]


async def test_what_an_approved_call_changes_is_seen_by_the_approvals_behind_it(scene: Scene) -> None:
    """Three approvals name one file; the first call writes it, so the others are asked about again."""

    async def edit(path: str, text: str) -> str:
        (scene.folder / path).write_text(text)
        scene.ran.append({"text": text})
        return "edited"

    writing = tool(edit, name="edit", version="1", risk="write", resources={"path": "path"})
    calls = [call(f"c{number}", "edit", path="notes.txt", text=str(number)) for number in (1, 2)]
    person = Person()
    async with scene.runtime(tools=[writing], interaction=person) as runtime:
        result = await soon(runtime.execute(calls))
        found = await statuses(runtime)

    assert codes(result) == {"c1": "ok", "c2": "ok"}
    assert sorted(found) == ["EXECUTED", "EXECUTED", "VOID"]
    assert scene.file.read_text() == "2"


@pytest.mark.requirement("R143")
async def test_capability_names_the_main_thing_that_the_call_acts_on_and_is_bounded(scene: Scene) -> None:
    async with scene.runtime() as runtime:
        [question] = (await runtime.execute([call("c1", "edit", path="x" * 10_000)])).questions

    assert question.capability.startswith("edit xxx")
    assert len(question.capability) < 300


@pytest.mark.requirement("D02", "R151")
async def test_a_rejection_fails_the_run_where_that_is_asked_for(scene: Scene) -> None:
    async with scene.runtime(fail_safe=FailSafeConfig(approval_denial_policy="fail")) as runtime:
        [question] = (await runtime.execute([EDIT])).questions
        await runtime.decide(question.action_id, approved=False, by="bob")
        with pytest.raises(AgentExecutionError):
            await runtime.resume()
        [action] = await runtime.actions()
        shown = [event.type for step in await runtime.replay() for event in to_run_events(step.event)]

    assert (action.status, await runtime.state(), scene.ran) == ("REJECTED", RunState.FAILED, [])
    assert "APPROVAL_REJECTED" in shown


@pytest.mark.requirement("R133", "R137")
async def test_a_run_that_fails_by_a_rejection_fails_as_it_waits_and_never_runs_again(scene: Scene) -> None:
    async with scene.runtime(fail_safe=FailSafeConfig(rejection_policy="fail")) as runtime:
        [question] = (await runtime.execute([EDIT])).questions
        await runtime.decide(question.action_id, approved=False, by="bob")
        with pytest.raises(AgentExecutionError):
            await runtime.resume()
        types = [step.event.type for step in await runtime.replay()]

    assert "run.resumed" not in types
    assert types[-1] == "run.failed"


@pytest.mark.requirement("R133", "R137")
async def test_a_no_beside_other_open_questions_fails_the_run_as_it_waits(scene: Scene) -> None:
    async with scene.runtime(fail_safe=FailSafeConfig(rejection_policy="fail")) as runtime:
        first, _ = (await runtime.execute([EDIT, call("c2", "edit", path="other.txt")])).questions
        await runtime.decide(first.action_id, approved=False, by="bob")
        with pytest.raises(AgentExecutionError):
            await runtime.resume()
        types = [step.event.type for step in await runtime.replay()]
        states = [action.status for action in await runtime.actions()]

    assert "run.resumed" not in types
    assert (types[-1], states, scene.ran) == ("run.failed", ["REJECTED", "VOID"], [])


@pytest.mark.requirement("D02")
async def test_a_rejection_lets_an_in_process_run_go_on_by_default(scene: Scene) -> None:
    async with scene.runtime() as runtime:
        [question] = (await runtime.execute([EDIT])).questions
        await runtime.decide(question.action_id, approved=False, by="bob")
        result = await runtime.resume()

    assert (result.state, result.observations[0].code) == (RunState.RUNNING, "user_denied")


@pytest.mark.requirement("R153")
async def test_after_a_yes_the_run_runs_again_the_grant_is_logged_and_then_the_call_starts(scene: Scene) -> None:
    async with scene.runtime() as runtime:
        [question] = (await runtime.execute([EDIT])).questions
        await runtime.decide(question.action_id, approved=True, by="bob")
        await runtime.resume()
        types = [step.event.type for step in await runtime.replay()]

    order = ["run.paused", "run.resumed", "approval.granted", "tool.invocation.started"]
    assert [type_ for type_ in types if type_ in order] == order


@pytest.mark.requirement("D11")
@pytest.mark.parametrize("status", ["PENDING", "APPROVED", "REJECTED", "EXPIRED", "EXECUTED", "VOID"])
async def test_an_action_reaches_each_status_and_the_log_keeps_it(scene: Scene, status: str) -> None:
    scene.policy = ask_rule(answer_within_seconds=60)
    async with scene.runtime() as runtime:
        [question] = (await runtime.execute([EDIT])).questions
        if status in ("APPROVED", "EXECUTED", "VOID", "REJECTED"):
            await runtime.decide(question.action_id, approved=status != "REJECTED", by="ada")
        if status == "EXPIRED":
            scene.time.passes(61)
        if status == "VOID":
            scene.file.write_text("changed after the approval")
        if status in ("EXECUTED", "EXPIRED", "VOID"):
            await runtime.resume()
        assert (await runtime.actions())[0].status == status
    assert len(scene.ran) == (status == "EXECUTED")
    async with scene.runtime() as reopened:
        assert (await reopened.actions())[0].status == status
