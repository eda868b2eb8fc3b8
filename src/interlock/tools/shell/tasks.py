"""Background tasks: commands that run while the run does other things. Each has its own sandbox, and belongs to one
run.

Without a folder for tasks, a task is held by this process and ends with it. With one, a supervisor holds it: see
`sandbox.tasks`. The state of the run names the started tasks and their supervisors, so a later process finds them
again, reads on, waits and stops. What neither this process nor the recorded supervisor holds was interrupted: its end
was not observed, and it is closed as `unknown`, never reported as running.

The outcome of a task is reported once, by the first call that reads it, waits for it or stops it when it is over: what
it changed, and what it verified. It is held until the state of the run says that it was reported.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from secrets import token_hex
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from ...domain.egress import EgressReport
from ...domain.errors import ArtifactError, PreconditionError
from ...domain.tool import CheckProblem, JsonObject, RunArtifacts, ToolContext
from ...rendering.text import describe_error
from ...sandbox.interface import CommandExit
from ...sandbox.tasks.client import TaskFolder, TaskSupervisor
from ...sandbox.tasks.protocol import OutputReader, TaskEnd
from ...sandbox.tasks.sandboxes import SupervisedCommand, SupervisedSandbox
from ..read_artifact import Passage, read_range
from .command import KeptOutput, StartedCommand, keep_output, redact_command, run_to_completion, start_command
from .command_effects import CommandRequest, WorkspaceBefore, fingerprint_workspace
from .command_result import describe_exit
from .fingerprint import WorkspaceFingerprint
from .profile import GuardedFiles, ProfileName
from .spool import OutputSpool
from .task_outcome import TaskOutcome, inspect_outcome, make_unknown_outcome
from .verification import has_check_program

MAX_RUNNING = 8
#: Tasks that are over and whose output is still held here; of older ones there is the artifact.
MAX_ENDED = 16
STATE_PREFIX = "task:"
_MAX_COMMAND_CHARS = 200

#: `failed`: it could not be followed to its end, and was stopped. `unknown`: its end was not observed.
TaskStatus: TypeAlias = Literal["running", "exited", "stopped", "timed_out", "killed", "failed", "unknown"]
_STATUS_BY_REASON: dict[str, TaskStatus] = {"exited": "exited", "stopped": "stopped", "timeout": "timed_out"}


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
    #: Who runs it, where it is not this process.
    supervisor: str = ""

    @property
    def state(self) -> JsonObject:
        """The report as state of the run."""
        return {STATE_PREFIX + self.id: msgspec.to_builtins(self)}


class TaskRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What was started, as a later process finds it in the folder of the task. The script may hold secrets."""

    run_id: str
    call_id: str
    started_at: str
    script: str
    cwd: str
    timeout_seconds: float
    profile: ProfileName


class RecordedBefore(msgspec.Struct, frozen=True):
    """The state of the workspace before the task: see `WorkspaceBefore`."""

    files: WorkspaceFingerprint | None
    guarded: dict[str, tuple[int, ...]] | None

    def restore(self) -> WorkspaceBefore:
        """Return it for the comparison."""
        return WorkspaceBefore(self.files, None if self.guarded is None else GuardedFiles.restore(self.guarded))


class _TaskProcess(Protocol):
    """A started task: held by this process, or by a supervisor."""

    async def wait_end(self) -> TaskEnd: ...

    async def end(self) -> None: ...

    async def is_running(self) -> bool: ...


class _OwnCommand:
    """A task that this process holds."""

    def __init__(self, started: StartedCommand, timeout_seconds: float) -> None:
        self._started = started
        self._timeout_seconds = timeout_seconds
        #: The connections that it made, when it has ended.
        self.egress = EgressReport()

    async def wait_end(self) -> TaskEnd:
        try:
            ended, self.egress = await self._started.wait(self._timeout_seconds)
            return TaskEnd(exit=ended)
        except Exception as error:
            return TaskEnd(note=describe_error(error))

    async def end(self) -> None:
        await self._started.running.stop()

    async def is_running(self) -> bool:
        return True  # until its end was followed


