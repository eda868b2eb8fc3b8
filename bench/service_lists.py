"""`python -m bench.service_lists`: what the server's lists and live events cost, on SQLite.

Paused runs are listed, found and counted in an index of 1,000 and of 100,000 of them; memory is that of this process.
Then one writer appends 200 events per second for some seconds, and 50 readers follow them.
"""

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from time import perf_counter, process_time, time_ns
from typing import Any, NamedTuple

from interlock import SqliteLog
from interlock.domain.call import Question
from interlock.domain.decision import Decision, Verdict
from interlock.domain.event import (
    ApprovalRequested,
    BatchStarted,
    CallProposed,
    CallValidated,
    Event,
    Fact,
    LogEntry,
    ModelRequested,
    ModelResponded,
    PolicyEvaluated,
    RunPaused,
    RunStarted,
    UserMessageReceived,
    WarningRaised,
    encode_event,
    genesis_hash,
    next_hash,
)
from interlock.server.core.index.rows import ActionQuery, RunQuery
from interlock.server.core.index.run_index import RunIndex
from interlock.server.core.live.event_reader import EventReader
from interlock.server.core.live.hub import EventHub
from interlock.server.core.live.live_event import LiveEvent

RUNS = (1_000, 100_000)
READERS, EVENTS_PER_SECOND, SECONDS = 50, 200, 5
_ROUNDS = 9
_RUNS_PER_APPEND = 500
_AGENTS = 10


def _facts(run_id: str, number: int) -> Iterator[Fact]:
    """A run that stops at its first approval."""
    question = Question(
        action_id=f"act_{number:032x}",
        run_id=run_id,
        call_id="call_1",
        tool_name="write_file",
        kind="approval",
        prompt="Write src/parser.py?",
        arguments={"path": "src/parser.py", "content": "x" * 200},
        payload_hash="sha256:" + "0" * 64,
        risk=("write",),
        rule_ids=("writes",),
        layer="project rule",
        asked_at=time_ns(),
        expires_at=time_ns() + 10**15,
        capability="write_file src/parser.py",
    )
    decision = Decision(verdict=Verdict.ASK, reason="Writes.")
    yield RunStarted(
        schema=1, agent=f"agent-{number % _AGENTS}", requester=f"user:{number % 100}", created_by="key:bot"
    )
    yield UserMessageReceived(text=f"Fix failing test number {number} in the parser and say what was wrong with it.")
    yield ModelRequested(menu_digest="0" * 64, message_count=1, agent="agent", provider="scripted", model="m")
    yield ModelResponded(text="I will write the file.", call_count=1)
    yield BatchStarted(call_count=1)
    yield CallProposed(call_id="call_1", tool="write_file", raw_input={"path": "src/parser.py", "content": "x" * 200})
    yield CallValidated(call_id="call_1", ok=True)
    yield PolicyEvaluated(call_id="call_1", tool="write_file", decision=decision)
    yield ApprovalRequested(call_id="call_1", question=question)
    yield RunPaused(kind="approval", waiting=("call_1",))


