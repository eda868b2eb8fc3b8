"""`interlock database`: the schema of a log in Postgres."""

from typing import Annotated, TypeAlias

import msgspec

from ...storage.postgres.index_tables import reindex
from ...storage.postgres.migrate import SchemaStatus, grant, migrate, read_status
from ..display.output import echo_result
from ..exit_codes import format_exit_codes
from ..options import DATABASE_VARIABLE, JsonOption, argument, create_app, option

_EXITS = format_exit_codes(ok="done", usage="bad usage, or a database that cannot be used")

app = create_app(_EXITS, is_group=True)

UrlOption: TypeAlias = Annotated[
    str,
    option(
        "Database, such as postgresql://user@host/name. A password belongs into the variable or ~/.pgpass.",
        "--url",
        metavar="URL",
        envvar=DATABASE_VARIABLE,
    ),
]
SchemaOption: TypeAlias = Annotated[
    str, option("Schema of the tables. Default: interlock.", "--database-schema", metavar="NAME")
]


@app.callback()
def database() -> None:
    """Create the schema of a log in Postgres, bring it up to date, and let roles use it.

    Programs that use the log refuse a schema of another version, and need no right to change it.
    """


@app.command("migrate", epilog=_EXITS)
def migrate_database(url: UrlOption, schema: SchemaOption = "interlock", as_json: JsonOption = False) -> None:
    """Create the schema, or bring it up to date. Run it once before a new version starts."""
    applied = migrate(url, schema)
    indexed = reindex(url, schema)
    found = read_status(url, schema)
    lines = [f"  applied {step}" for step in applied] + _describe_indexed(indexed)
    result = {"applied": applied, "indexed_runs": indexed, **msgspec.to_builtins(found)}
    echo_result(as_json, result, _describe(found), *(lines or ["  nothing to do"]))


@app.command("reindex", epilog=_EXITS)
def reindex_database(url: UrlOption, schema: SchemaOption = "interlock", as_json: JsonOption = False) -> None:
    """Bring up to date what lists show of runs that an older version has written.

    `migrate` and a server that starts do it, too. Runs can be used meanwhile.
    """
    indexed = reindex(url, schema)
    lines = _describe_indexed(indexed) or ["  nothing to do"]
    echo_result(as_json, {"indexed_runs": indexed}, _describe(read_status(url, schema)), *lines)


@app.command("grant", epilog=_EXITS)
def grant_rights(
    role: Annotated[str, argument("ROLE", "Role that a process uses the log with.")],
    url: UrlOption,
    schema: SchemaOption = "interlock",
    is_server: Annotated[
        bool, option("Also grant what `interlock serve` needs: accounts, keys, sessions.", "--serve")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Let a role use the log: it can add events, and cannot change or delete them.

    Without --serve the role is for workers, which see no accounts, keys or sessions. Run it again after each
    migration.
    """
    grant(url, role, schema, is_server=is_server)
    extent = "the log and the tables of a server" if is_server else "the log"
    result = {"role": role, "schema": schema, "server": is_server}
    echo_result(as_json, result, f"{role} can use {extent} in the schema {schema}")


@app.command(epilog=_EXITS)
def status(url: UrlOption, schema: SchemaOption = "interlock", as_json: JsonOption = False) -> None:
    """Show which schema a database has, and which one this version uses."""
    found = read_status(url, schema)
    hint = "  `interlock database migrate` brings it up to date." if found.version < found.needed_version else ""
    echo_result(as_json, msgspec.to_builtins(found), _describe(found), *([hint] if hint else []))


def _describe_indexed(count: int) -> list[str]:
    return [f"  indexed {count} {'run' if count == 1 else 'runs'}"] if count else []


def _describe(found: SchemaStatus) -> str:
    version = f"version {found.version}" if found.version else "no log"
    return f"{found.database}: {version}; this Interlock uses version {found.needed_version}"
