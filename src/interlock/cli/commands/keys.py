"""`interlock keys`: keys with which programs talk to the server. A key is shown once, when it is made."""

from time import time_ns
from typing import Annotated, Any

import typer

from ...server.core.database.interface import Database
from ...server.core.identity.api_keys import ApiKey, ApiKeys
from ...server.core.identity.principal import IdentityProblem, Role
from ..config.server_files import ServerLogOption
from ..display.output import echo, echo_json, echo_list
from ..exit_codes import format_exit_codes
from ..options import JsonOption, create_app
from .server_database import (
    format_iso,
    format_minute,
    format_names,
    get_actor,
    parse_agents,
    run_with_database,
    sort_names,
)

_EXITS = format_exit_codes(
    ok="done",
    failed="conflict: an active key has the name",
    usage="bad usage, or the key does not exist",
)
_DAY_NS = 86_400 * 1_000_000_000
_MAX_DAYS = 36_500

app = create_app(_EXITS, is_group=True)


@app.callback()
def keys() -> None:
    """Manage API keys for programs that call a server."""


@app.command(epilog=_EXITS)
def add(  # noqa: PLR0913, PLR0917 - one for each option
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the key. Its user appears in the log as key:NAME.")
    ],
    role: Annotated[list[Role], typer.Option("--role", help="Role: agent, operator, auditor or admin. Repeatable.")],
    agents: Annotated[
        str,
        typer.Option(
            metavar="A,B", help="Agents that the key is for; required for the role agent. Default: *, all agents."
        ),
    ] = "*",
    expires_days: Annotated[
        int, typer.Option("--expires-days", min=0, max=_MAX_DAYS, help="Days until the key expires; 0: never.")
    ] = 0,
    log: ServerLogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a key and print it. It cannot be shown again."""
    owned, until = parse_agents(agents), time_ns() + expires_days * _DAY_NS if expires_days else 0
    created = run_with_database(
        log, lambda db: ApiKeys(db).create(name, roles=role, agents=owned, expires_at=until, by=get_actor())
    )
    if as_json:
        echo_json(_key_to_json(created.key) | {"key": created.secret})
        return
    print(created.secret)
    key = created.key
    ends = f", until {format_minute(key.expires_at)} UTC" if key.expires_at else ""
    trust = f"roles {format_names(key.roles)}, for agents: {format_names(key.agents)}{ends}"
    echo(f"The key is shown only once. {key.principal.name}: {trust}", error=True)


@app.command("list", epilog=_EXITS)
def list_keys(log: ServerLogOption = None, as_json: JsonOption = False) -> None:
    """List the keys, without their secrets."""
    found, now = run_with_database(log, lambda database: ApiKeys(database).list()), time_ns()

    def format_row(key: ApiKey) -> tuple[str, ...]:
        names = format_names(key.roles), format_names(key.agents)
        return key.key_id, key.name, *names, format_minute(key.last_used_at), _key_state(key, now)

    echo_list(
        as_json,
        [_key_to_json(key) for key in found],
        ("ID", "NAME", "ROLES", "AGENTS", "LAST USED", "STATE"),
        [format_row(key) for key in found],
        empty="No keys yet. `interlock keys add NAME --role agent --agents AGENT` creates one.",
    )


@app.command(epilog=_EXITS)
def revoke(
    key: Annotated[str, typer.Argument(metavar="ID", help="Id of a key, or name of an active one.")],
    log: ServerLogOption = None,
) -> None:
    """Revoke a key. A running server refuses it within seconds."""

    async def end(database: Database) -> ApiKey | IdentityProblem:
        store, now = ApiKeys(database), time_ns()
        named = [each.key_id for each in await store.list() if each.name == key and each.is_active(now)]
        return await store.revoke(named[0] if named else key, by=get_actor())

    ended = run_with_database(log, end)
    echo(f"{ended.principal.name} ({ended.key_id}) is revoked.")


def _key_state(key: ApiKey, now: int) -> str:
    if key.revoked_at:
        return f"revoked {format_minute(key.revoked_at)}"
    if key.expires_at:
        return f"until {format_minute(key.expires_at)}" if key.is_active(now) else "expired"
    return "active"


def _key_to_json(key: ApiKey) -> dict[str, Any]:
    return {
        "key_id": key.key_id,
        "name": key.name,
        "roles": sort_names(key.roles),
        "agents": sort_names(key.agents),
        "created_by": key.created_by,
        **{name: format_iso(getattr(key, name)) for name in ("created_at", "expires_at", "last_used_at", "revoked_at")},
    }
