"""`interlock chat`: the agent of `interlock run`, in a conversation."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from ...domain.errors import ConfigurationError, RunEndedError
from ...history.fold import load_run
from ...storage.sqlite.log import SqliteLog
from ..config.logs import LogOption, complete_run, resolve_run, run_with_log, shorten_id
from ..display.output import echo_notice
from ..exit_codes import ExitCode, format_exit_codes
from ..options import (
    BaseUrlOption,
    ModelOption,
    ModeOption,
    PolicyOption,
    ProviderOption,
    ScriptOption,
    WorkspaceOption,
    collect_options,
    create_app,
    option,
)
from ..session.agent import RunOptions, prepare_run
from ..session.chat import ChatSession
from ..session.resume import ResumableRun, load_resumable, prepare_resumed
from ..session.terminal import preserve_terminal

_EXITS = format_exit_codes(
    ok="done", usage="bad usage, or an invalid setting or file", interrupted="interrupted; the run is kept"
)

app = create_app()


@app.command(epilog=_EXITS)
def chat(  # noqa: PLR0913 - one for each option
    *,
    resume: Annotated[
        str | None, option("Run to resume, or `last`.", metavar="RUN", autocompletion=complete_run)
    ] = None,
    model: ModelOption = None,
    provider: ProviderOption = None,
    base_url: BaseUrlOption = None,
    mode: ModeOption = None,
    policy: PolicyOption = None,
    workspace: WorkspaceOption = None,
    script: ScriptOption = None,
    log: LogOption = None,
) -> None:
    """Talk with an agent that works in this folder.

    The conversation is one run, which is kept. /help lists what can be typed beside tasks. Ctrl-C interrupts the agent,
    Ctrl-D ends the chat.
    """
    settings = collect_options(model=model, provider=provider, base_url=base_url, mode=mode, policy=policy)
    options = RunOptions(workspace=workspace or Path(), settings=settings, script=script, log=log)
    run = None if resume is None else run_with_log(log, lambda event_log: _find_resumable(event_log, resume))
    prepared = prepare_run(options) if run is None else prepare_resumed(run, options)
    if run is not None and run.workspace not in ("", prepared.workspace):
        raise ConfigurationError(
            f"{shorten_id(run.run_id)} works in {run.workspace}. Pass --workspace {run.workspace}."
        )
    for note in prepared.notes:
        echo_notice(f"interlock: {note}")
    with preserve_terminal() as modes:
        try:
            asyncio.run(ChatSession(prepared, modes, "" if run is None else run.run_id).run())
        except KeyboardInterrupt:
            raise typer.Exit(ExitCode.INTERRUPTED) from None


async def _find_resumable(log: SqliteLog, run_ref: str) -> ResumableRun:
    run_id = await resolve_run(log, run_ref)
    state = (await load_run(log, run_id)).ledger.state
    if state.is_over:
        raise RunEndedError(f"{shorten_id(run_id)} is {state.value}. Start a new one with `interlock chat`.")
    return await load_resumable(log, run_id)
