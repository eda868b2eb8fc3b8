"""Policy inspection: the rules in force for an agent, explanations of decisions, backtests on recorded runs, and rules
that recorded answers suggest. Nothing is executed, asked or applied.

Submitted text is bounded before it is parsed; backtests and suggestions cover the newest runs, within limits of runs,
events and time, and say where they stopped. One of them runs at a time: they are CPU-bound.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from time import monotonic
from typing import Literal, TypeAlias

import msgspec
from pydantic import BaseModel, ValidationError

from ...audit.verify import verify
from ...domain import json
from ...domain.decision import Decision
from ...domain.errors import InterlockError
from ...domain.event import Event, LogEntry, decode_event
from ...domain.json import JsonObject
from ...domain.tool import CallContext, PermissionMode, ToolDefinition
from ...policy.analysis.backtest import Backtest, backtest
from ...policy.analysis.explain import Explanation, describe_egress_rule, describe_rule, explain
from ...policy.analysis.recorded_calls import RecordedCall, read_recorded_calls, read_recorded_requests
from ...policy.analysis.suggestions import (
    AskingRule,
    RuleSuggestion,
    count_asking_rules,
    describe_coverage,
    find_suggestions,
    measure_coverage,
)
from ...policy.engine.example_event import example_event
from ...policy.engine.rule_policy import RulePolicy
from ...policy.files.policy_files import PolicyFiles, read_layer
from ...policy.files.problems import PolicyFileError
from ...policy.files.saved_rules import parse_rule
from ...policy.interface import PolicyEngine, PolicyEvent
from ...runs.runner import Runner
from .errors import InvalidRequestError, UnavailableError
from .identity.guard import AccessGuard
from .identity.permissions import Operation, RunOwnershipData, is_allowed
from .identity.principal import Principal
from .index.rows import RunQuery, RunRow
from .index.run_index import RunIndex
from .runs.agent_runners import AgentRunners

MAX_EVENTS = 100_000
_PAGE_SIZE = 100

#: Which bound was reached; empty: none.
BacktestLimit: TypeAlias = Literal["", "runs", "events", "time"]


class RecentEvents(msgspec.Struct):
    """Events of recent runs for a backtest."""

    events: list[Event] = []
    runs: int = 0
    left_out: list[str] = []
    stopped: BacktestLimit = ""


async def read_recent_events(
    index: RunIndex, agent: str, max_runs: int, is_timed_out: Callable[[], bool]
) -> RecentEvents:
    """Read events of an agent's recent runs until a limit is reached."""
    recent, cursor = RecentEvents(), ""
    while True:
        page = await index.list_runs(RunQuery(agent=agent, include_child_runs=True, limit=_PAGE_SIZE, cursor=cursor))
        for row in page.rows:
            recent.stopped = _find_reached_limit(recent, row, max_runs, is_timed_out)
            if recent.stopped:
                return recent
            await _add_events_of_run(index, row, recent)
        cursor = page.next_cursor
        if not cursor:
            return recent


def _find_reached_limit(
    recent: RecentEvents, row: RunRow, max_runs: int, is_timed_out: Callable[[], bool]
) -> BacktestLimit:
    if recent.runs + len(recent.left_out) >= max_runs:
        return "runs"
    if row.last_seq + 1 > MAX_EVENTS - len(recent.events):
        return "events"
    return "time" if is_timed_out() else ""


async def _add_events_of_run(index: RunIndex, row: RunRow, recent: RecentEvents) -> None:
    entries = await index.log.read(row.run_id, -1, MAX_EVENTS)
    found = await asyncio.to_thread(_verify_and_decode, row.run_id, entries)
    if isinstance(found, str):
        recent.left_out.append(found)
    else:
        recent.events += found
        recent.runs += 1


def _verify_and_decode(run_id: str, entries: Sequence[LogEntry]) -> list[Event] | str:
    flaw = verify(entries, run_id).flaw
    return f"{run_id}: {flaw.message}" if flaw else [decode_event(entry) for entry in entries]


MAX_POLICY_CHARS = 128 << 10
MAX_ARGUMENTS_CHARS = 64 << 10
MAX_RUNS = 500
MAX_SECONDS = 10.0
_MAX_ERRORS = 10
#: How much is read to preview a rule with a question.
_PREVIEW_RUNS, _PREVIEW_CALLS, _PREVIEW_SECONDS = 20, 50, 0.5
#: How much is read for suggestions.
SUGGESTION_RUNS, _SUGGESTION_SECONDS = 200, 3.0

