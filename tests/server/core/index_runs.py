"""Logs for tests of the index: facts put in chains, real runs, and what their ledgers say that a row must say."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from interlock import MemoryLog, Rule, RulePolicy, ToolDefinition, tool
from interlock.agent.agent import Agent
from interlock.domain.call import Answer, Question
from interlock.domain.decision import Decision, Verdict
from interlock.domain.event import (
    ApprovalGranted,
    ApprovalRequested,
    CallProposed,
    CallValidated,
    ConsentRequested,
    Event,
    Fact,
    InputRequested,
    LogEntry,
    PolicyEvaluated,
    RunPaused,
    RunStarted,
    UserMessageReceived,
    decode_event,
    encode_event,
    genesis_hash,
    next_hash,
)
from interlock.domain.state.ledger import Ledger
from interlock.domain.state.lifecycle import RUN_TRANSITIONS, ActionState
from interlock.history.actions import list_actions
from interlock.history.fold import load_run
from interlock.runs.fork import fork
from interlock.runs.handle import RunHandle
from interlock.runs.runner import Runner
from interlock.server.core.index.rows import ActionQuery, ActionRow, RunRow
from interlock.server.core.index.run_index import RunIndex
from interlock.server.core.live.live_event import LiveEvent
from interlock.storage.event_log import EventLog
from tests.runs.support import agent_of, calls

T0 = 1_700_000_000_000_000_000
YES = Answer(approved=True, by="user:ann")
_REQUESTED = {"approval": ApprovalRequested, "input": InputRequested, "consent": ConsentRequested}

Kind = Literal["approval", "input", "consent"]


class Written:
    """A run that is written fact by fact."""

    def __init__(self, log: MemoryLog, run_id: str) -> None:
        self.log = log
        self.run_id = run_id
        self.next_seq = 0
        self._head = genesis_hash(run_id)

    def add(self, *facts: Fact) -> None:
        self.log.append(self.run_id, [self._entry(fact) for fact in facts])

    def add_raw(self, body: bytes) -> None:
        """Bytes that are no event."""
        self.log.append(self.run_id, [self._chained(body)])

    def _entry(self, fact: Fact) -> LogEntry:
        at = T0 + self.next_seq
        return self._chained(encode_event(Event(self.next_seq, self.run_id, at, self.run_id, None, fact)))

    def _chained(self, body: bytes) -> LogEntry:
        self._head = next_hash(self._head, body)
        entry = LogEntry(self.run_id, self.next_seq, body, self._head)
        self.next_seq += 1
        return entry


def events_of(items: Iterable[object]) -> list[LiveEvent]:
    """The events among what a reader returned."""
    return [item for item in items if isinstance(item, LiveEvent)]


def asking(call_id: str, action_id: str, kind: Kind = "approval", expires_at: int = 0, **about: Any) -> Sequence[Fact]:
    shown: dict[str, Any] = {
        "tool_name": "change",
        "arguments": {},
        "risk": ("write", "network"),
        "asked_at": T0,
        "capability": "change x",
        **about,
    }
    question = Question(
        action_id=action_id,
        run_id="run",
        call_id=call_id,
        kind=kind,
        prompt="May it?",
        payload_hash=f"sha256:{action_id}",
        expires_at=expires_at,
        agent="helper",
        **shown,
    )
    return (
        CallProposed(call_id=call_id, tool="change"),
        CallValidated(call_id=call_id, ok=True),
        PolicyEvaluated(call_id=call_id, tool="change", decision=Decision(verdict=Verdict.ASK, reason="Ask.")),
        _REQUESTED[kind](call_id=call_id, question=question),
    )


def granted(action_id: str, call_id: str = "c1") -> Fact:
    return ApprovalGranted(call_id=call_id, action_id=action_id, answer=YES)


def begun(log: MemoryLog, run_id: str, task: str = "Do it.", **about: Any) -> Written:
    run = Written(log, run_id)
    told: dict[str, Any] = {"agent": "boss", **about}
    run.add(RunStarted(schema=1, **told), UserMessageReceived(text=task))
    return run


def paused(log: MemoryLog, run_id: str, expires_at: int = 0, **about: Any) -> Written:
    run = begun(log, run_id, **about)
    waiting = asking("c1", f"act_{run_id}", expires_at=expires_at)
    run.add(*waiting, RunPaused(kind="approval", waiting=("c1",)))
    return run


async def expected_run(log: EventLog, run_id: str) -> RunRow:
    """What the ledger says. A run inside another one acts for whoever that one acts for."""
    ledger, events = (await load_run(log, run_id)).ledger, [decode_event(entry) for entry in await log.read(run_id)]
    around = await expected_run(log, ledger.parent_run_id) if ledger.parent_run_id else None
    return RunRow(
        run_id=run_id,
        agent=ledger.agent,
        state=ledger.state,
        requester=ledger.requester or (around.requester if around else ""),
        created_by=ledger.created_by or (around.created_by if around else ""),
        parent_run_id=ledger.parent_run_id,
        task=next((event.fact.text for event in events if isinstance(event.fact, UserMessageReceived)), ""),
        message=ledger.message,
        code=ledger.code,
        input_tokens=ledger.dialogue.usage.input_tokens,
        output_tokens=ledger.dialogue.usage.output_tokens,
        cost_nanos=round(ledger.dialogue.usage.cost * 1e9),
        created_at=ledger.started_at,
        updated_at=events[-1].at,
        last_seq=ledger.next_seq - 1,
        open_questions=_pending(ledger),
    )


def _pending(ledger: Ledger) -> int:
    is_over = not RUN_TRANSITIONS[ledger.state]
    return 0 if is_over else sum(action.state is ActionState.PENDING for action in ledger.actions.values())


async def expected_actions(log: EventLog, run: RunRow) -> list[ActionRow]:
    events = [decode_event(entry) for entry in await log.read(run.run_id)]
    return [
        ActionRow(
            action_id=action.action_id,
            run_id=run.run_id,
            agent=run.agent,
            requester=run.requester,
            created_by=run.created_by,
            call_id=action.call_id,
            tool=action.tool,
            capability=action.capability,
            title=action.title,
            kind=action.question.kind,
            payload_hash=action.payload_hash,
            state=ActionState[action.status],
            risk=action.question.risk,
            asked_at=action.asked_at,
            expires_at=action.question.expires_at,
            asked_seq=action.asked_seq,
            decided_at=0 if action.answered_seq is None else events[action.answered_seq].at,
            decided_by="" if action.answer is None else action.answer.by,
            rules=action.question.rule_ids,
        )
        for action in list_actions((await load_run(log, run.run_id)).ledger)
    ]


async def assert_rows_are_those_of_the_ledgers(index: RunIndex, run_ids: Iterable[str]) -> None:
    for run_id in run_ids:
        row = await expected_run(index.log, run_id)
        assert await index.get_run(run_id) == row
        listed = await index.list_actions(ActionQuery(run_id=run_id, limit=1000))
        assert list(listed.rows) == await expected_actions(index.log, row)


@tool(risk="write")
def change(what: str) -> str:
    """A person is asked."""
    return f"changed {what}"


@tool
def name_it(name: str) -> str:
    """A person gives the value."""
    return name


_POLICY = RulePolicy(
    [
        Rule(id="ask-change", verdict="ask", tools="change"),
        Rule(id="ask-name", verdict="request_input", tools="name_it", target_arg="name"),
    ],
    default="allow",
)
_TOOLS: tuple[ToolDefinition, ...] = (change, name_it)


def _boss() -> Agent:
    helper = agent_of(calls(("in", "change", {"what": "y"})), "Helped.", tools=_TOOLS, name="helper", policy=_POLICY)
    turns = (
        calls(("a", "change", {"what": "x"}), ("b", "name_it", {"name": ""})),
        calls(("out", "ask_helper", {"task": "Help."})),
        "All done.",
    )
    return agent_of(*turns, tools=[*_TOOLS, helper.as_tool()], name="boss", policy=_POLICY)


async def real_runs() -> MemoryLog:
    """Runs of an agent: one to its end with a run inside, one refused, one cancelled while it waits, and a fork."""
    log = MemoryLog()
    for run_id, approved in (("run_done", True), ("run_refused", False)):
        async with Runner(_boss(), log=log, requester="user:ada") as runner:
            await _go_on(await runner.start("Bring it out.", run_id=run_id), approved)
    async with Runner(_boss(), log=log) as runner:
        handle = await runner.start("Bring it out.", run_id="run_cancelled")
        await handle.result()
        await fork(log, "run_cancelled", new_run_id="run_fork")
        await handle.cancel("Not now.")
    return log


async def _go_on(handle: RunHandle, approved: bool) -> None:
    while RUN_TRANSITIONS[(result := await handle.result()).state]:
        for question in result.questions:
            value = "a name" if question.kind == "input" else None
            await handle.decide(question.action_id, approved=approved, by="user:ann", value=value)
        await handle.resume()