class Writer:
    """Appends facts to one run."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.seq = 0
        self._head = genesis_hash(run_id)

    def entry(self, fact: Fact) -> LogEntry:
        body = encode_event(Event(self.seq, self.run_id, time_ns(), self.run_id, None, fact))
        self._head = next_hash(self._head, body)
        self.seq += 1
        return LogEntry(self.run_id, self.seq - 1, body, self._head)


async def pause_runs(log: SqliteLog, count: int) -> None:
    """Write runs that stopped at their first approval."""
    for begin in range(0, count, _RUNS_PER_APPEND):
        writing: list[Awaitable[None]] = []
        for number in range(begin, min(begin + _RUNS_PER_APPEND, count)):
            writer = Writer(f"run_{number:032x}")
            appended = log.append(writer.run_id, [writer.entry(fact) for fact in _facts(writer.run_id, number)])
            assert appended is not None
            writing.append(appended)
        await asyncio.gather(*writing)


@asynccontextmanager
async def _indexed(folder: Path, count: int) -> AsyncGenerator[RunIndex]:
    async with SqliteLog(folder / f"{count}.db") as log:
        await pause_runs(log, count)
        index = RunIndex(folder / f"{count}.index", log)
        yield index
        await index.close()


class Lists(NamedTuple):
    events_per_second: float
    milliseconds: dict[str, float]
    resident_mib: float
    file_bytes_per_run: float


_PAUSED, _OPEN = frozenset({"PAUSED_APPROVAL"}), frozenset({"PENDING"})
_OWNED = frozenset({"agent-1", "agent-2", "agent-3"})

READS: dict[str, Callable[[RunIndex], Awaitable[Any]]] = {
    "50 paused runs": lambda index: index.list_runs(RunQuery(statuses=_PAUSED)),
    "1,000 paused runs": lambda index: index.list_runs(RunQuery(statuses=_PAUSED, limit=1_000)),
    "1,000 runs": lambda index: index.list_runs(RunQuery(limit=1_000)),
    "50 runs of 3 agents or a person": lambda index: index.list_runs(RunQuery(agents=_OWNED, person="user:7")),
    "1,000 runs of 3 agents or a person": lambda index: index.list_runs(
        RunQuery(agents=_OWNED, person="user:7", limit=1_000)
    ),
    "50 failed runs, of which there are none": lambda index: index.list_runs(RunQuery(statuses=frozenset({"FAILED"}))),
    "50 runs with words that are in none": lambda index: index.list_runs(RunQuery(text="nowhere to be found")),
    "50 open questions": lambda index: index.list_actions(ActionQuery(statuses=_OPEN)),
    "1,000 open questions": lambda index: index.list_actions(ActionQuery(statuses=_OPEN, limit=1_000)),
    "counts": lambda index: index.count_runs(),
    "counts of 3 agents or a person": lambda index: index.count_runs(_OWNED, "user:7"),
    "50 recent activities": lambda index: index.list_activity(50),
    "one run": lambda index: index.get_run(f"run_{7:032x}"),
    "next expiry": lambda index: index.get_next_expiry(),
}


async def measure_lists(folder: Path, count: int) -> Lists:
    async with _indexed(folder, count) as index:
        began = perf_counter()
        await index.catch_up()
        rate = index.position / (perf_counter() - began)
        milliseconds = {name: await _median_ms(read, index) for name, read in READS.items()}
        return Lists(rate, milliseconds, _resident_mib(), _size_bytes(index.own_paths) / count)


async def _median_ms(read: Callable[[RunIndex], Awaitable[Any]], index: RunIndex) -> float:
    taken: list[float] = []
    for _ in range(_ROUNDS):
        began = perf_counter()
        await read(index)
        taken.append((perf_counter() - began) * 1e3)
    return median(taken)


class Following(NamedTuple):
    written: int
    lost: int
    twice: int
    cpu_share: float
    median_ms: float
    slowest_ms: float


async def measure_following(folder: Path, readers: int, rate: int, seconds: float) -> Following:
    """Half of the readers follow the run, the others all runs. Late is an event by when the last reader has it."""
    async with SqliteLog(folder / "live.db") as log:
        index = RunIndex(folder / "live.index", log)
        hub = EventHub(index, max_readers=readers)
        writer, total = Writer("run_live"), int(rate * seconds)
        written_at: list[float] = []
        arrived = [0.0] * total
        seen: list[list[int]] = [[] for _ in range(readers)]

        async def follow(number: int) -> None:
            async with hub.open_reader("run_live" if number % 2 else None, None if number % 2 else 0) as reader:
                await _collect(reader, seen[number], arrived, total)

        following = [asyncio.create_task(follow(number)) for number in range(readers)]
        cpu, began = process_time(), perf_counter()
        for number in range(total):
            await asyncio.sleep(max(0.0, began + number / rate - perf_counter()))
            appended = log.append("run_live", [writer.entry(WarningRaised(message="x" * 200))])
            assert appended is not None
            await appended
            written_at.append(perf_counter())
        await asyncio.wait(following, timeout=10)
        spent, took = process_time() - cpu, perf_counter() - began
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
        await hub.close()
        await index.close()
    late = [(arrived[number] - written_at[number]) * 1e3 for number in range(total)]
    lost = sum(total - len(set(seqs)) for seqs in seen)
    twice = sum(len(seqs) - len(set(seqs)) for seqs in seen)
    return Following(total, lost, twice, spent / took, median(late), max(late))


async def _collect(reader: EventReader, seen: list[int], arrived: list[float], total: int) -> None:
    async for batch in reader:
        now = perf_counter()
        for live in batch:
            assert isinstance(live, LiveEvent)
            seen.append(live.entry.seq)
            arrived[live.entry.seq] = max(arrived[live.entry.seq], now)
        if len(seen) >= total:
            return


def _size_bytes(paths: tuple[str, ...]) -> int:
    return sum(Path(path).stat().st_size for path in paths if Path(path).exists())


def _resident_mib() -> float:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        lists = {count: asyncio.run(measure_lists(Path(folder), count)) for count in RUNS}
        following = asyncio.run(measure_following(Path(folder), READERS, EVENTS_PER_SECOND, SECONDS))
    few, many = (lists[count] for count in RUNS)
    print(f"{'milliseconds, median of ' + str(_ROUNDS):<45}{RUNS[0]:>10,} runs{RUNS[1]:>10,} runs")
    for name, milliseconds in few.milliseconds.items():
        print(f"{name:<45}{milliseconds:>15.2f}{many.milliseconds[name]:>15.2f}")
    print(f"{'catching up, events per second':<45}{few.events_per_second:>15,.0f}{many.events_per_second:>15,.0f}")
    print(f"{'resident MiB afterwards':<45}{few.resident_mib:>15.1f}{many.resident_mib:>15.1f}")
    print(f"{'bytes of the index per run':<45}{few.file_bytes_per_run:>15,.0f}{many.file_bytes_per_run:>15,.0f}")
    grown = (many.resident_mib - few.resident_mib) * (1 << 20) / (RUNS[1] - RUNS[0])
    print(f"memory per further paused run: {grown:,.0f} bytes")
    print(
        f"{READERS} readers, {following.written:,} events at {EVENTS_PER_SECOND} per second: {following.lost} lost,"
        f" {following.twice} twice, {following.cpu_share:.0%} of a core; all have an event after"
        f" {following.median_ms:.0f} ms at the median, {following.slowest_ms:.0f} ms at most"
    )


if __name__ == "__main__":
    main()
