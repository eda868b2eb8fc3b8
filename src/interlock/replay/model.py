"""Model replay: the recorded responses of a model go through today's code, and nothing is executed.

The agent loop, the pipeline, the tools' declarations and the policy are the real ones. What came from outside then
comes from the record now: what the model and people said, what tools found and returned, how long it took. So every
decision and every text is made again, and the result is compared with the record: the tool catalog, validation,
decisions, observations to the byte, tool messages, verification and the final answer.

What is not made again: what a tool's check found, what a hook changed, and the outcome of a call
that was stopped. Arguments that a person edited are not evaluated again. A call whose arguments are not in the log as
the model wrote them cannot be compared, and is named as `unchecked`. Of a fork that begins in the middle of an answer,
the words of that answer are missing.

An agent belongs to one replay: its toolboxes get the policy, and are closed at the end.
"""

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from ..agent.agent import Agent, AgentTool, collect_team
from ..agent.driver import advance
from ..agent.model_turn import summarize_now
from ..agent.next_step import Budgets, is_user_turn
from ..agent.session import AgentSession
from ..app import App, Tools
from ..domain.errors import ConfigurationError, ModelError, ToolError
from ..domain.event import LogEntry, UserMessageReceived, genesis_hash
from ..domain.state.ledger import Ledger
from ..domain.tool import CallContext, ToolContext
from ..pipeline.batch import start_run
from ..pipeline.context import RunContext, open_run
from ..pipeline.parts import Clock
from ..registry.memory import ToolRegistry
from ..runs.toolkit import build_toolkit
from ..storage.artifacts import ArtifactStore
from ..tools.agents import AgentAnswer, AskAgent
from .differences import Difference, compare_recordings
from .recording import GENERATED_ID_PREFIX, Recording, ReplayAnswer, ReplayCall
from .recording_reader import read_recording
from .stand_ins import (
    RecordedArtifacts,
    RecordedContextPolicy,
    RecordedInteraction,
    RecordedModel,
    RecordedSandbox,
    RecordingExhaustedError,
    ReplayExecutedError,
    VirtualClock,
)
from .tools import RecordedPolicy, recorded_tools, restore_outcomes, stub_tools

_UNLIMITED = 1 << 40
_NO_BUDGETS = Budgets(max_steps=_UNLIMITED, max_model_calls=_UNLIMITED, max_tool_calls=_UNLIMITED)
_STUB_REASON = "its tool is not here to say what is wrong with them"


