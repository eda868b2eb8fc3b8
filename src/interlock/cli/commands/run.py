"""`interlock run`: an agent works on a task in this folder."""

from pathlib import Path
from typing import Annotated

import typer

from ...domain.errors import ConfigurationError
from ..config.logs import LogOption
from ..exit_codes import ExitCode, format_exit_codes
from ..options import (
    BaseUrlOption,
    HeadlessOption,
    JsonOption,
    MaxCostOption,
    MaxModelCallsOption,
    MaxSecondsOption,
    MaxStepsOption,
    MaxTokensOption,
    MaxToolCallsOption,
    ModelOption,
    ModeOption,
    PolicyOption,
    ProviderOption,
    ScriptOption,
    WorkspaceOption,
    collect_options,
)
from ..session.agent import RunOptions, prepare_run
from ..session.live_session import run_and_report

_EXITS = format_exit_codes(
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
    model: ModelOption = None,
    provider: ProviderOption = None,
    base_url: BaseUrlOption = None,
    mode: ModeOption = None,
    policy: PolicyOption = None,
    workspace: WorkspaceOption = None,
    script: ScriptOption = None,
    max_steps: MaxStepsOption = None,
    max_model_calls: MaxModelCallsOption = None,
    max_tool_calls: MaxToolCallsOption = None,
    max_seconds: MaxSecondsOption = None,
    max_tokens: MaxTokensOption = None,
    max_cost: MaxCostOption = None,
    headless: HeadlessOption = False,
    log: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let an agent work on a task in this folder.

    Calls that a policy asks about are asked at this terminal; without one the run pauses, and `interlock approvals`
    answers from anywhere. Ctrl-C cancels the calls that run, a second one stops the run here. It is kept in any case.
    """
    if not task.strip() or len(task) > MAX_TASK_CHARS:
        raise ConfigurationError(f"A task is a text of at most {MAX_TASK_CHARS:,} characters, and not empty.")
    options = RunOptions(
        workspace=workspace or Path(),
        settings=collect_options(
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
    raise typer.Exit(
        run_and_report(prepare_run(options), lambda runner: runner.start(task), headless=headless, as_json=as_json)
    )
