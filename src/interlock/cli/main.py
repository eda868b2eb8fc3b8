"""The `interlock` command. A command is loaded when it is used: help, version and completion load none of them."""

import gc
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from io import TextIOWrapper
from typing import Annotated, Any, NamedTuple, cast

try:
    import typer
    from typer.core import TyperGroup
    from typer.main import get_command
except ImportError as missing:
    raise SystemExit("The `interlock` command needs more than the library: pip install 'interlock[cli]'") from missing

from .. import __version__
from ..domain.errors import InterlockError
from .exit_codes import ExitCode, format_exit_codes


class CommandEntry(NamedTuple):
    """A command: the module of its `app`, and its help."""

    module: str
    help: str


#: Set: unexpected errors are shown with a traceback.
_TRACE_VARIABLE = "INTERLOCK_TRACE"

#: In the order in which help lists them.
COMMAND_ENTRIES: Mapping[str, CommandEntry] = {
    "demo": CommandEntry("demo.command", "Watch an agent repair a failing project, offline."),
    "run": CommandEntry("commands.run", "Let an agent work on a task in this directory."),
    "chat": CommandEntry("commands.chat", "Talk with an agent that works in this directory."),
    "runs": CommandEntry("commands.runs", "List, show, watch, resume, cancel and fork runs."),
    "artifacts": CommandEntry("commands.artifacts", "List and show what the calls of runs stored."),
    "approvals": CommandEntry("commands.approvals", "List and answer open questions of runs, from any terminal."),
    "replay": CommandEntry("commands.replay", "Replay a recorded run without executing anything."),
    "mcp": CommandEntry("commands.mcp", "List, test and call MCP servers; accept changes of their tools."),
    "gateway": CommandEntry("commands.gateway", "Serve MCP servers to any MCP client, under policy and approvals."),
    "hooks": CommandEntry("commands.hooks", "Govern the built-in tools of coding agents."),
    "serve": CommandEntry("commands.serve", "Run a server: REST API, web console, approvals, audit."),
    "worker": CommandEntry("commands.worker", "Resume runs of a log in Postgres, on any number of hosts."),
    "accounts": CommandEntry("commands.accounts", "Manage the accounts of a server and their roles."),
    "keys": CommandEntry("commands.keys", "Manage API keys for programs that call a server."),
    "notices": CommandEntry("commands.notices", "Try channels of notices; list and retry deliveries."),
    "audit": CommandEntry("commands.audit", "Export runs, and verify that a log was not modified."),
    "storage": CommandEntry("commands.storage", "Show how a log is stored, and upgrade it."),
    "database": CommandEntry("commands.database", "Migrate the schema of a log in Postgres, and grant rights."),
    "policy": CommandEntry("commands.policy", "Check, test and explain policies; try them on past runs."),
    "tools": CommandEntry("commands.tools", "Show the tools that a run in this directory would have."),
    "trust": CommandEntry("commands.trust", "Manage which projects may bring settings, rules and skills."),
    "config": CommandEntry("commands.config", "Show settings and their origin, and change them."),
    "doctor": CommandEntry("commands.doctor", "Show how commands are sandboxed on this host."),
}


class _LazyCommand(TyperGroup):
    """A command that is loaded when used."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        gc.disable()  # all of it stays: looking through it for garbage takes a quarter of the time
        try:
            loaded = get_command(import_module(_module_path(str(self.name))).app)
        finally:
            gc.freeze()
            gc.enable()
        return loaded.make_context(info_name, args, parent, **extra)


class _CommandGroup(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return [name for name in COMMAND_ENTRIES if find_spec(_module_path(name))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        known = cmd_name in COMMAND_ENTRIES and find_spec(_module_path(cmd_name))
        return _LazyCommand(name=cmd_name, help=COMMAND_ENTRIES[cmd_name].help) if known else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None:
            # Typer suggests one of these names.
            self.commands = dict.fromkeys(self.list_commands(ctx), cast("Any", None))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except InterlockError as error:
            import_module(".display.output", __package__).echo_error(error)
        raise typer.Exit(ExitCode.USAGE)


def _module_path(name: str) -> str:
    return f"{__package__}.{COMMAND_ENTRIES[name].module}"


app = typer.Typer(
    cls=_CommandGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog=format_exit_codes(),
)


def _show_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"interlock {__version__}")
        raise typer.Exit


@app.callback()
def interlock(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """The tool runtime for agents: a model proposes; Interlock decides, executes and remembers."""


def main() -> None:
    """Run the command. Tracebacks are shown only on request."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # What a terminal or a file has no letters for is written with others.
            stream.reconfigure(errors="backslashreplace")
    _drop_program_folder()
    try:
        try:
            app(prog_name="interlock")
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except Exception as error:
        if os.environ.get(_TRACE_VARIABLE):
            raise
        message = (
            f"a bug: {type(error).__name__}: {error}. Set {_TRACE_VARIABLE}=1 for a traceback, and please report it."
        )
        if isinstance(error, OSError):
            message = (
                f"{error.filename or 'the output'}: {error.strerror or error}. What was done before is not undone."
            )
        with suppress(OSError, ValueError):  # What could not be written is not tried again.
            print(f"interlock: {message[:2_000]}", file=sys.stderr, flush=True)
        os._exit(ExitCode.FAILED)


def _drop_program_folder() -> None:
    """Import nothing from the folder of the program `interlock`, here or in processes started from here."""
    own = os.path.dirname(os.path.realpath(sys.argv[0]))
    if not sys.flags.safe_path and sys.path and os.path.realpath(sys.path[0]) == own:
        del sys.path[0]
