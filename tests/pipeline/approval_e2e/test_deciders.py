"""Many deciders, one action: the first answer stands, and everybody else is told whose it was."""

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from interlock import DecisionConflictError, EventLog, MemoryLog, RunState, ToolRuntime
from interlock.domain.event import ApprovalGranted, ApprovalRejected
from tests.logs import open_log
from tests.patience import HANG_SECONDS
from tests.pipeline.batch.stage import codes
from tests.soak.budget import Budget
from tests.support import call, facts

from .scene import OPEN, RUN, Scene, SetPolicy, statuses

DECIDERS = 16
#: Questions that all processes answer at the same time.
ROUNDS = 100
ROOT = Path(__file__).parents[3]
EDIT = call("c1", "edit", path="notes.txt")


def runtime_on(scene: Scene, log: EventLog, run_id: str = RUN) -> ToolRuntime:
    return scene.runtime(log=log, run_id=run_id)


async def decide(runtime: ToolRuntime, action_id: str, number: int) -> str:
    """Empty for who won; what the others are told."""
    try:
        await runtime.decide(action_id, approved=number % 2 == 0, by=f"decider-{number}")
    except DecisionConflictError as conflict:
        return str(conflict)
    return ""


async def one_round(scene: Scene, logs: Sequence[EventLog], number: int) -> None:
    run_id = f"run_{number}"
    first = runtime_on(scene, logs[number % DECIDERS], run_id)
    [question] = (await first.execute([EDIT])).questions
    deciders = [runtime_on(scene, log, run_id) for log in logs]
    for each in deciders:
        assert await each.questions() == [question]

    told = await asyncio.gather(*(decide(each, question.action_id, which) for which, each in enumerate(deciders)))

    winners = [which for which, words in enumerate(told) if not words]
    assert len(winners) == 1
    [winner] = winners
    state = "approved" if winner % 2 == 0 else "rejected"
    losers = {words.partition(", at 2")[0] for words in told if words}
    assert losers == {f"{question.action_id} was decided before: it is {state}, by decider-{winner}"}
    recorded = await facts(runtime_on(scene, logs[0], run_id))
    answers = [fact.answer.by for fact in recorded if isinstance(fact, ApprovalGranted | ApprovalRejected)]
    assert answers == [f"decider-{winner}"]
    for each in (first, *deciders):
        await each.close()


async def rounds(scene: Scene, path: Path, numbers: Iterable[int]) -> None:
    async with AsyncExitStack() as opened:
        logs = [await opened.enter_async_context(open_log(path)) for _ in range(DECIDERS)]
        for number in numbers:
            await one_round(scene, logs, number)


@pytest.mark.usefixtures("log_backend")
@pytest.mark.requirement("P05", "R161")
async def test_of_sixteen_deciders_exactly_one_wins_and_every_other_is_told_whose_answer_stands(
    scene: Scene, tmp_path: Path
) -> None:
    await rounds(scene, tmp_path / "runs.db", range(5))


@pytest.mark.soak
async def test_of_sixteen_deciders_exactly_one_wins_in_every_one_of_many_rounds(
    scene: Scene, tmp_path: Path, budget: Budget
) -> None:
    await rounds(scene, tmp_path / "runs.db", budget.rounds())


@pytest.mark.soak
def test_of_sixteen_processes_exactly_one_wins_each_of_many_rounds(
    scene: Scene, tmp_path: Path, budget: Budget
) -> None:
    for number in budget.rounds():
        (tmp_path / str(number)).mkdir()
        decide_all_in_processes(scene, tmp_path / str(number) / "runs.db")


def decide_all_in_processes(scene: Scene, path: Path) -> None:
    asyncio.run(ask_all(scene, path))
    command = [sys.executable, "-m", "tests.pipeline.approval_e2e.deciding_process", str(path), str(ROUNDS)]

    processes = [
        subprocess.Popen([*command, f"decider-{number}"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for number in range(DECIDERS)
    ]
    said = [process.communicate(timeout=4 * HANG_SECONDS)[0].split() for process in processes]

    assert [process.returncode for process in processes] == [0] * DECIDERS
    wins = Counter(run_id for lines in said for run_id in lines)
    assert wins == {f"run_{number}": 1 for number in range(ROUNDS)}


async def ask_all(scene: Scene, path: Path) -> None:
    """One open question in each of the runs."""
    async with open_log(path) as log:
        for number in range(ROUNDS):
            await runtime_on(scene, log, f"run_{number}").execute([EDIT])


async def test_a_yes_and_a_no_at_the_same_time_lead_to_what_the_log_has(scene: Scene) -> None:
    log = MemoryLog()
    first, second = runtime_on(scene, log), runtime_on(scene, log)
    [question] = (await first.execute([EDIT])).questions
    assert await second.questions() == [question]

    await first.decide(question.action_id, approved=False, by="ada")
    with pytest.raises(DecisionConflictError, match="rejected, by ada"):
        await second.decide(question.action_id, approved=True, by="bob")

    assert codes(await first.resume()) == {"c1": "user_denied"}
    assert scene.ran == []


async def test_a_decider_who_lost_sees_the_answer_that_stands_and_not_their_own(scene: Scene) -> None:
    log = MemoryLog()
    first, loser = runtime_on(scene, log), runtime_on(scene, log)
    [question] = (await first.execute([EDIT])).questions
    assert await loser.questions() == [question]
    await first.decide(question.action_id, approved=False, by="ada")

    with pytest.raises(DecisionConflictError, match="rejected, by ada"):
        await loser.decide(question.action_id, approved=True, by="bob")

    assert await statuses(loser) == ["REJECTED"]
    with pytest.raises(DecisionConflictError, match="rejected, by ada"):
        await loser.decide(question.action_id, approved=True, by="bob")
    assert codes(await loser.resume()) == {"c1": "user_denied"}


async def test_deciders_of_different_questions_do_not_stand_in_each_others_way(scene: Scene) -> None:
    log = MemoryLog()
    calls = [call("c1", "edit", path="a"), call("c2", "edit", path="b")]
    tools = [scene.tool(concurrency="safe")]
    first, second = scene.runtime(log=log, tools=tools), scene.runtime(log=log, tools=tools)
    one, other = (await first.execute(calls)).questions
    assert await second.questions() == [one, other]

    await first.decide(one.action_id, approved=True, by="ada")
    await second.decide(other.action_id, approved=True, by="bob")

    assert await statuses(second) == ["APPROVED", "APPROVED"]
    assert codes(await second.resume()) == {"c1": "ok", "c2": "ok"}


async def test_an_answer_to_another_payload_than_the_asked_one_is_refused(scene: Scene) -> None:
    async with scene.runtime() as runtime:
        [question] = (await runtime.execute([EDIT])).questions
        with pytest.raises(DecisionConflictError, match=question.payload_hash):
            await runtime.decide(question.action_id, approved=True, payload_hash="sha256:" + "0" * 64)
        assert await runtime.questions() == [question]
        await runtime.decide(question.action_id, approved=True, payload_hash=question.payload_hash)


async def test_a_run_that_ended_takes_no_answer(scene: Scene) -> None:
    async with scene.runtime(policy=SetPolicy(), interaction=OPEN) as runtime:
        [question] = (await runtime.execute([EDIT])).questions
        await runtime.cancel("Enough.")
        with pytest.raises(Exception, match="need no answer"):
            await runtime.decide(question.action_id, approved=True)
        assert await runtime.state() is RunState.CANCELLED

    assert scene.ran == []
