"""A server archives and erases runs at their ages, with all that it knows of them, and names what stays."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from time import time_ns
from typing import Any

import pytest

from interlock import Answer, Attachment, Inbox, MemoryArtifacts, Runner
from interlock.audit.archive import ArchivableLog
from interlock.domain.errors import ArtifactError, ConfigurationError
from interlock.domain.ids import child_run_id
from interlock.server.core.audit.audit_log import AuditLog
from interlock.server.core.audit.checkpoints import Checkpoints
from interlock.server.core.audit.signing import Signer
from interlock.server.core.database.interface import Database
from interlock.server.core.index.rows import RunQuery
from interlock.server.core.index.run_index import RunIndex
from interlock.server.core.retention import ACTOR, Retention, RetentionStorage
from interlock.server.core.settings import RetentionTable, ServerSettings
from interlock.storage.artifacts import ArtifactStore, compute_artifact_id
from interlock.storage.postgres.log import PostgresLog
from interlock.testing.log_entries import append_entries, make_entries
from tests.logs import keep_in_postgres, open_database, open_log
from tests.patience import eventually
from tests.postgres.server import PostgresServer
from tests.runs.support import agent_of

from .serving import World, approve, asked, create, scripted, serving, status

DAY = 86_400 * 10**9
ATTACHMENT = Attachment(b"%PDF-1.4 of an old run")
#: Statements that tell a server's own tables of a run.
MENTIONS = (
    "INSERT INTO forward_set_aside VALUES ('siem', 1, 'run_1', 0, 'refused', 1)",
    "INSERT INTO damaged_runs (run_id, problem, found_at) VALUES ('run_1', 'a hash is wrong', 1)",
    "INSERT INTO notice_deliveries (key, channel, account, recipient, kind, run_id, action_id, seq, state, due_at,"
    " created_at, changed_at) VALUES ('k', 'slack', 'ann', 'ann', 'question', 'run_1', 'a', 1, 'sent', 1, 1, 1)",
    "INSERT INTO question_comments (action_id, run_id, author, text, created_at) VALUES ('a', 'run_1', 'ann', 't', 1)",
    "INSERT INTO question_assignments VALUES ('a', 'run_1', 'user:ann', 'user:bob', 1, 1)",
)
TABLES = ("forward_set_aside", "damaged_runs", "notice_deliveries", "question_comments", "question_assignments")


class Office:
    """A log, a server's database and a clock that is days ahead."""

    def __init__(self, log: ArchivableLog, database: Database, folder: Path) -> None:
        self.log, self.database, self.folder, self.archive = log, database, folder, folder / "archive"
        self.audit_log = AuditLog(database)
        self.artifacts: ArtifactStore = MemoryArtifacts()
        self.days = 0

    def now(self) -> int:
        return time_ns() + self.days * DAY

    async def write(self, *run_ids: str, task: Any = "The secret is mauve.") -> None:
        """Write finished runs."""
        async with Runner(agent_of(*["Done."] * len(run_ids)), log=self.log, artifacts=self.artifacts) as runner:
            for run_id in run_ids:
                await (await runner.start(task, run_id=run_id)).result()

    def retain(self, archive: str = "", erase: str = "") -> Retention:
        table = RetentionTable(archive_after=archive, erase_after=erase, folder=str(self.archive) if archive else "")
        storage = RetentionStorage(self.log, self.artifacts)
        return Retention(table, storage, database=self.database, audit_log=self.audit_log, now=self.now)

    async def apply(self, retention: Retention, days: int) -> None:
        """Let days pass, and retention look at all runs."""
        self.days += days
        while await retention.step() < 60:
            pass

    def list_archives(self) -> list[str]:
        return sorted(file.name for file in self.archive.glob("*"))

    async def list_runs(self) -> list[str]:
        """Return what a server that starts now lists."""
        index = RunIndex(self.folder / "index.db", self.log)
        try:
            await index.catch_up()
            return [row.run_id for row in (await index.list_runs(RunQuery())).rows]
        finally:
            await index.close()

    async def list_actions(self) -> list[tuple[str, str, str]]:
        return [(each.by, each.action, each.target) for each in await self.audit_log.read()]

    async def list_erased(self) -> list[str]:
        return [record.run_id for _, record in await self.log.erased_runs()]


@pytest.fixture(params=["sqlite", "postgres"])
async def office(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Office]:
    if request.param == "postgres":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        keep_in_postgres(tmp_path, postgres, postgres.url)
    with closing(open_database(tmp_path / "server.db")) as database:
        async with open_log(tmp_path / "runs.db") as log:
            yield Office(log, database, tmp_path)


async def test_runs_are_archived_and_erased_at_their_ages(office: Office) -> None:
    await office.write("run_1", "run_2")
    checkpoints = Checkpoints(office.database, office.log, Signer(office.folder / "signing.key"))
    await checkpoints.take()
    assert await office.list_runs() == ["run_2", "run_1"]
    retention = office.retain("30d", "90d")

    await office.apply(retention, 29)
    assert await office.log.removed_runs() == []
    await office.apply(retention, 2)
    assert (office.list_archives(), await office.list_runs()) == (["run_1.ndjson"], ["run_2", "run_1"])
    await office.apply(retention, 58)
    assert await office.list_erased() == []
    await office.apply(retention, 2)
    assert (office.list_archives(), await office.list_runs()) == ([], ["run_2"])
    assert await office.list_actions() == [(ACTOR, "run.archived", "run_1"), (ACTOR, "run.erased", "run_1")]
    assert (await checkpoints.verify()).ok
    assert retention.problem == ""


