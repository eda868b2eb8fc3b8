"""A server forgets erased runs, and its checkpoints do not take them for deleted ones."""

from contextlib import closing
from pathlib import Path

from interlock import Runner, SqliteLog
from interlock.audit.erase import ErasureOptions, erase_run
from interlock.server.core.audit.checkpoints import Checkpoints
from interlock.server.core.audit.signing import Signer
from interlock.server.core.database.sqlite import SqliteDatabase
from interlock.server.core.index.rows import RunQuery
from interlock.server.core.index.run_index import RunIndex
from tests.runs.support import agent_of


async def _write_runs(log: SqliteLog) -> None:
    async with Runner(agent_of("Done.", "Done."), log=log) as runner:
        for run_id in ("run_1", "run_2"):
            await (await runner.start("The secret is mauve.", run_id=run_id)).result()


async def _list_runs(path: Path, log: SqliteLog) -> list[str]:
    index = RunIndex(path, log)
    try:
        return [row.run_id for row in (await index.list_runs(RunQuery())).rows]
    finally:
        await index.close()


async def test_a_started_server_forgets_erased_runs(tmp_path: Path) -> None:
    async with SqliteLog(tmp_path / "runs.db") as log:
        await _write_runs(log)
        assert await _list_runs(tmp_path / "index.db", log) == ["run_2", "run_1"]
        await erase_run(log, "run_1", ErasureOptions(by="ann", reason="asked for"))

        assert await _list_runs(tmp_path / "index.db", log) == ["run_2"]


async def test_checkpoints_accept_erased_runs(tmp_path: Path) -> None:
    with closing(SqliteDatabase(tmp_path / "server.db")) as database:
        async with SqliteLog(tmp_path / "runs.db") as log:
            await _write_runs(log)
            checkpoints = Checkpoints(database, log, Signer(tmp_path / "signing.key"))
            assert await checkpoints.take()
            await erase_run(log, "run_1", ErasureOptions(by="ann", reason="asked for"))

            assert (await checkpoints.verify()).ok
