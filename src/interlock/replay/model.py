"""Model mode: the recorded answers of a model go through the code of today, and nothing is executed.

The agent loop, the pipeline, the tools' declarations and the policy are the real ones. What came from outside then
comes from the record now: what the model and people said, what tools found and returned, how long it took. So every
decision and every text is made anew, and what comes out is compared with what was recorded: the menu, validation,
decisions, observations to the byte, what the model was told, verification and the final answer.

What is not made anew: what a tool found when it looked at the world, what a hook changed, and the outcome of a call
that was stopped. Arguments that a person edited are not judged again. A call whose arguments are not in the log as the
model wrote them cannot be compared, and is named as `unchecked`. Of a fork that begins in the middle of an answer, the
words of that answer are missing.

An agent belongs to one replay: its toolboxes are told the policy, and closed at the end.
"""

from collections.abc import Mapping, Sequence

import msgspec

from ..agent.agent import Agent, AgentTool
from ..agent.driver import advance
from ..agent.next_step import Budgets
from ..agent.session import Session
from ..agent.team import team
from ..app import App, Options
from ..domain.chain import Entry, genesis
from ..domain.errors import ConfigurationError, ModelError, ToolError
from ..domain.event import UserSaid
from ..domain.state.ledger import Ledger
from ..domain.tool import Situation, ToolContext
from ..pipeline.batch import start_run
from ..pipeline.context import RunContext, open_run
from ..pipeline.parts import Clock
from ..registry.memory import ToolRegistry
from ..runs.toolkit import toolkit
from ..storage.artifacts import Artifacts
from ..tools.agents import Ask, Said
from .differences import Difference, differences
from .read_recording import read_recording
from .recording import MADE_UP, PastAnswer, PastCall, Recording
from .stand_ins import (
    RecordedArtifacts,
    RecordedModel,
    RecordedPeople,
    RecordedSandbox,
    RecordOver,
    ReplayExecutedError,
    VirtualTime,
)
from .tools import RecordedPolicy, keep_outcomes, recorded_tools, stub_tools

_MANY = 1 << 40
_NO_BUDGETS = Budgets(max_steps=_MANY, max_model_calls=_MANY, max_tool_calls=_MANY)
_STUB = "its tool is not here to say what is wrong with them"


class ModelReplay(msgspec.Struct, frozen=True, kw_only=True):
    was: Recording
    #: What came out now, as a run of its own: nothing of it was executed.
    now: Recording
    differences: tuple[Difference, ...]
    #: Calls that could not be compared, and why.
    unchecked: Mapping[str, str]

    @property
    def same(self) -> bool:
        return not self.differences

    @property
    def decisions(self) -> dict[str, str]:
        """The verdict of now on every call that was compared, by its recorded id."""
        return self._compared(self.now.decisions)

    @property
    def outcomes(self) -> dict[str, str]:
        """`ok`, or the code of the failure, of every call that was compared, by its recorded id."""
        return self._compared(self.now.outcomes)

    def _compared(self, rows: Mapping[str, str]) -> dict[str, str]:
        """Return the rows of calls that were compared. The id that the runtime makes up for a malformed call is a
        digest of its raw text, which a record does not have: such calls are paired in their order."""
        then, today = (
            [call_id for call_id in each.calls if call_id.startswith(MADE_UP)] for each in (self.was, self.now)
        )
        ids = dict(zip(today, then, strict=False))
        named = ((ids.get(call_id, call_id), said) for call_id, said in rows.items())
        return {call_id: said for call_id, said in named if call_id not in self.unchecked}

    @property
    def words(self) -> str:
        """All of it, for a person."""
        compared = f"{len(self.was.answers)} answers and {len(self.was.calls)} calls of {self.was.run_id}"
        if self.same:
            return f"{compared} come out as they were recorded. Nothing was executed."
        lines = [f"{compared} come out differently. Nothing was executed."]
        return "\n".join(lines + [f"  {difference.words}" for difference in self.differences])


async def replay_model(entries: Sequence[Entry], agent: Agent, artifacts: Artifacts | None = None) -> ModelReplay:
    """A run as the log has it, against this agent: its tools, policy, instructions and budgets."""
    return await replay_recording(read_recording(entries, artifacts), agent)


async def replay_recording(recording: Recording, agent: Agent | None = None) -> ModelReplay:
    """Without an agent: against stubs of its tools and the decisions of then, so that only the runtime is tried."""
    if not recording.answers:
        raise ConfigurationError(
            f"{recording.run_id} has no answers of a model that could be given again. A dry run judges its calls."
        )
    stage = stage_of(recording, agent) if agent is not None else stub_stage(recording)
    was = stage.recording
    try:
        more = await _drive(stage)
        now = read_recording(await stage.app.log.read(was.run_id), stage.app.artifacts)
        now = _verified(now, stage)
    finally:
        await stage.app.close()
    found = differences(was, now)
    if more and was.end in ("completed", "failed", "degraded"):
        asked = Difference(seq=was.end_seq, kind="request", was=was.end, now="the model is asked once more")
        found = (*found, asked)
    unchecked = {call.call_id: call.lost for call in was.calls.values() if call.lost}
    return ModelReplay(was=was, now=now, differences=found, unchecked=unchecked)