class BackgroundTask:
    """A background command, and its output so far."""

    def __init__(
        self,
        task_id: str,
        request: CommandRequest,
        record: TaskRecord,
        artifacts: RunArtifacts,
        folder: TaskFolder | None = None,
    ) -> None:
        self.id = task_id
        self.kept = KeptOutput()
        #: Where its files are, when a supervisor runs it.
        self.folder = folder
        self._request = request
        self._record = record
        self._command = redact_command(request.script, artifacts)
        self._artifacts = artifacts
        self._spool = OutputSpool(artifacts.redaction_filter)
        self._reader: OutputReader | None = None if folder is None else folder.open_output()
        self._reading = asyncio.Lock()
        self._is_closed = False
        self._process: _TaskProcess | None = None
        self._supervisor_ref = ""
        self._follow_task: asyncio.Task[None] | None = None
        self._end = TaskEnd()
        #: Known once it is over.
        self.outcome = make_unknown_outcome(can_write=request.can_write)
        self._error = ""

    async def start(self, supervisor: TaskSupervisor | None = None) -> None:
        """Start the command. Raise `SandboxSetupError` when nothing of it was executed."""
        request, folder = self._request, self.folder
        try:
            needs_fingerprint = request.can_write or has_check_program(request.argvs)
            files = await asyncio.to_thread(fingerprint_workspace, request.config) if needs_fingerprint else None
            if folder is None or supervisor is None:
                started = await start_command(request, self._spool.write)
                self._process = _OwnCommand(started, request.timeout.seconds)
                before = WorkspaceBefore(files, started.guarded)
            else:
                before = await asyncio.to_thread(self._record_start, folder, files)
                sandbox = SupervisedSandbox(
                    supervisor, folder, self._record.run_id, request.timeout.seconds, request.commands.confinement
                )
                started = await start_command(msgspec.structs.replace(request, commands=sandbox), self._spool.write)
                assert isinstance(started.running, SupervisedCommand)  # noqa: S101 - that sandbox returns no other
                self._process, self._supervisor_ref = started.running, started.running.supervisor_ref
        except BaseException:
            self._spool.close()
            raise
        self._follow_task = asyncio.create_task(self._follow(self._process, before), name=self.id)

    def follow(self, process: SupervisedCommand) -> None:
        """Follow a task that another process started. `update` finds out whether it runs."""
        recorded = None if self.folder is None else self.folder.read("before.json", RecordedBefore)
        self._process, self._supervisor_ref = process, process.supervisor_ref
        before = None if recorded is None else recorded.restore()
        self._follow_task = asyncio.create_task(self._follow(process, before), name=self.id)

    async def update(self) -> None:
        """Read its new output, and make sure that it is not taken for running when its supervisor is gone."""
        if self._reader is not None and self._process is not None and self._follow_task is not None:
            if self.is_running and not await self._process.is_running():
                await asyncio.wait([self._follow_task])
            await self._read_output()

    async def _read_output(self) -> None:
        async with self._reading:
            if self._reader is not None and not self._is_closed:
                await run_to_completion(self._reader.read_new, self._spool.write)

    def _record_start(self, folder: TaskFolder, files: WorkspaceFingerprint | None) -> WorkspaceBefore:
        guarded = GuardedFiles(self._request.config) if self._request.can_write else None
        folder.write("task.json", self._record)
        folder.write("before.json", RecordedBefore(files, None if guarded is None else guarded.identities))
        return WorkspaceBefore(files, guarded)

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
        if self._process is not None and self._follow_task is not None and self.is_running:
            await self._process.end()
            await asyncio.wait([self._follow_task])

    async def detach(self) -> None:
        """Stop following the task, and leave it to its supervisor. One that is held here is stopped."""
        if self.folder is None or self._follow_task is None:
            await self.stop()
        else:
            self._follow_task.cancel()
            await asyncio.wait([self._follow_task])
        self.close()

    def close(self) -> None:
        """Release its output, unless it is still starting: then it is closed after that."""
        if not self.is_running:
            self._is_closed = True
            self._spool.close()

    def remove_files(self) -> None:
        """Remove what a supervisor left of it: the run knows its outcome, and its output is an artifact."""
        if self.folder is not None:
            self.folder.remove()
            self.folder = None

    def report(self) -> TaskReport:
        """Return the current report of the task."""
        ended, request = None if self.is_running else self._end.exit, self._request
        how = "" if ended is None else describe_exit(ended, request.config.limits, request.timeout.seconds)
        note = "" if self.is_running else self._end.note
        return TaskReport(
            id=self.id,
            command=self._command[:_MAX_COMMAND_CHARS],
            started_at=self._record.started_at,
            status=self._status(),
            exit_code=None if ended is None else ended.exit_code,
            words="; ".join(filter(None, (how, note, self._error))),
            output_bytes=self._spool.total_bytes,
            output=self.kept.parts[0].id if self.kept.parts else "",
            profile=request.profile,
            guarded=() if self.is_running else self.outcome.guarded,
            supervisor=self._supervisor_ref,
        )

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
        if self._end.exit is None:
            return "unknown" if self._end.is_lost else "failed"
        return _STATUS_BY_REASON.get(self._end.exit.reason, "killed")

    async def _follow(self, process: _TaskProcess, before: WorkspaceBefore | None) -> None:
        self._end = end = await process.wait_end()
        try:
            if end.exit is not None or end.is_lost:
                await self._read_output()
                self.kept = await run_to_completion(keep_output, self._spool, self._artifacts)
        except Exception as error:
            self._error = describe_error(error)
        if end.exit is not None and before is not None:
            self.outcome = await run_to_completion(self._inspect_outcome, before, end.exit)

    def _inspect_outcome(self, before: WorkspaceBefore, ended: CommandExit) -> TaskOutcome:
        try:
            outcome = inspect_outcome(self._request, before, self._spool, ended, self._command, self._record.call_id)
            return outcome.with_connections(self._process.egress) if isinstance(self._process, _OwnCommand) else outcome
        except Exception as error:
            return make_unknown_outcome(can_write=self._request.can_write, why=describe_error(error))


