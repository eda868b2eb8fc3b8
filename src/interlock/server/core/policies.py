"""Policies as people look at them: the rules in force for an agent, why a call would be decided as it is, and what
another policy would have said about the calls of recorded runs. Nothing is executed, and nobody is asked.

Text that somebody sends is bounded before it is read; a backtest looks at the newest runs, so many of them, so many
events and for so long, and says where it stopped. One runs at a time: it takes a processor.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from time import monotonic
from typing import Literal, TypeAlias

import msgspec
from pydantic import BaseModel, ValidationError

from ...audit.verify import verify
from ...domain import json
from ...domain.chain import Entry, decode_event
from ...domain.decision import Decision
from ...domain.event import Event
from ...domain.json import JsonObject
from ...domain.tool import Mode, Situation, ToolDefinition
from ...policy.analysis.backtest import Backtest, backtest
from ...policy.analysis.describe import about
from ...policy.analysis.example_event import hypothetical
from ...policy.analysis.explain import Explanation, explain
from ...policy.analysis.recorded import RecordedCall, recorded_calls
from ...policy.engine.rule_policy import RulePolicy
from ...policy.files.places import PolicyFileError
from ...policy.files.policy_files import PolicyFiles, read_layer
from ...policy.interface import PolicyEngine, PolicyEvent
from ...runs.runner import Runner
from .errors import BusyError, InvalidError, unknown
from .identity.guard import Guard
from .identity.permissions import Operation, RunFacts
from .identity.principal import Principal
from .index.index import Index
from .index.rows import RunQuery, RunRow
from .runs.runners import Fleet

MAX_EVENTS = 100_000
_PAGE = 100

#: Which bound was reached; empty: none.
Stopped: TypeAlias = Literal["", "runs", "events", "time"]


class Newest(msgspec.Struct):
    events: list[Event] = []
    runs: int = 0
    left_out: list[str] = []
    stopped: Stopped = ""


async def read_newest(index: Index, agent: str, most: int, is_late: Callable[[], bool]) -> Newest:
    read, cursor = Newest(), ""
    while True:
        page = await index.runs(RunQuery(agent=agent, inside=True, limit=_PAGE, cursor=cursor))
        for row in page.rows:
            read.stopped = _bound(read, row, most, is_late)
            if read.stopped:
                return read
            await _add(index, row, read)
        cursor = page.next_cursor
        if not cursor:
            return read


def _bound(read: Newest, row: RunRow, most: int, is_late: Callable[[], bool]) -> Stopped:
    if read.runs + len(read.left_out) >= most:
        return "runs"
    if row.last_seq + 1 > MAX_EVENTS - len(read.events):
        return "events"
    return "time" if is_late() else ""


async def _add(index: Index, row: RunRow, read: Newest) -> None:
    entries = await index.log.read(row.run_id, -1, MAX_EVENTS)
    found = await asyncio.to_thread(_sound, row.run_id, entries)
    if isinstance(found, str):
        read.left_out.append(found)
    else:
        read.events += found
        read.runs += 1


def _sound(run_id: str, entries: Sequence[Entry]) -> list[Event] | str:
    flaw = verify(entries, run_id).flaw
    return f"{run_id}: {flaw.message}" if flaw else [decode_event(entry) for entry in entries]


MAX_POLICY_CHARS = 128 << 10
MAX_ARGUMENTS_CHARS = 64 << 10
MAX_RUNS = 500
MAX_SECONDS = 10.0
_MAX_ERRORS = 10

Known: TypeAlias = RulePolicy | PolicyFiles
#: `files`: read from policy files. `code`: rules that the agent brings. `custom`: an engine without rules to list.
PolicyKind: TypeAlias = Literal["files", "code", "custom"]


class RuleRow(msgspec.Struct, frozen=True, kw_only=True):
    """A rule in one line."""

    id: str
    layer: str
    verdict: str
    about: str
    reason: str = ""
    advice: str = ""
    #: When it ends, in nanoseconds since 1970; 0 is never.
    expires_at: int = 0


class PolicyShown(msgspec.Struct, frozen=True, kw_only=True):
    agent: str
    kind: PolicyKind
    #: Where no rule speaks: `risk`, `allow`, `ask` or `deny`; empty where that is not known.
    default: str = ""
    digest: str = ""
    #: By id. The order decides nothing: the strictest verdict wins.
    rules: tuple[RuleRow, ...] = ()
    files: tuple[str, ...] = ()
    #: What the last reading of the files found. With any, an older policy is in force, or everything is refused.
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """A call that nobody made."""

    tool: str
    arguments: JsonObject
    mode: Mode | None = None
    interactive: bool = False
    requester: str = ""


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    decision: Decision
    #: Part by part; None where the policy cannot say why.
    explanation: Explanation | None = None
    #: Is it a tool of the agent? If not, only its name is known.
    known_tool: bool = True


class Backtested(msgspec.Struct, frozen=True, kw_only=True):
    result: Backtest
    #: How many runs and calls were looked at.
    runs: int
    calls: int
    #: Runs that are not what was written, each with the reason.
    left_out: tuple[str, ...] = ()
    stopped: Stopped = ""
    warnings: tuple[str, ...] = ()


class Policies:
    def __init__(self, fleet: Fleet, index: Index, guard: Guard, clock: Callable[[], float] = monotonic) -> None:
        self._fleet = fleet
        self._index = index
        self._guard = guard
        self._clock = clock
        self._testing = asyncio.Lock()

    async def show(self, who: Principal, agent: str) -> PolicyShown:
        runner = await self._runner(who, agent)
        policy = runner.app.parts.policy
        tools = tuple(sorted(tool.name for tool in runner.app.registry.visible(Situation(run_id="run_policy"))))
        known = _known(policy)
        if known is None:
            return PolicyShown(agent=agent, kind="custom", tools=tools)
        rules = known.policy if isinstance(known, PolicyFiles) else known
        files = known if isinstance(known, PolicyFiles) else None
        return PolicyShown(
            agent=agent,
            kind="code" if files is None else "files",
            default=rules.default,
            digest=rules.digest,
            rules=tuple(
                RuleRow(
                    id=rule.id,
                    layer=rule.layer,
                    verdict=rule.verdict,
                    about=about(rule),
                    reason=rule.reason,
                    advice=rule.advice,
                    expires_at=rule.expires_at,
                )
                for rule in rules.rules
            ),
            files=() if files is None else files.own_paths,
            problems=() if files is None else tuple(map(str, files.problems)),
            warnings=() if files is None else tuple(map(str, files.warnings)),
            tools=tools,
        )

    async def explain(self, who: Principal, agent: str, wish: WhatIf) -> Explained:
        """`InvalidError` when these cannot be arguments of the tool."""
        runner = await self._runner(who, agent)
        if len(json.encode(wish.arguments)) > MAX_ARGUMENTS_CHARS:
            raise InvalidError("arguments", f"have to have at most {MAX_ARGUMENTS_CHARS:,} bytes")
        tool = runner.app.registry.find(wish.tool)
        event = _event(self._situation(agent, wish), tool, wish)
        policy = runner.app.parts.policy
        known = _known(policy)
        if known is None:
            return Explained(decision=await _asked(policy, event), known_tool=tool is not None)
        rules = known.policy if isinstance(known, PolicyFiles) else known
        found = await asyncio.to_thread(explain, rules, event)
        return Explained(decision=found.decision, explanation=found, known_tool=tool is not None)

    async def backtest(self, who: Principal, agent: str, text: str = "", runs: int = MAX_RUNS) -> Backtested:
        """What the policy in `text` (YAML) would have said about recorded calls of this agent; without text, what the
        one in force would say today. `InvalidError` with what is wrong, line by line."""
        runner = await self._runner(who, agent)
        if len(text) > MAX_POLICY_CHARS:
            raise InvalidError("policy", f"has to have at most {MAX_POLICY_CHARS:,} characters")
        if self._testing.locked():
            raise BusyError(
                "backtest_under_way", "Another backtest is under way. Nothing was tried. Try again in a moment."
            )
        async with self._testing:
            policy, warnings = await self._candidate(runner, text)
            return await self._tried(runner, policy, warnings, max(1, min(runs, MAX_RUNS)))

    async def _candidate(self, runner: Runner, text: str) -> tuple[Known, tuple[str, ...]]:
        if text.strip():
            return await asyncio.to_thread(_pasted, text)
        known = _known(runner.app.parts.policy)
        if known is None:
            raise InvalidError("policy", "the policy in force is none of rules; paste one")
        return known, ()

    async def _tried(self, runner: Runner, policy: Known, warnings: tuple[str, ...], most: int) -> Backtested:
        until = self._clock() + MAX_SECONDS
        read = await read_newest(self._index, runner.agent.name, most, lambda: self._clock() > until)
        tools = {tool.name: tool for tool in runner.app.registry.visible(Situation(run_id="run_backtest"))}
        calls = await asyncio.to_thread(recorded_calls, read.events, tools)
        timed = _Timed(calls, until, self._clock)
        result = await asyncio.to_thread(backtest, policy, timed)
        return Backtested(
            result=result,
            runs=read.runs,
            calls=timed.taken,
            left_out=tuple(read.left_out),
            stopped="time" if timed.taken < len(calls) else read.stopped,
            warnings=warnings,
        )

    async def _runner(self, who: Principal, agent: str) -> Runner:
        await self._guard.check(who, Operation.READ_POLICY, RunFacts(agent=agent), agent)
        runner = self._fleet.runners.get(agent)
        if runner is None:
            raise unknown("agent", agent)
        return runner

    def _situation(self, agent: str, wish: WhatIf) -> Situation:
        served = self._fleet.served[agent]
        return Situation(
            run_id="run_explain",
            agent=agent,
            mode=wish.mode or served.mode,
            workspace=served.workspace,
            interactive=wish.interactive,
            requester=wish.requester,
        )


class _Timed:
    """The calls, until the time is over."""

    def __init__(self, calls: Sequence[RecordedCall], until: float, clock: Callable[[], float]) -> None:
        self.taken = 0
        self._calls, self._until, self._clock = calls, until, clock

    def __iter__(self) -> Iterator[RecordedCall]:
        for call in self._calls:
            if self._clock() > self._until:
                return
            self.taken += 1
            yield call


def _known(policy: PolicyEngine) -> Known | None:
    return policy if isinstance(policy, RulePolicy | PolicyFiles) else None


def _pasted(text: str) -> tuple[RulePolicy, tuple[str, ...]]:
    try:
        read = read_layer("policy", "user", text.encode(errors="surrogatepass"))
        policy = RulePolicy(read.rules, read.default or "risk", read.resources)
    except PolicyFileError as error:
        raise InvalidError("policy", str(error)) from None
    return policy, tuple(map(str, read.warnings))


def _event(situation: Situation, tool: ToolDefinition | None, wish: WhatIf) -> PolicyEvent:
    if tool is None:
        return hypothetical(wish.tool, wish.arguments, situation)
    return PolicyEvent("call_explain", tool, _checked(tool, wish.arguments), situation)


def _checked(tool: ToolDefinition, arguments: JsonObject) -> BaseModel:
    try:
        return tool.args_model.__pydantic_validator__.validate_json(json.encode(arguments))
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)[:_MAX_ERRORS]
        problems = [f"{'.'.join(map(str, each['loc'])) or 'arguments'}: {each['msg']}" for each in found]
        raise InvalidError("arguments", f"do not fit {tool.name}: {'; '.join(problems)}") from None
    except Exception as error:
        raise InvalidError("arguments", f"a validator of {tool.name} failed: {type(error).__name__}") from None


async def _asked(policy: PolicyEngine, event: PolicyEvent) -> Decision:
    """An engine of somebody else: it is asked, for as long as anybody would wait."""
    try:
        said = policy.evaluate(event)
        if isinstance(said, Awaitable):
            said = await asyncio.wait_for(said, MAX_SECONDS)
    except Exception as error:
        raise InvalidError("policy", f"the policy of this agent gave no answer: {type(error).__name__}") from None
    return said
