"""Declarations of commands and of the options that several of them share."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import typer


def create_app(epilog: str | None = None, *, is_group: bool = False) -> typer.Typer:
    """Create the application of a command. `epilog`: the exit codes; `is_group`: it has only subcommands."""
    return typer.Typer(
        add_completion=False,
        no_args_is_help=is_group,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        epilog=epilog,
    )


def argument(metavar: str, help_text: str, complete: Callable[[str], Sequence[str]] | None = None) -> Any:
    """Declare an argument whose default is not shown."""
    return typer.Argument(metavar=metavar, help=help_text, show_default=False, autocompletion=complete)


def option(help_text: str, *names: str, metavar: str | None = None, **rules: Any) -> Any:
    """Declare an option whose default is not shown, or is in its help text."""
    return typer.Option(*names, metavar=metavar, help=help_text, show_default=False, **rules)


JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]

ModelOption: TypeAlias = Annotated[str | None, option("Name of the model.", metavar="NAME")]
ProviderOption: TypeAlias = Annotated[
    Literal["openai", "anthropic"] | None, option("Provider API: `openai` (or any compatible server) or `anthropic`.")
]
BaseUrlOption: TypeAlias = Annotated[
    str | None, option("URL of the model's server. Default: the provider's own.", metavar="URL")
]
#: The words of `PermissionMode`, whose module costs more to load than all of help.
PermissionModeName: TypeAlias = Literal["read_only", "default", "accept_edits", "contained", "trusted"]
ModeOption: TypeAlias = Annotated[PermissionModeName | None, option("Permission mode: what is done without asking.")]
PolicyOption: TypeAlias = Annotated[
    Path | None, option("Policy file to use instead of the configured one.", metavar="FILE")
]
WorkspaceOption: TypeAlias = Annotated[Path | None, option("Directory to work in. Default: this one.", metavar="DIR")]
ScriptOption: TypeAlias = Annotated[
    Path | None, option("File with scripted model responses, used instead of a model.", metavar="FILE")
]
McpOption: TypeAlias = Annotated[
    Path | None, option("File with MCP servers whose tools the agent gets, too.", "--mcp", metavar="FILE")
]
LOG_VARIABLE = "INTERLOCK_LOG"
#: A log in Postgres: `postgres:`, or `postgres:SCHEMA`, in the database that the variable names.
DATABASE_PREFIX, DATABASE_VARIABLE = "postgres:", "INTERLOCK_DATABASE_URL"
LogOption: TypeAlias = Annotated[
    Path | None,
    option("Log with the runs. Default: runs.db in the state directory.", "--log", metavar="FILE", envvar=LOG_VARIABLE),
]
HeadlessOption: TypeAlias = Annotated[
    bool,
    typer.Option("--headless", help="Ask no questions here: a question pauses the run until it is answered elsewhere."),
]


def collect_options(**options: object) -> dict[str, str]:
    """Return the given options as written, paths from the root on."""
    given = {name: value for name, value in options.items() if value is not None}
    return {name: str(value.absolute() if isinstance(value, Path) else value) for name, value in given.items()}
