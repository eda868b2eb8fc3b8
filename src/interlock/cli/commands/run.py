"""`interlock run`: let an agent work on a task in this folder."""

from pathlib import Path
from typing import Annotated

import typer

from ...domain.errors import ConfigurationError
from ..config.logs import LogOption
from ..exit_codes import format_exit_codes
from ..options import (
    BaseUrlOption,
    HeadlessOption,
    JsonOption,
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
from ..session.agent import RunOptions, prepare_run
from ..session.live_session import SessionOptions, run_and_report

_EXITS = format_exit_codes(
    ok="the run is completed",
    failed="it failed, was cancelled, or its answer contradicts the facts",
    usage="bad usage, or something that is not in order",
    waiting="it waits for a person",
    interrupted="interrupted; the run is kept",
)
MAX_TASK_CHARS = 1_000_000

app = create_app()


@app.command(epilog=_EXITS)
def run(  # noqa: PLR0913 - one for each option
    task: Annotated[str, argument("TASK", "What to do, in words.")],
    *,
    model: ModelOption = None,
    provider: ProviderOption = None,
    base_url: BaseUrlOption = None,
    mode: ModeOption = None,
    policy: PolicyOption = None,
    workspace: WorkspaceOption = None,
    script: ScriptOption = None,
    max_steps: Annotated[int | None, option("How many answers with calls it may give.", metavar="N", min=1)] = None,
    max_model_calls: Annotated[int | None, option("How often it may ask the model.", metavar="N", min=1)] = None,
    max_tool_calls: Annotated[int | None, option("How many calls it may make.", metavar="N", min=1)] = None,
    max_seconds: Annotated[float | None, option("How long it may take.", metavar="S", min=0.001)] = None,
    max_tokens: Annotated[int | None, option("How many tokens it may use.", metavar="N", min=1)] = None,
    max_cost: Annotated[float | None, option("What it may cost.", metavar="C", min=0.000001)] = None,
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
    limits = collect_options(
        max_model_calls=max_model_calls,
        max_tool_calls=max_tool_calls,
        max_seconds=max_seconds,
        max_tokens=max_tokens,
        max_cost=max_cost,
    )
    options = RunOptions(
        workspace=workspace or Path(),
        settings=collect_options(model=model, provider=provider, base_url=base_url, mode=mode, policy=policy) | limits,
        script=script,
        max_steps=max_steps,
        log=log,
        headless=headless,
    )
    session = SessionOptions(headless=headless, as_json=as_json)
    raise typer.Exit(run_and_report(prepare_run(options), lambda runner: runner.start(task), session))
