"""Runs that wait for consent, beside whatever else they wait for: in every order, after every crash, and for whom."""

from itertools import permutations
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from interlock import Agent, FailSafeConfig, MemoryLog, RunState, ToolContext, tool
from interlock.domain.call import Answer, Question
from interlock.domain.decision import Decision, FailurePolicy, Verdict
from interlock.domain.errors import ConfigurationError
from interlock.domain.event import ConsentRequested, Fact, InvocationStarted, LogEntry, RunStarted, decode_event
from interlock.domain.ids import child_run_id
from interlock.domain.payload import definition_digest
from interlock.domain.state.ledger import Ledger
from interlock.domain.tool import Consent, ConsentBinding, ToolDefinition, agent_path
from interlock.policy.interface import PolicyEvent
from interlock.runs.fork import fork
from interlock.runs.runner import Runner
from interlock.storage.memory_artifacts import MemoryArtifacts
from interlock.testing.log_entries import append_entries
from tests.each import each

from .support import agent_of, calls, facts_of

ADA = "user:ada"
TOKEN = "opaque-access-token-of-ada"


class Access:
    """Tokens by user and tool, as somebody gives and takes them."""

    can_ask = True

    def __init__(self) -> None:
        self.held: dict[tuple[str, str], str] = {}
        self.fault: Exception | None = None

    async def token(self, binding: ConsentBinding, consent: Consent) -> str | None:
        if self.fault is not None:
            raise self.fault
        return self.held.get((binding.user, binding.tool))


class Verdicts:
    """What policy says, by tool."""

    digest = "sha256:one"

    def __init__(self, **verdicts: Decision) -> None:
        self._verdicts = verdicts

    def evaluate(self, event: PolicyEvent) -> Decision:
        return self._verdicts.get(event.tool.name, Decision(verdict=Verdict.ALLOW, reason="Fine."))


ASK = Decision(verdict=Verdict.ASK, reason="Somebody looks.")
VALUE = Decision(verdict=Verdict.REQUEST_INPUT, reason="A person says where.", target_arg="to")


class World:
    def __init__(
        self,
        *made: str,
        log: MemoryLog | None = None,
        rejection_policy: FailurePolicy = "continue",
        **verdicts: Decision,
    ) -> None:
        self.log, self.artifacts, self.access = log or MemoryLog(), MemoryArtifacts(), Access()
        self.done: list[tuple[str, str, str]] = []
        self._made = made or ("send",)
        self._about = {"policy": Verdicts(**verdicts), "fail_safe": FailSafeConfig(rejection_policy=rejection_policy)}

    def runner(self) -> Runner:
        need = Consent(provider="mail", scopes=("mail.send",))

        def effect(name: str, to: str, token: str) -> str:
            self.done.append((name, to, token))
            return "done"

        @tool(consent=need, risk="network")
        def send(to: str, context: ToolContext) -> str:
            """Send."""
            return effect("send", to, context.access_token)

        @tool(risk="network")
        def post(to: str) -> str:
            """Post."""
            return effect("post", to, "")

        @tool(risk="network")
        def move(to: str) -> str:
            """Move."""
            return effect("move", to, "")

        proposed = [(f"c_{name}", name, {"to": "bob"}) for name in self._made]
        agent = agent_of(calls(*proposed), "Done.", tools=[send, post, move], **self._about)
        return Runner(agent, log=self.log, artifacts=self.artifacts, consents=self.access)

    async def answer(self, runner: Runner, question: Question, *, approved: bool = True) -> None:
        if approved and question.kind == "consent":
            self.access.held[ADA, question.tool_name] = TOKEN
        value = "carl" if approved and question.kind == "input" else None
        by = ADA if question.kind == "consent" else "user:bob"
        await runner.inbox.deliver(question.run_id, question.action_id, Answer(approved=approved, value=value, by=by))

    async def begun(
        self, runner: Runner, *, requester: str = ADA, created_by: str = "key:bot"
    ) -> tuple[str, dict[str, Question]]:
        handle = await runner.start("Do it.", requester=requester, created_by=created_by)
        return handle.run_id, {question.kind: question for question in (await handle.result()).questions}


def walked(run_id: str, entries: list[LogEntry]) -> list[tuple[RunState, RunState]]:
    """From which state to which one the run went."""
    ledger, steps = Ledger(run_id=run_id), list[tuple[RunState, RunState]]()
    for entry in entries:
        before = ledger.state
        ledger.apply(decode_event(entry))
        steps += [(before, ledger.state)] if ledger.state is not before else []
    return steps


@pytest.mark.requirement("R135", "R137", "R157")
@each("refused", ["", "consent", "approval", "input"])
@each("order", list(permutations(("approval", "consent", "input"))))
async def test_whatever_is_waited_for_at_once_is_answered_in_any_order(order: tuple[str, ...], refused: str) -> None:
    world = World("send", "post", "move", post=ASK, move=VALUE)
    async with world.runner() as runner:
        run_id, questions = await world.begun(runner)
        for at, kind in enumerate(order):
            await world.answer(runner, questions[kind], approved=kind != refused)
            result = await (await runner.open(run_id)).result()
            assert {question.kind for question in result.questions} == set(order[at + 1 :])
        steps = walked(run_id, await world.log.read(run_id))
        state = steps[-1][1]

    wanted = {
        "consent": ("send", "bob", TOKEN),
        "approval": ("post", "bob", ""),
        "input": ("move", "carl", ""),
    }
    assert sorted(world.done) == sorted(effect for kind, effect in wanted.items() if kind != refused)
    assert state is RunState.COMPLETED
    assert all(RunState.RUNNING in step for step in steps)