class ModelReplay(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a model replay."""

    was: Recording
    #: The new result, as a separate run: nothing of it was executed.
    now: Recording
    differences: tuple[Difference, ...]
    #: Calls that could not be compared, and why.
    unchecked: Mapping[str, str]

    @property
    def same(self) -> bool:
        """True if nothing differs."""
        return not self.differences

    @property
    def decisions(self) -> dict[str, str]:
        """The new verdict on every compared call, by its recorded id."""
        return self._compared(self.now.decisions)

    @property
    def outcomes(self) -> dict[str, str]:
        """`ok`, or the failure code, of every compared call, by its recorded id."""
        return self._compared(self.now.outcomes)

    def _compared(self, rows: Mapping[str, str]) -> dict[str, str]:
        """Return the rows of compared calls. The generated id of a malformed call is a digest of its raw text, which a
        record does not have: such calls are paired in order.
        """
        then, today = (
            [call_id for call_id in each.calls if call_id.startswith(GENERATED_ID_PREFIX)]
            for each in (self.was, self.now)
        )
        ids = dict(zip(today, then, strict=False))
        named = ((ids.get(call_id, call_id), said) for call_id, said in rows.items())
        return {call_id: said for call_id, said in named if call_id not in self.unchecked}

    @property
    def words(self) -> str:
        """The result as text."""
        compared = f"{len(self.was.answers)} answers and {len(self.was.calls)} calls of {self.was.run_id}"
        if self.same:
            return f"{compared} come out as they were recorded. Nothing was executed."
        lines = [f"{compared} come out differently. Nothing was executed."]
        return "\n".join(lines + [f"  {difference.words}" for difference in self.differences])


async def replay_model(
    entries: Sequence[LogEntry], agent: Agent, artifacts: ArtifactStore | None = None
) -> ModelReplay:
    """Replay a run from the log with this agent: its tools, policy, instructions and budgets."""
    return await replay_recording(await asyncio.to_thread(read_recording, entries, artifacts), agent)


async def replay_recording(recording: Recording, agent: Agent | None = None) -> ModelReplay:
    """Replay a recording. Without an agent: with stubs of its tools and the recorded decisions, so that only the
    runtime is tested.
    """
    if not recording.answers:
        raise ConfigurationError(
            f"{recording.run_id} has no answers of a model that could be given again. A dry run judges its calls."
        )
    environment = build_environment(recording, agent) if agent is not None else build_stub_environment(recording)
    was = environment.recording
    try:
        more = await _drive(environment)
        replayed = await environment.app.log.read(was.run_id)
        now = await asyncio.to_thread(read_recording, replayed, environment.app.artifacts)
        now = _with_fork_verification(now, environment)
    finally:
        await environment.app.close()
    found = compare_recordings(was, now)
    if more and was.end in ("completed", "failed", "degraded"):
        asked = Difference(seq=was.end_seq, kind="request", was=was.end, now="the model is asked once more")
        found = (*found, asked)
    unchecked = {call.call_id: call.lost for call in was.calls.values() if call.lost}
    return ModelReplay(was=was, now=now, differences=found, unchecked=unchecked)


def _with_fork_verification(now: Recording, environment: "ReplayEnvironment") -> Recording:
    """Add what the run knew: the log of a replay does not say that it was forked."""
    session = environment.model.session
    if session is None or environment.recording.forked_at < 0:
        return now
    verdict = session.run.ledger.checks.summarize()
    return msgspec.structs.replace(now, verification=verdict.status, verification_message=verdict.message)


class ReplayEnvironment:
    """Agents and their app, with everything external taken from the record."""

    def __init__(self, recording: Recording, agents: Mapping[str, Agent], tools: Tools) -> None:
        first = next(iter(agents.values()))
        self.recording = recording
        self.time = VirtualClock()
        self.model = RecordedModel(recording, self.time)
        self.app = App(
            tools=tools,
            policy=first.policy,
            interaction=RecordedInteraction(recording.calls),
            fail_safe=first.fail_safe,
            clock=Clock(now=self.time.now, elapsed=self.time.elapsed),
        )
        self.app.parts = msgspec.structs.replace(
            self.app.parts,
            artifacts=RecordedArtifacts(self.app.artifacts, recording),
            registry=recorded_tools(self.app.registry, recording.calls),
            sandbox=RecordedSandbox(recording.calls, self.time),
            checks_in_threads=False,
        )
        self.agents = {name: msgspec.structs.replace(agent, provider=self.model) for name, agent in agents.items()}

    def open(self, situation: CallContext) -> RunContext:
        """Open a separate run, in a temporary log."""
        name = situation.run_id
        run = open_run(self.app.parts, self.app.log, Ledger(run_id=name), genesis_hash(name), situation)
        restore_outcomes(run, self.recording.calls)
        return run

    def build_context(self) -> CallContext:
        """Build the context that calls had in the recorded run."""
        recording = self.recording
        situation = CallContext(
            run_id=recording.run_id,
            agent=next(iter(self.agents)),
            workspace=recording.workspace,
            requester=recording.requester,
        )
        if not recording.answers:
            return situation
        first = recording.answers[0]
        return msgspec.structs.replace(situation, mode=first.mode, interactive=first.interactive)


async def _drive(environment: ReplayEnvironment) -> bool:
    """Drive the run until the record or the run is over. True when the model would have been asked once more."""
    run = environment.open(environment.build_context())
    session = environment.model.session = AgentSession(
        run, environment.app, environment.agents, chat=environment.recording.chat
    )
    start_run(run)
    texts: tuple[str, ...] | None = environment.recording.opening
    attachments = iter(environment.recording.attachments)
    while texts is not None and not run.ledger.is_over:
        for text in texts:
            run.recorder.add(UserMessageReceived(text=text, parts=next(attachments, ())))
        session.pause_requested = False
        answer_count = environment.model.answer_count
        try:
            await advance(session)
            while _is_summary_due(environment, run.ledger) and await summarize_now(session):
                pass
        except RecordingExhaustedError:
            await run.recorder.commit()
            return True
        except ModelError:
            # The run was continued then, or the record is over. Where nothing was asked, it would fail again.
            texts = () if environment.model.answer_count > answer_count else None
        except ToolError:
            texts = ()
        else:
            texts = (
                environment.model.last.said if environment.model.last is not None and session.pause_requested else None
            )
    await run.recorder.commit()
    return False


def _is_summary_due(environment: ReplayEnvironment, ledger: Ledger) -> bool:
    """Return True if a person asked for a summary at this place: no message of theirs waited for an answer."""
    count = environment.model.answer_count
    is_next = any(step.answer == count and step.compacted for step in environment.recording.context)
    return is_next and not ledger.is_over and is_user_turn(ledger.dialogue)


def build_environment(recording: Recording, agent: Agent) -> ReplayEnvironment:
    """Build the environment for a replay, in which child runs are refused."""
    agents = collect_team(agent)
    return ReplayEnvironment(recording, agents, build_toolkit(agents, _refuse_child_run))


def build_stub_environment(recording: Recording) -> ReplayEnvironment:
    """Build an environment without the agent. What only the agent knows is not compared: argument problems, and the
    contents of requests.
    """
    calls = {call_id: _stub_call(call) for call_id, call in recording.calls.items()}
    answers = tuple(_stub_request(answer) for answer in recording.answers)
    recording = msgspec.structs.replace(recording, calls=calls, answers=answers)
    names = dict.fromkeys([recording.agent, *(answer.request.agent for answer in answers)])
    policy, model = RecordedPolicy(calls), RecordedModel(recording, VirtualClock())
    stub = Agent(provider=model, policy=policy, budgets=_NO_BUDGETS)
    agents = dict.fromkeys([name for name in names if name] or [""], stub)
    environment = ReplayEnvironment(recording, agents, ToolRegistry(stub_tools(recording)))
    made = environment.model
    context = RecordedContextPolicy(steps=recording.context, count_answers=lambda: made.answer_count)
    environment.agents = {
        name: msgspec.structs.replace(agent, context=context) for name, agent in environment.agents.items()
    }
    return environment


def _stub_call(call: ReplayCall) -> ReplayCall:
    lost = call.lost or ("" if call.valid else _STUB_REASON)
    return msgspec.structs.replace(call, lost=lost, output=None)


def _stub_request(answer: ReplayAnswer) -> ReplayAnswer:
    request = msgspec.structs.replace(answer.request, menu_digest="", instructions="", tool_choice="")
    return msgspec.structs.replace(answer, request=request)


def _refuse_child_run(inside: AgentTool) -> AskAgent:
    async def ask(task: str, context: ToolContext) -> AgentAnswer:
        raise ReplayExecutedError(f"A run of {inside.name} would be started inside this one.")

    return ask
