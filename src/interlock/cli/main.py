"""The `interlock` command. A command is loaded when it is used: help, version and completion load none of them."""

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from io import TextIOWrapper
from typing import Annotated, Any, NamedTuple, NoReturn

try:
    import typer
    from typer.core import TyperGroup
    from typer.main import get_command
except ImportError as missing:
    raise SystemExit("The `interlock` command needs more than the library: pip install 'interlock[cli]'") from missing

from .. import __version__
from ..domain.errors import InterlockError
from .exit_codes import ExitCode, exits


class Door(NamedTuple):
    """The module that has its `app`, and what help says about it."""

    module: str
    about: str


#: Set: what is not expected is told with all that there is to tell.
_TRACE = "INTERLOCK_TRACE"

#: In the order in which help lists them.
DOORS: Mapping[str, Door] = {
    "demo": Door("demo.command", "See it work: a failing project is repaired, with questions."),
    "run": Door("commands.run", "Let an agent work on a task in this folder."),
    "chat": Door("commands.chat", "The same, in a conversation."),
    "runs": Door("commands.runs", "List, show, watch, resume, cancel and fork runs."),
    "approvals": Door("commands.approvals", "Answer what runs ask, from any terminal."),
    "replay": Door("commands.replay", "Go through a recorded run, without executing anything."),
    "serve": Door("commands.serve", "Serve runs to people and programs: REST, console, audit."),
    "accounts": Door("commands.accounts", "Who may sign in to a server, and what they may do."),
    "keys": Door("commands.keys", "Keys with which programs talk to a server."),
    "audit": Door("commands.audit", "Export runs, and check that a log is what was written."),
    "policy": Door("commands.policy", "Check, test and explain policies; try them on old runs."),
    "tools": Door("commands.tools", "Show the tools that a run in this folder would have."),
    "trust": Door("commands.trust", "Say which projects may bring settings, rules and skills."),
    "config": Door("commands.config", "Show and change settings, and where each comes from."),
    "doctor": Door("commands.doctor", "Show what holds commands back here, and what to do."),
}


class _Unloaded(TyperGroup):
    """A command by its name, until somebody uses it."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        loaded = get_command(import_module(_module(str(self.name))).app)
        return loaded.make_context(info_name, args, parent, **extra)


class _Doors(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return [name for name in DOORS if find_spec(_module(name))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        known = cmd_name in DOORS and find_spec(_module(cmd_name))
        return _Unloaded(name=cmd_name, help=DOORS[cmd_name].about) if known else None

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except InterlockError as error:
            import_module(".display.output", __package__).say_wrong(error)
        raise typer.Exit(ExitCode.USAGE)


def _module(name: str) -> str:
    return f"{__package__}.{DOORS[name].module}"


app = typer.Typer(
    cls=_Doors,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog=exits(),
)


def _show_version(wanted: bool) -> None:
    if wanted:
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
    """Nobody who uses the command sees a traceback, unless they ask for one."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # What a terminal or a file has no letters for is written with others.
            stream.reconfigure(errors="backslashreplace")
    _forget_own_folder()
    try:
        try:
            app(prog_name="interlock")
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except Exception as error:
        if os.environ.get(_TRACE):
            raise
        _leave(_words(error))


def _forget_own_folder() -> None:
    """Nothing is imported from where the program `interlock` lies, here or in processes that are started from here."""
    own = os.path.dirname(os.path.realpath(sys.argv[0]))
    if not sys.flags.safe_path and sys.path and os.path.realpath(sys.path[0]) == own:
        del sys.path[0]


def _words(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename or 'the output'}: {error.strerror or error}. What was done before that is done."
    return f"a bug: {type(error).__name__}: {error}. With {_TRACE}=1 it says where; please report it."


def _leave(why: str) -> NoReturn:
    """What could not be written is not tried again."""
    with suppress(OSError, ValueError):
        print(f"interlock: {why[:2_000]}", file=sys.stderr, flush=True)
    os._exit(ExitCode.FAILED)
