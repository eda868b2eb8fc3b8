"""A run of any length is exported a page at a time, as it is."""

import asyncio
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from interlock import MemoryLog
from interlock.audit.schemas import SCHEMAS, ExportFormat, SchemaName, export_run
from interlock.domain.event import LogEntry, RunStarted, WarningRaised
from interlock.server.core.audit import service as chain_reader
from interlock.server.core.audit.service import read_chain, stream_export
from tests.patience import HANG_SECONDS
from tests.server.core.index_runs import Written


class Threaded(MemoryLog):
    """Is read in a thread, as the one on disk is, and knows how much was asked for at once."""

    most = 0

    async def read(self, run_id: str, after_seq: int = -1, limit: int | None = None) -> list[LogEntry]:
        found = await super().read(run_id, after_seq, limit)
        self.most = max(self.most, len(found))
        return await asyncio.to_thread(lambda: found)


def log_of(events: int) -> Threaded:
    log = Threaded()
    run = Written(log, "run_1")
    run.add(RunStarted(schema=1, agent="a"), *(WarningRaised(message=str(number) * 50) for number in range(events - 1)))
    return log


async def exported(log: MemoryLog, count: int, schema: SchemaName, form: ExportFormat | None = None) -> bytes:
    def write(entries: Iterable[LogEntry]) -> Iterator[bytes]:
        return export_run(entries, schema, form)

    return b"".join([piece async for piece in stream_export(log, "run_1", count, write)])


@pytest.mark.parametrize("events", [1, 6, 7, 8, 14, 100])
async def test_what_is_written_page_by_page_is_what_is_written_at_once(
    events: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain_reader, "PAGE_EVENTS", 7)
    monkeypatch.setattr(chain_reader, "PIECE_BYTES", 500)
    log = log_of(events + 3)
    entries = await MemoryLog.read(log, "run_1", -1, events)
    forms: tuple[ExportFormat, ...] = ("json", "ndjson")
    for schema in SCHEMAS:
        for form in forms:
            assert await exported(log, events, schema, form) == b"".join(export_run(entries, schema, form)), (
                schema,
                form,
            )
    assert log.most <= 7
    assert b"".join([piece async for piece in stream_export(log, "run_none", 0, export_run)]) == b"[]\n"


async def test_more_exports_than_threads_do_not_wait_for_each_other() -> None:
    log = log_of(1_000)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    async with asyncio.timeout(HANG_SECONDS):
        found = await asyncio.gather(*(exported(log, 1_000, "interlock") for _ in range(8)))
    assert len(set(found)) == 1


async def test_a_trail_has_every_hash_and_says_whether_they_follow_from_each_other() -> None:
    log = log_of(450)
    entries = await log.read("run_1")
    whole = await read_chain(log, "run_1")
    assert (whole.is_intact, whole.hashes) == (True, [entry.hash for entry in entries])
    for at in (0, 1, 200, 449):
        other = LogEntry("run_1", at, entries[at].body.replace(b"run_1", b"run_2"), entries[at].hash)
        assert not follows([*entries[:at], other, *entries[at + 1 :]])
        assert follows([*entries[:at], *entries[at + 1 :]]) is (at == 449)


def follows(entries: list[LogEntry]) -> bool:
    told = chain_reader.ChainReader("run_1")
    told.feed(entries)
    return told.is_intact