def _verified(now: Recording, stage: "Stage") -> Recording:
    """With what the run knew: the log of a replay does not say that it was forked."""
    session = stage.model.session
    if session is None or stage.recording.forked_at < 0:
        return now
    verdict = session.run.ledger.checks.verdict()
    return msgspec.structs.replace(now, verification=verdict.status, verification_message=verdict.message)


class Stage:
    """Agents and their app, with everything outside taken from the record."""

    def __init__(self, recording: Recording, agents: Mapping[str, Agent], tools: ToolRegistry) -> None:
        first = next(iter(agents.values()))
        self.recording = recording
        self.time = VirtualTime()
        self.model = RecordedModel(recording, self.time)
        options: Options = {
            "tools": tools,
            "interaction": RecordedPeople(recording.calls),
            "fail_safe": first.fail_safe,
            "clock": Clock(now=self.time.now, elapsed=self.time.elapsed),
        }
        if first.policy is not None:
            options["policy"] = first.policy
        self.app = App(**options)
        self.app.parts = msgspec.structs.replace(
            self.app.parts,
            artifacts=RecordedArtifacts(self.app.artifacts, recording),
            registry=recorded_tools(self.app.registry, recording.calls),
            sandbox=RecordedSandbox(recording.calls, self.time),
        )
        self.agents = {name: msgspec.structs.replace(agent, provider=self.model) for name, agent in agents.items()}

    def open(self, situation: Situation) -> RunContext:
        """A run of its own, in a log that is gone when it is over."""
        name = situation.run_id
        run = open_run(self.app.parts, self.app.log, Ledger(run_id=name), genesis(name), situation)
        keep_outcomes(run, self.recording.calls)
        return run

    def situation(self) -> Situation:
        recording = self.recording
        situation = Situation(
            run_id=recording.run_id,
            agent=next(iter(self.agents)),
            workspace=recording.workspace,
            requester=recording.requester,
        )
        if not recording.answers:
            return situation
        first = recording.answers[0]
        return msgspec.structs.replace(situation, mode=first.mode, interactive=first.interactive)


async def _drive(stage: Stage) -> bool:
    """Go on until the record is over or the run is. True when the model would have been asked once more."""
    run = stage.open(stage.situation())
    session = stage.model.session = Session(run, stage.app, stage.agents, chat=stage.recording.chat)
    start_run(run)
    said: tuple[str, ...] | None = stage.recording.opening
    while said is not None and not run.ledger.is_over:
        for text in said:
            run.recorder.add(UserSaid(text=text))
        session.pausing = False
        try:
            await advance(session)
        except RecordOver:
            await run.recorder.commit()
            return True
        except (ModelError, ToolError):
            said = ()  # whoever drove it then went on, or the record is over
        else:
            said = stage.model.last.said if stage.model.last is not None and session.pausing else None
    await run.recorder.commit()
    return False


def stage_of(recording: Recording, agent: Agent) -> Stage:
    agents = team(agent)
    return Stage(recording, agents, toolkit(agents, _asked_by_nobody))


def stub_stage(recording: Recording) -> Stage:
    """What only the agent could say is not asked for: what is wrong with arguments, and what its requests hold."""
    calls = {call_id: _with_stub(call) for call_id, call in recording.calls.items()}
    answers = tuple(_with_stub_request(answer) for answer in recording.answers)
    recording = msgspec.structs.replace(recording, calls=calls, answers=answers)
    names = dict.fromkeys([recording.agent, *(answer.request.agent for answer in answers)])
    policy, model = RecordedPolicy(calls), RecordedModel(recording, VirtualTime())
    stub = Agent(provider=model, policy=policy, budgets=_NO_BUDGETS)
    agents = dict.fromkeys([name for name in names if name] or [""], stub)
    return Stage(recording, agents, ToolRegistry(stub_tools(recording)))


def _with_stub(call: PastCall) -> PastCall:
    lost = call.lost or ("" if call.valid else _STUB)
    return msgspec.structs.replace(call, lost=lost, output=None)


def _with_stub_request(answer: PastAnswer) -> PastAnswer:
    request = msgspec.structs.replace(answer.request, menu_digest="", instructions="", tool_choice="")
    return msgspec.structs.replace(answer, request=request)


def _asked_by_nobody(inside: AgentTool) -> Ask:
    async def ask(task: str, context: ToolContext) -> Said:
        raise ReplayExecutedError(f"A run of {inside.name} would be started inside this one.")

    return ask