@pytest.mark.requirement("P06", "R156")
async def test_a_process_that_dies_at_any_event_loses_no_consent_and_sends_nothing_twice() -> None:
    world = World("send", "post", send=ASK, post=ASK)
    async with world.runner() as runner:
        run_id, _ = await world.begun(runner)
        while questions := (await (await runner.open(run_id)).result()).questions:
            await world.answer(runner, questions[0])
    entries = await world.log.read(run_id)
    types = [decode_event(entry).type for entry in entries]
    assert len(world.done) == 2

    # What is planned of a batch is written in one piece.
    for last in {*range(1, len(entries))} - {*range(types.index("tool.intent"), types.index("consent.requested"))}:
        began = {fact.tool for fact in map(_fact, entries[: last + 1]) if isinstance(fact, InvocationStarted)}
        done, state = await _after_a_crash(run_id, entries[: last + 1])
        assert sorted(name for name, _, _ in done) == sorted({"post", "send"} - began), last
        assert {token for name, _, token in done if name == "send"} <= {TOKEN}, last
        assert state is RunState.COMPLETED, last


def _fact(entry: LogEntry) -> Fact:
    return decode_event(entry).fact


async def _after_a_crash(run_id: str, entries: list[LogEntry]) -> tuple[list[tuple[str, str, str]], RunState]:
    """What a new process does, which has the tokens that were given until then."""
    cut = MemoryLog()
    await append_entries(cut, run_id, entries)
    world = World("send", "post", log=cut, send=ASK, post=ASK)
    if any(decode_event(entry).type == "consent.granted" for entry in entries):
        world.access.held[ADA, "send"] = TOKEN
    async with world.runner() as runner:
        while questions := (result := await (await runner.open(run_id)).result()).questions:
            await world.answer(runner, questions[0])
    return world.done, result.state


@pytest.mark.requirement("R134", "R151")
@pytest.mark.parametrize("refused", ["consent", "approval"])
async def test_a_no_ends_the_run_also_where_its_process_died_before_the_end_was_written(refused: str) -> None:
    world = World("send", "post", post=ASK, rejection_policy="fail")
    async with world.runner() as runner:
        run_id, questions = await world.begun(runner)
        await world.answer(runner, questions[refused], approved=False)
        assert (await (await runner.open(run_id)).result()).state is RunState.FAILED
        forked = await fork(world.log, run_id)
        assert (await (await runner.open(forked)).result()).state is not RunState.FAILED
    entries = await world.log.read(run_id)
    said = next(entry.seq for entry in entries if decode_event(entry).type.endswith((".refused", ".rejected")))

    for last in range(said, len(entries)):
        again = World("send", "post", log=MemoryLog(), post=ASK, rejection_policy="fail")
        await append_entries(again.log, run_id, entries[: last + 1])
        async with again.runner() as runner:
            result = await (await runner.open(run_id)).result()
        assert (result.state, again.done) == (RunState.FAILED, []), last


async def test_a_yes_without_a_token_asks_the_user_again_and_starts_nothing() -> None:
    world = World()
    async with world.runner() as runner:
        run_id, questions = await world.begun(runner)
        for _ in range(3):
            yes = Answer(approved=True, by="user:operator")
            await runner.inbox.deliver(run_id, questions["consent"].action_id, yes)
            result = await (await runner.open(run_id)).result()
            [again] = result.questions
            assert (again.kind, result.state) == ("consent", RunState.PAUSED_CONSENT)
            assert again.action_id != questions["consent"].action_id
            questions = {again.kind: again}

    assert world.done == []


async def test_what_another_user_or_another_tool_was_given_is_not_used() -> None:
    world = World()
    world.access.held = {("user:bob", "send"): TOKEN, (ADA, "post"): TOKEN, ("ada", "send"): TOKEN}
    async with world.runner() as runner:
        _, questions = await world.begun(runner)

    assert (list(questions), world.done) == (["consent"], [])


class Kept:
    """Tokens by what they were given for."""

    can_ask = True

    def __init__(self) -> None:
        self.held = dict[ConsentBinding, str]()

    async def token(self, binding: ConsentBinding, consent: Consent) -> str | None:
        return self.held.get(binding)


def sender(description: str = "Send.") -> ToolDefinition:
    @tool(consent=Consent(provider="mail", scopes=("mail.send",)), risk="read", description=description)
    def send(context: ToolContext) -> str:
        """Send."""
        return context.access_token and "sent"

    return send


