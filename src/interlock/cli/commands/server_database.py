"""Shared by the commands for accounts and keys: the server's database, and messages for what it refuses."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

from ... import lazy_module
from ...rendering.times import format_rfc3339, format_utc
from ...server.core.database.interface import Database
from ...server.core.database.sqlite import SqliteDatabase
from ...server.core.identity.principal import IdentityProblem, Role
from ..config.logs import find_database, is_in_database
from ..config.server_files import prepare_server_files
from ..config.user_paths import login_name
from ..display.output import echo
from ..exit_codes import ExitCode

if TYPE_CHECKING:
    from ...server.core.database import postgres as postgres_database
else:
    postgres_database = lazy_module("...server.core.database.postgres", __package__)

_T = TypeVar("_T")


def run_with_database(log: Path | None, work: Callable[[Database], Awaitable[_T | IdentityProblem]]) -> _T:
    """Run work on the server's database. A running server sees the change with its next request. A refusal is printed,
    and ends the command.
    """

    async def opened() -> _T | IdentityProblem:
        with closing(_open(log)) as database:
            return await work(database)

    answer = asyncio.run(opened())
    if not isinstance(answer, IdentityProblem):
        return answer
    echo(f"interlock: {answer.field}: {answer.problem}. Nothing was changed.", error=True)
    raise typer.Exit(ExitCode.FAILED if answer.kind == "conflict" else ExitCode.USAGE)


def _open(log: Path | None) -> Database:
    if log is not None and is_in_database(log):
        return postgres_database.PostgresDatabase(*find_database(log))
    return SqliteDatabase(prepare_server_files(log).state / "server.db")


def get_actor() -> str:
    """Return the name of the user in the audit log."""
    return f"command:{login_name()}"


def parse_agents(text: str) -> frozenset[str] | None:
    """Parse names separated by commas; None: all agents."""
    return None if text.strip() == "*" else frozenset(name.strip() for name in text.split(",") if name.strip())


def format_names(names: Collection[str | Role] | None) -> str:
    """Return names for a table. None is all of them."""
    return "all" if names is None else ", ".join(sorted(map(str, names))) or "none"


def sort_names(names: Collection[str | Role] | None) -> list[str] | None:
    """Return names for JSON output. None is all of them."""
    return None if names is None else sorted(map(str, names))


def format_iso(at: int) -> str | None:
    """Return a time for programs. None is never."""
    return format_rfc3339(at, 0) if at else None


def format_minute(at: int) -> str:
    """Return a time for people, to the minute; empty for never."""
    return format_utc(at)[:16] if at else ""
