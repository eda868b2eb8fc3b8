"""Tools for background tasks: read their output, wait for their end, stop them, list them.

The first view of a finished task reports its outcome; a list only names it. A task that tested or checked is then a
verification, as in the foreground, and its facts name the call that started it: later changes are not what it tested.

They start nothing and change only a task of the same run, so they need no permission: it was granted when the command
was started.
"""

import asyncio
from typing import Annotated

import msgspec
from pydantic import Field

from ...domain.errors import PreconditionError
from ...domain.outcome import SideEffect
from ...domain.tool import CheckProblem, JsonObject, NormalizedOutput, ToolContext, ToolDefinition
from ...registry.decorator import tool
from ..read_artifact import DEFAULT_LIMIT_BYTES, MAX_LIMIT_BYTES, Passage, format_passage
from .command import warn_about_guarded
from .command_result import display_command, make_verified_state
from .task_outcome import TaskOutcome, make_unknown_outcome
from .tasks import (
    BackgroundTask,
    BackgroundTasks,
    TaskReport,
    is_outcome_reported,
    list_remembered,
    load_remembered,
    read_kept_output,
)

MAX_WAIT_SECONDS = 600
_TAIL_BYTES = 4_000

_EMPTY_OUTCOME = TaskOutcome()

_TaskId = Annotated[str, Field(description="The id that bash(background=true) gave.")]


class TaskView(msgspec.Struct, frozen=True, kw_only=True):
    """A task, and a part of what it printed."""

    report: TaskReport
    #: None: there is nothing to read here.
    passage: Passage | None = None
    waited: bool = False
    #: Its outcome, where this is the first view of it.
    outcome: TaskOutcome | None = None
    side_effects: tuple[SideEffect, ...] = ()


def make_task_tools(tasks: BackgroundTasks) -> tuple[ToolDefinition, ...]:
    """Return `read_task`, `wait_task`, `stop_task` and `list_tasks`."""

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
        task = await tasks.find(context, task_id)
        if task is None:
            view = _view_remembered(context, task_id)
            return await asyncio.to_thread(_add_artifact_passage, view, context, offset, limit)
        return _make_view(task, context, task.read(offset, limit))

    async def wait_task(
        context: ToolContext, task_id: _TaskId, timeout_seconds: Annotated[float, Field(gt=0, le=MAX_WAIT_SECONDS)] = 60
    ) -> TaskView:
        """Wait until a background task is over, or until the time is up. A task that is not over continues.

        Args:
            task_id: The id that bash gave.
            timeout_seconds: How long to wait at most.
        """
        task = await tasks.find(context, task_id)
        if task is None:
            return _view_remembered(context, task_id)
        await task.wait(timeout_seconds)
        await task.update()
        return _make_view(task, context, task.tail(_TAIL_BYTES), waited=True)

    async def stop_task(context: ToolContext, task_id: _TaskId) -> TaskView:
        """Stop a background task with all that it started: it is asked to end, then killed.

        Args:
            task_id: The id that bash gave.
        """
        task = await tasks.find(context, task_id)
        if task is None:
            return _view_remembered(context, task_id)
        await task.stop()
        await task.update()
        return _make_view(task, context, task.tail(_TAIL_BYTES))

    async def list_tasks(context: ToolContext) -> tuple[TaskReport, ...]:
        """List the background tasks of this run, those that are over too."""
        held = {task.id: _make_list_entry(task, context) for task in await tasks.find_all(context)}
        known = {report.id: report for report in list_remembered(context)}
        return tuple((known | held).values())

    def unknown(arguments: JsonObject, context: ToolContext) -> CheckProblem | None:
        task_id = arguments["task_id"]
        return None if tasks.is_known(context, task_id) else _make_unknown_task_problem(task_id)

    return (
        tool(read_task, risk="read", check=unknown, normalize=normalize_view, max_output_chars=MAX_LIMIT_BYTES + 1_000),
        tool(wait_task, risk="read", check=unknown, normalize=normalize_view, timeout_seconds=MAX_WAIT_SECONDS + 30),
        tool(stop_task, risk="read", check=unknown, normalize=normalize_view, idempotent=True),
        tool(list_tasks, risk="read", normalize=normalize_list),
    )


