"""Calls of somebody else's loop pass the pipeline one by one, and happen once."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from interlock import ConfigurationError, Gate, Rule, RulePolicy, RunClaimedError, RunEndedError, RunPausedError, verify
from interlock.storage.event_log import Lease
from tests.gate.support import SCHEMA, Desk, answer, events, intent, open_gate


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


async def test_an_allowed_call_runs_and_keeps_its_value(tmp_path: Path, desk: Desk) -> None:
    async with open_gate(tmp_path) as gate:
        settled = await gate.call("t", intent("look", "c1"), desk.pay)

    assert (settled.ok, settled.ran, settled.result) == (True, True, {"paid": 5})


async def test_a_denied_call_tells_the_model(tmp_path: Path, desk: Desk) -> None:
    policy = RulePolicy([Rule(id="no-pay", verdict="deny", tools="pay", reason="Not here.")])
    async with open_gate(tmp_path, policy=policy) as gate:
        settled = await gate.call("t", intent("pay", "c1"), desk.pay)

    assert (settled.ok, desk.paid) == (False, [])
    assert "Not here." in settled.result


@pytest.mark.requirement("P03")
async def test_arguments_that_do_not_fit_are_never_asked_about(tmp_path: Path, desk: Desk) -> None:
    async with open_gate(tmp_path) as gate:
        settled = await gate.call("t", intent("pay", "c1", amount="lots"), desk.pay)

    assert (settled.question, desk.paid) == (None, [])
    assert "input.amount" in settled.text


@pytest.mark.requirement("P05")
async def test_a_call_waits_for_a_person_and_runs_once(tmp_path: Path, desk: Desk) -> None:
    async with open_gate(tmp_path) as gate:
        first = await gate.call("t", intent("pay", "c1"), desk.pay)
        early = await gate.call("t", intent("pay", "c1"), desk.pay)
    async with open_gate(tmp_path) as gate:
        await answer(gate, "t")
        runs = [await gate.call("t", intent("pay", "c1"), desk.pay) for _ in range(3)]
        chain = verify(await gate.log.read("t"), "t")

    assert first.question is not None
    assert early.question == first.question
    assert [settled.ran for settled in runs] == [True, False, False]
    assert [settled.result for settled in runs] == [{"paid": 5}] * 3
    assert (desk.paid, chain.ok) == ([5], True)


async def test_a_rejection_reaches_the_model(tmp_path: Path, desk: Desk) -> None:
    async with open_gate(tmp_path) as gate:
        await gate.call("t", intent("pay", "c1"), desk.pay)
        await answer(gate, "t", approved=False, reason="too much")
        settled = await gate.call("t", intent("pay", "c1"), desk.pay)

    assert "too much" in settled.result
    assert desk.paid == []


async def test_edited_arguments_run_and_the_model_is_told(tmp_path: Path, desk: Desk) -> None:
    async with open_gate(tmp_path) as gate:
        await gate.call("t", intent("pay", "c1"), desk.pay)
        await answer(gate, "t", arguments={"amount": 3})
        settled = await gate.call("t", intent("pay", "c1"), desk.pay)

    assert (desk.paid, settled.arguments) == ([3], {"amount": 3})
    assert "A person (ada) changed the arguments" in settled.result


@pytest.mark.requirement("P04")
async def test_altered_arguments_of_a_saved_call_are_refused(tmp_path: Path, desk: Desk) -> None:
    async with open_gate(tmp_path) as gate:
        await gate.call("t", intent("pay", "c1"), desk.pay)
        await answer(gate, "t")
        settled = await gate.call("t", intent("pay", "c1", amount=9000), desk.pay)

    assert (settled.observation is not None and settled.observation.code, desk.paid) == ("call_id_conflict", [])


@pytest.mark.requirement("P01")
async def test_a_tool_that_was_not_declared_is_refused(tmp_path: Path, desk: Desk) -> None:
    async with open_gate(tmp_path) as gate:
        settled = await gate.call("t", intent("transfer", "c1"), desk.pay)
        look = await gate.call("t", intent("look", "c2"), desk.pay)

    assert (settled.ran, settled.ok, look.ok) == (False, False, True)
    assert "transfer" in settled.text


async def test_a_paused_run_takes_other_calls(tmp_path: Path, desk: Desk) -> None:
    async with open_gate(tmp_path) as gate:
        await gate.call("t", intent("pay", "c1"), desk.pay)
        look = await gate.call("t", intent("look", "c2"), desk.pay)
        second = await gate.call("t", intent("pay", "c3", amount=7), desk.pay)
        open_questions = await gate.questions("t")

    assert look.ok
    assert second.question is not None
    assert [question.call_id for question in open_questions] == ["c1", "c3"]


async def test_a_call_that_arrives_while_a_pause_releases_the_run_is_taken(tmp_path: Path, desk: Desk) -> None:
    async with open_gate(tmp_path) as gate:
        paused = asyncio.Event()
        release = gate.log.release

        async def notify(lease: Lease) -> bool:
            paused.set()
            return await release(lease)

        gate.log.release = notify
        asking = asyncio.ensure_future(gate.call("t", intent("pay", "c1"), desk.pay))
        await paused.wait()
        look = await gate.call("t", intent("look", "c2"), desk.pay)
        asked = await asking

    assert look.ok
    assert asked.question is not None


async def test_a_run_is_kept_while_a_call_is_under_way(tmp_path: Path, desk: Desk) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def wait(arguments: dict[str, Any]) -> str:
        begun.set()
        await go_on.wait()
        return "done"

    async with open_gate(tmp_path) as gate, open_gate(tmp_path) as other:
        waiting = asyncio.ensure_future(gate.call("t", intent("look", "c1"), wait))
        await begun.wait()
        await gate.release("t")
        with pytest.raises(RunClaimedError):
            await other.call("t", intent("look", "c2"), desk.pay)
        go_on.set()
        settled = await waiting
        after = await other.call("t", intent("look", "c2"), desk.pay)

    assert (settled.result, after.ok) == ("done", True)


async def test_a_cancelled_caller_leaves_the_run_usable(tmp_path: Path, desk: Desk) -> None:
    begun = asyncio.Event()

    async def hang(arguments: dict[str, Any]) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with open_gate(tmp_path) as gate:
        hanging = asyncio.ensure_future(gate.call("t", intent("look", "c1"), hang))
        await begun.wait()
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging
        settled = await gate.call("t", intent("look", "c2"), desk.pay)

    assert settled.ok


async def test_each_of_two_questions_has_its_own_answer(tmp_path: Path, desk: Desk) -> None:
    async with open_gate(tmp_path) as gate:
        calls = [intent("pay", "c1"), intent("pay", "c2", amount=7)]
        first, second = await asyncio.gather(*[gate.call("t", call, desk.pay) for call in calls])
        assert first.question is not None
        assert second.question is not None
        await gate.inbox.reject(first.question, by="ada", reason="no")
        await gate.inbox.approve(second.question, by="ada")
        settled = await asyncio.gather(*[gate.call("t", call, desk.pay) for call in calls])

    assert ([one.ok for one in settled], desk.paid) == ([False, True], [7])


async def test_calls_run_side_by_side(tmp_path: Path) -> None:
    together = asyncio.Barrier(20)

    async def meet(arguments: dict[str, Any]) -> str:
        await together.wait()  # passes only when all twenty run at the same time
        return "met"

    async with open_gate(tmp_path) as gate:
        settled = await asyncio.gather(*[gate.call("t", intent("look", f"c{at}"), meet) for at in range(20)])

    assert [one.result for one in settled] == ["met"] * 20


async def test_a_call_inside_a_call_is_a_run_inside_it(tmp_path: Path, desk: Desk) -> None:
    class Interrupted(Exception):
        """How a framework pauses."""

    async with open_gate(tmp_path) as gate:

        async def delegate(arguments: dict[str, Any]) -> Any:
            inner = await gate.call("ignored", intent("pay", "inner"), desk.pay)
            if inner.question is not None:
                raise Interrupted(inner.question.run_id)
            return inner.result

        with pytest.raises(Interrupted) as paused:
            await gate.call("t", intent("look", "outer"), delegate, suspends=(Interrupted,))
        child = str(paused.value)
        assert [question.run_id for question in await gate.questions("t")] == [child]
        await answer(gate, child)
        settled = await gate.call("t", intent("look", "outer"), delegate, suspends=(Interrupted,))

    assert child.startswith("t.")
    assert (settled.result, desk.paid) == ({"paid": 5}, [5])


async def test_an_exception_for_the_framework_passes_as_it_is(tmp_path: Path) -> None:
    class Retry(Exception):
        """Asks the model to try again."""

    error = Retry("be more exact")

    async def retry(arguments: dict[str, Any]) -> None:
        raise error

    async with open_gate(tmp_path) as gate:
        with pytest.raises(Retry) as passed:
            await gate.call("t", intent("look", "c1"), retry, passes=(Retry,))
        recorded = [event.type for event in await events(gate, "t")]

    assert passed.value is error
    assert recorded[-1] == "tool.observation"


async def test_judging_executes_nothing(tmp_path: Path, desk: Desk) -> None:
    async with open_gate(tmp_path) as gate:
        allowed = await gate.judge("t", intent("look", "c1"))
        asked = await gate.judge("t", intent("pay", "c2"))
        await answer(gate, "t")
        granted = await gate.judge("t", intent("pay", "c2"))
        before = desk.paid
        settled = await gate.call("t", intent("pay", "c2"), desk.pay)

    assert (allowed.verdict, asked.verdict, granted.verdict, before) == ("allow", "ask", "allow", [])
    assert (settled.ok, desk.paid) == (True, [5])


async def test_two_gates_cannot_have_the_same_run(tmp_path: Path, desk: Desk) -> None:
    async with open_gate(tmp_path) as one, open_gate(tmp_path) as other:
        await one.call("t", intent("look", "c1"), desk.pay)
        with pytest.raises(RunClaimedError):
            await other.call("t", intent("look", "c2"), desk.pay)
        await one.release("t")
        settled = await other.call("t", intent("look", "c2"), desk.pay)

    assert settled.ok


async def test_a_cancelled_run_takes_no_more_calls(tmp_path: Path, desk: Desk) -> None:
    async with open_gate(tmp_path) as gate:
        await gate.call("t", intent("pay", "c1"), desk.pay)
        await gate.inbox.cancel("t", "enough", by="ada")
        with pytest.raises(RunEndedError):
            await gate.call("t", intent("pay", "c1"), desk.pay)

    assert desk.paid == []


async def test_a_complete_run_takes_no_more_calls(tmp_path: Path, desk: Desk) -> None:
    async with open_gate(tmp_path) as gate:
        await gate.call("t", intent("look", "c1"), desk.pay)
        await gate.complete("t", "done")
        with pytest.raises(RunEndedError):
            await gate.call("t", intent("look", "c2"), desk.pay)
        recorded = [event.type for event in await events(gate, "t")]

    assert (recorded[-1], desk.paid) == ("run.completed", [5])


async def test_only_a_run_that_is_there_and_not_paused_can_be_complete(tmp_path: Path, desk: Desk) -> None:
    async with open_gate(tmp_path) as gate:
        with pytest.raises(ConfigurationError, match="no run"):
            await gate.complete("t")
        assert await gate.log.run_ids() == []
        await gate.call("t", intent("pay", "c1"), desk.pay)
        with pytest.raises(RunPausedError):
            await gate.complete("t")


async def test_without_a_run_id_nothing_runs(tmp_path: Path, desk: Desk) -> None:
    async with open_gate(tmp_path) as gate:
        with pytest.raises(ConfigurationError, match="no run id"):
            await gate.call("", intent("look", "c1"), desk.pay)
        async with gate.run("ticket/42"):
            await gate.call("", intent("look", "c1"), desk.pay)
        runs = await gate.log.run_ids()

    assert [run_id.partition("~")[0] for run_id in runs] == ["ticket-42"]


async def test_a_name_that_is_no_text_is_refused(tmp_path: Path, desk: Desk) -> None:
    async with open_gate(tmp_path) as gate:
        with pytest.raises(ConfigurationError, match="texts"):
            await gate.call("t", intent("look", "c1"), desk.pay, agent=None)  # pyright: ignore[reportArgumentType]
        assert await gate.log.run_ids() == []


async def test_misspelt_options_fail_loudly(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="Did you mean `risk`"):
        Gate(tmp_path, riks={})  # pyright: ignore[reportCallIssue]
    async with Gate(tmp_path, risk={"serch": "read"}) as gate:
        with pytest.raises(ConfigurationError, match="Did you mean 'search'"):
            gate.declare("search", "Search.", SCHEMA)


async def test_a_changed_definition_replaces_the_known_one(tmp_path: Path, desk: Desk) -> None:
    async with open_gate(tmp_path) as gate:
        first = gate.declare("look", "Look something up.", SCHEMA)
        same = gate.declare("look", "Look something up.", dict(SCHEMA))
        other = gate.declare("look", "Look it up.", SCHEMA)

    assert first is same
    assert other.version != first.version


async def test_an_answer_wakes_whoever_follows(tmp_path: Path, desk: Desk) -> None:
    async with open_gate(tmp_path) as gate:
        settled = await gate.call("t", intent("pay", "c1"), desk.pay)
        assert settled.question is not None
        woken = asyncio.ensure_future(anext(gate.answered(await gate.log.feed_position())))
        await answer(gate, "t")
        first, again = await woken, await anext(gate.answered(after=0))

    assert (first.run_id, first.call_id, first.action_id) == ("t", "c1", settled.question.action_id)
    assert again == first


async def test_the_first_event_names_the_framework(tmp_path: Path, desk: Desk) -> None:
    async with open_gate(tmp_path) as gate:
        await gate.call("t", intent("look", "c1"), desk.pay, framework="langgraph", agent="clerk")
        begun: Any = (await events(gate, "t"))[0].fact

    assert (begun.settings, begun.agent) == ({"framework": "langgraph"}, "clerk")


@pytest.mark.parametrize("tool", ["look", "pay"])
async def test_the_same_call_made_twice_at_once_runs_once(tmp_path: Path, desk: Desk, tool: str) -> None:
    """A framework may repeat a step while the first one runs."""
    async with open_gate(tmp_path) as gate:
        if tool == "pay":
            await gate.call("t", intent("pay", "c1"), desk.pay)
            await answer(gate, "t")
        together = await asyncio.gather(*(gate.call("t", intent(tool, "c1"), desk.pay) for _ in range(3)))
        chain = verify(await gate.log.read("t"), "t")

    assert sorted(settled.ran for settled in together) == [False, False, True]
    assert [settled.result for settled in together] == [{"paid": 5}] * 3
    assert (desk.paid, chain.ok) == ([5], True)


async def test_a_repeated_call_does_not_wait_for_one_that_was_cancelled(tmp_path: Path, desk: Desk) -> None:
    started = asyncio.Event()

    async def hang(arguments: dict[str, Any]) -> None:
        started.set()
        await asyncio.Event().wait()

    async with open_gate(tmp_path) as gate:
        first = asyncio.create_task(gate.call("t", intent("look", "c1"), hang))
        await started.wait()
        second = asyncio.create_task(gate.call("t", intent("look", "c1"), desk.pay))
        first.cancel()
        settled = await second

    assert settled.observation is not None
