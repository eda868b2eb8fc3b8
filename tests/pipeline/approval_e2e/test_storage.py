"""The log between review and resume: processes die, files are copied, and somebody may have written in them."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock import DecisionConflictError, MemoryLog, RunState
from interlock.domain.event import (
    ApprovalGranted,
    CallObserved,
    CallProposed,
    Fact,
    InvocationStarted,
    WarningRaised,
    decode_event,
)
from tests.logs import open_log, wait_until_free
from tests.pipeline.batch.stage import codes
from tests.support import call, facts

from .scene import RUN, Scene, rewritten, statuses

EDIT = call("c1", "edit", path="notes.txt", text="reviewed")
ROOT = Path(__file__).parents[3]


def with_arguments(arguments: dict[str, Any], digest: str) -> Any:
    """The model asked for something else, it now seems."""

    def change(fact: Fact) -> Fact:
        if not isinstance(fact, CallProposed):
            return fact
        return msgspec.structs.replace(fact, raw_input=arguments, digest=digest or fact.digest)

    return change


async def digest_of(scene: Scene, arguments: dict[str, Any]) -> str:
    """What a call with these arguments is known by."""
    log = MemoryLog()
    async with scene.runtime(log=log) as runtime:
        await runtime.execute([call("c1", "edit", **arguments)])
        [proposed] = [fact for fact in await facts(runtime) if isinstance(fact, CallProposed)]
    return proposed.digest


@pytest.mark.requirement("P04", "R159", "R160")
@pytest.mark.parametrize("digest", ["kept", "made anew"])
@pytest.mark.parametrize("answered", ["before", "after"])
@pytest.mark.parametrize(
    "changed", [{"path": "notes.txt", "text": "evil"}, {"path": "/etc/passwd", "text": "reviewed"}]
)
async def test_stored_arguments_that_were_changed_are_refused_recorded_and_never_executed(
    scene: Scene, changed: dict[str, Any], answered: str, digest: str
) -> None:
    async with scene.runtime() as first:
        [question] = (await first.execute([EDIT])).questions
        if answered == "before":
            await first.decide(question.action_id, approved=True, by="ada")
    anew = await digest_of(scene, changed) if digest == "made anew" else ""
    altered = await rewritten(scene.log, with_arguments(changed, anew))

    async with scene.runtime(log=altered) as second:
        if answered == "after":
            await second.decide(question.action_id, approved=True, by="ada")
        before = len(await altered.read(RUN))
        result = await second.resume()
        written = [decode_event(entry).fact for entry in await altered.read(RUN, before - 1)]
        assert (await second.verify()).ok

    assert scene.ran == []
    assert codes(result) == {"c1": "payload_changed"}
    assert not [fact for fact in written if isinstance(fact, InvocationStarted)]
    assert [fact for fact in written if isinstance(fact, CallObserved | WarningRaised)]


@pytest.mark.requirement("P04")
async def test_an_answer_that_was_changed_to_edited_arguments_in_storage_is_not_executed(scene: Scene) -> None:
    async with scene.runtime() as first:
        [question] = (await first.execute([EDIT])).questions
        edited = {"path": "notes.txt", "text": "by a person", "size": 1.0}
        await first.decide(question.action_id, approved=True, by="ada", arguments=edited)

    def change(fact: Fact) -> Fact:
        if not isinstance(fact, ApprovalGranted):
            return fact
        answer = msgspec.structs.replace(fact.answer, arguments={**edited, "text": "evil"})
        return msgspec.structs.replace(fact, answer=answer)

    async with scene.runtime(log=await rewritten(scene.log, change)) as second:
        await second.resume()

    assert scene.ran == []


@pytest.mark.requirement("P05", "R161")
async def test_copies_of_a_saved_state_share_one_execution_where_they_share_one_log(scene: Scene) -> None:
    async with scene.runtime() as first:
        [question] = (await first.execute([EDIT])).questions
        await first.decide(question.action_id, approved=True, by="ada")

    for _ in range(3):
        async with scene.runtime() as again:
            await again.resume()
            with pytest.raises(DecisionConflictError, match="executed"):
                await again.decide(question.action_id, approved=True, by="ada")

    assert len(scene.ran) == 1


@pytest.mark.usefixtures("log_backend")
@pytest.mark.requirement("P06")
def test_a_run_whose_process_was_killed_while_it_waited_still_waits_in_the_next(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.pipeline.approval_e2e.waiting_process", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        action_id = process.stdout.readline().strip()
        os.kill(process.pid, signal.SIGKILL)
    log = open_log(tmp_path / "runs.db")
    asyncio.run(wait_until_free(log, RUN))
    scene = Scene(tmp_path, log)

    with scene.runtime() as runtime:
        still = runtime.resume_sync()
        assert [question.action_id for question in still.questions] == [action_id]
        assert (still.state, scene.ran, (tmp_path / "ran").exists()) == (RunState.PAUSED_APPROVAL, [], False)
        runtime.decide_sync(action_id, approved=True, by="ada")
        result = runtime.resume_sync()

    assert (codes(result), len(scene.ran)) == ({"c1": "ok"}, 1)


async def test_what_a_dead_process_left_open_is_listed_without_resuming(scene: Scene) -> None:
    async with scene.runtime() as first:
        [question] = (await first.execute([EDIT])).questions

    async with scene.runtime() as second:
        assert await second.questions() == [question]
        assert await statuses(second) == ["PENDING"]
        assert await second.state() is RunState.PAUSED_APPROVAL
