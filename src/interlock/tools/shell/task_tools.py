"""The tools for commands in the background: read what they print, wait for their end, stop them, list them.

The first view of a task that is over tells what came of it; a list only names it. A task that tested or checked is then
a verification, as it would be in the foreground, and its facts name the call that started it: what changed since that
is not what it tested.

They start nothing and change nothing but a task of this very run, so they need no permission of their own: that was
asked for when the command was started.
"""

from typing import Annotated

import msgspec
from pydantic import Field

from ...domain.errors import PreconditionError
from ...domain.outcome import SideEffect
from ...domain.tool import JsonObject, Normalized, Problem, ToolContext, ToolDefinition
from ...registry.decorator import tool
from ..read_artifact import DEFAULT_LIMIT_BYTES, MAX_LIMIT_BYTES, Passage, described
from .command import warn_of_guarded
from .command_result import checked_state, shown_command
from .task_end import TaskEnd, unseen_end
from .tasks import BackgroundTask, TaskReport, Tasks, all_remembered, is_told, read_kept, remembered

MAX_WAIT_SECONDS = 600
_TAIL_BYTES = 4_000

_NOTHING_NEW = TaskEnd()

_TaskId = Annotated[str, Field(description="The id that bash(background=true) gave.")]


class TaskView(msgspec.Struct, frozen=True, kw_only=True):
    """A task, and a part of what it printed."""

    report: TaskReport
    #: None: there is nothing to read here.
    passage: Passage | None = None
    waited: bool = False
    #: What came of it, where this is the first view of that.
    end: TaskEnd | None = None
    side_effects: tuple[SideEffect, ...] = ()


def task_tools(tasks: Tasks) -> tuple[ToolDefinition, ...]:
    """`read_task`, `wait_task`, `stop_task` and `list_tasks`."""

    async def read_task(
        context: ToolContext,
        task_id: _TaskId,
        offset: Annotated[int, Field(ge=0)] = 0,
        limit: Annotated[int, Field(ge=4, le=MAX_LIMIT_BYTES)] = DEFAULT_LIMIT_BYTES,
    ) -> TaskView:
        """Read what a background task printed so far, and whether it still runs. Does not wait.

        Args:
            task_id: The id that bash gave.
            offset: The byte to start from: 0, or the next offset of the last answer.
            limit: How many bytes to return at most.
        """
        task = tasks.find(context.run_id, task_id)
        if task is None:
            return _from_artifact(_known(context, task_id), context, offset, limit)
        return _view(task, context, task.read(offset, limit))

    async def wait_task(
        context: ToolContext,
        task_id: _TaskId,
        timeout_seconds: Annotated[float, Field(gt=0, le=MAX_WAIT_SECONDS)] = 60,
    ) -> TaskView:
        """Wait until a background task is over, or until the time is up. The task goes on when it is not over.

        Args:
            task_id: The id that bash gave.
            timeout_seconds: How long to wait at most.
        """
        task = tasks.find(context.run_id, task_id)
        if task is None:
            return _known(context, task_id)
        await task.wait(timeout_seconds)
        return _view(task, context, task.tail(_TAIL_BYTES), waited=True)

    async def stop_task(context: ToolContext, task_id: _TaskId) -> TaskView:
        """Stop a background task with all that it started: it is asked to end, then killed.

        Args:
            task_id: The id that bash gave.
        """
        task = tasks.find(context.run_id, task_id)
        if task is None:
            return _known(context, task_id)
        await task.stop()
        return _view(task, context, task.tail(_TAIL_BYTES))

    async def list_tasks(context: ToolContext) -> tuple[TaskReport, ...]:
        """List the background tasks of this run, those that are over too."""
        held = {task.id: _named(task, context) for task in tasks.of(context.run_id)}
        known = {report.id: report for report in all_remembered(context)}
        return tuple((known | held).values())

    def unknown(arguments: JsonObject, context: ToolContext) -> Problem | None:
        task_id = arguments["task_id"]
        if tasks.find(context.run_id, task_id) is not None or remembered(context, task_id) is not None:
            return None
        return _no_such(task_id)

    return (
        tool(
            read_task, risk="read", check=unknown, normalize=normalized_view, max_output_chars=MAX_LIMIT_BYTES + 1_000
        ),
        tool(
            wait_task,
            risk="read",
            check=unknown,
            normalize=normalized_view,
            timeout_seconds=MAX_WAIT_SECONDS + 30,
        ),
        tool(stop_task, risk="read", check=unknown, normalize=normalized_view, idempotent=True),
        tool(list_tasks, risk="read", normalize=normalized_list),
    )


