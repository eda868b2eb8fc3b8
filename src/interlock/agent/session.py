"""A run of an agent that is open in this process: the run, the agents that take part, and the listeners."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from ..domain.call import ToolIntent
from ..domain.commands import CancelCommand
from ..domain.observation import Observation
from ..models.interface import ModelEvent
from ..pipeline.batch import BatchOutcome
from ..pipeline.context import RunContext
from .agent import Agent
from .context import ContextWindow
from .next_step import Budgets, LoopState

ModelListener = Callable[[ModelEvent], None]


class CallExecutor(Protocol):
    """Runs calls through the pipeline."""

    async def execute(self, run: RunContext, intents: Sequence[ToolIntent], *, refusal: str = "") -> BatchOutcome: ...

    async def resume(self, run: RunContext) -> BatchOutcome: ...


class AgentSession:
    """The open run of an agent: its active agent, budgets, timers and interruptions."""

    def __init__(
        self, run: RunContext, executor: CallExecutor, agents: Mapping[str, Agent], *, chat: bool = False
    ) -> None:
        self.run = run
        self.executor = executor
        #: By their names in the log.
        self.agents = agents
        #: The budgets of the agent that the run began with, also after a handoff.
        self.budgets: Budgets = next(iter(agents.values())).budgets
        self._chat = chat
        #: Called with the model's streamed output.
        self.listeners: list[ModelListener] = []
        #: Whether the child run with this id still waits for a person.
        self.is_child_waiting: Callable[[str], Awaitable[bool]] = _never_waiting
        self.resumed_with = -1
        self.pause_requested = False
        self.is_stopped = False
        #: The outcomes of its calls in this process.
        self.observations: list[Observation] = []
        self.cancel_command: CancelCommand | None = None
        self.instructions = ""
        self.window = ContextWindow(run.parts.artifacts)
        #: The task that runs the steps; None outside of `advance`.
        self.task: asyncio.Task[object] | None = None
        #: The task of the model call, and how often it was cancelled here.
        self.model_task: asyncio.Task[object] | None = None
        self._interrupt_count = 0
        #: Whether the model said anything in the last request.
        self.has_output = False
        #: Whether the end or the pause of the run becomes durable with the release of the lease, where the log can do
        #: that.
        self.releases_with_append = False
        self._opened_ns = run.parts.clock.elapsed() - run.executions.waited_ns
        run.recorder.commits_later = True

    @property
    def agent(self) -> Agent:
        """The agent whose turn it is."""
        return self.agents[self.run.ledger.active_agent]

    @property
    def is_chat(self) -> bool:
        """True when a final answer does not end the run."""
        return self._chat or self.run.ledger.is_chat

    @property
    def is_interrupted(self) -> bool:
        """True when a pause or a cancellation was requested."""
        return self.pause_requested or self.is_stopped or self.cancel_command is not None

    @property
    def stops_with_release(self) -> bool:
        """True when the end or the pause of the run is made durable by the release of its lease."""
        run = self.run
        return self.releases_with_append and run.recorder.can_release_with_append and not run.executions.background

    @property
    def active_seconds(self) -> float:
        """Seconds the run was active, in earlier processes too, without time spent waiting for people."""
        run = self.run
        here_ns = run.parts.clock.elapsed() - run.executions.waited_ns - self._opened_ns
        return run.ledger.dialogue.active_ms / 1e3 + here_ns / 1e9

    def take_active_ms(self) -> float:
        """Return the active time in milliseconds for an event that records it, and restart the timer."""
        run = self.run
        now = run.parts.clock.elapsed() - run.executions.waited_ns
        active_ms = run.ledger.dialogue.active_ms + (now - self._opened_ns) / 1e6
        self._opened_ns = now
        return active_ms

    def switch_agent(self, agent: str) -> RunContext:
        """Offer tools and evaluate calls for this agent from now on."""
        if self.run.situation.agent != agent:
            situation = msgspec.structs.replace(self.run.situation, agent=agent)
            self.run = msgspec.structs.replace(self.run, situation=situation)
        return self.run

    def loop_state(self, *, is_child_waiting: bool = False) -> LoopState:
        """Return everything that the next step depends on. `is_child_waiting`: where calls are open, what
        `is_any_child_waiting` says.
        """
        ledger = self.run.ledger
        return LoopState(
            ledger,
            self.budgets,
            0.0 if self.budgets.max_seconds is None else self.active_seconds,
            self.resumed_with,
            is_child_waiting,
            self.is_chat,
            self.pause_requested,
            self.cancel_command,
        )

    def add_observations(self, outcome: BatchOutcome) -> None:
        """Add the outcomes of the calls of one turn."""
        seen: list[Any] = outcome.outcomes
        self.observations += [item for item in seen if type(item) is Observation] if outcome.waiting else seen

    async def is_any_child_waiting(self) -> bool:
        """Return True if a child run of an open call waits for a person."""
        ledger = self.run.ledger
        children = [ledger.calls[call_id].child_run_id for call_id in ledger.dialogue.calls if call_id in ledger.calls]
        return any([await self.is_child_waiting(child) for child in children if child])

    def publish(self, event: ModelEvent) -> None:
        """Pass an event of the stream to every listener. Ignore errors of listeners."""
        self.run.publish(event)
        for listener in self.listeners:
            with suppress(Exception):
                listener(event)

    def begin_model_call(self) -> None:
        """Make the current task the one that an interrupt cancels."""
        self.model_task, self._interrupt_count = self.task or asyncio.current_task(), 0

    def end_model_call(self) -> bool:
        """End an interrupted model call. Return True if the task was also cancelled from outside."""
        task, self.model_task = self.model_task, None
        if task is None:
            return False
        for _ in range(self._interrupt_count):
            task.uncancel()
        return task.cancelling() > 0

    def stop_work(self, reason: str) -> None:
        """Cancel what is running; the next step sees why."""
        run = self.run
        self.is_stopped = True
        run.cancellation.stop(reason, run.ledger.open_calls())
        self.interrupt_model_call()

    def interrupt_model_call(self) -> None:
        """Interrupt the model call, if there is one; its partial output is discarded."""
        if self.model_task is not None:
            self.model_task.cancel()
            self._interrupt_count += 1


async def _never_waiting(run_id: str) -> bool:
    return False
