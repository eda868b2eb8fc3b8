"""A run of any length is exported a page at a time, as it is."""

import asyncio
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from interlock import MemoryLog, SqliteLog
from interlock.domain.chain import Entry
from interlock.domain.event import RunStarted, WarningRaised
from interlock.history.exports.schemas import SCHEMAS, SchemaName, export
from interlock.log.interface import EventLog
from interlock.service import trail
from interlock.service.trail import walk, written


async def begun(log: EventLog, events: int) -> list[Entry]:
    claim = await log.claim("run_1")
    facts = [RunStarted(schema=1, agent="a"), *(WarningRaised(f"{number}" * 50) for number in range(events - 1))]
    for fact in facts:
        await log.append(claim, [fact])
    await log.release(claim)
    return await log.read("run_1")


async def all_of(log: EventLog, count: int, schema: SchemaName, form: str | None = None) -> bytes:
    def write(entries: Iterable[Entry]) -> Iterator[bytes]:
        return export(entries, schema, form)  # pyright: ignore[reportArgumentType]

    return b"".join([piece async for piece in written(log, "run_1", count, write)])