class BackgroundTasks:
    """The tasks that this process holds or follows, by run and id."""

    def __init__(
        self,
        supervisor: TaskSupervisor | None = None,
        restore_request: Callable[[TaskRecord], CommandRequest] | None = None,
    ) -> None:
        self._supervisor = supervisor
        self._restore_request = restore_request
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
        # The proxy of a command with hosts is in this process.
        is_supervised = self._supervisor is not None and self._supervisor.is_enabled and request.egress is None
        supervisor = self._supervisor if is_supervised else None
        folder = None if supervisor is None else await asyncio.to_thread(supervisor.create_task)
        record = TaskRecord(
            run_id=context.run_id,
            call_id=context.call_id,
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
            script=request.script,
            cwd=request.cwd,
            timeout_seconds=request.timeout.seconds,
            profile=request.profile,
        )
        task_id = f"task_{token_hex(4)}" if folder is None else folder.id
        task = BackgroundTask(task_id, request, record, context.artifacts, folder)
        self._tasks[context.run_id, task.id] = task
        try:
            await task.start(supervisor)
        except BaseException:
            self._tasks.pop((context.run_id, task.id), None)
            if folder is not None:
                folder.remove()
            raise
        if self._closed:  # meanwhile
            await task.stop()
            task.close()
        self._forget_old(context)
        return task.report()

    def has_running(self) -> bool:
        """Return True while a task of any run may run, also one that another process started."""
        if self._supervisor is not None and self._supervisor.read_identity() is not None:
            return True
        return any(task.is_running for task in self._tasks.values())

    def list_for_run(self, run_id: str) -> list[BackgroundTask]:
        """List the tasks of a run that this process holds or follows."""
        return [task for (owner, _), task in self._tasks.items() if owner == run_id]

    def is_known(self, context: ToolContext, task_id: str) -> bool:
        """Return True if the run has such a task."""
        return (
            (context.run_id, task_id) in self._tasks
            or load_report(context, task_id) is not None
            or self._find_record(context.run_id, task_id) is not None
        )

    async def find(self, context: ToolContext, task_id: str) -> BackgroundTask | None:
        """Return a task of the run as it is now, also one that another process started; None when no one holds it."""
        task = self._tasks.get((context.run_id, task_id)) or self._restore(context, task_id)
        if task is not None:
            await task.update()
            if is_outcome_reported(context, task.id):
                task.remove_files()
        return task

    async def find_all(self, context: ToolContext) -> list[BackgroundTask]:
        """Return all tasks of the run, also those that other processes started."""
        names = [task.id for task in self.list_for_run(context.run_id)]
        if self._supervisor is not None:
            names += [folder.id for folder in await asyncio.to_thread(self._supervisor.list_tasks)]
        found = [await self.find(context, name) for name in dict.fromkeys(names)]
        return [task for task in found if task is not None]

    async def end_run(self, run_id: str) -> None:
        """Stop the tasks of a run that is over, and remove their files."""
        for task in self.list_for_run(run_id):
            await task.detach()
            self._tasks.pop((run_id, task.id), None)
        if self._supervisor is not None and self._supervisor.is_enabled:
            await self._supervisor.end_run(run_id)

    async def close(self) -> None:
        """End the tasks that this process holds; those of a supervisor continue."""
        self._closed = True
        held = list(self._tasks.values())
        self._tasks.clear()
        await asyncio.gather(*(task.detach() for task in held))

    def _find_record(self, run_id: str, task_id: str) -> tuple[TaskFolder, TaskRecord] | None:
        """Return the files of a task of this run; None where there are none."""
        folder = None if self._supervisor is None else self._supervisor.find_task(task_id)
        record = None if folder is None else folder.read("task.json", TaskRecord)
        return (folder, record) if folder is not None and record is not None and record.run_id == run_id else None

    def _restore(self, context: ToolContext, task_id: str) -> BackgroundTask | None:
        """Return a task that another process started. What the run knows the outcome of is removed."""
        found = self._find_record(context.run_id, task_id)
        if found is None or self._supervisor is None or self._restore_request is None:
            return None
        folder, record = found
        known = load_report(context, task_id)
        if known is not None and known.is_reported:
            folder.remove()
            return None
        if known is None and not folder.was_started:
            return None
        ref = known.supervisor if known is not None else ""
        if not ref and (identity := self._supervisor.read_identity()) is not None:
            ref = identity.ref  # killed before the start was recorded
        task = BackgroundTask(task_id, self._restore_request(record), record, context.artifacts, folder)
        task.follow(SupervisedCommand(self._supervisor, ref, folder))
        self._tasks[context.run_id, task_id] = task
        return task

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
