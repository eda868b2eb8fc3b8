"""`python -m bench.console_pages`: what pages of the console cost on the server, on SQLite.

With 1,000 and with 100,000 runs of the last 30 days, a part of which wait for people, and with a run of 10,000 events.
A page is requested over loopback; figures are the median and the slowest of some requests.
"""

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter, time_ns
from typing import NamedTuple

import httpx2

from interlock import SqliteLog
from interlock.domain import event as facts
from interlock.domain.call import Answer, Question
from interlock.domain.decision import Decision, Verdict
from interlock.domain.event import Event, Fact, LogEntry, encode_event, genesis_hash, next_hash
from interlock.domain.messages import Usage
from interlock.domain.observation import Content, Observation
from interlock.server.core.inbox.assignments import Assignments
from interlock.server.core.index.rows import ActionQuery
from interlock.server.core.service import Service
from tests.server.server_process import console_server

RUNS = (1_000, 100_000)
OPEN_QUESTIONS = 5_000
LONG_RUN_EVENTS = 10_000
LONG_RUN = "run_long"
_DAY = 86_400_000_000_000
_SECOND = 1_000_000_000
_ROUNDS = 7
_RUNS_PER_APPEND = 500
_ASSIGNED = 500
_AGENTS = ("shop", "support", "billing", "research")
PAGES = {
    "dashboard, 24 hours": "/console/",
    "dashboard, 30 days": "/console/?period=month",
    "runs": "/console/runs",
    "runs, words in few of them": "/console/runs?q=order+A-4711",
    "runs, words in none": "/console/runs?q=nowhere",
    "runs, rejected": "/console/runs?status=rejected",
    "runs, expired": "/console/runs?status=expired",
    "runs, a week of last month": "/console/runs?since={week_begin}&until={week_end}",
    "runs, most expensive": "/console/runs?sort=cost",
    "runs, longest": "/console/runs?sort=duration",
    "inbox": "/console/inbox",
    "inbox, words in few of them": "/console/inbox?q=order+A-4711",
    "inbox, words in none": "/console/inbox?q=nowhere",
    "inbox, amounts in none": "/console/inbox?q=amount>%3D500&risk=network",
    "inbox, next deadline first": "/console/inbox?sort=deadline",
    "inbox, assigned to no one": "/console/inbox?assigned=none",
    "inbox, answered ones too": "/console/inbox?all=1&sort=newest",
    "agents": "/console/agents",
    "transcript": f"/console/runs/{LONG_RUN}",
    "transcript, from its first turn": f"/console/runs/{LONG_RUN}?view=transcript&at=0",
    "waterfall": f"/console/runs/{LONG_RUN}?view=waterfall",
    "events": f"/console/runs/{LONG_RUN}?view=events",
    "events, in the middle": f"/console/runs/{LONG_RUN}?at=5000",
}


class _Writer:
    """Writes the events of a run, at times in the past."""

    def __init__(self, run_id: str, at: int) -> None:
        self.run_id, self.at = run_id, at
        self.entries: list[LogEntry] = []
        self._head = genesis_hash(run_id)

    def add(self, *written: Fact, seconds: float = 1.0) -> None:
        """Add facts, each so long after the one before."""
        for fact in written:
            body = encode_event(Event(len(self.entries), self.run_id, self.at, self.run_id, None, fact))
            self._head = next_hash(self._head, body)
            self.entries.append(LogEntry(self.run_id, len(self.entries), body, self._head))
            self.at += int(seconds * _SECOND)


def _write_run(number: int, at: int, random: Random, *, is_open: bool) -> _Writer:
    run = _Writer(f"run_{number:032x}", at)
    agent, order = random.choice(_AGENTS), f"A-{number % 10_000}"
    run.add(
        facts.RunStarted(schema=1, agent=agent, requester=f"user:{number % 100}", created_by="key:web"),
        facts.UserMessageReceived(text=f"Answer the customer about order {order}, and refund it where that is due."),
        facts.ModelResponded(
            call_count=1,
            usage=Usage(input_tokens=random.randrange(9_000), output_tokens=200, cost=random.random() / 10),
        ),
        facts.BatchStarted(call_count=1),
        facts.CallProposed(call_id="c1", tool="refund", raw_input={"order": order, "amount": 20}),
        facts.CallValidated(call_id="c1", ok=True),
    )
    question = Question(
        action_id=f"act_{number:032x}",
        run_id=run.run_id,
        call_id="c1",
        tool_name="refund",
        kind="approval",
        prompt=f"Refund order {order}?",
        arguments={"order": order, "amount": 20},
        payload_hash="sha256:" + "0" * 64,
        rule_ids=(f"rule-{number % 7}",),
        asked_at=run.at,
        capability=f"refund {order}",
    )
    if is_open or number % 2:
        run.add(facts.ApprovalRequested(call_id="c1", question=question))
    if is_open:
        run.add(facts.RunPaused(kind="approval", waiting=("c1",)))
        return run
    if number % 2:
        run.at += random.randrange(4_000) * _SECOND
        answer = Answer(approved=number % 20 != 1, by="user:olga")
        kind = facts.ApprovalGranted if answer.approved else facts.ApprovalRejected
        run.add(kind(call_id="c1", action_id=question.action_id, answer=answer))
        if not answer.approved:
            run.add(facts.RunFailed(message="A person declined refund.", code="user_denied"))
            return run
    run.add(facts.RunCompleted(message="Done."))
    return run