async def asked_for(agent: Agent, kept: Kept) -> Question | None:
    """What the user is asked after a call of `send`; None: the call ran with a token."""
    async with Runner(agent, consents=kept, requester=ADA) as runner:
        result = await runner.run("Do it.")
    return result.questions[0] if result.questions else None


@pytest.mark.requirement("P23")
async def test_a_consent_serves_one_agent_and_definition() -> None:
    def agent(name: str, tools: list[Any]) -> Agent:
        return agent_of(calls(("c1", "send", {})), "Done.", tools=tools, name=name)

    kept = Kept()
    first = await asked_for(agent("support", [sender()]), kept)
    assert first is not None
    assert "send of the agent support (definition " in first.prompt
    binding = ConsentBinding(user=ADA, agent="support", tool="send", definition=definition_digest(sender()))
    assert (first.agent, first.bound.tool_definition) == (binding.agent, binding.definition)
    kept.held[binding] = TOKEN

    assert await asked_for(agent("support", [sender()]), kept) is None
    assert await asked_for(agent("other", [sender()]), kept) is not None
    changed = await asked_for(agent("support", [sender("Send it to everybody.")]), kept)
    assert changed is not None
    assert changed.bound.tool_definition != binding.definition


@pytest.mark.requirement("P23")
async def test_nested_agents_need_their_own_consent() -> None:
    """An agent of the same name inside another one is another agent."""
    send, kept = sender(), Kept()
    kept.held[ConsentBinding(user=ADA, agent="mailer", tool="send", definition=definition_digest(send))] = TOKEN
    mailer = agent_of(calls(("c1", "send", {})), "Done.", tools=[send], name="mailer")
    asks, about = calls(("c0", "ask_mailer", {"task": "x"})), {"name": "boss", "policy": Verdicts()}
    boss = agent_of(asks, "Done.", tools=[mailer.as_tool()], **about)
    log = MemoryLog()
    async with Runner(boss, consents=kept, requester=ADA, log=log) as runner:
        result = await runner.run("Do it.")
        [asked] = await facts_of(ConsentRequested, log, child_run_id(result.run_id, "c0"))

    assert asked.question.agent == "boss > mailer"
    assert await asked_for(mailer, kept) is None


@pytest.mark.requirement("P23")
async def test_a_handoff_needs_its_own_consent() -> None:
    send, kept = sender(), Kept()
    kept.held[ConsentBinding(user=ADA, agent="mailer", tool="send", definition=definition_digest(send))] = TOKEN
    mailer = agent_of("not asked", calls(("c1", "send", {})), tools=[send], name="mailer")
    hands_over = calls(("c0", "handoff_to_mailer", {}))
    boss = agent_of(hands_over, handoffs=(mailer,), name="boss", policy=Verdicts())

    asked = await asked_for(boss, kept)

    assert asked is not None
    assert asked.agent == "boss > mailer"


@given(st.lists(st.text(), max_size=4), st.lists(st.text(), max_size=4))
def test_no_two_lists_of_agents_share_a_name(one: list[str], other: list[str]) -> None:
    assume(all(one) and all(other))
    assert (agent_path(one) == agent_path(other)) is (one == other)


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_fault_of_whoever_keeps_the_tokens_refuses_the_call_and_the_run_goes_on(is_late: bool) -> None:
    world = World(send=ASK)
    world.access.fault = None if is_late else OSError("disk full")
    world.access.held[ADA, "send"] = TOKEN
    async with world.runner() as runner:
        run_id, questions = await world.begun(runner)
        if is_late:
            world.access.fault = OSError("disk full")
            await world.answer(runner, questions["approval"])
        result = await (await runner.open(run_id)).result()

    assert (result.state, world.done) == (RunState.COMPLETED, [])
    assert [seen.code for seen in result.observations] == ["consent_unavailable"]


@pytest.mark.parametrize("who", [{"created_by": "user:ghp_" + "a1b2c3" * 6}, {"requester": "user:ghp_" + "a1b2c3" * 6}])
async def test_a_name_that_the_log_would_not_have_as_it_is_starts_nothing(who: dict[str, str]) -> None:
    world = World()
    async with world.runner() as runner:
        with pytest.raises(ConfigurationError, match=r"looks like a secret.*Nothing was started"):
            await world.begun(runner, **who)

    assert await world.log.run_ids() == []


async def test_a_fork_was_made_by_nobody_whom_a_server_knows() -> None:
    world = World()
    async with world.runner() as runner:
        run_id, _ = await world.begun(runner)
        forked = await fork(world.log, run_id)
        [begun] = await facts_of(RunStarted, world.log, forked)
        asked = await facts_of(ConsentRequested, world.log, run_id)

    assert (begun.created_by, begun.forked_from, len(asked)) == ("", run_id, 1)


@pytest.mark.parametrize("said", [(), ("it costs money",)])
async def test_a_question_has_the_words_of_its_tools_risk_whatever_else_is_said(said: tuple[str, ...]) -> None:
    world = World("post", post=Decision(verdict=Verdict.ASK, reason="Look.", risk=said))
    async with world.runner() as runner:
        _, questions = await world.begun(runner)

    assert {"network", *said} <= set(questions["approval"].risk)
