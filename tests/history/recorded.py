"""Recorded runs to look at: facts put in a chain, and a log that hands them out."""

from collections.abc import Iterable, Sequence

from interlock.domain.call import Answer, Question
from interlock.domain.decision import Decision, Verdict
from interlock.domain.event import (
    ApprovalGranted,
    ApprovalRequested,
    BatchStarted,
    CallObserved,
    CallProposed,
    CallValidated,
    Event,
    Fact,
    InvocationCompleted,
    InvocationStarted,
    LogEntry,
    PolicyEvaluated,
    RunCompleted,
    RunPaused,
    RunResumed,
    RunStarted,
    ToolsOffered,
    WarningRaised,
    encode_event,
    genesis_hash,
    next_hash,
)
from interlock.domain.observation import ArtifactRef, Content, Observation, OutputSize
from interlock.domain.outcome import Failure
from interlock.storage.event_log import Lease, Snapshot
from interlock.storage.memory import MemoryLog
from tests.log_around import LogAround

RUN = "run_1"
ALLOW = Decision(verdict=Verdict.ALLOW, reason="No rule matches.")
ASK = Decision(
    verdict=Verdict.ASK, reason="Writes a file.", rule_ids=("writes",), layer="project rule", risk=("write",)
)
DENY = Decision(verdict=Verdict.DENY, reason="Never.", rule_ids=("no-push",), layer="enterprise policy")


def event(seq: int, fact: Fact, run_id: str = RUN) -> Event:
    return Event(seq, run_id, 1_700_000_000_000_000_000 + seq, run_id, seq - 1 if seq else None, fact)


def record(facts: Iterable[Fact], run_id: str = RUN) -> list[LogEntry]:
    """The entries of a run that consists of these facts."""
    return chain([encode_event(event(seq, fact, run_id)) for seq, fact in enumerate(facts)], run_id)


def chain(bodies: Iterable[bytes], run_id: str = RUN) -> list[LogEntry]:
    entries: list[LogEntry] = []
    head = genesis_hash(run_id)
    for seq, body in enumerate(bodies):
        head = next_hash(head, body)
        entries.append(LogEntry(run_id, seq, body, head))
    return entries


def question(call_id: str = "write", action_id: str = "act_1", kind: str = "approval") -> Question:
    return Question(
        action_id=action_id,
        run_id=RUN,
        call_id=call_id,
        tool_name="write_file",
        kind="input" if kind == "input" else "approval",
        prompt="Write notes.txt?",
        arguments={"path": "notes.txt", "text": "hello"},
        payload_hash="sha256:11",
        risk=("write",),
        rule_ids=("writes",),
    )


def proposed(call_id: str, tool: str, **raw: object) -> CallProposed:
    return CallProposed(call_id=call_id, tool=tool, raw_input=raw, digest="d-" + call_id, tool_version="v1")


def started(call_id: str, tool: str, seq: int, action_id: str = "") -> InvocationStarted:
    return InvocationStarted(
        invocation_id=f"inv_{seq}",
        call_id=call_id,
        tool=tool,
        executor="async",
        tool_version="v1",
        timeout_seconds=60.0,
        action_id=action_id,
    )


def ended(call_id: str, seq: int) -> InvocationCompleted:
    return InvocationCompleted(invocation_id=f"inv_{seq}", call_id=call_id, exit="ok", duration_ms=1.5)


def observed(observation: Observation) -> CallObserved:
    return CallObserved(observation_id="obs_" + observation.call_id, observation=observation)


READ = Observation(
    call_id="read",
    tool="read_file",
    ok=True,
    summary="Read a.txt.",
    content=Content(text="line 1 …"),
    size=OutputSize(produced=5000, kept=5000, shown=10, omitted=4990),
    artifacts=(ArtifactRef(id="sha256:aa", kind="output", size_bytes=5000),),
    duration_ms=1.5,
)
PUSHED = Observation(
    call_id="push",
    tool="git_push",
    ok=False,
    summary="Denied by policy.",
    failure=Failure.from_code("policy_denied", "Denied by policy: Never. Nothing was executed."),
)
INVALID = Observation(
    call_id="invalid",
    tool="read_file",
    ok=False,
    summary="The arguments do not fit.",
    failure=Failure.from_code("schema_invalid", "path: Field required"),
)
WRITTEN = Observation(call_id="write", tool="write_file", ok=True, summary="Wrote notes.txt.", duration_ms=1.5)

#: One batch of four calls: read (allowed), push (denied), invalid (does not fit), write (asked, paused, granted). The
#: observation of `write` is recorded last, and that of `invalid` first.
FACTS: tuple[Fact, ...] = (
    RunStarted(schema=1, agent="fixer"),
    ToolsOffered(digest="menu1", versions={"read_file": "v1", "write_file": "v1"}, artifact_id="sha256:menu"),
    BatchStarted(call_count=4, menu_digest="menu1"),
    proposed("read", "read_file", path="a.txt"),
    proposed("push", "git_push", remote="origin"),
    proposed("invalid", "read_file"),
    proposed("write", "write_file", path="notes.txt", text="hello"),
    CallValidated(call_id="read", ok=True),
    CallValidated(call_id="push", ok=True),
    CallValidated(call_id="invalid", ok=False, errors=("path: Field required",)),
    CallValidated(call_id="write", ok=True),
    PolicyEvaluated(call_id="read", tool="read_file", decision=ALLOW),
    PolicyEvaluated(call_id="push", tool="git_push", decision=DENY),
    PolicyEvaluated(call_id="write", tool="write_file", decision=ASK),
    observed(INVALID),
    observed(PUSHED),
    ApprovalRequested(call_id="write", question=question()),
    started("read", "read_file", 17),
    ended("read", 17),
    observed(READ),
    RunPaused(kind="approval", waiting=("act_1",)),
    ApprovalGranted(call_id="write", action_id="act_1", answer=Answer(approved=True, reason="go on", by="ada")),
    RunResumed(),
    started("write", "write_file", 23, action_id="act_1"),
    ended("write", 23),
    observed(WRITTEN),
    WarningRaised(message="The sandbox refused a write to /etc.", call_id="write"),
    RunCompleted(message="Done."),
)


class ListLog(LogAround):
    """A log whose stored entries a test may reach into."""

    def __init__(self, entries: Sequence[LogEntry] = (), snapshot: Snapshot | None = None) -> None:
        super().__init__(MemoryLog())
        self.entries = list(entries)
        self.snapshot = snapshot
        #: The `after_seq` of every read.
        self.reads: list[int] = []

    def append(self, run_id: str, entries: Sequence[LogEntry], lease: Lease | None = None) -> None:
        self.entries.extend(entries)

    async def read(self, run_id: str, after_seq: int = -1, limit: int | None = None) -> list[LogEntry]:
        self.reads.append(after_seq)
        found = [entry for entry in self.entries if entry.run_id == run_id and entry.seq > after_seq]
        return found[:limit]

    async def save_snapshot(self, run_id: str, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    async def load_snapshot(self, run_id: str) -> Snapshot | None:
        return self.snapshot

    async def close(self) -> None:
        pass
