"""What the page about runs says happens when a process dies, and when something changed meanwhile.

A process that died has left the first events of its run in the log. So each row of the page is such a beginning, and
what a runner makes of it. Real deaths are in `tests/runs/test_killed.py`.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from interlock import (
    Agent,
    AgentResult,
    ConfigurationError,
    Inbox,
    LogEntry,
    MemoryArtifacts,
    MemoryLog,
    ModelRequest,
    Rule,
    RulePolicy,
    Runner,
    ScriptedModel,
    ScriptedTurn,
    tool_call,
)
from interlock import tool as declared
from interlock.domain.event import decode_event
from tests.each import each

from .pages import section, table_rows, text_of

PAGE = text_of("docs/runs.md")
RUN = "run-1"


class Life:
    """A runner's life on the page's agent: what was asked of the model, what ran, and what came of it."""

    def __init__(self, tool_name: str) -> None:
        self.tool_name = tool_name
        self.did: Counter[str] = Counter()

    def agent(self) -> Agent:
        inner = Agent(name="inner", provider=self.model("pay"), tools=[self.tool("pay")])
        tools: list[Any] = [inner.as_tool("delegate")]
        tools += [self.tool(name) for name in ("look", "put", "pay", "happened", "did_not_happen")]
        policy = RulePolicy([Rule(id="delegate", verdict="allow", tools="delegate")])
        return Agent(provider=self.model(self.tool_name), tools=tools, policy=policy)

    def model(self, tool_name: str) -> ScriptedModel:
        arguments = {"task": "pay"} if tool_name == "delegate" else {}

        def call(request: ModelRequest) -> ScriptedTurn:
            self.did["asked"] += 1
            return ScriptedTurn(calls=(tool_call(tool_name, **arguments),))

        def end(request: ModelRequest) -> ScriptedTurn:
            self.did["asked"] += 1
            return ScriptedTurn(text="Done.")

        return ScriptedModel([call, end], by_position=True)

    def tool(self, name: str) -> Any:
        reconcile: dict[str, Callable[[Any], bool]] = {
            "happened": lambda arguments: True,
            "did_not_happen": lambda arguments: False,
        }

        def run() -> str:
            self.did[name] += 1
            return "done"

        told: Any = {"reconcile": reconcile[name]} if name in reconcile else {}
        risk = "read" if name == "look" else "write"
        return declared(name=name, description=name, risk=risk, idempotent=name == "put", **told)(run)


class Death(NamedTuple):
    tool: str
    #: The last event in the log, and how many of this type there are.
    last: str
    number: int = 1
    #: Is that in the run inside the call?
    inside: bool = False
    #: What the next life does, and what the run is then.
    asked: int = 0
    ran: int = 0
    status: str = "COMPLETED"
    codes: tuple[str, ...] = ()


DEATHS = {
    "before the model has answered": Death("look", "model.request", asked=2, ran=1, codes=("ok",)),
    "after a model response, before its calls are done": Death(
        "pay", "approval.granted", asked=1, ran=1, codes=("ok",)
    ),
    "while a person is asked": Death("pay", "run.paused", status="PAUSED_APPROVAL"),
    "after an approval, before the start": Death("pay", "approval.granted", asked=1, ran=1, codes=("ok",)),
    "after a start, and the tool only reads": Death("look", "tool.invocation.started", asked=1, ran=1, codes=("ok",)),
    "after a start, and the tool is `idempotent`": Death("put", "tool.invocation.started", status="PAUSED_APPROVAL"),
    "after a start, and `reconcile` says that it happened": Death(
        "happened", "tool.invocation.started", asked=1, codes=("ok",)
    ),
    "after a start, and `reconcile` says that it did not happen": Death(
        "did_not_happen", "tool.invocation.started", status="PAUSED_APPROVAL"
    ),
    "after a start, and the outcome is unknown": Death(
        "pay", "tool.invocation.started", asked=1, codes=("outcome_unknown",)
    ),
    "after the end of a call": Death("pay", "model.request", number=2, asked=1, codes=("ok",)),
    "inside an agent that another one asked": Death(
        "delegate", "approval.granted", inside=True, asked=2, codes=("ok",)
    ),
    "after the final answer": Death("look", "model.response", number=2, codes=("ok",)),
}


def test_the_page_tells_of_these_deaths() -> None:
    assert [row[0] for row in table_rows(section(PAGE, "Crash recovery"))] == list(DEATHS)


@pytest.mark.requirement("P06", "D15")
@each("death", DEATHS.values())
async def test_a_run_goes_on_after_a_death_as_the_page_says(death: Death) -> None:
    left = await _left_by(death)
    life = Life(death.tool)

    async with Runner(life.agent(), log=left) as runner:
        handles = await runner.recover()
        result = await handles[0].result() if handles else await _stands(runner)

    assert (life.did["asked"], life.did[death.tool], result.status) == (death.asked, death.ran, death.status)
    assert tuple(observation.code for observation in result.observations) == death.codes
    assert bool(result.questions) == (death.status == "PAUSED_APPROVAL")
    if death.inside:
        assert life.did["pay"] == 1


async def _stands(runner: Runner) -> AgentResult:
    """There is nothing to do: it waits."""
    handle = await runner.open(RUN)
    return await handle.result()


async def _left_by(death: Death) -> MemoryLog:
    """A log as a process leaves it that dies there."""
    whole, left = MemoryLog(), MemoryLog()
    await _whole_run(death.tool, whole)
    outer, *inner = [await whole.read(run_id) for run_id in await whole.run_ids()]
    if death.inside:
        left.append(RUN, _until(outer, "run.paused"))
        left.append(inner[0][0].run_id, _until(inner[0], death.last))
    else:
        left.append(RUN, _until(outer, death.last, death.number))
    return left


def _until(entries: list[LogEntry], last: str, number: int = 1) -> list[LogEntry]:
    places = [place for place, entry in enumerate(entries, 1) if decode_event(entry).type == last]
    return entries[: places[number - 1]]


async def _whole_run(tool_name: str, log: MemoryLog) -> None:
    async with Runner(Life(tool_name).agent(), log=log) as runner:
        handle = await runner.start("Go.", run_id=RUN)
        result = await handle.result()
        for question in result.questions:
            await handle.decide(question.action_id, approved=True, by="ana")
            await handle.resume()
        assert (await handle.result()).status == "COMPLETED"


def other_version(life: Life) -> Agent:
    return _with(life, tools=[_pay(life, version="2")])


def denying(life: Life) -> Agent:
    return _with(life, policy=RulePolicy([Rule(id="no", verdict="deny", tools="pay")]))


def allowing(life: Life) -> Agent:
    return _with(life, policy=RulePolicy([Rule(id="yes", verdict="allow", tools="pay")]))


def asking(life: Life) -> Agent:
    return _with(life, policy=RulePolicy([Rule(id="sure", verdict="ask", tools="pay")]))


def without_tools(life: Life) -> Agent:
    return _with(life, tools=[])


def instructed(life: Life) -> Agent:
    return _with(life, instructions="Be careful.", model="another")


def unchanged(life: Life) -> Agent:
    return _with(life)


def _with(life: Life, **fields: Any) -> Agent:
    given: dict[str, Any] = {"provider": life.model("pay"), "tools": [_pay(life)], **fields}
    return Agent(**given)


def _pay(life: Life, version: str = "1") -> Any:
    return msgspec.structs.replace(life.tool("pay"), version=version)


class Changed(NamedTuple):
    now: Callable[[Life], Agent]
    ran: int
    code: str
    mode: str = "default"


#: None: there is nothing that could resume the run.
CHANGES: dict[str, Changed | None] = {
    "the tool, or its declaration": Changed(other_version, 0, ""),
    "a file that the call names, the workspace, the mode, the requester": Changed(unchanged, 0, "", "accept_edits"),
    "the policy, which denies now": Changed(denying, 0, "policy_denied"),
    "the policy, which allows now": Changed(allowing, 1, "ok"),
    "the policy, which still asks": Changed(asking, 0, ""),
    "the tool, which was removed": Changed(without_tools, 0, "unknown_tool"),
    "the agent, which was removed": None,
    "instructions, model, budgets": Changed(instructed, 1, "ok"),
    "nothing": Changed(unchanged, 1, "ok"),
}


def test_the_page_tells_of_these_changes() -> None:
    assert [row[0] for row in table_rows(section(PAGE, "Changes while a run waits"))] == list(CHANGES)


@pytest.mark.requirement("D05")
@each("changed", CHANGES.values())
async def test_an_approved_call_goes_on_as_the_page_says_when_something_changed(changed: Changed | None) -> None:
    log, artifacts, life = MemoryLog(), MemoryArtifacts(), Life("pay")
    async with Runner(unchanged(life), log=log, artifacts=artifacts) as runner:
        waiting = await runner.run("Pay.")
    async with Inbox(log, artifacts) as inbox:
        await inbox.approve(waiting.questions[0], by="ana")

    if changed is None:
        async with Runner(_with(life, name="somebody"), log=log, artifacts=artifacts) as runner:
            with pytest.raises(ConfigurationError, match="Nothing was executed"):
                await runner.open(waiting.run_id)
        return
    async with Runner(changed.now(life), log=log, artifacts=artifacts, mode=changed.mode) as runner:
        result = await (await runner.open(waiting.run_id)).result()

    assert life.did["pay"] == changed.ran
    assert [observation.code for observation in result.observations] == ([changed.code] if changed.code else [])
    assert bool(result.questions and result.questions[0].changes) == (not changed.code)