async def test_runs_are_erased_without_an_archive(office: Office) -> None:
    await office.write("run_1", "run_2", "last")
    retention = office.retain(erase="30d")
    await office.apply(retention, 31)

    assert await office.list_erased() == ["run_1", "run_2"]
    assert (await office.list_runs(), office.list_archives()) == (["last"], [])
    await office.apply(retention, 1)
    assert await office.list_actions() == [(ACTOR, "run.erased", "run_1")]


@pytest.mark.parametrize("ages", [("1d", "2d"), ("", "1d")])
async def test_child_runs_go_with_their_parent(office: Office, ages: tuple[str, str]) -> None:
    """However long ago they ended."""
    world, family, retention = World(), ["boss", child_run_id("boss", "out")], office.retain(*ages)
    async with Runner(world.boss(), log=office.log, artifacts=office.artifacts) as runner:
        (question,) = (await (await runner.start("Go.", run_id="boss")).result()).questions
        await office.apply(retention, 9)
        assert await office.log.removed_runs() == []
        inbox = Inbox(office.log, office.artifacts)
        assert await inbox.deliver(question.run_id, question.action_id, Answer(approved=True)) == "recorded"
        await inbox.close()
    async with Runner(world.boss(), log=office.log, artifacts=office.artifacts) as runner:
        (handle,) = await runner.recover()
        await handle.result()
    await office.write("last")

    await office.apply(retention, 1)
    await office.apply(retention, 1)
    assert (await office.list_erased(), office.list_archives(), retention.problem) == (family, [], "")


