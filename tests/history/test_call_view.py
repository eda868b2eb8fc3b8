"""One call in three lenses: each has what its reader had, and nothing else."""

from collections.abc import Mapping
from typing import Any

from interlock import MemoryLog, Rule, RulePolicy, ToolDefinition, tool
from interlock.domain.call import Answer
from interlock.domain.event import Event, decode_event
from interlock.history.call_view import CallView, build_call_view
from interlock.runs.runner import Runner
from tests.runs.support import agent_of, asked_of, calls


@tool(risk="write")
def change(what: str, how: str = "well") -> str:
    """Change it."""
    return f"changed {what} {how}"


@tool
def fail(why: str) -> str:
    """Does not work."""
    raise RuntimeError(why)


POLICY = RulePolicy([Rule(id="ask-change", verdict="ask", tools="change", reason="Look first.")], default="allow")


async def events_of(tool_: ToolDefinition, arguments: Any, answer: Mapping[str, Any] | None = None) -> list[Event]:
    """Of a run with one call, which is answered if it asks."""
    agent = agent_of(calls(("c1", tool_.name, arguments)), "Done.", tools=[tool_], policy=POLICY)
    log = MemoryLog()
    async with Runner(agent, log=log) as runner:
        result = await (await runner.start("Do it.")).result()
        if answer is not None:
            (question,) = result.questions
            await (await runner.open(result.run_id, answers={question.action_id: Answer(**answer)})).result()
        events = [decode_event(entry) for entry in await log.read(result.run_id)]
    told = [message for request in asked_of(agent) for message in request.messages]
    assert len(told) > 0
    return events


async def view_of(*given: Any) -> CallView:
    found = build_call_view(await events_of(*given), "c1")
    assert found is not None
    return found


async def test_an_approved_call_shows_what_each_saw() -> None:
    view = await view_of(change, {"what": "x"}, {"approved": True, "by": "user:olga", "reason": "Fine."})

    assert view.model_view.arguments == {"what": "x"}
    assert view.model_view.result is not None
    assert "changed x well" in view.model_view.result
    assert '"type":"tool.observation"' in view.model_view.result
    (asked,) = view.person_view.questions
    assert (asked.status, asked.question.rule_ids, asked.question.arguments) == (
        "EXECUTED",
        ("ask-change",),
        {"what": "x", "how": "well"},
    )
    assert asked.answer is not None
    assert (asked.answer.by, asked.answer.reason) == ("user:olga", "Fine.")
    (ran,) = view.execution.invocations
    assert ran.arguments == {"what": "x", "how": "well"}
    assert (ran.started.action_id, ran.started.payload_hash) == (asked.question.action_id, asked.question.payload_hash)
    assert ran.ended is not None
    assert (ran.ended.exit, view.execution.observation and view.execution.observation.ok) == ("ok", True)
    assert view.execution.decisions[0].decision.verdict == "ask"


async def test_what_a_person_edited_ran_and_what_the_model_wrote_is_still_shown() -> None:
    answer = {"approved": True, "by": "user:olga", "arguments": {"what": "y", "how": "slowly"}}
    view = await view_of(change, {"what": "x"}, answer)

    assert view.model_view.arguments == {"what": "x"}
    assert view.person_view.questions[0].question.arguments == {"what": "x", "how": "well"}
    assert view.execution.invocations[0].arguments == {"what": "y", "how": "slowly"}


async def test_a_rejected_call_ran_nothing_and_says_who_rejected_it() -> None:
    view = await view_of(change, {"what": "x"}, {"approved": False, "by": "user:olga", "reason": "No."})

    assert view.execution.invocations == ()
    assert view.execution.observation is not None
    assert view.execution.observation.failure is not None
    assert view.execution.observation.failure.code == "user_denied"
    assert [(asked.status, asked.answer and asked.answer.reason) for asked in view.person_view.questions] == [
        ("REJECTED", "No.")
    ]


async def test_a_call_that_waits_has_no_outcome_yet() -> None:
    view = await view_of(change, {"what": "x"})
    assert (view.observed_seq, view.model_view.result, view.person_view.summary) == (-1, None, "")
    assert [asked.status for asked in view.person_view.questions] == ["PENDING"]


async def test_arguments_that_do_not_fit_are_shown_with_what_was_wrong() -> None:
    view = await view_of(change, {"where": 1})
    assert view.model_view.arguments == {"where": 1}
    assert view.execution.validation_errors
    assert (view.execution.invocations, view.person_view.questions) == ((), ())


async def test_a_failed_call_says_how_it_failed_and_what_may_have_happened() -> None:
    view = await view_of(fail, {"why": "broken"})
    assert view.execution.observation is not None
    assert view.execution.observation.failure is not None
    assert (view.execution.observation.failure.code, view.execution.observation.failure.side_effects) == (
        "tool_failed",
        "unknown",
    )
    assert view.execution.invocations[0].ended is not None


async def test_a_call_that_nobody_proposed_is_none() -> None:
    assert build_call_view(await events_of(fail, {"why": "x"}), "c2") is None


async def test_the_view_is_of_every_prefix_of_a_run() -> None:
    events = await events_of(change, {"what": "x"}, {"approved": True, "by": "user:olga"})
    views = [build_call_view(events[:at], "c1") for at in range(len(events) + 1)]
    known = [view for view in views if view is not None]
    assert views.index(known[0]) == known[0].proposed_seq + 1
    statuses = [asked.status for view in known for asked in view.person_view.questions]
    assert list(dict.fromkeys(statuses)) == ["PENDING", "APPROVED", "EXECUTED"]