def normalized_start(report: TaskReport) -> Normalized:
    """What bash says when it put a command in the background."""
    return Normalized(
        summary=f"{report.id} runs in the background",
        text=f"{report.id} runs. Read it with read_task, wait for it with wait_task, stop it with stop_task.",
        user_text=f"$ {shown_command(report.command)} &: {report.id}",
        side_effects=() if report.profile == "read-only" else None,
        facts={"task": msgspec.to_builtins(report)},
        state=report.state,
    )


def normalized_view(view: TaskView) -> Normalized:
    report, end = view.report, view.end or _NOTHING_NEW
    head = in_words(report)
    if view.waited and report.status == "running":
        head += ". It goes on: wait again, read it, or stop it"
    if end.verdict:
        head += f": {end.verdict}"
    text = f"{head}\n{described(view.passage)}" if view.passage is not None and view.passage.total else head
    return Normalized(
        summary=head,
        text=text,
        user_text=f"$ {shown_command(report.command)}: {head}",
        exit_code=report.exit_code,
        side_effects=view.side_effects,
        facts={"task": msgspec.to_builtins(report), **end.facts},
        kind="verification" if end.verification is not None else "tool",
        state=report.state | checked_state(end.verification),
    )


def normalized_list(reports: tuple[TaskReport, ...]) -> Normalized:
    lines = [f"{in_words(report)}: {shown_command(report.command)}{_untold(report)}" for report in reports]
    running = sum(report.status == "running" for report in reports)
    state = {key: value for report in reports for key, value in report.state.items()}
    return Normalized(
        summary=f"{len(reports)} tasks, {running} running",
        text="\n".join(lines) or "There are no background tasks.",
        side_effects=(),
        facts={"tasks": [msgspec.to_builtins(report) for report in reports]},
        state=state,
    )


def in_words(report: TaskReport) -> str:
    how = report.words.removeprefix(f"{report.status} ") or f"since {report.started_at}"
    kept = f"; output in artifact {report.output}" if report.output else ""
    return f"{report.id} {report.status} ({how}, {report.output_bytes:,} bytes of output{kept})"


def _untold(report: TaskReport) -> str:
    return "" if report.is_told or report.status == "running" else " [wait_task tells what came of it]"


def _view(task: BackgroundTask, context: ToolContext, passage: Passage | None, *, waited: bool = False) -> TaskView:
    """The task as it is now. Nothing else happens between this and the record of it, so its end is told once."""
    report = task.report()
    if report.status == "running":
        return TaskView(report=report, passage=passage, waited=waited)
    told = msgspec.structs.replace(report, is_told=True)
    if is_told(context, task.id):
        return TaskView(report=told, passage=passage, waited=waited)
    context.kept.extend(task.kept.all)
    warn_of_guarded(report.guarded, context)
    if task.end.hindered:
        context.warn(task.end.hindered)
    effects = task.end.effects_after(context)
    return TaskView(report=told, passage=passage, waited=waited, end=task.end, side_effects=effects)


def _named(task: BackgroundTask, context: ToolContext) -> TaskReport:
    """For a list, which tells no end: what a task left behind is not the run's before it was told."""
    report = task.report()
    if is_told(context, task.id):
        return msgspec.structs.replace(report, is_told=True)
    return msgspec.structs.replace(report, output="")


def _known(context: ToolContext, task_id: str) -> TaskView:
    """A task that this process does not hold."""
    report = remembered(context, task_id)
    if report is None:
        raise PreconditionError(_no_such(task_id))
    if report.is_told:
        return TaskView(report=report)
    end = unseen_end(can_write=report.profile != "read-only")
    return TaskView(report=msgspec.structs.replace(report, is_told=True), end=end, side_effects=end.effects)


def _from_artifact(view: TaskView, context: ToolContext, offset: int, limit: int) -> TaskView:
    output = view.report.output
    passage = read_kept(context.artifacts, output, offset, limit) if output else None
    return msgspec.structs.replace(view, passage=passage)


def _no_such(task_id: str) -> Problem:
    return Problem(message=f"There is no task {task_id[:80]!r} in this run. list_tasks names them.")