async def write_runs(log: SqliteLog, count: int, now: int) -> None:
    """Write runs of the last 30 days."""
    random = Random(7)
    for begin in range(0, count, _RUNS_PER_APPEND):
        writing: list[Awaitable[None]] = []
        for number in range(begin, min(begin + _RUNS_PER_APPEND, count)):
            at = now - 30 * _DAY + 30 * _DAY * number // count
            run = _write_run(number, at, random, is_open=number >= count - min(OPEN_QUESTIONS, count // 10))
            appended = log.append(run.run_id, run.entries)
            assert appended is not None
            writing.append(appended)
        await asyncio.gather(*writing)


def _list_long_run(count: int) -> Iterator[Fact]:
    text = "\n".join(f"line {number} of what was found" for number in range(20))
    yield facts.RunStarted(schema=1, agent="shop", requester="user:1", created_by="key:web")
    yield facts.UserMessageReceived(text="Read every file and say what is wrong.")
    for turn in range(count // 9):
        call_id = f"c{turn}"
        yield facts.ModelRequested(menu_digest="0" * 64, message_count=1, agent="shop", provider="scripted", model="m")
        yield facts.ModelResponded(
            text="I look at the next one.", call_count=1, usage=Usage(input_tokens=900, cost=0.01)
        )
        yield facts.BatchStarted(call_count=1)
        yield facts.CallProposed(call_id=call_id, tool="lookup", raw_input={"order": f"A-{turn}"})
        yield facts.CallValidated(call_id=call_id, ok=True)
        yield facts.PolicyEvaluated(call_id=call_id, tool="lookup", decision=_ALLOWED)
        yield facts.InvocationStarted(
            invocation_id=f"i{turn}", call_id=call_id, tool="lookup", executor="x", tool_version="1", timeout_seconds=9
        )
        yield facts.InvocationCompleted(invocation_id=f"i{turn}", call_id=call_id, exit="ok", duration_ms=120.0)
        yield facts.CallObserved(
            observation_id=f"o{turn}",
            observation=Observation(
                call_id=call_id, tool="lookup", ok=True, summary="Found.", content=Content(text=text)
            ),
        )


_ALLOWED = Decision(verdict=Verdict.ALLOW, reason="Reading is allowed.")


class Measured(NamedTuple):
    """What pages took, and the memory of the process before and after they were requested."""

    milliseconds: dict[str, tuple[float, float]]
    bytes_sent: dict[str, int]
    resident_mib: tuple[float, float]


async def measure(folder: Path, count: int) -> Measured:
    """Measure every page with so many runs."""
    now = time_ns()
    async with SqliteLog(folder / "runs.db") as log:
        await write_runs(log, count, now)
        long = _Writer(LONG_RUN, now - _DAY)
        long.add(*_list_long_run(LONG_RUN_EVENTS))
        for start in range(0, len(long.entries), _RUNS_PER_APPEND):
            appended = log.append(LONG_RUN, long.entries[start : start + _RUNS_PER_APPEND])
            assert appended is not None
            await appended
    week = {name: (now - days * _DAY) // _SECOND for name, days in (("week_begin", 21), ("week_end", 14))}
    async with console_server(folder) as served:
        await served.service.index.catch_up()
        await _assign_some(served.service)
        new = await served.service.sessions.start("alex")
        assert new is not None
        cookies = {"interlock_session": new.token}
        async with httpx2.AsyncClient(base_url=served.base, cookies=cookies, timeout=60) as client:
            await client.get("/console/")
            before = _resident_mib()
            taken: dict[str, tuple[float, float]] = {}
            sizes: dict[str, int] = {}
            for name, address in PAGES.items():
                path = address.format(**{key: _format_day(value) for key, value in week.items()})
                taken[name], sizes[name] = await _request(client, path)
            return Measured(taken, sizes, (before, _resident_mib()))


async def _assign_some(service: Service) -> None:
    """Assign some of the open questions."""
    query = ActionQuery(statuses=frozenset(("PENDING",)), limit=_ASSIGNED)
    assignments = Assignments(service.database)
    for row in (await service.index.list_actions(query)).rows:
        await assignments.set(row.action_id, row.run_id, "user:olga", "user:alex")


async def _request(client: httpx2.AsyncClient, path: str) -> tuple[tuple[float, float], int]:
    took: list[float] = []
    size = 0
    for _ in range(_ROUNDS):
        began = perf_counter()
        answer = await client.get(path)
        took.append((perf_counter() - began) * 1e3)
        assert answer.status_code == 200, (path, answer.status_code, answer.text[-2000:])
        size = len(answer.content)
    return (median(took), max(took)), size


def _format_day(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d}"


def _resident_mib() -> float:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def main() -> None:
    """Print what every page takes."""
    counts = [int(each) for each in sys.argv[1:]] or RUNS
    for count in counts:
        with tempfile.TemporaryDirectory() as folder:
            found = asyncio.run(measure(Path(folder), count))
        print(f"{count:,} runs, {found.resident_mib[0]:.0f} MiB before, {found.resident_mib[1]:.0f} MiB after")
        for name, (middle, slowest) in found.milliseconds.items():
            print(f"  {name:<40}{middle:>8.1f} ms{slowest:>8.1f} ms{found.bytes_sent[name] / 1024:>8.0f} KiB")


if __name__ == "__main__":
    main()
