"""Erased runs are gone with what only they refer to, and a record says who did it and why."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock import Agent, Attachment, MemoryArtifacts, RulePolicy, Runner, SqliteLog
from interlock.audit.archive import ArchivableLog, ArchiveOptions, archive_family, archive_run, restore_run
from interlock.audit.checkpoint import ChainHead
from interlock.audit.erase import Erasure, ErasureOptions, erase_archived_run, erase_run, matches_record
from interlock.domain.errors import ArtifactError, ConfigurationError, LogError, LogFencedError
from interlock.domain.ids import child_run_id
from interlock.storage.artifacts import compute_artifact_id
from interlock.storage.postgres.log import PostgresLog
from interlock.storage.removal import RemovedRun, describe_removed
from interlock.testing.log_entries import append_entries, make_entries
from tests.postgres.server import PostgresServer
from tests.runs.support import agent_of, calls

OWN, SHARED = Attachment(b"%PDF-1.4 of one run"), Attachment(b"%PDF-1.4 of two runs")


OPTIONS = ErasureOptions(by="ann", reason="asked for", clock=lambda: 10**9)


async def erase(log: ArchivableLog, run_id: str, **options: Any) -> Erasure:
    return await erase_run(log, run_id, msgspec.structs.replace(OPTIONS, **options))


async def write_runs(log: ArchivableLog, artifacts: MemoryArtifacts | None = None, /, **tasks: Any) -> None:
    """Write finished runs, and one that has the newest event."""
    tasks |= {"last": "Go."}
    async with Runner(agent_of(*["Done."] * len(tasks)), log=log, artifacts=artifacts) as runner:
        for run_id, task in tasks.items():
            await (await runner.start(task, run_id=run_id)).result()


def list_archives(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.glob("*.ndjson"))


def make_boss() -> Agent:
    """Return an agent that asks another one."""
    turns = (calls(("out", "ask_helper", {"task": "Help."})), "Done.")
    helper = agent_of("Forty-two.", name="helper")
    return agent_of(*turns, tools=[helper.as_tool()], policy=RulePolicy([], default="allow"))


async def test_an_erased_run_leaves_its_record_alone(log: ArchivableLog) -> None:
    await write_runs(log, run_1="Go.", run_2="Go.")
    entries, kept = await log.read("run_1"), await log.read("run_2")

    (record,) = (await erase(log, "run_1")).runs
    assert describe_removed(record) == "run_1 was erased at 1970-01-01T00:00:01Z by ann: asked for"
    assert (record.event_count, record.head_hash) == (len(entries), entries[-1].hash.hex())
    assert await log.removed_runs() == [record]
    assert (await log.load("run_1")).entries == await log.read("run_1") == []
    assert await log.load_snapshot("run_1") is None
    assert await log.read("run_2") == kept
    assert {placed.entry.run_id for placed in await log.feed()} == {"run_2", "last"}
    with pytest.raises(LogFencedError):
        await append_entries(log, "run_1", entries[:1])
    with pytest.raises(LogError, match=r"was erased at .*Nothing was restored"):
        await log.restore_run("run_1", entries)


async def test_child_runs_are_erased_with_their_parent(log: ArchivableLog) -> None:
    lookalike = "boss.0123456789ab"
    async with Runner(make_boss(), log=log) as runner:
        await (await runner.start("Go.", run_id="boss")).result()
    await write_runs(log, **{lookalike: "Go."})

    erased = [run.run_id for run in (await erase(log, "boss")).runs]
    assert erased == ["boss", child_run_id("boss", "out")]
    assert await log.read(lookalike)


def write_file(path: Path) -> Path:
    path.write_bytes(b"")
    return path


async def test_artifacts_of_other_runs_stay(log: ArchivableLog, tmp_path: Path) -> None:
    artifacts = MemoryArtifacts()
    await write_runs(log, artifacts, run_1=["Look.", OWN, SHARED], run_2=["Look.", SHARED], run_3=["Look.", OWN])
    own, shared = (artifacts.keep(each.content) for each in (OWN, SHARED))
    await archive_run(log, "run_3", ArchiveOptions(folder=tmp_path, by="ann"))

    archive = tmp_path / "run_3.ndjson"
    os.rename(archive, tmp_path / "away")
    erasure = await erase(log, "run_1", artifacts=artifacts)
    assert "run_3.ndjson" in erasure.problem
    assert artifacts.read(own) == OWN.content

    os.rename(write_file(tmp_path / "empty"), archive)
    again = await erase(log, "run_1", artifacts=artifacts)
    assert (again.deleted_artifacts, again.shared_artifacts, again.runs) == (1, 2, erasure.runs)  # one is of all runs
    assert artifacts.read(shared) == SHARED.content
    with pytest.raises(ArtifactError):
        artifacts.read(own)


async def test_only_runs_that_are_over_are_erased(log: ArchivableLog) -> None:
    await append_entries(log, "open", make_entries("open", 1))
    await write_runs(log, run_1="Go.")
    lease = await log.acquire("run_1")

    for run_id, problem in {
        "open": "Only a run that is over",
        "run_1": "is owned by running",
        "last": "the newest event",
        "none": "has no events",
    }.items():
        with pytest.raises(LogError, match=problem):
            await erase(log, run_id)
    await log.release(lease)
    for reason in ("", "  ", "x" * 501, "two\nlines"):
        with pytest.raises(ConfigurationError, match="A reason has one line"):
            await erase_run(log, "run_1", ErasureOptions(by="ann", reason=reason))
    assert await log.read("run_1")


async def test_nothing_is_erased_when_a_child_run_is_in_use(log: ArchivableLog) -> None:
    async with Runner(make_boss(), log=log) as runner:
        await (await runner.start("Go.", run_id="boss")).result()
    await write_runs(log)
    await log.acquire(child_run_id("boss", "out"))

    with pytest.raises(LogError, match="Nothing was removed"):
        await erase(log, "boss")
    assert await log.read("boss")
    assert await log.removed_runs() == []


def read_files(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.glob("runs.db*"))


async def test_erased_events_are_overwritten_in_the_file(tmp_path: Path) -> None:
    """Also while another process has the file open, so that closing the log does not empty the journal."""
    path = tmp_path / "runs.db"
    async with SqliteLog(path) as log, SqliteLog(path) as other:
        await write_runs(log, run_1="Go.")
        assert await other.read("run_1")
        with closing(sqlite3.connect(path)) as connection:
            rows = connection.execute("SELECT bodies FROM appends JOIN runs ON number = run WHERE run_id = 'run_1'")
            stored = [body for (body,) in rows]
        assert all(body in read_files(tmp_path) for body in stored)
        await erase(log, "run_1")

        assert stored
        assert not any(body in read_files(tmp_path) for body in stored)


async def test_lists_in_postgres_forget_an_erased_run(postgres: PostgresServer) -> None:
    schema = postgres.empty_schema()
    async with PostgresLog(postgres.url, schema=schema) as log:
        await write_runs(log, run_1="The secret is mauve.", run_2="Go.")
        await erase(log, "run_1")

        rows = await log.index.fetch("SELECT run_id FROM listed_runs ORDER BY number", ())
        assert [row[0] for row in rows] == ["run_2", "last"]
        await log.index.reindex()
        assert len(await log.index.fetch("SELECT run_id FROM listed_runs", ())) == 2


async def test_workers_cannot_erase(postgres: PostgresServer) -> None:
    async with PostgresLog(postgres.worker_url, schema=postgres.empty_schema()) as log:
        await write_runs(log, run_1="Go.")

        with pytest.raises(LogError, match="Use the role that owns the tables"):
            await erase(log, "run_1")
        assert await log.read("run_1")


def test_a_record_is_compared_with_what_was_signed() -> None:
    record = RemovedRun(run_id="run_1", event_count=3, head_hash="ab", removed_at=1, removed_by="ann", is_erased=True)

    assert matches_record(record, ChainHead(3, "ab"))
    assert matches_record(record, ChainHead(2, "cd"))
    assert not matches_record(record, ChainHead(3, "cd"))
    assert not matches_record(record, ChainHead(4, "ab"))


async def test_an_archived_run_is_erased_with_its_file(log: ArchivableLog, tmp_path: Path) -> None:
    await write_runs(log, run_1="Go.", run_2="Go.", run_3="Go.")
    archive = ArchiveOptions(folder=tmp_path / "archive", by="ann")
    first, second = [await archive_run(log, run_id, archive) for run_id in ("run_1", "run_2")]
    assert [record for _, record in await log.archived_runs()] == [first, second]

    (erased,) = await erase_archived_run(log, second, OPTIONS)
    assert erased == msgspec.structs.replace(
        second, is_erased=True, removed_at=10**9, removed_by="ann", reason="asked for"
    )
    assert await log.find_removed_run("run_2") == erased
    assert list_archives(archive.folder) == ["run_1.ndjson"]
    for run_id in ("run_1", "run_3"):
        await erase(log, run_id)
    assert (await log.archived_runs(), list_archives(archive.folder)) == ([], [])
    assert [record.run_id for _, record in await log.erased_runs()] == ["run_2", "run_1", "run_3"]


async def test_archived_child_runs_are_erased_with_their_parent(log: ArchivableLog, tmp_path: Path) -> None:
    async with Runner(make_boss(), log=log) as runner:
        await (await runner.start("Go.", run_id="boss")).result()
    await write_runs(log)
    family, archive = ["boss", child_run_id("boss", "out")], ArchiveOptions(folder=tmp_path / "archive", by="ann")

    archived = await archive_family(log, "boss", archive)
    assert [(each.run_id, each.parent) for each in archived] == [(family[0], ""), (family[1], "boss")]
    assert await log.removed_runs() == archived
    await restore_run(log, Path(archived[0].file))
    assert [each.run_id for each in (await erase(log, "boss")).runs] == family
    assert list_archives(archive.folder) == ["boss.ndjson"]


async def test_no_run_of_a_family_is_archived_without_the_others(log: ArchivableLog, tmp_path: Path) -> None:
    async with Runner(make_boss(), log=log) as runner:
        await (await runner.start("Go.", run_id="boss")).result()
    await write_runs(log)
    lease = await log.acquire(child_run_id("boss", "out"))

    with pytest.raises(LogError, match="is owned by running"):
        await archive_family(log, "boss", ArchiveOptions(folder=tmp_path, by="ann"))
    assert (await log.removed_runs(), list_archives(tmp_path)) == ([], [])
    await log.release(lease)


class KilledError(BaseException):
    """In place of a kill: nothing after it is executed."""


@pytest.mark.parametrize("step", ["update_removed 1", "unlink 1", "unlink 2", "update_removed 2"])
async def test_erasing_an_archive_survives_a_kill(
    log: ArchivableLog, tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until all of it is done, the run is archived, and the next try erases it."""
    async with Runner(make_boss(), log=log, artifacts=(artifacts := MemoryArtifacts())) as runner:
        await (await runner.start(["Look.", OWN], run_id="boss")).result()
    await write_runs(log)
    archived = await archive_family(log, "boss", ArchiveOptions(folder=tmp_path, by="ann"))
    target, number = step.split()
    owner: Any = {"update_removed": type(log), "unlink": Path}[target]
    left, called = int(number), getattr(owner, target)

    def kill(*arguments: Any, **options: Any) -> Any:
        nonlocal left
        left -= 1
        if not left:
            raise KilledError
        return called(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(owner, target, kill)
        with pytest.raises(KilledError):
            await erase(log, "boss", artifacts=artifacts)

    assert [record.run_id for _, record in await log.archived_runs()] == [each.run_id for each in archived]
    erasure = await erase(log, "boss", artifacts=artifacts)
    assert [each.run_id for each in erasure.runs] == [each.run_id for each in archived]
    assert (await log.archived_runs(), list_archives(tmp_path)) == ([], [])
    with pytest.raises(ArtifactError):
        artifacts.read(compute_artifact_id(OWN.content))
