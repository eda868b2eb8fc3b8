"""What an append to a log in Postgres costs beside one to a file, and how many commits a run has.

Both logs are on the disk: SQLite with `synchronous=FULL`, Postgres with `synchronous_commit=on`. They take turns.
"""

from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

from interlock import EventLog, Runner
from interlock.storage import SqliteLog
from interlock.testing.log_entries import append_entries, make_entries
from tests.postgres.server import PostgresServer

from .workers import agent

#: A folder on a disk, also where `/tmp` is in memory.
DISK = "/var/tmp"  # noqa: S108 - folders in it have random names
EVENTS = (1, 5)
_MESSAGE = "x" * 180
_ROUNDS = 5
#: Counts the transactions that write to the log; notifications and heartbeats are none of them.
_COUNTER = """
CREATE TABLE writes (transaction text);
CREATE FUNCTION count_write() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS
    $$ BEGIN INSERT INTO writes VALUES (pg_current_xact_id()::text); RETURN NULL; END $$;
CREATE TRIGGER count_write AFTER INSERT OR UPDATE ON runs FOR EACH ROW EXECUTE FUNCTION count_write();
CREATE TRIGGER count_write AFTER INSERT ON appends FOR EACH ROW EXECUTE FUNCTION count_write();
CREATE TRIGGER count_write AFTER INSERT OR UPDATE ON snapshots FOR EACH ROW EXECUTE FUNCTION count_write();
CREATE TRIGGER count_write AFTER INSERT ON effects FOR EACH ROW EXECUTE FUNCTION count_write();
CREATE TRIGGER count_write AFTER INSERT ON artifacts FOR EACH ROW EXECUTE FUNCTION count_write();
"""


async def compare_appends(server: PostgresServer, appends: int, events: int) -> tuple[float, float, float]:
    """Return the median of the ratios of rounds, and the milliseconds of an append to Postgres and to SQLite."""
    ratios: list[tuple[float, float, float]] = []
    with TemporaryDirectory(dir=DISK) as folder:
        sqlite = SqliteLog(Path(folder) / "log.db")
        async with server.open_log(server.new_schema()) as postgres:
            for number in range(_ROUNDS + 1):
                ours = await _append_ms(postgres, f"run-{number}", appends, events)
                theirs = await _append_ms(sqlite, f"run-{number}", appends, events)
                if number:  # the first round opens connections and prepares statements
                    ratios.append((ours / theirs, ours, theirs))
        await sqlite.close()
    return sorted(ratios)[len(ratios) // 2]


async def _append_ms(log: EventLog, run_id: str, appends: int, events: int) -> float:
    entries = make_entries(run_id, appends * events, _MESSAGE)
    lease = await log.acquire(run_id)
    times: list[float] = []
    for first in range(0, len(entries), events):
        begun = perf_counter()
        await append_entries(log, run_id, entries[first : first + events], lease)
        times.append(perf_counter() - begun)
    await log.release(lease)
    return median(times) * 1e3


async def count_commits(server: PostgresServer) -> int:
    """Return how many transactions a run of five governed steps writes, from its start to its end."""
    schema = server.new_schema()
    server.execute(_COUNTER, schema)
    async with server.open_log(schema) as log, Runner(agent(), log=log) as runner:
        await runner.run("Count.")
    ((commits,),) = server.query("SELECT count(DISTINCT transaction) FROM writes", schema)
    return int(commits)
