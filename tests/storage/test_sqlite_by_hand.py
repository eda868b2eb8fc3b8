"""A log that somebody edited with other tools can be listed; what it holds is for others to judge."""

from pathlib import Path

import pytest

from interlock.storage.event_log import QueuedCommand
from interlock.storage.sqlite.log import SqliteLog
from tests.log_rows import edit_events

from .runs import append, chained


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET seq = 'x' WHERE seq = 2",
        "UPDATE events SET body = 7, hash = 'text'",
        "UPDATE runs SET run_id = x'ff00'",
        "UPDATE notes SET body = 7",
    ],
)
async def test_whatever_stands_in_it_comes_out_as_what_it_should_be(tmp_path: Path, statement: str) -> None:
    async with SqliteLog(tmp_path / "log") as log:
        await append(log, "run", chained("run", 3))
        await log.enqueue("run", QueuedCommand("stop", b"now"))
        edit_events(tmp_path / "log", statement)

        (ends,) = await log.list_runs()
        notes = [note for run_id in await log.run_ids() for note in await log.queued_commands(run_id)]

    for entry in (ends.first, ends.last):
        kinds = [type(part) for part in (entry.run_id, entry.seq, entry.body, entry.hash)]
        assert kinds == [str, int, bytes, bytes]
    assert all(type(note.body) is bytes for note in notes)
