"""Runs go from a log to verified files, and back. Whatever stops it, the run is in the log or in its file."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlock import Runner
from interlock.audit.archive import ArchivableLog, ArchiveOptions, archive_run, list_archivable, restore_run
from interlock.audit.standalone_verifier import check
from interlock.domain.errors import LogCorruptError, LogError, LogFencedError
from interlock.domain.event import LogEntry
from interlock.storage.postgres.log import PostgresLog
from interlock.testing.log_entries import make_entries
from tests.postgres.server import PostgresServer
from tests.runs.support import agent_of

LATER = 1 << 62


def options(folder: Path) -> ArchiveOptions:
    return ArchiveOptions(folder=folder, by="ann", clock=lambda: 7)


def check_file(file: str) -> str:
    with open(file, "rb") as lines:
        return check(lines)[1]


async def finished_runs(log: ArchivableLog, *run_ids: str) -> dict[str, list[LogEntry]]:
    async with Runner(agent_of(*["Done."] * len(run_ids)), log=log) as runner:
        for run_id in run_ids:
            await (await runner.start("Go.", run_id=run_id)).result()
    return {run_id: await log.read(run_id) for run_id in run_ids}


async def test_a_run_goes_to_a_file_and_back(log: ArchivableLog, tmp_path: Path) -> None:
    entries = await finished_runs(log, "run_1", "run_2", "run_3")
    feed, before = await log.feed(), await log.list_runs()

    removed = await archive_run(log, "run_2", options(tmp_path / "archive"))
    assert (removed.run_id, removed.event_count, removed.removed_by) == ("run_2", len(entries["run_2"]), "ann")
    assert "in one unbroken chain" in check_file(removed.file)
    assert os.stat(removed.file).st_mode & 0o077 == 0
    assert await log.removed_runs() == [removed]
    assert await log.find_removed_run(removed.run_id) == removed
    assert [each.entry for each in await log.feed()] == [*entries["run_1"], *entries["run_3"]]
    assert await log.read("run_2") == (await log.load("run_2")).entries == []

    assert await restore_run(log, Path(removed.file)) == "run_2"
    assert (await log.feed(), await log.list_runs(), await log.removed_runs()) == (feed, before, [])
    assert await log.find_removed_run(removed.run_id) is None


async def test_the_id_of_an_archived_run_stays_taken(log: ArchivableLog, tmp_path: Path) -> None:
    entries = await finished_runs(log, "run_1", "run_2")
    await archive_run(log, "run_1", options(tmp_path))

    appending = log.append("run_1", entries["run_1"][:1])
    assert appending is not None
    with pytest.raises(LogFencedError):
        await appending


async def test_only_runs_that_are_over_and_old_are_archived(log: ArchivableLog, tmp_path: Path) -> None:
    await finished_runs(log, "run_1", "run_2", "run_3")
    appending = log.append("open", make_entries("open", 1))
    assert appending is not None
    await appending

    assert await list_archivable(log, LATER) == ["run_1", "run_2", "run_3"]
    assert await list_archivable(log, 0) == []
    with pytest.raises(LogError, match="Only a run that is over"):
        await archive_run(log, "open", options(tmp_path))


async def test_the_newest_event_stays(log: ArchivableLog, tmp_path: Path) -> None:
    """Else its position in the feed would be given twice."""
    await finished_runs(log, "run_1")

    with pytest.raises(LogError, match="the newest event"):
        await archive_run(log, "run_1", options(tmp_path))


async def test_a_run_in_use_stays(log: ArchivableLog, tmp_path: Path) -> None:
    await finished_runs(log, "run_1", "run_2")
    lease = await log.acquire("run_1")

    with pytest.raises(LogError, match="is owned by running"):
        await archive_run(log, "run_1", options(tmp_path))
    await log.release(lease)


def rewrite(file: str, change: Callable[[bytes], bytes]) -> None:
    path = Path(file)
    path.write_bytes(change(path.read_bytes()))


def change_text(content: bytes) -> bytes:
    return content.replace(b"Done", b"Gone")


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


@pytest.mark.parametrize("change", [change_text, cut])
async def test_a_changed_archive_is_not_restored(
    log: ArchivableLog, tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    await finished_runs(log, "run_1", "run_2")
    file = (await archive_run(log, "run_1", options(tmp_path))).file
    rewrite(file, change)

    with pytest.raises(LogCorruptError):
        await restore_run(log, Path(file))
    assert await log.read("run_1") == []


async def test_a_shorter_archive_is_not_restored(log: ArchivableLog, tmp_path: Path) -> None:
    """Its chain is unbroken, and it is not what was removed."""
    await finished_runs(log, "run_1", "run_2")
    file = (await archive_run(log, "run_1", options(tmp_path))).file

    rewrite(file, lambda content: b"".join(content.splitlines(keepends=True)[:-1]))
    with pytest.raises(LogError, match="not the events of run_1 that were removed"):
        await restore_run(log, Path(file))
    rewrite(file, lambda _: b"")
    with pytest.raises(LogError, match="has no events"):
        await restore_run(log, Path(file))


class KilledError(BaseException):
    """In place of a kill: nothing after it is executed."""


@pytest.mark.parametrize("step", ["mkstemp", "replace", "read_bytes", "remove_runs"])
async def test_a_run_is_never_lost(
    log: ArchivableLog, tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed at any step, the run is in the log, and the next try archives it."""
    entries = await finished_runs(log, "run_1", "run_2")

    def kill(*arguments: Any, **options: Any) -> Any:
        raise KilledError

    with monkeypatch.context() as patched:
        targets: dict[str, Any] = {"mkstemp": "interlock.audit.archive.mkstemp", "replace": "os.replace"}
        if step in targets:
            patched.setattr(targets[step], kill)
        elif step == "read_bytes":
            patched.setattr(Path, "read_bytes", kill)
        else:
            patched.setattr(type(log), "remove_runs", kill)
        with pytest.raises(KilledError):
            await archive_run(log, "run_1", options(tmp_path))

    assert await log.read("run_1") == entries["run_1"]
    removed = await archive_run(log, "run_1", options(tmp_path))
    assert await restore_run(log, Path(removed.file)) == "run_1"
    assert await log.read("run_1") == entries["run_1"]


async def test_workers_cannot_remove_events(postgres: PostgresServer, tmp_path: Path) -> None:
    schema = postgres.empty_schema()
    async with PostgresLog(postgres.worker_url, schema=schema) as log:
        entries = await finished_runs(log, "run_1", "run_2")

        with pytest.raises(LogError, match="Use the role that owns the tables"):
            await archive_run(log, "run_1", options(tmp_path))
        assert await log.read("run_1") == entries["run_1"]
