"""A run of an agent that is open in this process: the run, the agents that take part, and the listeners."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import msgspec

from ..domain.call import ToolIntent
from ..domain.commands import CancelCommand
from ..domain.errors import ArtifactError
from ..domain.messages import AssistantMessage, Message, ProposedCall
from ..domain.observation import Observation
from ..models.interface import ModelEvent
from ..pipeline.batch import BatchOutcome
from ..pipeline.context import RunContext
from ..storage.artifacts import ArtifactStore
from .agent import Agent
from .next_step import Budgets, LoopState

#: What the model sees of arguments whose artifact was deleted.
_DELETED_ARGUMENTS = '{"interlock":"these arguments are no longer kept"}'

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
        self.chat = chat
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
        self.messages = MessageHistory(run.parts.artifacts)
        #: The task of the model call, and how often it was cancelled here.
        self._model_task: asyncio.Task[object] | None = None
        self._interrupt_count = 0
        self._opened_ns = run.parts.clock.elapsed() - run.executions.waited_ns
        run.recorder.commits_later = True

    @property
    def agent(self) -> Agent:
        """The agent whose turn it is."""
        return self.agents[self.run.ledger.active_agent]

    @property
    def budgets(self) -> Budgets:
        """The budgets of the agent that the run began with, also after a handoff."""
        return next(iter(self.agents.values())).budgets

    @property
    def is_interrupted(self) -> bool:
        """True when a pause or a cancellation was requested."""
        return self.pause_requested or self.is_stopped or self.cancel_command is not None

    @property
    def active_seconds(self) -> float:
        """Seconds the run was active, in earlier processes too, without time spent waiting for people."""
        run = self.run
        here_ns = run.parts.clock.elapsed() - run.executions.waited_ns - self._opened_ns
        return run.ledger.dialogue.active_ms / 1e3 + here_ns / 1e9

    def restart_timer(self) -> None:
        """Restart the timer: the time spent so far is in the log now."""
        self._opened_ns = self.run.parts.clock.elapsed() - self.run.executions.waited_ns

    def switch_agent(self, agent: str) -> RunContext:
        """Offer tools and evaluate calls for this agent from now on."""
        if self.run.situation.agent != agent:
            situation = msgspec.structs.replace(self.run.situation, agent=agent)
            self.run = msgspec.structs.replace(self.run, situation=situation)
        return self.run

    async def loop_state(self) -> LoopState:
        """Collect everything that the next step depends on."""
        ledger = self.run.ledger
        return LoopState(
            ledger,
            self.budgets,
            self.active_seconds,
            self.resumed_with,
            ledger.dialogue.open and await self._is_any_child_waiting(),
            self.chat,
            self.pause_requested,
            self.cancel_command,
        )

    async def _is_any_child_waiting(self) -> bool:
        ledger = self.run.ledger
        children = [ledger.calls[call_id].child_run_id for call_id in ledger.dialogue.calls if call_id in ledger.calls]
        return any([await self.is_child_waiting(child) for child in children if child])

    def publish(self, event: ModelEvent) -> None:
        """Pass an event of the stream to every listener. Ignore errors of listeners."""
        for listener in self.listeners:
            with suppress(Exception):
                listener(event)

    def begin_model_call(self) -> None:
        """Make the current task the one that an interrupt cancels."""
        self._model_task, self._interrupt_count = asyncio.current_task(), 0

    def end_model_call(self) -> bool:
        """End an interrupted model call. Return True if the task was also cancelled from outside."""
        task, self._model_task = self._model_task, None
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
        if self._model_task is not None:
            self._model_task.cancel()
            self._interrupt_count += 1


class MessageHistory:
    """The conversation as it is sent: long arguments are loaded from artifacts, once."""

    def __init__(self, artifacts: ArtifactStore) -> None:
        self._artifacts = artifacts
        self._resolved: list[Message] = []

    def resolve(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Return the messages with the private data of the model restored. Restore each only once."""
        ready = self._resolved
        for index in range(len(ready), len(messages)):
            message = messages[index]
            ready.append(self._restore_message(message) if isinstance(message, AssistantMessage) else message)
        return tuple(ready)

    def _restore_message(self, message: AssistantMessage) -> AssistantMessage:
        if message.private_artifact_id:
            private = self._read_artifact(message.private_artifact_id, "")
            message = msgspec.structs.replace(message, private=private, private_artifact_id="")
        for call in message.calls:
            if call.artifact_id:
                return msgspec.structs.replace(message, calls=tuple(map(self._restore_call, message.calls)))
        return message

    def _restore_call(self, call: ProposedCall) -> ProposedCall:
        if not call.artifact_id:
            return call
        return msgspec.structs.replace(
            call, arguments=self._read_artifact(call.artifact_id, _DELETED_ARGUMENTS), artifact_id=""
        )

    def _read_artifact(self, artifact_id: str, otherwise: str) -> str:
        """Read an artifact. It may have been deleted; the run continues without it."""
        try:
            return self._artifacts.read(artifact_id).decode(errors="replace")
        except ArtifactError:
            return otherwise


async def _never_waiting(run_id: str) -> bool:
    return False
