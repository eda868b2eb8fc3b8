"""`interlock accounts`: who may sign in to the server, and what they may do there.

The commands open the server's own database, also while it runs. A password is asked for at a terminal or read from
standard input; it is never an argument, which other users of the machine could see.
"""

import getpass
import sys
from typing import Annotated, TypeAlias

import typer

from ...domain.errors import ConfigurationError
from ...server.core.database.interface import Database
from ...server.core.identity.accounts import Account, Accounts
from ...server.core.identity.principal import IdentityProblem, Role
from ..config.server_files import ServerLogOption
from ..display.output import echo, echo_list
from ..exit_codes import format_exit_codes
from ..options import JsonOption, create_app
from .server_database import format_iso, format_names, get_actor, parse_agents, run_with_database, sort_names

_EXITS = format_exit_codes(
    ok="done",
    failed="conflict: the name is taken, or no admin would be left",
    usage="bad usage, or the account does not exist",
)
_MAX_PASSWORD_CHARS = 4_096

AccountArgument: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="Name of the account.")]
RolesOption: TypeAlias = Annotated[
    list[Role] | None,
    typer.Option("--role", help="Role: operator, auditor or admin. Repeatable. Default: none, only their own runs."),
]
PasswordStdinOption: TypeAlias = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from standard input, also at a terminal.")
]

app = create_app(_EXITS, is_group=True)


@app.callback()
def accounts() -> None:
    """Manage the accounts of a server and their roles."""


@app.command(epilog=_EXITS)
def add(
    name: AccountArgument,
    role: RolesOption = None,
    agents: Annotated[
        str, typer.Option(metavar="A,B", help="Agents whose runs the roles apply to. Default: *, all agents.")
    ] = "*",
    password_stdin: PasswordStdinOption = False,
    log: ServerLogOption = None,
) -> None:
    """Create an account. Prompts for the password, or reads it from standard input."""
    password = _read_password(password_stdin)
    given, owned, by = role or [], parse_agents(agents), get_actor()
    created = run_with_database(log, lambda db: Accounts(db).create(name, password, roles=given, agents=owned, by=by))
    echo(f"{created.name} may sign in: {_format_trust(created)}")


@app.command("list", epilog=_EXITS)
def list_accounts(log: ServerLogOption = None, as_json: JsonOption = False) -> None:
    """List the accounts with their roles."""
    found = run_with_database(log, lambda database: Accounts(database).list())
    echo_list(
        as_json,
        [_account_to_json(account) for account in found],
        ("NAME", "ROLES", "AGENTS", "STATE"),
        [(each.name, format_names(each.roles), format_names(each.agents), _account_state(each)) for each in found],
        empty="No accounts yet. `interlock accounts add NAME --role admin` creates one.",
    )


@app.command(epilog=_EXITS)
def roles(
    name: AccountArgument,
    role: RolesOption = None,
    agents: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Agents whose runs the roles apply to; * for all. Default: unchanged."),
    ] = None,
    log: ServerLogOption = None,
) -> None:
    """Set the roles of an account. Without --role it has access to its own runs only."""

    async def change(database: Database) -> Account | IdentityProblem:
        store = Accounts(database)
        known = await store.get(name)
        if known is None:
            return IdentityProblem("name", f"there is no account {name!r}", "unknown")
        owned = known.agents if agents is None else parse_agents(agents)
        return await store.set_roles(name, role or [], owned, by=get_actor())

    echo(f"{name}: {_format_trust(run_with_database(log, change))}")


@app.command(epilog=_EXITS)
def password(name: AccountArgument, password_stdin: PasswordStdinOption = False, log: ServerLogOption = None) -> None:
    """Set a new password and end all sessions of the account."""
    text = _read_password(password_stdin)
    run_with_database(log, lambda database: Accounts(database).set_password(name, text, by=get_actor()))
    echo(f"{name} has a new password, and has to sign in again.")


@app.command(epilog=_EXITS)
def disable(name: AccountArgument, log: ServerLogOption = None) -> None:
    """Disable an account and end all of its sessions."""
    run_with_database(log, lambda database: Accounts(database).disable(name, by=get_actor()))
    echo(f"{name} is disabled.")


@app.command(epilog=_EXITS)
def enable(name: AccountArgument, log: ServerLogOption = None) -> None:
    """Enable a disabled account."""
    run_with_database(log, lambda database: Accounts(database).enable(name, by=get_actor()))
    echo(f"{name} may sign in again.")


def _read_password(from_stdin: bool) -> str:
    if from_stdin or not is_terminal():
        text = sys.stdin.readline(_MAX_PASSWORD_CHARS).rstrip("\r\n")
        if not text:
            raise ConfigurationError("No password on standard input. Nothing was changed.")
        return text
    text = getpass.getpass("Password: ")
    if getpass.getpass("Repeat the password: ") != text:
        raise ConfigurationError("The passwords do not match. Nothing was changed.")
    return text


def is_terminal() -> bool:
    """Return True if standard input is a terminal."""
    return sys.stdin.isatty()


def _format_trust(account: Account) -> str:
    return f"roles {format_names(account.roles)}, for agents: {format_names(account.agents)}"


def _account_state(account: Account) -> str:
    return "disabled" if account.disabled else f"from {account.issuer}" if account.issuer else "enabled"


def _account_to_json(account: Account) -> dict[str, object]:
    return {
        "name": account.name,
        "roles": sort_names(account.roles),
        "agents": sort_names(account.agents),
        "disabled": account.disabled,
        "issuer": account.issuer or None,
        "created_at": format_iso(account.created_at),
    }
