"""Whoever wrote finds it, also when a pass ends at that very moment."""

import asyncio
from pathlib import Path

from bench.service_lists import Writer
from interlock import SqliteLog
from interlock.domain.event import RunStarted
from interlock.server.core.index.run_index import RunIndex


async def test_of_many_who_write_at_once_each_finds_what_it_wrote(tmp_path: Path) -> None:
    async with SqliteLog(tmp_path / "runs.db") as log:
        index = RunIndex(tmp_path / "index.db", log)

        async def write_and_look(number: int) -> list[int]:
            missed: list[int] = []
            for part in range(40):
                writer = Writer(f"run_{number}_{part}")
                appended = log.append(writer.run_id, [writer.entry(RunStarted(schema=1, agent="a"))])
                assert appended is not None
                await appended
                if await index.get_run(writer.run_id) is None:
                    missed.append(part)
            return missed

        missed = await asyncio.gather(*map(write_and_look, range(16)))
        await index.close()

    assert missed == [[]] * 16
