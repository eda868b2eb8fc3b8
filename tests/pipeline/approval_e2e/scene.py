"""One tool that a person must approve, in a folder with a file, and ways to change everything around it."""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from interlock import (
    Action,
    Answer,
    BatchResult,
    CallContext,
    Clock,
    Decision,
    EventLog,
    ExecutionEnvironment,
    HeadlessInteractionProvider,
    MemoryLog,
    PolicyEvent,
    Question,
    Rule,
    RulePolicy,
    ToolDefinition,
    ToolRuntime,
    Verdict,
    tool,
)
from interlock.domain.event import Fact, LogEntry, decode_event, encode_event, genesis_hash, next_hash
from interlock.domain.tool import JsonObject
from interlock.sandbox.handlers.executor import HandlerExecutor
from tests.patience import HANG_SECONDS

RUN = "run_approvals"
OPEN = HeadlessInteractionProvider("wait")
START = 1_800_000_000_000_000_000
SECOND = 1_000_000_000


#: The rule that is suggested with every question.
RULE = "{decision: allow, tools: edit}"


class HandClock:
    """Time that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = START

    def passes(self, seconds: float) -> None:
        self.now += int(seconds * SECOND)

    def clock(self) -> Clock:
        return Clock(now=lambda: self.now)


class SetPolicy:
    """Says what it is set to say about `edit`, and keeps rules if told to."""

    def __init__(self, verdict: Verdict = Verdict.ASK, digest: str = "sha256:one", **decision: Any) -> None:
        self.verdict, self.digest = verdict, digest
        self.decision: dict[str, Any] = {"scope": "rule", "rule_ids": ("ask-edit",), "suggested_rule": RULE, **decision}
        self.judged: list[dict[str, Any]] = []

    def evaluate(self, event: PolicyEvent) -> Decision:
        self.judged.append(event.arguments)
        if event.tool_name != "edit":
            return Decision(verdict=Verdict.ALLOW, reason="Not an edit.")
        return Decision(verdict=self.verdict, reason="It says so.", policy_digest=self.digest, **self.decision)

    def becomes(self, verdict: Verdict) -> None:
        self.verdict, self.digest = verdict, f"sha256:{verdict}"


class KeepingPolicy(SetPolicy):
    """Allows what a kept rule says."""

    def __init__(self, fails: str = "") -> None:
        super().__init__()
        self.kept: list[str] = []
        self._fails = fails

    def keep(self, rule: str) -> None:
        if self._fails:
            raise OSError(self._fails)
        self.kept.append(rule)
        self.becomes(Verdict.ALLOW)


class ProfiledSandbox(HandlerExecutor):
    """A sandbox whose profile and environment a test sets."""

    profile: ClassVar[str] = "none/async"
    environment: ClassVar[dict[str, str]] = {}

    def describe_environment(
        self, tool: ToolDefinition, arguments: JsonObject, situation: CallContext, paths: Iterable[str]
    ) -> ExecutionEnvironment:
        found = super().describe_environment(tool, arguments, situation, paths)
        return msgspec.structs.replace(found, sandbox=self.profile, environment=self.environment)


class Person:
    """Remembers what they were asked; says what they are told to, one answer after another, the last one for ever."""

    approval_timeout_s: float | None = 5.0
    approval_fallback: Any = "deny"
    interactive = True

    def __init__(self, *answers: Answer | None, thinks: Callable[[Question], object] = lambda _: None) -> None:
        self.asked: list[Question] = []
        self._answers = answers or (Answer(approved=True, by="ada"),)
        self._thinks = thinks

    async def ask(self, question: Question) -> Answer | None:
        self.asked.append(question)
        self._thinks(question)
        return self._answers[min(len(self.asked), len(self._answers)) - 1]


class Scene:
    def __init__(self, folder: Path, log: EventLog | None = None) -> None:
        self.folder = folder
        self.file = folder / "notes.txt"
        self.file.write_text("as it was")
        self.log = MemoryLog() if log is None else log
        self.time = HandClock()
        self.ran: list[dict[str, Any]] = []
        self.policy: Any = SetPolicy()

    def tool(self, **options: Any) -> ToolDefinition:
        async def edit(path: str, text: str = "new", size: float = 1.0) -> str:
            self.ran.append({"path": path, "text": text, "size": size})
            return "edited"

        given: dict[str, Any] = {"version": "1", "risk": "write", "resources": {"path": "path"}, **options}
        return tool(edit, name="edit", **given)

    def runtime(self, **options: Any) -> ToolRuntime:
        given: dict[str, Any] = {
            "run_id": RUN,
            "tools": [self.tool()],
            "policy": self.policy,
            "interaction": OPEN,
            "log": self.log,
            "clock": self.time.clock(),
            "workspace": self.folder,
            "requester": "ada",
        }
        return ToolRuntime(**(given | options))


def ask_rule(**fields: Any) -> RulePolicy:
    given: dict[str, Any] = {
        "id": "ask-edit",
        "verdict": "ask",
        "tools": "edit",
        "scope": "rule",
        "suggested_rule": RULE,
    }
    return RulePolicy([Rule(**(given | fields))])


async def statuses(runtime: ToolRuntime) -> list[str]:
    return [action.status for action in await runtime.actions()]


async def action_of(runtime: ToolRuntime, action_id: str) -> Action:
    return next(action for action in await runtime.actions() if action.action_id == action_id)


def changed(result: BatchResult) -> list[str]:
    """What the only open question says is different."""
    [question] = result.questions
    return [change.what for change in question.changes]


async def rewritten(log: EventLog, change: Callable[[Fact], Fact]) -> MemoryLog:
    """A copy of the run with other facts, chained as if they had always been there."""
    copy, head, entries = MemoryLog(), genesis_hash(RUN), list[LogEntry]()
    for entry in await log.read(RUN):
        event = decode_event(entry)
        body = encode_event(msgspec.structs.replace(event, fact=change(event.fact)))
        head = next_hash(head, body)
        entries.append(LogEntry(RUN, entry.seq, body, head))
    copy.append(RUN, entries)
    return copy


async def soon(work: Any) -> Any:
    """Everything here ends at once; what does not has a bug."""
    return await asyncio.wait_for(work, HANG_SECONDS)