RuleBasedPolicy: TypeAlias = RulePolicy | PolicyFiles
#: `files`: read from policy files. `code`: rules that the agent brings. `custom`: an engine without rules to list.
PolicyKind: TypeAlias = Literal["files", "code", "custom"]


class RuleRow(msgspec.Struct, frozen=True, kw_only=True):
    """A rule in one line."""

    id: str
    layer: str
    verdict: str
    description: str
    reason: str = ""
    advice: str = ""
    #: When it ends, in nanoseconds since 1970; 0 is never.
    expires_at: int = 0


class PolicyDetails(msgspec.Struct, frozen=True, kw_only=True):
    """The policy in force for an agent."""

    agent: str
    kind: PolicyKind
    #: Where no rule matches: `risk`, `allow`, `ask` or `deny`; empty where that is not known.
    default: str = ""
    digest: str = ""
    #: By id. The order decides nothing: the strictest verdict wins.
    rules: tuple[RuleRow, ...] = ()
    #: Which hosts commands reach, by id.
    egress: tuple[RuleRow, ...] = ()
    #: What calls and model requests may use, by id. The verdict is about a call that does not fit.
    budgets: tuple[RuleRow, ...] = ()
    files: tuple[str, ...] = ()
    #: What the last reading of the files found. With any, an older policy is in force, or everything is refused.
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()


class ExampleCall(msgspec.Struct, frozen=True, kw_only=True):
    """A hypothetical call."""

    tool: str
    arguments: JsonObject
    mode: PermissionMode | None = None
    interactive: bool = False
    requester: str = ""


class PolicyExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """The decision about a hypothetical call, and why."""

    decision: Decision
    #: Part by part; None where the policy cannot say why.
    explanation: Explanation | None = None
    #: Whether it is a tool of the agent. If not, only its name is known.
    known_tool: bool = True


class BacktestReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a backtest."""

    result: Backtest
    #: How many runs and calls were looked at.
    runs: int
    calls: int
    #: Runs that are not what was written, each with the reason.
    left_out: tuple[str, ...] = ()
    stopped: BacktestLimit = ""
    warnings: tuple[str, ...] = ()


class SuggestionReport(msgspec.Struct, frozen=True, kw_only=True):
    """Rules that would have answered recorded questions as people did. Nothing is applied."""

    #: Those that would have answered most come first.
    suggestions: tuple[RuleSuggestion, ...]
    #: Rules whose questions no other rule answers, with what people answered.
    asking_rules: tuple[AskingRule, ...]
    #: How many runs and calls were looked at.
    runs: int
    calls: int
    #: Runs that are not what was written, each with the reason.
    left_out: tuple[str, ...] = ()
    stopped: BacktestLimit = ""


class PolicyService:
    """Shows, explains and backtests policies, and suggests rules."""

    def __init__(
        self, runners: AgentRunners, index: RunIndex, guard: AccessGuard, clock: Callable[[], float] = monotonic
    ) -> None:
        self._runners = runners
        self._index = index
        self._guard = guard
        self._clock = clock
        self._backtest_lock = asyncio.Lock()

    async def show(self, principal: Principal, agent: str) -> PolicyDetails:
        """Return the policy of an agent with its rules, files and tools."""
        runner = await self._get_runner(principal, agent)
        policy = runner.app.parts.policy
        tools = tuple(sorted(tool.name for tool in runner.app.registry.list_visible(CallContext(run_id="run_policy"))))
        rule_based = _as_rule_based(policy)
        if rule_based is None:
            return PolicyDetails(agent=agent, kind="custom", tools=tools)
        rules = rule_based.policy if isinstance(rule_based, PolicyFiles) else rule_based
        files = rule_based if isinstance(rule_based, PolicyFiles) else None
        return PolicyDetails(
            agent=agent,
            kind="code" if files is None else "files",
            default=rules.default,
            digest=rules.digest,
            rules=tuple(
                RuleRow(
                    id=rule.id,
                    layer=rule.layer,
                    verdict=rule.verdict,
                    description=describe_rule(rule),
                    reason=rule.reason,
                    advice=rule.advice,
                    expires_at=rule.expires_at,
                )
                for rule in rules.rules
            ),
            egress=tuple(
                RuleRow(id=rule.id, layer=rule.layer, verdict=rule.verdict, description=describe_egress_rule(rule))
                for rule in rules.egress
            ),
            budgets=tuple(
                RuleRow(
                    id=rule.id, layer=rule.layer, verdict=rule.then, description=rule.describe(), reason=rule.reason
                )
                for rule in rules.budgets
            ),
            files=() if files is None else files.own_paths,
            problems=() if files is None else tuple(map(str, files.problems)),
            warnings=() if files is None else tuple(map(str, files.warnings)),
            tools=tools,
        )

    async def explain(self, principal: Principal, agent: str, call: ExampleCall) -> PolicyExplanation:
        """Explain the decision about a call. Raise `InvalidRequestError` when the arguments do not fit the tool."""
        runner = await self._get_runner(principal, agent)
        if len(json.encode(call.arguments)) > MAX_ARGUMENTS_CHARS:
            raise InvalidRequestError("arguments", f"have to have at most {MAX_ARGUMENTS_CHARS:,} bytes")
        tool = runner.app.registry.find(call.tool)
        event = _build_event(self._build_call_context(agent, call), tool, call)
        policy = runner.app.parts.policy
        rule_based = _as_rule_based(policy)
        if rule_based is None:
            return PolicyExplanation(decision=await _evaluate_custom_policy(policy, event), known_tool=tool is not None)
        rules = rule_based.policy if isinstance(rule_based, PolicyFiles) else rule_based
        found = await asyncio.to_thread(explain, rules, event)
        return PolicyExplanation(decision=found.decision, explanation=found, known_tool=tool is not None)

    async def backtest(self, principal: Principal, agent: str, text: str = "", runs: int = MAX_RUNS) -> BacktestReport:
        """Evaluate recorded calls of this agent with the policy in `text` (YAML), or with the one in force. Raise
        `InvalidRequestError` with the problems, line by line.
        """
        runner = await self._get_runner(principal, agent)
        if len(text) > MAX_POLICY_CHARS:
            raise InvalidRequestError("policy", f"has to have at most {MAX_POLICY_CHARS:,} characters")
        async with self._reserve():
            policy, warnings = await self._load_candidate(runner, text)
            return await self._run_backtest(runner, policy, warnings, max(1, min(runs, MAX_RUNS)))

    async def suggest(self, principal: Principal, agent: str, min_count: int = 3) -> SuggestionReport:
        """Return rules for what people approved at least `min_count` times in the newest runs of this agent."""
        runner = await self._get_runner(principal, agent)
        async with self._reserve():
            deadline = self._clock() + _SUGGESTION_SECONDS
            recent = await self._read_recent(runner, SUGGESTION_RUNS, deadline)
            calls = await self._read_calls(runner, recent)
            calls_in_time = _CallsUntilDeadline(calls, deadline, self._clock)
            found = await asyncio.to_thread(
                find_suggestions, calls_in_time, min_count, lambda: self._clock() > deadline
            )
        return SuggestionReport(
            suggestions=tuple(found),
            asking_rules=tuple(count_asking_rules(calls)),
            runs=recent.runs,
            calls=calls_in_time.yielded_count,
            left_out=tuple(recent.left_out),
            stopped="time" if self._clock() > deadline else recent.stopped,
        )

    @asynccontextmanager
    async def _reserve(self) -> AsyncGenerator[None]:
        if self._backtest_lock.locked():
            raise UnavailableError(
                "backtest_under_way",
                "Another backtest or search for suggestions is under way. Nothing was tried. Try again in a moment.",
            )
        async with self._backtest_lock:
            yield

    async def preview_rule(self, principal: Principal, agent: str, rule: str) -> str:
        """Return where a suggested rule would hold, and what it would have allowed of the agent's last calls. Empty for
        those who may not see the policy, and for rules of another policy engine.
        """
        runner = self._runners.by_agent.get(agent)
        if runner is None or not is_allowed(principal, Operation.READ_POLICY, RunOwnershipData(agent=agent)):
            return ""
        try:
            entry = parse_rule(rule)
            recent = await self._read_recent(runner, _PREVIEW_RUNS, self._clock() + _PREVIEW_SECONDS)
            calls = await self._read_calls(runner, recent)
            found = await asyncio.to_thread(measure_coverage, entry, calls, _PREVIEW_CALLS)
        except InterlockError:
            return ""
        return describe_coverage(entry, found)

    async def _load_candidate(self, runner: Runner, text: str) -> tuple[RuleBasedPolicy, tuple[str, ...]]:
        if text.strip():
            return await asyncio.to_thread(_parse_policy_text, text)
        rule_based = _as_rule_based(runner.app.parts.policy)
        if rule_based is None:
            raise InvalidRequestError("policy", "the policy in force is none of rules; paste one")
        return rule_based, ()

    async def _run_backtest(
        self, runner: Runner, policy: RuleBasedPolicy, warnings: tuple[str, ...], max_runs: int
    ) -> BacktestReport:
        deadline = self._clock() + MAX_SECONDS
        recent = await self._read_recent(runner, max_runs, deadline)
        calls = await self._read_calls(runner, recent)
        calls_in_time = _CallsUntilDeadline(calls, deadline, self._clock)
        requests = await asyncio.to_thread(read_recorded_requests, recent.events) if policy.budgets else ()
        result = await asyncio.to_thread(backtest, policy, calls_in_time, requests)
        return BacktestReport(
            result=result,
            runs=recent.runs,
            calls=calls_in_time.yielded_count,
            left_out=tuple(recent.left_out),
            stopped="time" if calls_in_time.yielded_count < len(calls) else recent.stopped,
            warnings=warnings,
        )

    async def _read_recent(self, runner: Runner, max_runs: int, deadline: float) -> RecentEvents:
        return await read_recent_events(self._index, runner.agent.name, max_runs, lambda: self._clock() > deadline)

    async def _read_calls(self, runner: Runner, recent: RecentEvents) -> list[RecordedCall]:
        tools = {tool.name: tool for tool in runner.app.registry.list_visible(CallContext(run_id="run_backtest"))}
        return await asyncio.to_thread(read_recorded_calls, recent.events, tools)

    async def _get_runner(self, principal: Principal, agent: str) -> Runner:
        await self._guard.check(principal, Operation.READ_POLICY, RunOwnershipData(agent=agent), agent)
        runner = self._runners.by_agent.get(agent)
        if runner is None:
            known = self._runners.by_agent
            raise self._guard.build_unknown_agent_error(principal, Operation.READ_POLICY, agent, known)
        return runner

    def _build_call_context(self, agent: str, call: ExampleCall) -> CallContext:
        served = self._runners.served_agents[agent]
        return CallContext(
            run_id="run_explain",
            agent=agent,
            mode=call.mode or served.mode,
            workspace=served.workspace,
            interactive=call.interactive,
            requester=call.requester,
        )


class _CallsUntilDeadline:
    """The calls, until the time is over."""

    def __init__(self, calls: Sequence[RecordedCall], deadline: float, clock: Callable[[], float]) -> None:
        self.yielded_count = 0
        self._calls, self._deadline, self._clock = calls, deadline, clock

    def __iter__(self) -> Iterator[RecordedCall]:
        for call in self._calls:
            if self._clock() > self._deadline:
                return
            self.yielded_count += 1
            yield call


def _as_rule_based(policy: PolicyEngine) -> RuleBasedPolicy | None:
    return policy if isinstance(policy, RulePolicy | PolicyFiles) else None


def _parse_policy_text(text: str) -> tuple[RulePolicy, tuple[str, ...]]:
    try:
        read = read_layer("policy", "user", text.encode(errors="surrogatepass"))
        policy = RulePolicy(
            read.rules,
            read.default or "risk",
            read.resources,
            effects=read.effects,
            egress=read.egress,
            budgets=read.budgets,
        )
    except PolicyFileError as error:
        raise InvalidRequestError("policy", str(error)) from None
    return policy, tuple(map(str, read.warnings))


def _build_event(context: CallContext, tool: ToolDefinition | None, call: ExampleCall) -> PolicyEvent:
    if tool is None:
        return example_event(call.tool, call.arguments, context)
    return PolicyEvent("call_explain", tool, _validate_arguments(tool, call.arguments), context)


def _validate_arguments(tool: ToolDefinition, arguments: JsonObject) -> BaseModel:
    try:
        return tool.args_model.__pydantic_validator__.validate_json(json.encode(arguments))
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)[:_MAX_ERRORS]
        problems = [f"{'.'.join(map(str, each['loc'])) or 'arguments'}: {each['msg']}" for each in found]
        raise InvalidRequestError("arguments", f"do not fit {tool.name}: {'; '.join(problems)}") from None
    except Exception as error:
        raise InvalidRequestError("arguments", f"a validator of {tool.name} failed: {type(error).__name__}") from None


async def _evaluate_custom_policy(policy: PolicyEngine, event: PolicyEvent) -> Decision:
    """Evaluate a custom policy engine, with a timeout."""
    try:
        decision = policy.evaluate(event)
        if isinstance(decision, Awaitable):
            decision = await asyncio.wait_for(decision, MAX_SECONDS)
    except Exception as error:
        raise InvalidRequestError(
            "policy", f"the policy of this agent gave no answer: {type(error).__name__}"
        ) from None
    return decision
