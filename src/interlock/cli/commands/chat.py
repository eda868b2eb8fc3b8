"""`interlock chat`: the agent of `interlock run`, in a conversation."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from ...domain.errors import ConfigurationError, RunEndedError
from ...domain.event import RunStarted
from ...history.fold import load_run
from ..config.logs import LogOption, complete_run, open_log, resolve_run, shorten_id
from ..display.output import echo_notice
from ..display.run_list import read_first_event
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
from ..session.agent import PreparedRun, RunOptions, prepare_run
from ..session.chat import ChatSession
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
    prepared = prepare_run(RunOptions(workspace=workspace or Path(), settings=settings, script=script, log=log))
    for note in prepared.notes:
        echo_notice(f"interlock: {note}")
    with preserve_terminal() as modes:
        try:
            run_id = "" if resume is None else asyncio.run(_find_resumable(prepared, resume))
            asyncio.run(ChatSession(prepared, modes, run_id).run())
        except KeyboardInterrupt:
            raise typer.Exit(ExitCode.INTERRUPTED) from None


async def _find_resumable(prepared: PreparedRun, run_ref: str) -> str:
    async with open_log(prepared.log_path) as log:
        run_id = await resolve_run(log, run_ref)
        state = (await load_run(log, run_id)).ledger.state
        started = (await read_first_event(log, run_id)).fact
    if state.is_over:
        raise RunEndedError(f"{shorten_id(run_id)} is {state.value}. Start a new one with `interlock chat`.")
    if isinstance(started, RunStarted) and started.workspace not in ("", prepared.workspace):
        raise ConfigurationError(
            f"{shorten_id(run_id)} works in {started.workspace}. Pass --workspace {started.workspace}."
        )
    return run_id
