"""Choose the parts and join them. The only module that knows every implementation."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from os import PathLike
from os.path import abspath, realpath
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import msgspec

from . import lazy_module
from .domain.call import Answer, Question, ToolIntent
from .domain.decision import FailSafeConfig
from .domain.egress import EgressRule
from .domain.errors import (
    AnswerRefusedError,
    ConfigurationError,
    DecisionConflictError,
    LogFencedError,
    RunEndedError,
    RunPausedError,
)
from .domain.event import Event, LogEntry, RunCancelled, RunCompleted, RunFailed, decode_event
from .domain.state.ledger import ActionEntry, Ledger
from .domain.state.lifecycle import RunState
from .domain.tool import CallContext, Mask, ToolDefinition
from .history.fold import build_snapshot, empty_run, load_run
from .interaction.interface import InteractionProvider
from .interaction.providers import HeadlessInteractionProvider
from .oauth.interface import ConsentProvider, NoConsents
from .options import check_alternatives, check_max_concurrency, check_tool
from .pipeline.approval.answer import validate_answer
from .pipeline.batch import BatchOutcome, run_batch
from .pipeline.call import end_open_calls
from .pipeline.context import Executions, RunContext, open_run
from .pipeline.events import record_answer
from .pipeline.parts import Clock, Limits, OutputListener, Parts, RuleChange, is_user_code
from .pipeline.resume import open_intents
from .pipeline.tasks import start_at_once
from .policy.interface import BudgetSource, PolicyEngine
from .redaction.interface import Redactor
from .redaction.redactor import SecretRedactor
from .registry.interface import Toolbox
from .registry.memory import ToolRegistry
from .rendering.text import describe_unknown
from .rendering.times import format_utc
from .sandbox.interface import Sandbox
from .scheduler import DEFAULT_CONCURRENCY, HandlerSlots, LocalScheduler, Scheduler
from .storage.artifacts import ArtifactStore
from .storage.event_log import EventLog, Lease, Snapshot
from .storage.memory import MemoryLog
from .storage.memory_artifacts import MemoryArtifacts
from .storage.memory_budgets import MemoryBudgets
from .telemetry.interface import Telemetry

if TYPE_CHECKING:
    from .policy.analysis import explain, masks
    from .policy.engine import rule_policy
    from .policy.files import saved_rules
    from .sandbox.handlers import executor
    from .telemetry import otel
    from .tools import read_artifact
else:
    explain = lazy_module(".policy.analysis.explain", __package__)
    masks = lazy_module(".policy.analysis.masks", __package__)
    rule_policy = lazy_module(".policy.engine.rule_policy", __package__)
    saved_rules = lazy_module(".policy.files.saved_rules", __package__)
    executor = lazy_module(".sandbox.handlers.executor", __package__)
    otel = lazy_module(".telemetry.otel", __package__)
    read_artifact = lazy_module(".tools.read_artifact", __package__)

#: Where none is given.
_CLOCK, _LIMITS, _FAIL_SAFE = Clock(), Limits(), FailSafeConfig()

#: Fewer events than this are folded in a few milliseconds. A snapshot of a long run costs more, so that one is taken
#: after a part of the run's length: together they cost no more than the run.
_SNAPSHOT_EVENTS = 512
_SNAPSHOT_FRACTION = 20

#: Functions, `ToolDefinition`s, toolboxes such as `LocalTools`, or a registry that is shared.
Tools: TypeAlias = Iterable[ToolDefinition | Callable[..., Any] | Toolbox] | ToolRegistry


class App:
    """The parts of a runtime: opens runs and takes their calls through the pipeline."""

    def __init__(  # noqa: PLR0913 - every keyword is explicit
        self,
        *,
        tools: Tools = (),
        policy: PolicyEngine | None = None,
        interaction: InteractionProvider | None = None,
        log: EventLog | None = None,
        artifacts: ArtifactStore | None = None,
        consents: ConsentProvider | None = None,
        secrets: Mapping[str, str] | None = None,
        fail_safe: FailSafeConfig | None = None,
        limits: Limits | None = None,
        max_concurrency: int | HandlerSlots | None = None,
        missing_tool: Literal["observe", "raise"] = "observe",
        on_progress: Callable[[str, str], None] | None = None,
        on_output: OutputListener | None = None,
        record_rule: Callable[[RuleChange], Awaitable[None]] | None = None,
        clock: Clock | None = None,
        sandbox: Sandbox | None = None,
        scheduler: Scheduler | None = None,
        redactor: Redactor | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        """Choose the parts; see `ToolRuntime` for what each is. What was given is its owner's to close."""
        check_alternatives("scheduler", scheduler, "max_concurrency", max_concurrency)
        check_alternatives("redactor", redactor, "secrets", secrets)
        if missing_tool not in ("observe", "raise"):
            raise ConfigurationError(describe_unknown("missing_tool", missing_tool, ("observe", "raise")))
        if isinstance(max_concurrency, HandlerSlots):
            slots = max_concurrency
        else:
            max_concurrency = DEFAULT_CONCURRENCY if max_concurrency is None else max_concurrency
            check_max_concurrency(max_concurrency)
            slots = HandlerSlots(max_concurrency)
        self.log: EventLog = MemoryLog() if log is None else log
        self._owns_log = log is None
        self._owns_sandbox = sandbox is None
        self.artifacts: ArtifactStore = MemoryArtifacts() if artifacts is None else artifacts
        if isinstance(tools, ToolRegistry):
            self.registry = tools
            if tools.find("read_artifact") is None:
                tools.register(read_artifact.read_artifact)
        else:
            self.registry = ToolRegistry()
            _add_tools(self.registry, tools, (read_artifact.read_artifact,))
        #: They get the policy, and are closed with the runtime.
        self.toolboxes = _find_toolboxes(self.registry)
        #: Snapshots being saved; no caller waits for them.
        self._pending_snapshots: set[asyncio.Task[None]] = set()
        #: Of runs with work in the background.
        self._busy: set[Executions] = set()
        policy = rule_policy.RulePolicy() if policy is None else policy
        clock = _CLOCK if clock is None else clock
        handlers: Any = executor.HandlerExecutor() if sandbox is None else sandbox
        self.parts = Parts(
            registry=self.registry,
            policy=policy,
            policy_may_block=is_user_code(policy.evaluate) or getattr(policy, "may_block", False),
            interaction=HeadlessInteractionProvider() if interaction is None else interaction,
            new_scheduler=partial(LocalScheduler, slots=slots) if scheduler is None else lambda: scheduler,
            sandbox=handlers,
            artifacts=self.artifacts,
            redactor=SecretRedactor(secrets or {}) if redactor is None else redactor,
            telemetry=otel.OtelTelemetry() if telemetry is None else telemetry,
            consents=NoConsents() if consents is None else consents,
            clock=clock,
            limits=_LIMITS if limits is None else limits,
            fail_safe=_FAIL_SAFE if fail_safe is None else fail_safe,
            missing_tool=missing_tool,
            find_rule_problem=_find_rule_problem,
            on_progress=_ignore_progress if on_progress is None else on_progress,
            on_output=on_output,
            budget_source=cast(BudgetSource, policy) if hasattr(policy, "budgets") else None,
            budget_ledger=getattr(self.log, "budgets", None) or MemoryBudgets(),
            tool_sources=_find_sources(self.toolboxes) if self.toolboxes else (),
        )
        for box in self.toolboxes:
            self._set_up(box)
        if sandbox is None or isinstance(sandbox, executor.HandlerExecutor):
            handlers.set_egress(_egress_lookup(policy, clock))
        if record_rule is not None:
            self.parts = msgspec.structs.replace(self.parts, record_rule=record_rule)

    def resolve_workspace(self, given: str | PathLike[str] | None) -> str:
        """Return the folder that a run works in. Tools that work in a folder decide it; no other can be given."""
        for box in self.toolboxes:
            if root := box.root:
                if realpath(given or root) != root:
                    raise ConfigurationError(f"The tools work in {root!r}, so that is the workspace.")
                return root
        return abspath(given) if given else ""

    async def open(
        self, situation: CallContext, lease: Lease | None = None, *, start_tools: bool = True, is_new: bool = False
    ) -> RunContext:
        """Open a run from the log: a new one, or one that is continued. `start_tools`: also start what brings tools,
        such as MCP servers. `is_new`: the log is not read, since the first append fails where it has the run.
        """
        if start_tools and self.parts.tool_sources:
            await self.start_tools()
        loaded = empty_run(situation.run_id) if is_new else await load_run(self.log, situation.run_id)
        run = open_run(self.parts, self.log, loaded.ledger, loaded.head_hash, situation)
        run.recorder.lease = lease
        run.recorder.next_snapshot = loaded.ledger.next_seq + _SNAPSHOT_EVENTS
        run.executions.busy = self._busy
        return run

    async def start_tools(self) -> None:
        """Start what brings tools, such as MCP servers. Starting again changes nothing."""
        await asyncio.gather(*(source.start() for source in self.parts.tool_sources))

    async def execute(
        self,
        run: RunContext,
        intents: Sequence[ToolIntent],
        *,
        refusal: str = "",
        joins: bool = False,
        plan_only: bool = False,
    ) -> BatchOutcome:
        """Run the calls of one response through the pipeline. For the options see `run_batch`."""
        if run.executions.background or run.recorder.error is not None or run.ledger.state is not RunState.RUNNING:
            await self._ensure_open(run)
        outcome = await run_batch(intents, run, refusal=refusal, joins=joins, plan_only=plan_only)
        if run.ledger.next_seq >= run.recorder.next_snapshot:
            await run.recorder.commit()  # a snapshot never says more than the log has: one that does shows a cut log
            self._save_snapshot(run)
        return outcome

    def add_tools(self, tools: Iterable[Any]) -> list[ToolDefinition]:
        """Add tools from now on, and return them."""
        known = set(map(id, self.toolboxes))
        added = _add_tools(self.registry, tools)
        self.toolboxes = _find_toolboxes(self.registry)
        self.parts = msgspec.structs.replace(self.parts, tool_sources=_find_sources(self.toolboxes))
        for box in self.toolboxes:
            if id(box) not in known:
                self._set_up(box)
        return added

    def _set_up(self, box: Toolbox) -> None:
        policy, clock = self.parts.policy, self.parts.clock
        box.set_masks(_mask_lookup(policy, clock))
        box.protect_paths(_collect_own_paths(self.log, self.artifacts, policy, *self.toolboxes))
        box.set_egress(_egress_lookup(policy, clock), self.parts.redactor.add_secret)

    async def resume(self, run: RunContext) -> BatchOutcome:
        """Resume the calls that have no observation: approved ones run, refused ones are reported."""
        await self._ensure_open(run)
        return await run_batch(await open_intents(run), run, resumed=True)

    def check_answer(
        self, ledger: Ledger, action_id: str, answer: Answer, payload_hash: str = "", given_at: int = 0
    ) -> Question:
        """Return the question that this answers; raise where it does not fit. `given_at`: when it was given, if not
        now.
        """
        question = _find_open_question(ledger, action_id, payload_hash, given_at or self.parts.clock.now())
        problem = validate_answer(question, answer, self.parts)
        if problem:
            raise AnswerRefusedError(f"{problem} The question stays open.")
        return question

    async def decide(
        self, run: RunContext, action_id: str, answer: Answer, payload_hash: str = "", *, opened_for_it: bool = False
    ) -> bool:
        """Record a person's answer to an open question, unless another one is first. Return False when another process
        wrote to the run meanwhile: open it again, and check whether the question is still open. `opened_for_it`: the
        caller drops the run when this raises.
        """
        now = self.parts.clock.now()
        if opened_for_it and run.recorder.can_commit_answer:
            return await self._record_first_answer(run, action_id, answer, payload_hash, now)
        self.check_answer(run.ledger, action_id, answer, payload_hash, now)
        by = self.parts.redactor.redact(answer.by)
        if not await run.recorder.claim_answer(action_id, approved=answer.approved, by=by):
            self.check_answer(run.ledger, action_id, answer, payload_hash, now)
            raise _queued_error(action_id)
        if not await self.record_answer(run, action_id, answer, payload_hash, now):
            return False
        await run.recorder.ack_claims()
        return True

    async def _record_first_answer(
        self, run: RunContext, action_id: str, answer: Answer, payload_hash: str, now: int
    ) -> bool:
        """Record an answer in one transaction that fails where another answer is queued. For the rest see `decide`."""
        record_answer(self.check_answer(run.ledger, action_id, answer, payload_hash, now), answer, run)
        try:
            is_first = await run.recorder.commit_answer(action_id)
        except LogFencedError:
            return False
        if not is_first:
            raise _queued_error(action_id)
        return True

    async def record_answer(
        self, run: RunContext, action_id: str, answer: Answer, payload_hash: str = "", given_at: int = 0
    ) -> bool:
        """Record the answer that was first. For the rest see `decide`."""
        question = self.check_answer(run.ledger, action_id, answer, payload_hash, given_at)
        record_answer(question, answer, run)
        try:
            await run.recorder.commit()
        except LogFencedError:
            return False
        run.cancellation.wake(question.call_id)
        return True

    async def complete(self, run: RunContext, message: str = "") -> None:
        """Complete a run. Raise `RunPausedError` while a question is open."""
        await self._ensure_open(run)
        if run.ledger.state is not RunState.RUNNING:
            raise RunPausedError(f"{run.ledger.run_id} waits for an answer; it cannot be complete.")
        run.recorder.add(RunCompleted(message=self.parts.redactor.redact(message)))
        await run.recorder.commit()
        await self.end_run(run.ledger.run_id)

    async def cancel(self, run: RunContext, message: str = "", by: str = "") -> None:
        """End the run: running calls are cancelled, waiting ones are not executed."""
        await self._ensure_open(run)
        redact = self.parts.redactor.redact
        end_open_calls("The run was cancelled.", run)
        run.recorder.add(RunCancelled(message=redact(message), by=redact(by)))
        run.cancellation.stop("The run was cancelled.", run.ledger.open_calls())
        await run.recorder.commit()
        await self.end_run(run.ledger.run_id)

    async def fail(self, run: RunContext, message: str) -> None:
        """End a run that can never continue."""
        await self._ensure_open(run)
        run.recorder.add(RunFailed(message=self.parts.redactor.redact(message)))
        run.cancellation.stop("The run failed.", run.ledger.open_calls())
        await run.recorder.commit()
        await self.end_run(run.ledger.run_id)

    async def end_run(self, run_id: str) -> None:
        """Stop what runs in the background for a run that is over. What cannot be stopped ends at its own limits."""
        for box in self.toolboxes:
            with suppress(Exception):
                await box.end_run(run_id)

    async def entries(self, run: RunContext) -> list[LogEntry]:
        """Commit pending events and read the log of a run."""
        await run.recorder.commit()
        return await self.log.read(run.ledger.run_id)

    async def events(self, run: RunContext, after_seq: int = -1) -> list[Event]:
        """Wait for events after `after_seq`, and return those that are durable."""
        await run.recorder.committed_after(after_seq)
        return [decode_event(entry) for entry in await self.log.read(run.ledger.run_id, after_seq)]

    async def close(self) -> None:
        """Wait for running calls and snapshots, then close the toolboxes and an owned sandbox."""
        for executions in list(self._busy):
            await executions.settle(2 * self.parts.limits.drain_seconds)
        if self._pending_snapshots:
            await asyncio.wait(self._pending_snapshots)
        for box in self.toolboxes:
            await box.close()
        if self._owns_sandbox:
            await self.parts.sandbox.close()
        if self._owns_log:
            await self.log.close()

    async def _ensure_open(self, run: RunContext) -> None:
        await run.settle()
        if run.recorder.error is not None:
            raise run.recorder.error
        if run.ledger.is_over:
            raise RunEndedError(f"{run.ledger.run_id} is {run.ledger.state.value}. Nothing was executed.")

    def _save_snapshot(self, run: RunContext) -> None:
        """Save a snapshot and plan the next one, at growing distances: together they cost no more than the run."""
        seq = run.ledger.next_seq
        run.recorder.next_snapshot = seq + max(_SNAPSHOT_EVENTS, seq // _SNAPSHOT_FRACTION)
        snapshot, loop = build_snapshot(run.ledger, run.recorder.head), asyncio.get_running_loop()
        start_at_once([partial(self._store_snapshot, run.ledger.run_id, snapshot)], loop)

    async def _store_snapshot(self, run_id: str, snapshot: Snapshot, task: "asyncio.Task[None] | None") -> None:
        """Store a snapshot. A failure is ignored: the next append reports a log that cannot be written."""
        saving = task or cast("asyncio.Task[None]", asyncio.current_task())
        self._pending_snapshots.add(saving)
        try:
            with suppress(Exception):
                await self.log.save_snapshot(run_id, snapshot)
        finally:
            self._pending_snapshots.discard(saving)


def _find_rule_problem(rule: str, suggested: str) -> str:
    """Load the rule parser only when a rule is to be saved."""
    return saved_rules.find_rule_problem(rule, suggested)


def decided_error(action: ActionEntry) -> DecisionConflictError:
    """Return the error that says whose answer counts."""
    answer, name = action.answer, action.question.action_id
    if answer is None:
        return DecisionConflictError(f"{name} was decided before: it is {action.state.value}.")
    status = "expired" if answer.expired else "approved" if answer.approved else "rejected"
    by = f", by {answer.by}" if answer.by else ""
    message = f"{name} was decided before: it is {action.state.value}{by}, at {format_utc(action.answered_at)}."
    return DecisionConflictError(message, status=status, by=answer.by, at=action.answered_at)


def _queued_error(action_id: str) -> DecisionConflictError:
    return DecisionConflictError(f"{action_id} has an answer already, which is about to be recorded.")


def _find_open_question(ledger: Ledger, action_id: str, payload_hash: str, now: int) -> Question:
    """Return the question if it may still be answered. Raise otherwise."""
    action = ledger.actions.get(action_id)
    if ledger.is_over and (action is None or action.answer is None):
        raise RunEndedError(f"{ledger.run_id} is {ledger.state.value}; its questions need no answer.")
    if action is None:
        raise DecisionConflictError(f"There is no question {action_id!r} in {ledger.run_id}.")
    if not action.is_open:
        raise decided_error(action)
    question = action.question
    if payload_hash and payload_hash != question.payload_hash:
        raise DecisionConflictError(f"{action_id} is about {question.payload_hash}; this answers {payload_hash}.")
    if question.expires_at and now >= question.expires_at:
        raise DecisionConflictError(f"{action_id} is no longer open: its time is over.")
    return question


def _mask_lookup(policy: PolicyEngine, clock: Clock) -> Callable[[str], tuple[Mask, ...]]:
    """Return a lookup of what is denied to a tool, as far as the rules of the policy can be read."""
    if not hasattr(policy, "rules"):
        return lambda tool: ()
    return masks.MaskSource(cast("explain.RuleSource", policy), clock.now).masks_for


def _egress_lookup(policy: PolicyEngine, clock: Clock) -> Callable[[], tuple[EgressRule, ...]]:
    """Return a lookup of the egress rules, as far as the rules of the policy can be read."""
    if not hasattr(policy, "rules"):
        return lambda: ()
    return lambda: explain.find_egress_rules(cast("explain.RuleSource", policy), clock.now())


def _collect_own_paths(*parts: object) -> list[str]:
    """Return the paths of the parts' files: a run that could write there could approve itself."""
    return [path for part in parts for path in getattr(part, "own_paths", ())]


def _find_toolboxes(registry: ToolRegistry) -> list[Toolbox]:
    """Return the toolboxes of all tools. They share one folder, since paths are evaluated relative to one."""
    boxes = [*registry.toolboxes, *[tool.toolbox for tool in registry if tool.toolbox is not None]]
    if not boxes:
        return []
    found = {id(box): box for box in boxes}
    if len({box.root for box in found.values() if box.root}) > 1:
        raise ConfigurationError("The tools work in several folders. One runtime works in one: make one for each.")
    return list(found.values())


def _find_sources(toolboxes: Iterable[Toolbox]) -> tuple[Toolbox, ...]:
    return tuple(box for box in toolboxes if box.is_dynamic)


def _add_tools(
    registry: ToolRegistry, tools: Iterable[Any], defaults: Iterable[ToolDefinition] = ()
) -> list[ToolDefinition]:
    items: list[Any] = [tools] if isinstance(tools, Toolbox) else list(tools)
    single: list[Any] = []
    boxes: list[Toolbox] = []
    for item in items:
        if type(item) is ToolDefinition:
            single.append(item)
            continue
        check_tool(item)
        if isinstance(item, Toolbox):
            boxes.append(item)
        else:
            single.append(item)
    added = registry.register_all(single, () if boxes else defaults)
    for box in boxes:
        added += registry.add_toolbox(box)
    if boxes:
        registry.replace((), (), defaults)
    return added


def _ignore_progress(call_id: str, message: str) -> None:
    """Ignore progress: there is no listener."""
