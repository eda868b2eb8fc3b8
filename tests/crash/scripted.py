"""Two model turns with one call of every kind, in a process that may die at any point.

`python -m tests.crash.scripted` imports everything once and then forks a child for each line on its standard input,
so a death costs milliseconds. An effect is one line in a file: the id of the call that had it.
"""

import asyncio
import gc
import json
import os
import resource
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from interlock import (
    BatchResult,
    CallbackInteractionProvider,
    EventLog,
    FileArtifacts,
    LogError,
    Question,
    Rule,
    RulePolicy,
    SqliteLog,
    ToolDefinition,
    ToolIntent,
    ToolRuntime,
    tool,
)
from tests.patience import HANG_SECONDS

from .faults import FAULTS, FaultyLog
from .points import DeadlyArtifacts, DeadlyLog, Points

RUN_ID = "run_scripted"
#: What is in the folder of a run.
LOG, ARTIFACTS, EFFECTS, RETURNED, COUNTS, ERROR = "log", "artifacts", "effects", "returned", "counts", "error"
#: How a child ends: it finished, the log refused to go on, or it has a bug.
FINISHED, LOG_FAILED, BROKEN = 0, 3, 4


def call(call_id: str, tool_name: str, **arguments: Any) -> ToolIntent:
    return ToolIntent(call_id=call_id, tool_name=tool_name, arguments={"what": call_id, **arguments})


TURNS = (
    [
        call("look-1", "look"),
        call("send-1", "send"),
        call("post-1", "post"),
        call("put-1", "put"),
        call("book-1", "book"),
        call("store-1", "store", key="shelf"),
        call("wipe-1", "wipe"),
        call("bad-1", "send", what=7),
        call("deploy-1", "deploy"),
        call("deploy-2", "deploy"),
        call("store-2", "store", key="shelf"),
        call("report-1", "report"),
    ],
    [
        call("bad-2", "send", what=7),
        call("wipe-2", "wipe"),
        # It came in the first turn and is answered from the log.
        call("send-1", "send"),
        call("send-2", "send"),
        call("book-2", "book"),
        call("look-2", "look"),
    ],
)
#: The outcome of each call when nothing dies.
CODES = {intent.call_id: "ok" for turn in TURNS for intent in turn} | {
    "wipe-1": "policy_denied",
    "wipe-2": "policy_denied",
    "bad-1": "schema_invalid",
    "bad-2": "schema_invalid",
}
READ_ONLY = frozenset({"look-1", "look-2"})
IDEMPOTENT = frozenset({"put-1"})
RECONCILED = frozenset({"book-1", "book-2"})
REPORT = "".join(f"line {number}\n" for number in range(1000))

POLICY = RulePolicy(
    [
        Rule(id="deploy", verdict="ask", tools="deploy"),
        Rule(id="wipe", verdict="deny", tools="wipe", reason="Nothing is wiped here."),
    ],
    default="allow",
)


class World:
    """The folder that outlives the process, and the tools that change it."""

    points: Points
    _path: Path
    _file: int

    def __init__(self, folder: Path | None = None, points: Points | None = None) -> None:
        if folder is not None:
            self.open(folder, points or Points())

    def open(self, folder: Path, points: Points) -> None:
        """Tools are made before a child is forked, and know their folder from here on."""
        self.points = points
        self._path = folder / EFFECTS
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def change(self, what: str) -> str:
        self.points.reach("effect")
        os.write(self._file, f"{what}\n".encode())
        os.fsync(self._file)
        self.points.reach("done")
        return f"{what} is done"

    def has_changed(self, what: str) -> bool:
        return what in self._path.read_text().split()


def tools(world: World) -> list[ToolDefinition]:
    return [*plain_tools(world), *recoverable_tools(world)]


