"""Commands that go on while the run does other things. Each has a sandbox of its own, and belongs to one run.

A task is held by this process: it cannot outlive it, because what holds a command back ends it with its parent. The
state of the run names the tasks that were started, so a later process that finds one there and does not hold it knows
that it was interrupted: nobody saw its end, and it is closed as `unknown`, never told as running.

What came of a task is told once, by the first call that reads it, waits for it or stops it when it is over: what it
changed, and what it verified. It is held until the state of the run says that it was told.
"""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from secrets import token_hex
from typing import Any, Literal, TypeAlias

import msgspec

from ...domain.errors import ArtifactError, PreconditionError
from ...domain.tool import JsonObject, Problem, RunArtifacts, ToolContext
from ...rendering.sentences import error_text
from ...sandbox.interface import Ended, Running, Stream
from ..read_artifact import Passage, read_range
from .command import Kept, Started, keep_output, start, to_the_end, without_secrets
from .command_effects import Before, Order, files_of
from .command_result import end_in_words
from .output import Spool
from .profile import ProfileName
from .task_end import TaskEnd, end_of, unseen_end
from .verification import verifies

MAX_RUNNING = 8
#: Tasks that are over and whose output is still held here; of older ones there is the artifact.
MAX_ENDED = 16
STATE_PREFIX = "task:"
_MAX_COMMAND_CHARS = 200

#: `failed`: it could not be followed to its end, and was stopped. `unknown`: nobody saw its end.
TaskStatus: TypeAlias = Literal["running", "exited", "stopped", "timed_out", "killed", "failed", "unknown"]


class TaskReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task as it is now, and as the run remembers it."""

    id: str
    command: str
    started_at: str
    status: TaskStatus
    exit_code: int | None = None
    #: How it ended.
    words: str = ""
    output_bytes: int = 0
    #: The artifact with all of its output, once it is over.
    output: str = ""
    profile: ProfileName = "workspace-write"
    #: Files that other programs obey, and that came or were exchanged while it ran.
    guarded: tuple[str, ...] = ()
    #: It is over, and what came of it was told.
    is_told: bool = False

    @property
    def state(self) -> JsonObject:
        return {STATE_PREFIX + self.id: msgspec.to_builtins(self)}


class BackgroundTask:
    """A command under way, and what it printed so far."""

    def __init__(self, task_id: str, order: Order, context: ToolContext) -> None:
        self.id = task_id
        self.kept = Kept()
        self._order = order
        self._command = without_secrets(order.script, context.artifacts)
        self._started_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._started_call = context.call_id
        self._artifacts = context.artifacts
        self._spool = Spool(context.artifacts.secrets_out)
        self._is_closed = False
        self._running: Running | None = None
        self._followed: asyncio.Task[None] | None = None
        self._ended: Ended | None = None
        self._end = unseen_end(can_write=order.can_write)
        self._error = ""

    async def start(self) -> None:
        """`SandboxSetupError` when nothing of it was executed."""
        order = self._order
        try:
            looks = order.can_write or verifies(order.argvs)
            files = await asyncio.to_thread(files_of, order.rules) if looks else None
            started = await start(order, self._take)
        except BaseException:
            self._spool.close()
            raise
        self._running = started.running
        self._followed = asyncio.create_task(self._follow(started, Before(files, started.guarded)), name=self.id)

    @property
    def is_running(self) -> bool:
        """Until all of its output is kept, too."""
        return self._followed is None or not self._followed.done()

    async def wait(self, seconds: float) -> None:
        """Until it is over, at most so long."""
        if self._followed is not None:
            await asyncio.wait([self._followed], timeout=seconds)

    async def stop(self) -> None:
        if self._running is not None and self._followed is not None and self.is_running:
            await self._running.stop()
            await asyncio.wait([self._followed])

    def close(self) -> None:
        """Its output is held no more, unless it is still being started: then it is closed after that."""
        if not self.is_running:
            self._is_closed = True
            self._spool.close()

    def report(self) -> TaskReport:
        ended = None if self.is_running else self._ended
        return TaskReport(
            id=self.id,
            command=self._command[:_MAX_COMMAND_CHARS],
            started_at=self._started_at,
            status=self._status(),
            exit_code=None if ended is None else ended.exit_code,
            words="; ".join(filter(None, ("" if ended is None else self._end_in_words(ended), self._error))),
            output_bytes=self._spool.total_bytes,
            output=self.kept.parts[0].id if self.kept.parts else "",
            profile=self._order.profile,
            guarded=() if self.is_running else self._end.guarded,
        )

    @property
    def end(self) -> TaskEnd:
        """Once it is over."""
        return self._end

    def read(self, offset: int, limit: int) -> Passage | None:
        """None where it is held no more: the run can read the artifact once it was told of it, and not before."""
        if not self._is_closed:
            return read_range(self._spool.read_all, self._spool.total_bytes, offset, limit)
        with suppress(IndexError, ArtifactError):
            return read_kept(self._artifacts, self.kept.parts[0].id, offset, limit)
        return None

    def tail(self, size: int) -> Passage | None:
        return self.read(max(0, self._spool.total_bytes - size), size)

    def _end_in_words(self, ended: Ended) -> str:
        return end_in_words(ended, self._order.rules.limits, self._order.seconds.allowed)

    def _status(self) -> TaskStatus:
        if self.is_running:
            return "running"
        match self._ended:
            case None:
                return "failed"
            case Ended(reason="exited"):
                return "exited"
            case Ended(reason="stopped"):
                return "stopped"
            case Ended(reason="timeout"):
                return "timed_out"
            case _:
                return "killed"

    def _take(self, stream: Stream, chunk: bytes) -> None:
        self._spool.take(stream, chunk)

    async def _follow(self, started: Started, before: Before) -> None:
        try:
            self._ended = await started.running.wait(self._order.seconds.allowed)
            self.kept = await to_the_end(keep_output, self._spool, self._artifacts)
        except Exception as error:
            self._error = error_text(error)
        if self._ended is not None:
            self._end = await to_the_end(self._look, before, self._ended)

    def _look(self, before: Before, ended: Ended) -> TaskEnd:
        try:
            return end_of(self._order, before, self._spool, ended, self._command, self._started_call)
        except Exception as error:
            return unseen_end(can_write=self._order.can_write, why=error_text(error))


class Tasks:
    """The tasks that this process holds, by run and id."""

    def __init__(self) -> None:
        self._tasks: dict[tuple[str, str], BackgroundTask] = {}
        self._closed = False

    def problem(self, run_id: str) -> Problem | None:
        """Why no more can be started."""
        if self._closed:
            return Problem(message="The shell is closed: nothing runs in the background any more.")
        running = [task.id for task in self.of(run_id) if task.is_running]
        if len(running) < MAX_RUNNING:
            return None
        return Problem(message=f"{MAX_RUNNING} tasks are running, which is the most: {', '.join(running)}. Stop one.")

    async def start(self, order: Order, context: ToolContext) -> TaskReport:
        if (problem := self.problem(context.run_id)) is not None:
            raise PreconditionError(problem)
        task = BackgroundTask(f"task_{token_hex(4)}", order, context)
        self._tasks[context.run_id, task.id] = task
        try:
            await task.start()
        except BaseException:
            self._tasks.pop((context.run_id, task.id), None)
            raise
        if self._closed:  # meanwhile
            await task.stop()
            task.close()
        self._forget_old(context)
        return task.report()

    def of(self, run_id: str) -> list[BackgroundTask]:
        return [task for (owner, _), task in self._tasks.items() if owner == run_id]

    def find(self, run_id: str, task_id: str) -> BackgroundTask | None:
        return self._tasks.get((run_id, task_id))

    async def close(self) -> None:
        """Nothing of any task is left afterwards."""
        self._closed = True
        held = list(self._tasks.values())
        self._tasks.clear()
        await asyncio.gather(*(task.stop() for task in held))
        for task in held:
            task.close()

    def _forget_old(self, context: ToolContext) -> None:
        """How a task ended is held here until the run knows it."""
        ended = [task for task in self.of(context.run_id) if not task.is_running]
        for task in ended[: max(0, len(ended) - MAX_ENDED)]:
            task.close()
            if is_told(context, task.id):
                del self._tasks[context.run_id, task.id]


def read_kept(artifacts: RunArtifacts, artifact_id: str, offset: int, limit: int) -> Passage:
    total = artifacts.size_bytes(artifact_id)
    return read_range(lambda start, size: artifacts.read(artifact_id, start, size), total, offset, limit)


def recorded(context: ToolContext, task_id: str) -> TaskReport | None:
    """A task as the run was last told of it."""
    known: Any = context.state.get(STATE_PREFIX + task_id)
    try:
        return msgspec.convert(known, TaskReport)
    except msgspec.ValidationError:
        return None


def is_told(context: ToolContext, task_id: str) -> bool:
    """Does the run know what came of it?"""
    known = recorded(context, task_id)
    return known is not None and known.is_told


def remembered(context: ToolContext, task_id: str) -> TaskReport | None:
    """A task that this process does not hold, as the run knows it: over, or interrupted."""
    report = recorded(context, task_id)
    if report is None or report.status != "running":
        return report
    words = "interrupted: the process that held it is gone, and nobody saw its end; only what was read of it is known"
    return msgspec.structs.replace(report, status="unknown", words=words)


def all_remembered(context: ToolContext) -> Iterator[TaskReport]:
    for key in context.state:
        if key.startswith(STATE_PREFIX) and (report := remembered(context, key.removeprefix(STATE_PREFIX))):
            yield report