def normalize_start(report: TaskReport) -> NormalizedOutput:
    """Return the output of bash for a command started in the background."""
    return NormalizedOutput(
        summary=f"{report.id} runs in the background",
        text=f"{report.id} runs. Read it with read_task, wait for it with wait_task, stop it with stop_task.",
        user_text=f"$ {display_command(report.command)} &: {report.id}",
        side_effects=() if report.profile == "read-only" else None,
        facts={"task": msgspec.to_builtins(report)},
        state=report.state,
    )


def normalize_view(view: TaskView) -> NormalizedOutput:
    """Convert a view of a task for the model."""
    report, outcome = view.report, view.outcome or _EMPTY_OUTCOME
    head = describe_task(report)
    if view.waited and report.status == "running":
        head += ". It is still running: wait again, read it, or stop it"
    if outcome.verdict:
        head += f": {outcome.verdict}"
    text = f"{head}\n{format_passage(view.passage)}" if view.passage is not None and view.passage.total else head
    return NormalizedOutput(
        summary=head,
        text=text,
        user_text=f"$ {display_command(report.command)}: {head}",
        exit_code=report.exit_code,
        side_effects=view.side_effects,
        facts={"task": msgspec.to_builtins(report), **outcome.facts},
        kind="verification" if outcome.verification is not None else "tool",
        state=report.state | make_verified_state(outcome.verification),
    )


def normalize_list(reports: tuple[TaskReport, ...]) -> NormalizedOutput:
    """Convert the list of tasks for the model."""
    lines = [
        f"{describe_task(report)}: {display_command(report.command)}{_unreported_note(report)}" for report in reports
    ]
    running = sum(report.status == "running" for report in reports)
    state = {key: value for report in reports for key, value in report.state.items()}
    return NormalizedOutput(
        summary=f"{len(reports)} tasks, {running} running",
        text="\n".join(lines) or "There are no background tasks.",
        side_effects=(),
        facts={"tasks": [msgspec.to_builtins(report) for report in reports]},
        state=state,
    )


def describe_task(report: TaskReport) -> str:
    """Describe a task in one line."""
    how = report.words.removeprefix(f"{report.status} ") or f"since {report.started_at}"
    kept = f"; output in artifact {report.output}" if report.output else ""
    return f"{report.id} {report.status} ({how}, {report.output_bytes:,} bytes of output{kept})"


def _unreported_note(report: TaskReport) -> str:
    return "" if report.is_reported or report.status == "running" else " [wait_task reports its result]"


def _make_view(
    task: BackgroundTask, context: ToolContext, passage: Passage | None, *, waited: bool = False
) -> TaskView:
    """Return the task as it is now. Nothing else happens until it is recorded, so its end is reported once."""
    report = task.report()
    if report.status == "running":
        return TaskView(report=report, passage=passage, waited=waited)
    reported = msgspec.structs.replace(report, is_reported=True)
    if is_outcome_reported(context, task.id):
        return TaskView(report=reported, passage=passage, waited=waited)
    context.kept.extend(task.kept.artifacts)
    warn_about_guarded(report.guarded, context)
    if task.outcome.problem:
        context.warn(task.outcome.problem)
    effects = task.outcome.effects_since_check(context)
    return TaskView(report=reported, passage=passage, waited=waited, outcome=task.outcome, side_effects=effects)


def _make_list_entry(task: BackgroundTask, context: ToolContext) -> TaskReport:
    """Return an entry of a list, which reports no end: what a task left belongs to the run only once reported."""
    report = task.report()
    if is_outcome_reported(context, task.id):
        return msgspec.structs.replace(report, is_reported=True)
    return msgspec.structs.replace(report, output="")


def _view_remembered(context: ToolContext, task_id: str) -> TaskView:
    """Return the view of a task that this process does not hold."""
    report = load_remembered(context, task_id)
    if report is None:
        raise PreconditionError(_make_unknown_task_problem(task_id))
    if report.is_reported:
        return TaskView(report=report)
    outcome = make_unknown_outcome(can_write=report.profile != "read-only")
    return TaskView(
        report=msgspec.structs.replace(report, is_reported=True), outcome=outcome, side_effects=outcome.effects
    )


def _add_artifact_passage(view: TaskView, context: ToolContext, offset: int, limit: int) -> TaskView:
    output = view.report.output
    passage = read_kept_output(context.artifacts, output, offset, limit) if output else None
    return msgspec.structs.replace(view, passage=passage)


def _make_unknown_task_problem(task_id: str) -> CheckProblem:
    return CheckProblem(message=f"There is no task {task_id[:80]!r} in this run. list_tasks names them.")
