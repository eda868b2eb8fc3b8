"""Rules that hold in every log: random scripts of processes that claim runs, against an obvious model of who has them.

A host has one process at a time; a reboot ends it, but here it goes on trying, as one that was believed dead may.
"""

import asyncio
import shutil
from pathlib import Path
from tempfile import mkdtemp
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from interlock.domain.errors import LogError, LogFencedError, RunClaimedError
from interlock.storage.event_log import EventLog, Lease, QueuedCommand
from interlock.storage.leases import ProcessIdentity
from interlock.storage.memory import MemoryLog
from interlock.storage.sqlite import leases
from interlock.storage.sqlite.log import SqliteLog

from .runs import append, chained

HOSTS, RUNS, KEYS = ("one", "two"), ("a", "b"), ("stop", "answer")
EVENTS = {run_id: chained(run_id, 200) for run_id in RUNS}


class Expected(msgspec.Struct):
    """A run as the model sees it."""

    count: int = 0
    token: int = 0
    holder: ProcessIdentity | None = None
    claims: list[Lease | None] = msgspec.field(default_factory=lambda: [None])
    notes: dict[str, QueuedCommand] = msgspec.field(default_factory=dict[str, QueuedCommand])

    @property
    def in_force(self) -> Lease | None:
        return self.claims[-1] if self.holder else None


class ClaimRules(RuleBasedStateMachine):
    """With the log in memory, where all are one process."""

    refusing = False

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.processes = {host: ProcessIdentity(host, "boot 1", 1, 1) for host in HOSTS}
        self.runs = {run_id: Expected() for run_id in RUNS}
        self.logs = self.open_logs()

    def open_logs(self) -> list[EventLog]:
        return [MemoryLog()]

    def teardown(self) -> None:
        for log in self.logs:
            self.loop.run_until_complete(log.close())
        self.loop.close()

    def log(self, host: str) -> EventLog:
        return self.logs[HOSTS.index(host) % len(self.logs)]

    @rule(host=st.sampled_from(HOSTS))
    def reboot(self, host: str) -> None:
        old = self.processes[host]
        self.processes[host] = ProcessIdentity(host, f"{old.boot}1", 1, 1)

    @rule(run_id=st.sampled_from("aab"), host=st.sampled_from(HOSTS), force=st.booleans())
    def claim(self, run_id: str, host: str, force: bool) -> None:
        run, here = self.runs[run_id], self.processes[host]
        # Of a host that was started again, its own processes are known to be gone.
        alive = run.holder is not None and (run.holder == here or run.holder.host != host or not self.refusing)
        refused = alive and not force
        with patch.object(leases, "this_process", lambda: here):
            claiming = self.log(host).acquire(run_id, force=force)
            if refused:
                with pytest.raises(RunClaimedError, match="Nothing was written"):
                    self.loop.run_until_complete(claiming)
                return
            claim = self.loop.run_until_complete(claiming)
        assert claim.token > run.token
        run.token, run.holder = claim.token, here
        run.claims.append(claim)

    @rule(run_id=st.sampled_from("aab"), host=st.sampled_from(HOSTS), which=st.sampled_from((1, 1, 2)))
    def release(self, run_id: str, host: str, which: int) -> None:
        run = self.runs[run_id]
        claim = run.claims[-min(which, len(run.claims))]
        if claim is None:
            return
        self.loop.run_until_complete(self.log(host).release(claim))
        if claim.token == run.token:
            run.holder = None

    @rule(run_id=st.sampled_from("aab"), host=st.sampled_from(HOSTS), reverse=st.booleans())
    def everybody_appends_at_once(self, run_id: str, host: str, reverse: bool) -> None:
        run = self.runs[run_id]
        event = EVENTS[run_id][run.count : run.count + 1]
        claims = run.claims[::-1] if reverse else run.claims

        async def append_all() -> list[BaseException | None]:
            appends = (append(self.log(host), run_id, event, claim) for claim in claims)
            return await asyncio.gather(*appends, return_exceptions=True)

        outcomes = self.loop.run_until_complete(append_all())
        winners = [claim for claim, outcome in zip(claims, outcomes, strict=True) if outcome is None]
        assert winners == [run.in_force]
        assert [type(outcome) for outcome in outcomes].count(LogFencedError) == len(claims) - 1
        run.count += 1

    @rule(
        run_id=st.sampled_from("aab"),
        host=st.sampled_from(HOSTS),
        key=st.sampled_from(KEYS),
        body=st.binary(max_size=2),
    )
    def post(self, run_id: str, host: str, key: str, body: bytes) -> None:
        run, note = self.runs[run_id], QueuedCommand(key, body)
        posting = self.log(host).enqueue(run_id, note)
        if not run.count:
            with pytest.raises(LogError, match="there is no run"):
                self.loop.run_until_complete(posting)
            return
        assert self.loop.run_until_complete(posting) == (key not in run.notes)
        run.notes.setdefault(key, note)

    @precondition(lambda self: any(run.notes for run in self.runs.values()))
    @rule(run_id=st.sampled_from("aab"), host=st.sampled_from(HOSTS), key=st.sampled_from(KEYS))
    def take_away(self, run_id: str, host: str, key: str) -> None:
        self.loop.run_until_complete(self.log(host).ack(run_id, key))
        self.runs[run_id].notes.pop(key, None)

    @invariant()
    def the_log_has_what_was_allowed_and_nothing_else(self) -> None:
        for run_id, run in self.runs.items():
            for log in self.logs:
                assert self.loop.run_until_complete(log.read(run_id)) == EVENTS[run_id][: run.count]
                assert self.loop.run_until_complete(log.queued_commands(run_id)) == list(run.notes.values())


class SqliteClaimRules(ClaimRules):
    refusing = True

    def open_logs(self) -> list[EventLog]:
        self.folder = Path(mkdtemp())
        return [SqliteLog(self.folder / "log") for _ in HOSTS]

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.folder)


SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)
TestMemoryRules = ClaimRules.TestCase
TestMemoryRules.settings = settings(stateful_step_count=25)
TestSqliteRules = SqliteClaimRules.TestCase
TestSqliteRules.settings = settings(max_examples=30, stateful_step_count=25, deadline=None, suppress_health_check=SLOW)
