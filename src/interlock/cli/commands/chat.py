"""`interlock chat`: the agent of `interlock run`, in a conversation."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ... import lazy_module
from ...domain.errors import ConfigurationError, RunEndedError
from ..exit_codes import ExitCode, format_exit_codes
from ..options import (
    BaseUrlOption,
    LogOption,
    McpOption,
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

if TYPE_CHECKING:
    import asyncio

    from ...history import fold
    from ...storage.event_log import EventLog
    from ..config import logs
    from ..display import output
    from ..session import agent, terminal
    from ..session import chat as chatting
    from ..session import resume as resuming
else:
    # What runs an agent, which help does not need.
    asyncio = lazy_module("asyncio")
    fold = lazy_module("interlock.history.fold")
    logs = lazy_module("interlock.cli.config.logs")
    output = lazy_module("interlock.cli.display.output")
    agent = lazy_module("interlock.cli.session.agent")
    resuming = lazy_module("interlock.cli.session.resume")
    terminal = lazy_module("interlock.cli.session.terminal")
    chatting = lazy_module("interlock.cli.session.chat")

_EXITS = format_exit_codes(
    ok="done", usage="bad usage, or an invalid setting or file", interrupted="interrupted; the run is kept"
)

app = create_app()


def _complete_run(incomplete: str) -> list[str]:
    return logs.complete_run(incomplete)


@app.command(epilog=_EXITS)
def chat(  # noqa: PLR0913 - one for each option
    *,
    resume: Annotated[
        str | None,
        option("Run to resume, or `last`.", metavar="RUN", autocompletion=_complete_run),
    ] = None,
    model: ModelOption = None,
    provider: ProviderOption = None,
    base_url: BaseUrlOption = None,
    mode: ModeOption = None,
    policy: PolicyOption = None,
    workspace: WorkspaceOption = None,
    script: ScriptOption = None,
    mcp: McpOption = None,
    log: LogOption = None,
) -> None:
    """Talk with an agent that works in this folder.

    The conversation is one run, which is kept. /help lists what can be typed beside tasks. Ctrl-C interrupts the agent,
    Ctrl-D ends the chat.
    """
    settings = collect_options(model=model, provider=provider, base_url=base_url, mode=mode, policy=policy)
    options = agent.RunOptions(workspace=workspace or Path(), settings=settings, script=script, log=log, mcp=mcp)
    run = None if resume is None else logs.run_with_log(log, lambda event_log: _find_resumable(event_log, resume))
    prepared = agent.prepare_run(options) if run is None else resuming.prepare_resumed(run, options)
    if run is not None and run.workspace not in ("", prepared.workspace):
        raise ConfigurationError(
            f"{logs.shorten_id(run.run_id)} works in {run.workspace}. Pass --workspace {run.workspace}."
        )
    for note in prepared.notes:
        output.echo_notice(f"interlock: {note}")
    with terminal.preserve_terminal() as modes:
        try:
            asyncio.run(chatting.ChatSession(prepared, modes, "" if run is None else run.run_id).run())
        except KeyboardInterrupt:
            raise typer.Exit(ExitCode.INTERRUPTED) from None


async def _find_resumable(log: "EventLog", run_ref: str) -> "resuming.ResumableRun":
    run_id = await logs.resolve_run(log, run_ref)
    state = (await fold.load_run(log, run_id)).ledger.state
    if state.is_over:
        raise RunEndedError(f"{logs.shorten_id(run_id)} is {state.value}. Start a new one with `interlock chat`.")
    return await resuming.load_resumable(log, run_id)