def plain_tools(world: World) -> list[ToolDefinition]:
    @tool(risk="read")
    async def look(what: str) -> str:
        """Change nothing."""
        return f"saw {what}"

    @tool(risk="network")
    def send(what: str) -> str:
        """Change the world from a thread."""
        return world.change(what)

    @tool(risk="network")
    async def post(what: str) -> str:
        """Change the world from the event loop."""
        return world.change(what)

    @tool(risk="write", write_keys=lambda arguments: str(arguments["key"]))
    async def store(what: str, key: str) -> str:
        """One at a time for each key."""
        return world.change(what)

    @tool(risk="write")
    def wipe(what: str) -> str:
        """Is always refused."""
        return world.change(what)

    @tool(risk="execute")
    def deploy(what: str) -> str:
        """A person is asked."""
        return world.change(what)

    @tool(risk="network", max_output_chars=500)
    def report(what: str) -> str:
        """Says so much that it is kept as an artifact."""
        world.change(what)
        return REPORT

    return [look, send, post, store, wipe, deploy, report]


def recoverable_tools(world: World) -> list[ToolDefinition]:
    """Those that may run again, or can tell what happened."""

    @tool(risk="write", concurrency="safe", idempotent=True)
    def put(what: str) -> str:
        """Twice is the same as once."""
        return world.change(what)

    def is_booked(arguments: dict[str, Any]) -> bool:
        return world.has_changed(arguments["what"])

    @tool(risk="write", concurrency="safe", reconcile=is_booked)
    def book(what: str) -> str:
        """Can be asked later whether it happened."""
        return world.change(what)

    return [put, book]


#: Made once, before a child is forked: that takes as long as all else in a life.
WORLD = World()
TOOLS = tools(WORLD)


async def approve(question: Question) -> bool:
    """At once, so that the answer is recorded long before the call has its turn."""
    return True


def runtime_of(log: EventLog, artifacts: FileArtifacts) -> ToolRuntime:
    return ToolRuntime(
        run_id=RUN_ID,
        tools=TOOLS,
        policy=POLICY,
        interaction=CallbackInteractionProvider(approve),
        log=log,
        artifacts=artifacts,
    )


async def live(folder: Path, mode: str, kind: str, number: int) -> None:
    points = Points(kind, number)
    log: EventLog = DeadlyLog(SqliteLog(folder / LOG, factory=points.connections), points)
    if kind in FAULTS:
        log = FaultyLog(log, kind, number)
    WORLD.open(folder, points)
    runtime = runtime_of(log, DeadlyArtifacts(str(folder / ARTIFACTS), points))
    try:
        results = await play(runtime, mode)
    except LogError:
        await expect_stopped(runtime)
        raise
    await runtime.close()
    returned = [[seen.call_id, seen.code] for result in results for seen in result.observations]
    (folder / RETURNED).write_text(json.dumps(returned))
    (folder / COUNTS).write_text(json.dumps(points.counts))


async def play(runtime: ToolRuntime, mode: str) -> list[BatchResult]:
    results = [await runtime.resume()] if mode == "resume" else []
    results += [await runtime.execute(turn) for turn in TURNS]
    return [*results, await runtime.resume()]


async def expect_stopped(runtime: ToolRuntime) -> None:
    """After a failed append nothing may start any more in this process."""
    for again in (runtime.execute([call("late-1", "post")]), runtime.execute(TURNS[0]), runtime.resume()):
        try:
            await again
        except LogError:
            continue
        raise AssertionError("the run went on after its log had failed")


def child(folder: Path, mode: str, kind: str, number: int, file_limit_bytes: int) -> int:
    """One life. It ends by itself or is killed; a child that hangs is killed by its alarm."""
    signal.alarm(HANG_SECONDS)
    if file_limit_bytes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit_bytes, file_limit_bytes))
    try:
        asyncio.run(live(folder, mode, kind, number))
    except LogError:
        return LOG_FAILED
    except BaseException:
        (folder / ERROR).write_text(traceback.format_exc())
        return BROKEN
    return FINISHED


def serve() -> None:
    # A child that looks at what its parent made would copy all of it.
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        folder, *rest = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os._exit(child(Path(folder), *rest))
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve()
