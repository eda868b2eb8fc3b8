"""The `interlock` command. A group of its commands is loaded when it is used: help and version load none of them."""

from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any

try:
    import typer
    from typer.core import TyperGroup
    from typer.main import get_command
except ImportError as missing:
    raise SystemExit("The `interlock` command needs more than the library: pip install 'interlock[cli]'") from missing

from .. import __version__

#: The groups, by the module that has their `app`, and what help says about them.
_GROUPS: Mapping[str, str] = {
    "doctor": "Show what holds commands back on this host, and what to do about it.",
    "policy": "Check, test and explain policies, and try them on recorded runs.",
}


class _Unloaded(TyperGroup):
    """A group by its name, until somebody uses it."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        loaded = get_command(import_module(f".{self.name}", __package__).app)
        return loaded.make_context(info_name, args, parent, **extra)


class _Doors(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return list(_GROUPS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return _Unloaded(name=cmd_name, help=_GROUPS[cmd_name]) if cmd_name in _GROUPS else None


app = typer.Typer(
    cls=_Doors,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
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
    app(prog_name="interlock")
