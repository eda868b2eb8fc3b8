"""Background tasks: commands that run while the run does other things. Each has its own sandbox, and belongs to one
run.

A task is held by this process: it cannot outlive it, because its sandbox ends it with its parent. The state of the run
names the started tasks, so a later process that finds one there and does not hold it knows that it was interrupted: its
end was not observed, and it is closed as `unknown`, never reported as running.

The outcome of a task is reported once, by the first call that reads it, waits for it or stops it when it is over: what
it changed, and what it verified. It is held until the state of the run says that it was reported.
"""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from secrets import token_hex
from typing import Any, Literal, TypeAlias

import msgspec

from ...domain.errors import ArtifactError, PreconditionError
from ...domain.tool import CheckProblem, JsonObject, RunArtifacts, ToolContext
from ...rendering.text import describe_error
from ...sandbox.interface import CommandExit, RunningCommand
from ..read_artifact import Passage, read_range
from .command import KeptOutput, StartedCommand, keep_output, redact_command, run_to_completion, start_command
from .command_effects import CommandRequest, WorkspaceBefore, fingerprint_workspace
from .command_result import describe_exit
from .output_excerpt import OutputSpool
from .profile import ProfileName
from .task_outcome import TaskOutcome, inspect_outcome, make_unknown_outcome
from .verification import has_check_program

MAX_RUNNING = 8
#: Tasks that are over and whose output is still held here; of older ones there is the artifact.
MAX_ENDED = 16
STATE_PREFIX = "task:"
_MAX_COMMAND_CHARS = 200

#: `failed`: it could not be followed to its end, and was stopped. `unknown`: its end was not observed.
TaskStatus: TypeAlias = Literal["running", "exited", "stopped", "timed_out", "killed", "failed", "unknown"]


class TaskReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of a task, now and in the state of the run."""

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
    #: Guarded files that were created or replaced while it ran.
    guarded: tuple[str, ...] = ()
    #: It is over, and its outcome was reported.
    is_reported: bool = msgspec.field(default=False, name="is_told")

    @property
    def state(self) -> JsonObject:
        """The report as state of the run."""
        return {STATE_PREFIX + self.id: msgspec.to_builtins(self)}


class BackgroundTask:
    """A background command, and its output so far."""

    def __init__(self, task_id: str, request: CommandRequest, context: ToolContext) -> None:
        self.id = task_id
        self.kept = KeptOutput()
        self._request = request
        self._command = redact_command(request.script, context.artifacts)
        self._started_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._started_call = context.call_id
        self._artifacts = context.artifacts
        self._spool = OutputSpool(context.artifacts.redaction_filter)
        self._is_closed = False
        self._running: RunningCommand | None = None
        self._follow_task: asyncio.Task[None] | None = None
        self._ended: CommandExit | None = None
        self._outcome = make_unknown_outcome(can_write=request.can_write)
        self._error = ""

    async def start(self) -> None:
        """Start the command. Raise `SandboxSetupError` when nothing of it was executed."""
        request = self._request
        try:
            needs_fingerprint = request.can_write or has_check_program(request.argvs)
            files = await asyncio.to_thread(fingerprint_workspace, request.config) if needs_fingerprint else None
            started = await start_command(request, self._spool.write)
        except BaseException:
            self._spool.close()
            raise
        self._running = started.running
        self._follow_task = asyncio.create_task(
            self._follow(started, WorkspaceBefore(files, started.guarded)), name=self.id
        )

    @property
    def is_running(self) -> bool:
        """True until all of its output is stored."""
        return self._follow_task is None or not self._follow_task.done()

    async def wait(self, seconds: float) -> None:
        """Wait until it is over, at most `seconds`."""
        if self._follow_task is not None:
            await asyncio.wait([self._follow_task], timeout=seconds)

    async def stop(self) -> None:
        """Stop the command and wait for its end."""
        if self._running is not None and self._follow_task is not None and self.is_running:
            await self._running.stop()
            await asyncio.wait([self._follow_task])

    def close(self) -> None:
        """Release its output, unless it is still starting: then it is closed after that."""
        if not self.is_running:
            self._is_closed = True
            self._spool.close()

    def report(self) -> TaskReport:
        """Return the current report of the task."""
        ended, request = None if self.is_running else self._ended, self._request
        how = "" if ended is None else describe_exit(ended, request.config.limits, request.timeout.seconds)
        return TaskReport(
            id=self.id,
            command=self._command[:_MAX_COMMAND_CHARS],
            started_at=self._started_at,
            status=self._status(),
            exit_code=None if ended is None else ended.exit_code,
            words="; ".join(filter(None, (how, self._error))),
            output_bytes=self._spool.total_bytes,
            output=self.kept.parts[0].id if self.kept.parts else "",
            profile=request.profile,
            guarded=() if self.is_running else self._outcome.guarded,
        )

    @property
    def outcome(self) -> TaskOutcome:
        """The outcome, once it is over."""
        return self._outcome

    def read(self, offset: int, limit: int) -> Passage | None:
        """Return a part of the output; None where it was released: then the artifact can be read once reported."""
        if not self._is_closed:
            return read_range(self._spool.read_all, self._spool.total_bytes, offset, limit)
        with suppress(IndexError, ArtifactError):
            return read_kept_output(self._artifacts, self.kept.parts[0].id, offset, limit)
        return None

    def tail(self, size: int) -> Passage | None:
        """Read from the end of the output."""
        return self.read(max(0, self._spool.total_bytes - size), size)

    def _status(self) -> TaskStatus:
        if self.is_running:
            return "running"
        match self._ended:
            case None:
                return "failed"
            case CommandExit(reason="exited"):
                return "exited"
            case CommandExit(reason="stopped"):
                return "stopped"
            case CommandExit(reason="timeout"):
                return "timed_out"
            case _:
                return "killed"

    async def _follow(self, started: StartedCommand, before: WorkspaceBefore) -> None:
        try:
            self._ended = await started.running.wait(self._request.timeout.seconds)
            self.kept = await run_to_completion(keep_output, self._spool, self._artifacts)
        except Exception as error:
            self._error = describe_error(error)
        if self._ended is not None:
            self._outcome = await run_to_completion(self._inspect_outcome, before, self._ended)

    def _inspect_outcome(self, before: WorkspaceBefore, ended: CommandExit) -> TaskOutcome:
        try:
            return inspect_outcome(self._request, before, self._spool, ended, self._command, self._started_call)
        except Exception as error:
            return make_unknown_outcome(can_write=self._request.can_write, why=describe_error(error))


class BackgroundTasks:
    """The tasks that this process holds, by run and id."""

    def __init__(self) -> None:
        self._tasks: dict[tuple[str, str], BackgroundTask] = {}
        self._closed = False

    def find_start_problem(self, run_id: str) -> CheckProblem | None:
        """Return why no more tasks can be started, or None."""
        if self._closed:
            return CheckProblem(message="The shell is closed: nothing runs in the background any more.")
        running = [task.id for task in self.list_for_run(run_id) if task.is_running]
        if len(running) < MAX_RUNNING:
            return None
        return CheckProblem(
            message=f"{MAX_RUNNING} tasks are running, which is the most: {', '.join(running)}. Stop one."
        )

    async def start(self, request: CommandRequest, context: ToolContext) -> TaskReport:
        """Start a command in the background. Raise if the run has too many tasks."""
        if (problem := self.find_start_problem(context.run_id)) is not None:
            raise PreconditionError(problem)
        task = BackgroundTask(f"task_{token_hex(4)}", request, context)
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

    def has_running(self) -> bool:
        """Return True while a task of any run runs."""
        return any(task.is_running for task in self._tasks.values())

    def list_for_run(self, run_id: str) -> list[BackgroundTask]:
        """List the tasks of a run."""
        return [task for (owner, _), task in self._tasks.items() if owner == run_id]

    def find(self, run_id: str, task_id: str) -> BackgroundTask | None:
        """Return a task of a run, or None."""
        return self._tasks.get((run_id, task_id))

    async def close(self) -> None:
        """End all tasks."""
        self._closed = True
        held = list(self._tasks.values())
        self._tasks.clear()
        await asyncio.gather(*(task.stop() for task in held))
        for task in held:
            task.close()

    def _forget_old(self, context: ToolContext) -> None:
        """Forget old tasks. An outcome is held until the run knows it."""
        ended = [task for task in self.list_for_run(context.run_id) if not task.is_running]
        for task in ended[: max(0, len(ended) - MAX_ENDED)]:
            task.close()
            if is_outcome_reported(context, task.id):
                del self._tasks[context.run_id, task.id]


def read_kept_output(artifacts: RunArtifacts, artifact_id: str, offset: int, limit: int) -> Passage:
    """Read a part of a finished task's output from its artifact."""
    total = artifacts.size_bytes(artifact_id)
    return read_range(lambda start, size: artifacts.read(artifact_id, start, size), total, offset, limit)


def load_report(context: ToolContext, task_id: str) -> TaskReport | None:
    """Return the last report of a task to the run."""
    known: Any = context.state.get(STATE_PREFIX + task_id)
    try:
        return msgspec.convert(known, TaskReport)
    except msgspec.ValidationError:
        return None


def is_outcome_reported(context: ToolContext, task_id: str) -> bool:
    """Return True if the run knows the outcome."""
    known = load_report(context, task_id)
    return known is not None and known.is_reported


def load_remembered(context: ToolContext, task_id: str) -> TaskReport | None:
    """Return a task that this process does not hold, from the state of the run: over, or interrupted."""
    report = load_report(context, task_id)
    if report is None or report.status != "running":
        return report
    words = "interrupted: the process that ran it is gone, so its end is unknown; only the output read so far is known"
    return msgspec.structs.replace(report, status="unknown", words=words)


def list_remembered(context: ToolContext) -> Iterator[TaskReport]:
    """List the tasks recorded in the state of the run."""
    for key in context.state:
        if key.startswith(STATE_PREFIX) and (report := load_remembered(context, key.removeprefix(STATE_PREFIX))):
            yield report
