"""State that servers share in Postgres: two connections to one schema are two servers."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from interlock.oauth.consents import OAuthConsents
from interlock.server.core.database.interface import Connection
from interlock.server.core.database.postgres import APPLICATION_NAME, LEADER_NAME, PostgresDatabase
from interlock.server.core.errors import StorageError
from interlock.server.core.identity.api_keys import ApiKeys, NewApiKey
from interlock.server.core.identity.login_throttle import LoginThrottle
from interlock.server.core.identity.principal import Role
from interlock.server.core.index.rows import RunQuery
from interlock.server.core.sealing import SealingKeys
from interlock.server.core.settings import ServerSettings
from interlock.server.core.token_table import TokenTable
from interlock.server.core.triggers.due_times import Schedule
from interlock.server.core.triggers.schedules import KEEP_SECONDS, DueRun, Schedules
from tests.logs import keep_in_postgres
from tests.oauth.scene import BINDING, READ, at_provider, gives
from tests.postgres.server import PostgresServer

from .people import HOUR, MINUTE, SECOND, FakeClock
from .serving import scripted, serving, status

HOURLY = Schedule(name="hourly", agent="plain", task="Look.", every_seconds=3_600)


@pytest.fixture
def databases(postgres: PostgresServer) -> Iterator[tuple[PostgresDatabase, PostgresDatabase]]:
    schema = postgres.empty_schema()
    with (
        closing(PostgresDatabase(postgres.server_url, schema)) as here,
        closing(PostgresDatabase(postgres.server_url, schema)) as there,
    ):
        yield here, there


Databases = tuple[PostgresDatabase, PostgresDatabase]


async def test_wrong_passwords_are_counted_once_for_all(databases: Databases) -> None:
    here, there = (LoginThrottle(each, lambda: 1_000.0) for each in databases)
    attempts = [each.start_attempt("ada", "192.0.2.1") for each in (here, there) * 4]
    waits = await asyncio.gather(*attempts)

    assert sorted(waits) == [0, 0, 0, 0, 0, 15, 15, 15]


async def test_a_revoked_key_ends_elsewhere_within_five_seconds(databases: Databases) -> None:
    clock = FakeClock()
    here, there = (ApiKeys(each, clock) for each in databases)
    made = await here.create("ci", roles=[Role.OPERATOR], by="test")
    assert isinstance(made, NewApiKey)
    assert await there.authenticate(made.secret)

    await here.revoke(made.key.key_id, by="test")
    assert await here.authenticate(made.secret) is None
    clock.at += 5 * SECOND + 1
    assert await there.authenticate(made.secret) is None


async def test_two_renewals_at_once_ask_the_provider_once(databases: Databases) -> None:
    here, there = databases
    async with at_provider(store=TokenTable(here)) as scene:
        await scene.consent()
        scene.answers(gives("access-2", refresh_token="refresh-2"))
        scene.clock.forward(3_600)
        provider = scene.consents._clients["mail"].provider  # pyright: ignore[reportPrivateUsage]
        other = OAuthConsents([provider], TokenTable(there), SealingKeys([b"k" * 32]), scene.clock)

        tokens = await asyncio.gather(*(each.token(BINDING, READ) for each in (scene.consents, other)))
        assert tokens == ["access-2", "access-2"]
        assert [form["grant_type"] for form in scene.endpoint.forms] == ["authorization_code", "refresh_token"]


async def test_a_server_without_a_schedule_keeps_its_mark(databases: Databases) -> None:
    clock, started = FakeClock(), list[str]()

    async def start(due: DueRun) -> None:
        started.append(due.run_id)

    with_it = Schedules(databases[0], [HOURLY], start, clock)
    without = Schedules(databases[1], [], start, clock)
    await with_it.open()
    clock.at += HOUR
    await without.open()
    await with_it.open()
    assert [due.run_id for due in await with_it.start_due_runs(clock.at)] == started
    assert len(started) == 1, "it was due meanwhile"

    for _ in range(2):  # after a day without the schedule, it was removed
        clock.at += KEEP_SECONDS * SECOND + MINUTE
        await without.open()
    await with_it.open()
    assert await with_it.start_due_runs(clock.at) == []


async def test_two_servers_start_a_scheduled_run_once(tmp_path: Path, postgres: PostgresServer) -> None:
    """Also while both believe that they lead."""
    keep_in_postgres(tmp_path, postgres, postgres.server_url)
    clock, settings = FakeClock(), ServerSettings(schedules=(HOURLY,))
    agent = scripted("plain", "Hello.")

    def next_run() -> str:
        clock.at += HOUR - clock.at % HOUR
        return f"sched-hourly-{clock.at // SECOND}"

    async with (
        serving(tmp_path, agent, settings=settings, now=clock) as here,
        serving(tmp_path, agent, settings=settings, now=clock, state="other") as there,
    ):
        run_ids = [next_run()]
        await status(there, run_ids[0], "COMPLETED")

        postgres.end_sessions(LEADER_NAME)
        await there.leadership.check()
        assert there.leadership.is_leading
        run_ids.append(next_run())
        await asyncio.gather(*(each.schedules.start_due_runs(clock.at) for each in (here, there)))
        await status(here, run_ids[1], "COMPLETED")
        rows = (await there.index.list_runs(RunQuery())).rows
        assert sorted(row.run_id for row in rows) == run_ids


def _lose_before_statement(postgres: PostgresServer) -> Callable[[Connection], None]:
    def change(connection: Connection) -> None:
        postgres.end_sessions(APPLICATION_NAME)
        _add(connection)

    return change


def _lose_before_commit(postgres: PostgresServer) -> Callable[[Connection], None]:
    def change(connection: Connection) -> None:
        _add(connection)
        postgres.end_sessions(APPLICATION_NAME)

    return change


def _add(connection: Connection) -> None:
    connection.execute("INSERT INTO served_agents (name) VALUES (?)", ("one",))


LOSSES = [(_lose_before_statement, "no", "Nothing was changed"), (_lose_before_commit, "unknown", "It is not known")]


async def test_a_lost_connection_says_what_became_of_the_change(databases: Databases, postgres: PostgresServer) -> None:
    here, there = databases
    for lose, changed, message in LOSSES:
        with pytest.raises(StorageError, match=message) as lost:
            await here.run(lose(postgres))
        assert lost.value.details == {"changed": changed}
        assert await here.check() == "", "it is connected again"
    await here.run(_add)
    assert await there.read(lambda connection: connection.execute("SELECT name FROM served_agents").fetchall()) == [
        ("one",)
    ]


async def test_a_restart_of_the_database_is_survived(databases: Databases, postgres: PostgresServer) -> None:
    here, there = databases
    await here.run(_add)
    lock = here.create_leader_lock()
    assert lock.hold()

    postgres.stop()
    with pytest.raises(StorageError, match=r"cannot be used right now.*Nothing was changed"):
        await here.run(_add)
    assert await there.check()
    assert not lock.hold()
    postgres.start()
    assert await here.check() == await there.check() == ""
    assert await there.read(lambda connection: connection.execute("SELECT count(*) FROM served_agents").fetchone()) == (
        1,
    )
    assert lock.hold()
    lock.release()
