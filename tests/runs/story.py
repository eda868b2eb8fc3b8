"""A whole run with every kind of call, in a process that may die at any point.

A read, an effect that cannot be taken back, two approvals of which one is granted and one refused, a call that may be
repeated, one that can tell whether it happened, another agent that is asked and needs an approval of its own, and a
final answer. `python -m tests.runs.story` imports everything once and then forks a child for each line on its standard
input, so a death costs milliseconds. An effect is one line in a file: the id of the call that had it.
"""

import asyncio
import gc
import json
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from interlock import Rule, RulePolicy, SqliteLog, ToolDefinition
from interlock.agent.agent import Agent
from interlock.domain.ids import child_run_id
from interlock.domain.state.lifecycle import RUN_TRANSITIONS
from interlock.models.interface import ModelProvider
from interlock.models.scripted import ScriptedModel, ScriptedTurn, tool_call
from interlock.pipeline.record import Recorder
from interlock.runs.handle import RunHandle
from interlock.runs.runner import Runner
from tests.crash.points import DeadlyArtifacts, DeadlyLog, Points
from tests.crash.scripted import TOOLS, WORLD
from tests.patience import HANG_SECONDS

TASK, FINAL, INSIDE = "Bring it out.", "It is out.", "The helper is done."
RUN_ID = "run_story"
CHILD_ID = child_run_id(RUN_ID, "help-1")
LOG, ARTIFACTS, EFFECTS, RESULT, COUNTS, ERROR = "log", "artifacts", "effects", "result", "counts", "error"
FINISHED, BROKEN = 0, 4

#: The outcome of each call when nothing dies, by run.
CODES = {
    RUN_ID: {
        "look-1": "ok",
        "send-1": "ok",
        "deploy-1": "ok",
        "wipe-1": "user_denied",
        "put-1": "ok",
        "book-1": "ok",
        "help-1": "ok",
    },
    CHILD_ID: {"post-2": "ok", "deploy-2": "ok"},
}
#: What a person says, by call.
ANSWERS = {"deploy-1": True, "wipe-1": False, "deploy-2": True}
#: A call that may be repeated, and calls of which it can be told afterwards what became of them.
IDEMPOTENT = frozenset({"put-1"})
CERTAIN = IDEMPOTENT | {"look-1", "book-1", "help-1"}
NO_EFFECT = frozenset({"look-1", "help-1", "wipe-1"})

POLICY = RulePolicy(
    [Rule(id="deploy", verdict="ask", tools="deploy"), Rule(id="wipe", verdict="ask", tools="wipe")], default="allow"
)


def said(call_id: str, tool_name: str) -> Any:
    return tool_call(tool_name, what=call_id, call_id=call_id)


OUTER = (
    ScriptedTurn(text="First a look.", calls=(said("look-1", "look"), said("send-1", "send"))),
    ScriptedTurn(calls=(said("deploy-1", "deploy"), said("wipe-1", "wipe"), said("put-1", "put"))),
    ScriptedTurn(calls=(said("book-1", "book"), tool_call("ask_helper", task="Help.", call_id="help-1"))),
    ScriptedTurn(text=FINAL),
)
INNER = (ScriptedTurn(calls=(said("post-2", "post"), said("deploy-2", "deploy"))), ScriptedTurn(text=INSIDE))


def boss(own: list[ToolDefinition], provider: ModelProvider | None = None, model: str = "") -> Agent:
    inner, outer = provider or _scripted(INNER), provider or _scripted(OUTER)
    helper = Agent(name="helper", provider=inner, model=model, tools=own, policy=POLICY)
    return Agent(
        name="boss",
        provider=outer,
        model=model,
        tools=[*own, helper.as_tool()],
        policy=POLICY,
    )


def _scripted(turns: tuple[ScriptedTurn, ...]) -> ModelProvider:
    return ScriptedModel(turns, by_position=True)


class DeadlyRunLog(DeadlyLog):
    """The same with all that a runner needs."""

    def __init__(self, log: SqliteLog, points: Points) -> None:
        super().__init__(log, points)
        self.acquire, self.release = log.acquire, log.release
        self.enqueue, self.queued_commands, self.ack = log.enqueue, log.queued_commands, log.ack
        self.list_runs, self.version, self.own_paths = log.list_runs, log.version, log.own_paths
        self.load, self.wait_for_change = log.load, log.wait_for_change
        self.lease_holder, self.queued_commands_of = log.lease_holder, log.queued_commands_of


async def go_on(handle: RunHandle, *, most_answers: int = 99) -> bool:
    """To the end, with a person who answers; False when they had to answer more often than that."""
    while RUN_TRANSITIONS[(result := await handle.result()).state]:
        assert result.questions, "it stopped, and nobody is asked anything"
        if most_answers < len(result.questions):
            return False
        most_answers -= len(result.questions)
        for question in result.questions:
            await handle.decide(question.action_id, approved=ANSWERS[question.call_id], by="ann")
        await handle.resume()
    return True


async def live(folder: Path, kind: str, number: int) -> None:
    points = Points(kind, number)
    _count_events(points)
    log = DeadlyRunLog(SqliteLog(folder / LOG, factory=points.connections), points)
    artifacts = DeadlyArtifacts(str(folder / ARTIFACTS), points)
    WORLD.open(folder, points)
    async with Runner(boss(TOOLS), log=log, artifacts=artifacts) as runner:
        begun = await log.read(RUN_ID, limit=1)
        handle = await (runner.open(RUN_ID) if begun else runner.start(TASK, run_id=RUN_ID))
        await go_on(handle)
        result = await handle.result()
    await log.close()
    told = [[record.tool_call_id, record.success] for record in result.tool_executions]
    (folder / RESULT).write_text(json.dumps([result.status, result.text, told]))
    (folder / COUNTS).write_text(json.dumps(points.counts))


def _count_events(points: Points) -> None:
    add = Recorder.add

    def counted(self: Recorder, *fact: Any, **about: Any) -> int:
        seq = add(self, *fact, **about)
        points.reach("event")
        return seq

    Recorder.add = counted


def child(folder: Path, kind: str, number: int) -> int:
    """One life. It ends by itself or is killed; a child that hangs is killed by its alarm."""
    signal.alarm(HANG_SECONDS)
    try:
        asyncio.run(live(folder, kind, number))
    except BaseException:
        (folder / ERROR).write_text(traceback.format_exc())
        return BROKEN
    return FINISHED


def serve(lines: Sequence[str] | Any) -> None:
    # A child that looks at what its parent made would copy all of it.
    gc.collect()
    gc.freeze()
    for line in lines:
        folder, *rest = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os._exit(child(Path(folder), *rest))
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve(sys.stdin)
