"""`interlock accounts`: who may sign in to the server, and what they may do there.

The commands open the server's own database, also while it runs. A password is asked for at a terminal or read from
standard input; it is never an argument, which other users of the machine could see.
"""

import getpass
import sys
from typing import Annotated, TypeAlias

import typer

from ...domain.errors import ConfigurationError
from ...server.core.database import Database
from ...server.core.identity.accounts import Account, Accounts
from ...server.core.identity.principal import Role
from ...server.core.identity.trust import Refusal
from ..config.server_files import ServerLog
from ..config.server_people import agents_in, changed, in_line, iso, sorted_names, whose, with_database
from ..display.output import say, say_json, say_table
from ..exit_codes import ExitCode, exits
from ..options import Json

_EXITS = exits(
    {
        ExitCode.OK: "done",
        ExitCode.FAILED: "not as things stand: the name is taken, or no admin would be left",
        ExitCode.USAGE: "bad usage, or there is no such account",
    }
)
_MAX_PASSWORD_CHARS = 4_096

Name: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="The account.")]
Roles: TypeAlias = Annotated[
    list[Role] | None, typer.Option("--role", help="operator, auditor or admin. Repeatable. None: only their own runs.")
]
FromStdin: TypeAlias = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from standard input, also at a terminal.")
]

app = typer.Typer(
    add_completion=False, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False, epilog=_EXITS
)


@app.callback()
def accounts() -> None:
    """Who may sign in to a server, and what they may do."""


@app.command(epilog=_EXITS)
def add(
    name: Name,
    role: Roles = None,
    agents: Annotated[
        str, typer.Option(metavar="A,B", help="The agents for whose runs the roles count. Default: * for all.")
    ] = "*",
    password_stdin: FromStdin = False,
    log: ServerLog = None,
) -> None:
    """Make an account. The password is asked for, or read from standard input."""
    password = _password(password_stdin)
    roles, owned = role or [], agents_in(agents)
    made = changed(
        with_database(
            log, lambda database: Accounts(database).create(name, password, roles=roles, agents=owned, by=whose())
        )
    )
    say(f"{made.name} may sign in: {_trust(made)}")


@app.command("list", epilog=_EXITS)
def list_accounts(log: ServerLog = None, as_json: Json = False) -> None:
    """List the accounts, and what each may do."""
    found = with_database(log, lambda database: Accounts(database).list())
    if as_json:
        say_json([_told(account) for account in found])
    elif not found:
        say("There is no account yet. `interlock accounts add NAME --role admin` makes one.")
    else:
        rows = [(each.name, in_line(each.roles), in_line(each.agents), _state(each)) for each in found]
        say_table(("NAME", "ROLES", "AGENTS", "STATE"), rows)


@app.command(epilog=_EXITS)
def roles(
    name: Name,
    role: Roles = None,
    agents: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="The agents for whose runs they count; * for all. Default: as now."),
    ] = None,
    log: ServerLog = None,
) -> None:
    """Say what somebody may do from now on. Without --role: nothing beyond their own runs."""

    async def change(database: Database) -> Account | Refusal:
        store = Accounts(database)
        known = await store.get(name)
        if known is None:
            return Refusal("name", f"there is no account {name!r}", "unknown")
        owned = known.agents if agents is None else agents_in(agents)
        return await store.set_roles(name, role or [], owned, by=whose())

    say(f"{name}: {_trust(changed(with_database(log, change)))}")


@app.command(epilog=_EXITS)
def password(name: Name, password_stdin: FromStdin = False, log: ServerLog = None) -> None:
    """Set a new password. All of their sign-ins end."""
    text = _password(password_stdin)
    changed(with_database(log, lambda database: Accounts(database).set_password(name, text, by=whose())))
    say(f"{name} has a new password, and has to sign in again.")


@app.command(epilog=_EXITS)
def disable(name: Name, log: ServerLog = None) -> None:
    """Nobody signs in with it any more. All of their sign-ins end."""
    changed(with_database(log, lambda database: Accounts(database).disable(name, by=whose())))
    say(f"{name} is disabled.")


@app.command(epilog=_EXITS)
def enable(name: Name, log: ServerLog = None) -> None:
    """Let somebody sign in again."""
    changed(with_database(log, lambda database: Accounts(database).enable(name, by=whose())))
    say(f"{name} may sign in again.")


def _password(from_stdin: bool) -> str:
    if from_stdin or not is_terminal():
        text = sys.stdin.readline(_MAX_PASSWORD_CHARS).rstrip("\r\n")
        if not text:
            raise ConfigurationError("There is no password on standard input. Nothing was changed.")
        return text
    text = getpass.getpass("Password: ")
    if getpass.getpass("Once more: ") != text:
        raise ConfigurationError("These are two different passwords. Nothing was changed.")
    return text


def is_terminal() -> bool:
    return sys.stdin.isatty()


def _trust(account: Account) -> str:
    return f"roles {in_line(account.roles)}, for agents: {in_line(account.agents)}"


def _state(account: Account) -> str:
    if account.disabled:
        return "disabled"
    return f"from {account.issuer}" if account.issuer else "enabled"


def _told(account: Account) -> dict[str, object]:
    return {
        "name": account.name,
        "roles": sorted_names(account.roles),
        "agents": sorted_names(account.agents),
        "disabled": account.disabled,
        "issuer": account.issuer or None,
        "created_at": iso(account.created_at),
    }
