"""`interlock run`: an agent works on a task in this folder."""

from pathlib import Path
from typing import Annotated

import typer

from ...domain.errors import ConfigurationError
from ..config.logs import LogFile
from ..exit_codes import ExitCode, exits
from ..options import (
    BaseUrl,
    Cost,
    Headless,
    Json,
    Model,
    ModelCalls,
    ModeName,
    PolicyFile,
    Provider,
    Script,
    Seconds,
    Steps,
    Tokens,
    ToolCalls,
    Workspace,
    written,
)
from ..session.agent import Wanted, prepare
from ..session.session import move_on

_EXITS = exits(
    {
        ExitCode.OK: "the run is completed",
        ExitCode.FAILED: "it failed, was cancelled, or its answer contradicts the facts",
        ExitCode.USAGE: "bad usage, or something that is not in order",
        ExitCode.WAITING: "it waits for a person",
        ExitCode.INTERRUPTED: "interrupted; the run is kept",
    }
)
MAX_TASK_CHARS = 1_000_000

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(epilog=_EXITS)
def run(  # noqa: PLR0913 - one for each option
    task: Annotated[str, typer.Argument(metavar="TASK", help="What to do, in words.", show_default=False)],
    *,
    model: Model = None,
    provider: Provider = None,
    base_url: BaseUrl = None,
    mode: ModeName = None,
    policy: PolicyFile = None,
    workspace: Workspace = None,
    script: Script = None,
    max_steps: Steps = None,
    max_model_calls: ModelCalls = None,
    max_tool_calls: ToolCalls = None,
    max_seconds: Seconds = None,
    max_tokens: Tokens = None,
    max_cost: Cost = None,
    headless: Headless = False,
    log: LogFile = None,
    as_json: Json = False,
) -> None:
    """Let an agent work on a task in this folder.

    Calls that a policy asks about are asked at this terminal; without one the run pauses, and `interlock approvals`
    answers from anywhere. Ctrl-C cancels the calls that run, a second one stops the run here. It is kept in any case.
    """
    if not task.strip() or len(task) > MAX_TASK_CHARS:
        raise ConfigurationError(f"A task is a text of at most {MAX_TASK_CHARS:,} characters, and not empty.")
    wanted = Wanted(
        workspace=workspace or Path(),
        settings=written(
            model=model,
            provider=provider,
            base_url=base_url,
            mode=mode,
            policy=policy and policy.absolute(),
            max_model_calls=max_model_calls,
            max_tool_calls=max_tool_calls,
            max_seconds=max_seconds,
            max_tokens=max_tokens,
            max_cost=max_cost,
        ),
        script=script,
        max_steps=max_steps,
        log=log,
        headless=headless,
    )
    raise typer.Exit(move_on(prepare(wanted), lambda runner: runner.start(task), headless=headless, as_json=as_json))
