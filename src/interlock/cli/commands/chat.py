"""`interlock chat`: the agent of `interlock run`, in a conversation."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from ...domain.errors import ConfigurationError, RunEndedError
from ...domain.event import RunStarted
from ...history.fold import load
from ..config.logs import LogFile, complete_run, named_run, opened, short
from ..display.follow import first_event
from ..display.output import say_long
from ..exit_codes import ExitCode, exits
from ..options import BaseUrl, Model, ModeName, PolicyFile, Provider, Script, Workspace, written
from ..session.agent import Prepared, Wanted, prepare
from ..session.chat import Talk
from ..session.terminal import TerminalModes, terminal_as_it_was

_EXITS = exits(
    {
        ExitCode.OK: "done",
        ExitCode.USAGE: "bad usage, or something that is not in order",
        ExitCode.INTERRUPTED: "interrupted; the run is kept",
    }
)

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(epilog=_EXITS)
def chat(  # noqa: PLR0913 - one for each option
    *,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="RUN", help="Go on with this run, or `last`.", show_default=False, autocompletion=complete_run
        ),
    ] = None,
    model: Model = None,
    provider: Provider = None,
    base_url: BaseUrl = None,
    mode: ModeName = None,
    policy: PolicyFile = None,
    workspace: Workspace = None,
    script: Script = None,
    log: LogFile = None,
) -> None:
    """Talk with an agent that works in this folder.

    The conversation is one run, which is kept. /help lists what can be typed beside tasks. Ctrl-C interrupts the agent,
    Ctrl-D ends the chat.
    """
    settings = written(
        model=model, provider=provider, base_url=base_url, mode=mode, policy=policy and policy.absolute()
    )
    prepared = prepare(Wanted(workspace=workspace or Path(), settings=settings, script=script, log=log))
    for note in prepared.notes:
        say_long(f"interlock: {note}")
    with terminal_as_it_was() as modes:
        try:
            asyncio.run(_chat(prepared, modes, resume))
        except KeyboardInterrupt:
            raise typer.Exit(ExitCode.INTERRUPTED) from None


async def _chat(prepared: Prepared, modes: TerminalModes, wanted: str | None) -> None:
    run_id = "" if wanted is None else await _found(prepared, wanted)
    await Talk(prepared, modes, run_id).talk()


async def _found(prepared: Prepared, wanted: str) -> str:
    async with opened(prepared.named_log) as log:
        run_id = await named_run(log, wanted)
        state = (await load(log, run_id)).ledger.state
        begun = (await first_event(log, run_id)).fact
    if state.is_over:
        raise RunEndedError(f"{short(run_id)} is {state.value}. Start a new one with `interlock chat`.")
    if isinstance(begun, RunStarted) and begun.workspace not in ("", prepared.workspace):
        raise ConfigurationError(f"{short(run_id)} works in {begun.workspace}: name that folder with --workspace.")
    return run_id
