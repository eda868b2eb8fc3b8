"""`interlock keys`: keys with which programs talk to the server. A key is shown once, when it is made."""

from time import time_ns
from typing import Annotated, Any

import typer

from ...server.core.database import Database
from ...server.core.identity.api_keys import ApiKey, ApiKeys
from ...server.core.identity.principal import Role
from ...server.core.identity.trust import Refusal
from ..config.server_files import ServerLog
from ..config.server_people import agents_in, changed, in_line, iso, moment, sorted_names, whose, with_database
from ..display.output import say, say_json, say_table
from ..exit_codes import ExitCode, exits
from ..options import Json

_EXITS = exits(
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
    log: ServerLog = None,
    as_json: Json = False,
) -> None:
    """Make a key, and show it: nobody can find it out later."""
    owned = agents_in(agents)
    until = time_ns() + expires_days * _DAY_NS if expires_days else 0
    made = changed(
        with_database(
            log,
            lambda database: ApiKeys(database).create(name, roles=role, agents=owned, expires_at=until, by=whose()),
        )
    )
    if as_json:
        say_json(_told(made.key) | {"key": made.secret})
        return
    print(made.secret)
    say(f"It is shown only now. {made.key.principal.name}: {_trust(made.key)}", error=True)


@app.command("list", epilog=_EXITS)
def list_keys(log: ServerLog = None, as_json: Json = False) -> None:
    """List the keys, without what is secret about them."""
    found = with_database(log, lambda database: ApiKeys(database).list())
    now = time_ns()
    if as_json:
        say_json([_told(key) for key in found])
    elif not found:
        say("There is no key yet. `interlock keys add NAME --role agent --agents AGENT` makes one.")
    else:
        rows = [
            (key.key_id, key.name, in_line(key.roles), in_line(key.agents), moment(key.last_used_at), _state(key, now))
            for key in found
        ]
        say_table(("ID", "NAME", "ROLES", "AGENTS", "LAST USED", "STATE"), rows)


@app.command(epilog=_EXITS)
def revoke(
    key: Annotated[str, typer.Argument(metavar="ID", help="The id of a key, or the name of a living one.")],
    log: ServerLog = None,
) -> None:
    """End a key. A server that runs refuses it within seconds."""

    async def end(database: Database) -> ApiKey | Refusal:
        store, now = ApiKeys(database), time_ns()
        named = [each.key_id for each in await store.list() if each.name == key and each.is_living(now)]
        return await store.revoke(named[0] if named else key, by=whose())

    ended = changed(with_database(log, end))
    say(f"{ended.principal.name} ({ended.key_id}) is revoked.")


def _trust(key: ApiKey) -> str:
    until = f", until {moment(key.expires_at)} UTC" if key.expires_at else ""
    return f"roles {in_line(key.roles)}, for agents: {in_line(key.agents)}{until}"


def _state(key: ApiKey, now: int) -> str:
    if key.revoked_at:
        return f"revoked {moment(key.revoked_at)}"
    if key.expires_at:
        return f"until {moment(key.expires_at)}" if key.is_living(now) else "expired"
    return "living"


def _told(key: ApiKey) -> dict[str, Any]:
    times = {name: iso(getattr(key, name)) for name in ("created_at", "expires_at", "last_used_at", "revoked_at")}
    return {
        "key_id": key.key_id,
        "name": key.name,
        "roles": sorted_names(key.roles),
        "agents": sorted_names(key.agents),
        "created_by": key.created_by,
        **times,
    }