async def test_a_killed_server_leaves_nothing_behind(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one that begins anywhere in between archives and erases each run once."""

    class KilledError(BaseException):
        """In place of a kill."""

    await office.write(*(f"run_{number}" for number in range(8)), task=["Look.", ATTACHMENT])
    await office.write("last")

    def arm(target: Any, name: str) -> Callable[..., Any]:
        called = getattr(target, name)

        def kill(*arguments: Any, **options: Any) -> Any:
            if calls.setdefault(name, 3):
                calls[name] -= 1
                return called(*arguments, **options)
            calls[name] = 1 << 30
            raise KilledError

        return kill

    calls: dict[str, int] = {}
    killed = 0
    for target, name in ((type(office.log), "remove_runs"), (type(office.log), "update_removed"), (Path, "unlink")):
        monkeypatch.setattr(target, name, arm(target, name))
    monkeypatch.setattr(MemoryArtifacts, "delete", arm(MemoryArtifacts, "delete"))
    calls["delete"] = 0
    for days in (2, 2, 2, 2, 2, 2, 2):
        try:
            await office.apply(office.retain("1d", "3d"), days)
        except KilledError:
            killed += 1

    assert killed == 4
    assert await office.list_erased() == [f"run_{number}" for number in range(8)]
    assert office.list_archives() == []
    with pytest.raises(ArtifactError):
        office.artifacts.read(compute_artifact_id(ATTACHMENT.content))


async def test_a_server_forgets_what_it_knows_of_erased_runs(office: Office) -> None:
    await office.write("run_1", "last")
    for statement in MENTIONS:
        await office.database.run(lambda connection, statement=statement: connection.execute(statement))

    await office.apply(office.retain(erase="1d"), 2)
    for table in TABLES:
        rows = await office.database.read(
            lambda connection, table=table: connection.execute(f"SELECT run_id FROM {table}").fetchall()  # noqa: S608
        )
        assert rows == []
    assert (await office.audit_log.verify()).problem == ""


async def test_artifacts_of_erased_runs_are_deleted(office: Office) -> None:
    await office.write("run_1", task=["Look.", ATTACHMENT])
    await office.write("last")
    artifact_id = compute_artifact_id(ATTACHMENT.content)
    retention = office.retain("1d", "3d")

    await office.apply(retention, 2)
    assert office.artifacts.read(artifact_id) == ATTACHMENT.content
    await office.apply(retention, 2)
    with pytest.raises(ArtifactError):
        office.artifacts.read(artifact_id)


async def test_runs_that_cannot_be_removed_are_named(office: Office) -> None:
    await office.write("run_1", "run_2")
    await append_entries(office.log, "open", make_entries("open", 1))
    lease = await office.log.acquire("run_1")
    retention = office.retain("1d", "9d")

    await office.apply(retention, 2)
    assert "run_1 is owned by running" in retention.problem
    assert office.list_archives() == ["run_2.ndjson"]
    await office.log.release(lease)
    await office.apply(retention, 1)
    assert (retention.problem, office.list_archives()) == ("", ["run_1.ndjson", "run_2.ndjson"])

    moved = office.archive.rename(office.folder / "away")
    await office.apply(retention, 9)
    assert retention.problem.startswith("2 runs stay. One of them: ")
    assert "run_1.ndjson, the archive of run_1, cannot be read" in retention.problem
    moved.rename(office.archive)
    await office.apply(retention, 1)
    assert (retention.problem, office.list_archives()) == ("", [])


async def test_one_unwritable_folder_stops_nothing(office: Office) -> None:
    await office.write("run_1", "last")
    office.archive.write_text("no folder")
    retention = office.retain("1d")

    await office.apply(retention, 2)
    assert "run_1.ndjson cannot be written" in retention.problem
    assert await office.log.removed_runs() == []


def damage(postgres: PostgresServer) -> None:
    postgres.execute(
        "UPDATE appends SET bodies = 'x' WHERE run = (SELECT number FROM runs WHERE run_id = 'run_1')",
        postgres.shared_schema,
    )


async def test_damaged_runs_stay_and_are_named(postgres: PostgresServer, tmp_path: Path) -> None:
    keep_in_postgres(tmp_path, postgres, postgres.url)
    with closing(open_database(tmp_path / "server.db")) as database:
        async with open_log(tmp_path / "runs.db") as log:
            office = Office(log, database, tmp_path)
            await office.write("run_1", "run_2", "last")
            damage(postgres)
            retention = office.retain(erase="1d")
            await office.apply(retention, 2)

            assert retention.problem == "run_1 is damaged, and stays."
            assert await office.list_erased() == ["run_2"]


async def test_a_running_server_removes_old_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With a log in a file it needs no more than its settings. A run that stays is in the health report."""
    monkeypatch.setattr("interlock.server.core.retention._PASS_SECONDS", 0.05)
    monkeypatch.setattr("interlock.server.core.service._HEALTH_SECONDS", 0.05)
    days = 0
    settings = ServerSettings(retention=RetentionTable(erase_after="30d"))
    caplog.set_level(logging.WARNING, "interlock.server")
    world = World()
    agents = (world.one(), scripted("plain", "Hello."))
    async with serving(tmp_path, *agents, settings=settings, now=lambda: time_ns() + days * DAY) as service:
        first, last = [await create(service, "plain") for _ in range(2)]
        for run_id in (first, last):
            await status(service, run_id, "COMPLETED")
        asking = await create(service, "one")
        (question,) = await asked(service, asking)
        lease = await service.log.acquire(last)
        days = 31

        await eventually(lambda: f"{last} is owned by running" in caplog.text)
        assert "Retention does not work" in caplog.text
        await service.log.release(lease)
        await eventually(lambda: "Retention works again" in caplog.text)
        await approve(service, question)
        await status(service, asking, "COMPLETED")
        rows = (await service.index.list_runs(RunQuery())).rows
    assert [row.run_id for row in rows] == [asking]


async def test_only_the_leader_removes_runs(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stepped: list[Retention] = []

    async def step(self: Retention) -> float:
        stepped.append(self)
        return 0.01

    monkeypatch.setattr(Retention, "step", step)
    keep_in_postgres(tmp_path, postgres, postgres.server_url)
    settings = ServerSettings(retention=RetentionTable(erase_after="30d"))
    async with PostgresLog(postgres.url, schema=postgres.shared_schema) as log:
        options: dict[str, Any] = {"settings": settings, "owner": RetentionStorage(log, MemoryArtifacts())}
        plain = scripted("plain", "Hello.")
        async with (
            serving(tmp_path, plain, state="here", **options) as here,
            serving(tmp_path, plain, state="there", **options) as there,
        ):
            await eventually(lambda: len(stepped) > 20)
            assert set(stepped) == {here.retention}
            postgres.end_sessions("interlock-leader")
            await there.leadership.check()
            await here.leadership.check()
            stepped.clear()
            await eventually(lambda: len(stepped) > 20)
            assert set(stepped) == {there.retention}


async def test_servers_without_the_right_to_delete_are_refused(postgres: PostgresServer, tmp_path: Path) -> None:
    keep_in_postgres(tmp_path, postgres, postgres.server_url)
    settings = ServerSettings(retention=RetentionTable(erase_after="30d"))

    with pytest.raises(ConfigurationError, match=r"\[retention\] needs a log that runs can be removed from"):
        async with serving(tmp_path, scripted("plain", "Hello."), settings=settings):
            pass


REFUSED_TABLES = {
    "erase_after has to be at least 1h": {"erase_after": "59m"},
    "archive_after has to be at least 1h": {"archive_after": "1m", "folder": "/a"},
    "erase_after has to be longer than archive_after": {"archive_after": "30d", "erase_after": "30d", "folder": "/a"},
    "archive_after needs folder, an absolute path": {"archive_after": "30d"},
    "folder needs it": {"erase_after": "30d", "folder": "/a"},
    "an absolute path": {"archive_after": "30d", "folder": "archive"},
    "erase_after: ": {"erase_after": "soon"},
}


@pytest.mark.parametrize("problem", REFUSED_TABLES)
def test_ages_that_cannot_be_meant_are_refused(problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        RetentionTable(**REFUSED_TABLES[problem])
