"""`interlock keys`: keys with which programs talk to the server. A key is shown once, when it is made."""

from time import time_ns
from typing import Annotated, Any

import typer

from ...server.core.database import Database
from ...server.core.identity.api_keys import ApiKey, ApiKeys
from ...server.core.identity.principal import IdentityProblem, Role
from ..config.server_database import (
    exit_on_refusal,
    format_iso,
    format_minute,
    format_names,
    get_actor,
    parse_agents,
    run_with_database,
    sort_names,
)
from ..config.server_files import ServerLogOption
from ..display.output import echo, echo_json, echo_table
from ..exit_codes import ExitCode, format_exit_codes
from ..options import JsonOption

_EXITS = format_exit_codes(
    {
        ExitCode.OK: "done",
        ExitCode.FAILED: "not as things stand: a living key has the name",
        ExitCode.USAGE: "bad usage, or there is no such key",
    }
)
_DAY_NS = 86_400 * 1_000_000_000
_MAX_DAYS = 36_500

app = typer.Typer(
    add_completion=False, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False, epilog=_EXITS
)


@app.callback()
def keys() -> None:
    """Keys with which programs talk to a server."""


@app.command(epilog=_EXITS)
def add(  # noqa: PLR0913, PLR0917 - one for each option
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the log calls whoever uses it: key:NAME.")],
    role: Annotated[list[Role], typer.Option("--role", help="agent, or operator, auditor, admin. Repeatable.")],
    agents: Annotated[
        str,
        typer.Option(metavar="A,B", help="The agents that it is for; the role agent needs them. Default: * for all."),
    ] = "*",
    expires_days: Annotated[
        int, typer.Option("--expires-days", min=0, max=_MAX_DAYS, help="After so many days it ends. 0: never.")
    ] = 0,
    log: ServerLogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a key, and show it: nobody can find it out later."""
    owned = parse_agents(agents)
    until = time_ns() + expires_days * _DAY_NS if expires_days else 0
    created = exit_on_refusal(
        run_with_database(
            log,
            lambda database: ApiKeys(database).create(name, roles=role, agents=owned, expires_at=until, by=get_actor()),
        )
    )
    if as_json:
        echo_json(_key_to_json(created.key) | {"key": created.secret})
        return
    print(created.secret)
    echo(f"It is shown only now. {created.key.principal.name}: {_format_trust(created.key)}", error=True)


@app.command("list", epilog=_EXITS)
def list_keys(log: ServerLogOption = None, as_json: JsonOption = False) -> None:
    """List the keys, without what is secret about them."""
    found = run_with_database(log, lambda database: ApiKeys(database).list())
    now = time_ns()
    if as_json:
        echo_json([_key_to_json(key) for key in found])
    elif not found:
        echo("There is no key yet. `interlock keys add NAME --role agent --agents AGENT` makes one.")
    else:
        rows = [
            (
                key.key_id,
                key.name,
                format_names(key.roles),
                format_names(key.agents),
                format_minute(key.last_used_at),
                _key_state(key, now),
            )
            for key in found
        ]
        echo_table(("ID", "NAME", "ROLES", "AGENTS", "LAST USED", "STATE"), rows)


@app.command(epilog=_EXITS)
def revoke(
    key: Annotated[str, typer.Argument(metavar="ID", help="The id of a key, or the name of a living one.")],
    log: ServerLogOption = None,
) -> None:
    """End a key. A server that runs refuses it within seconds."""

    async def end(database: Database) -> ApiKey | IdentityProblem:
        store, now = ApiKeys(database), time_ns()
        named = [each.key_id for each in await store.list() if each.name == key and each.is_active(now)]
        return await store.revoke(named[0] if named else key, by=get_actor())

    ended = exit_on_refusal(run_with_database(log, end))
    echo(f"{ended.principal.name} ({ended.key_id}) is revoked.")


def _format_trust(key: ApiKey) -> str:
    until = f", until {format_minute(key.expires_at)} UTC" if key.expires_at else ""
    return f"roles {format_names(key.roles)}, for agents: {format_names(key.agents)}{until}"


def _key_state(key: ApiKey, now: int) -> str:
    if key.revoked_at:
        return f"revoked {format_minute(key.revoked_at)}"
    if key.expires_at:
        return f"until {format_minute(key.expires_at)}" if key.is_active(now) else "expired"
    return "living"


def _key_to_json(key: ApiKey) -> dict[str, Any]:
    times = {
        name: format_iso(getattr(key, name)) for name in ("created_at", "expires_at", "last_used_at", "revoked_at")
    }
    return {
        "key_id": key.key_id,
        "name": key.name,
        "roles": sort_names(key.roles),
        "agents": sort_names(key.agents),
        "created_by": key.created_by,
        **times,
    }
