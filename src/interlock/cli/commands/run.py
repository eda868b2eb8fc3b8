"""`interlock run`: let an agent work on a task in this folder."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ... import lazy_module
from ...domain.errors import ConfigurationError
from ..exit_codes import format_exit_codes
from ..options import (
    BaseUrlOption,
    HeadlessOption,
    JsonOption,
    LogOption,
    McpOption,
    ModelOption,
    ModeOption,
    PolicyOption,
    ProviderOption,
    ScriptOption,
    WorkspaceOption,
    argument,
    collect_options,
    create_app,
    option,
)

if TYPE_CHECKING:
    from ...runs import attachments
    from ..session import agent, live_session
else:
    # What runs an agent, which help does not need.
    attachments = lazy_module("interlock.runs.attachments")
    agent = lazy_module("interlock.cli.session.agent")
    live_session = lazy_module("interlock.cli.session.live_session")

_EXITS = format_exit_codes(
    ok="the run is completed",
    failed="it failed, was cancelled, or its answer contradicts the facts",
    usage="bad usage, or an invalid setting or file",
    waiting="it waits for a person",
    refused="its last call was refused by a policy or a person",
    interrupted="interrupted; the run is kept",
)
MAX_TASK_CHARS = 1_000_000

app = create_app()


@app.command(epilog=_EXITS)
def run(  # noqa: PLR0913 - one for each option
    task: Annotated[str, argument("TASK", "Task for the agent; @FILE reads it from a file, - from standard input.")],
    *,
    model: ModelOption = None,
    provider: ProviderOption = None,
    base_url: BaseUrlOption = None,
    mode: ModeOption = None,
    policy: PolicyOption = None,
    workspace: WorkspaceOption = None,
    script: ScriptOption = None,
    mcp: McpOption = None,
    max_steps: Annotated[
        int | None, option("Maximum number of model responses with tool calls.", metavar="N", min=1)
    ] = None,
    max_model_calls: Annotated[int | None, option("Maximum number of model requests.", metavar="N", min=1)] = None,
    max_tool_calls: Annotated[int | None, option("Maximum number of tool calls.", metavar="N", min=1)] = None,
    max_seconds: Annotated[float | None, option("Maximum duration in seconds.", metavar="S", min=0.001)] = None,
    max_tokens: Annotated[int | None, option("Maximum number of tokens, input and output.", metavar="N", min=1)] = None,
    max_cost: Annotated[
        float | None, option("Maximum cost, in the currency of the prices.", metavar="C", min=0.000001)
    ] = None,
    files: Annotated[
        list[Path] | None, option("Image or file to send with the task; repeatable.", "--attach", metavar="FILE")
    ] = None,
    headless: HeadlessOption = False,
    log: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let an agent work on a task in this directory.

    Calls that require approval are asked about at this terminal; without one the run pauses, and `interlock approvals`
    answers from anywhere. Ctrl-C cancels running calls, a second Ctrl-C stops the run. The run is always kept.
    """
    task = _read_task(task)
    if not task.strip() or len(task) > MAX_TASK_CHARS:
        raise ConfigurationError(f"The task must have 1 to {MAX_TASK_CHARS:,} characters; found {len(task):,}.")
    limits = collect_options(
        max_model_calls=max_model_calls,
        max_tool_calls=max_tool_calls,
        max_seconds=max_seconds,
        max_tokens=max_tokens,
        max_cost=max_cost,
    )
    options = agent.RunOptions(
        workspace=workspace or Path(),
        settings=collect_options(model=model, provider=provider, base_url=base_url, mode=mode, policy=policy) | limits,
        script=script,
        max_steps=max_steps,
        log=log,
        headless=headless,
        mcp=mcp,
    )
    session = live_session.SessionOptions(headless=headless, as_json=as_json)
    content = [task, *map(attachments.attach, files or ())]
    prepared = agent.prepare_run(options)
    raise typer.Exit(
        live_session.run_and_report(
            prepared, lambda runner: runner.start(content, settings=prepared.run_settings), session
        )
    )


def _read_task(given: str) -> str:
    """Return the task that was given, or read it. What is longer than a task may be is not read to its end."""
    if given != "-" and not given.startswith("@"):
        return given
    source = "standard input" if given == "-" else given[1:]
    try:
        if given == "-":
            content = sys.stdin.buffer.read(4 * MAX_TASK_CHARS + 1)
        else:
            with open(source, "rb") as file:
                content = file.read(4 * MAX_TASK_CHARS + 1)
        return content.decode()
    except UnicodeDecodeError:
        reason = "it is not UTF-8 text"
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
    raise ConfigurationError(f"The task cannot be read from {source}: {reason}. Nothing was started.")
