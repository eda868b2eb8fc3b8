"""A call that started, and whose process is gone: it is never run again silently, and a person may let it run again."""

import asyncio

import msgspec
import pytest

from interlock import (
    Answer,
    CallbackInteractionProvider,
    FailSafeConfig,
    HeadlessInteractionProvider,
    MemoryLog,
    Question,
    Rule,
    RulePolicy,
    ToolDefinition,
    ToolRuntime,
    tool,
)
from interlock.interaction.interface import Fallback, InteractionProvider

ALLOW = RulePolicy([Rule(id="mail", verdict="allow", tools="send")])
DENY = RulePolicy([Rule(id="mail", verdict="deny", tools="send")])
CALL = {"id": "a", "name": "send", "input": {"to": "bob"}, "type": "tool_use"}


class Mail:
    """A tool that counts what it did, and hangs the first time."""

    def __init__(self) -> None:
        self.sent = 0
        self.hangs = True
        self.begun = asyncio.Event()

    def tool(self) -> ToolDefinition:
        @tool(risk="write")
        async def send(to: str) -> str:
            """Send a mail."""
            self.sent += 1
            self.begun.set()
            if self.hangs:
                await asyncio.Event().wait()
            return "sent"

        return send


async def log_of_a_run_that_died(mail: Mail) -> MemoryLog:
    """As a killed process leaves it: the call has started, and there is no more."""
    log, copy = MemoryLog(), MemoryLog()
    async with ToolRuntime(tools=[mail.tool()], policy=ALLOW, log=log, run_id="run") as runtime:
        running = asyncio.create_task(runtime.execute([CALL]))
        await mail.begun.wait()
        copy.append("run", await log.read("run"))
        running.cancel()
        await asyncio.wait([running])
    mail.hangs = False
    return copy


def runtime_after(
    mail: Mail, log: MemoryLog, interaction: InteractionProvider, policy: RulePolicy = ALLOW
) -> ToolRuntime:
    fail_safe = FailSafeConfig(unknown_outcome_policy="ask")
    return ToolRuntime(
        tools=[mail.tool()], policy=policy, log=log, run_id="run", interaction=interaction, fail_safe=fail_safe
    )


def never(question: Question) -> bool:
    raise AssertionError("nobody is to be asked")


@pytest.mark.requirement("D15", "P07")
async def test_the_model_is_told_that_the_outcome_is_unknown_unless_people_are_to_be_asked() -> None:
    mail = Mail()
    log = await log_of_a_run_that_died(mail)
    provider = CallbackInteractionProvider(never)

    async with ToolRuntime(tools=[mail.tool()], policy=ALLOW, log=log, run_id="run", interaction=provider) as runtime:
        result = await runtime.resume()

    assert [observation.code for observation in result.observations] == ["outcome_unknown"]
    assert mail.sent == 1


@pytest.mark.requirement("D15", "P07")
async def test_a_person_may_let_it_run_again_although_policy_allows_it_without_a_question() -> None:
    mail, asked = Mail(), list[Question]()
    log = await log_of_a_run_that_died(mail)

    async with runtime_after(mail, log, CallbackInteractionProvider(lambda q: asked.append(q) or True)) as runtime:
        result = await runtime.resume()

    assert [observation.ok for observation in result.observations] == [True]
    assert mail.sent == 2
    assert [question.layer for question in asked] == ["recovery"]
    assert "whether it happened is not known" in asked[0].prompt
    assert "it may happen twice" in asked[0].risk


@pytest.mark.parametrize(
    "interaction",
    [CallbackInteractionProvider(lambda question: False), HeadlessInteractionProvider()],
    ids=["no", "nobody there"],
)
async def test_without_a_yes_the_outcome_is_unknown_and_not_denied(interaction: InteractionProvider) -> None:
    mail = Mail()
    log = await log_of_a_run_that_died(mail)

    async with runtime_after(mail, log, interaction) as runtime:
        result = await runtime.resume()

    assert [observation.code for observation in result.observations] == ["outcome_unknown"]
    assert mail.sent == 1


async def test_the_question_waits_for_days_and_another_process() -> None:
    mail = Mail()
    log = await log_of_a_run_that_died(mail)
    waiting = HeadlessInteractionProvider("wait")
    async with runtime_after(mail, log, waiting) as runtime:
        first = await runtime.resume()
        await runtime.decide(first.questions[0].action_id, approved=True, by="ann")

    async with runtime_after(mail, log, waiting) as runtime:
        result = await runtime.resume()

    assert first.status == "PAUSED_APPROVAL"
    assert [observation.ok for observation in result.observations] == [True]
    assert mail.sent == 2


async def test_nobody_is_asked_about_what_policy_forbids_by_now() -> None:
    mail = Mail()
    log = await log_of_a_run_that_died(mail)

    async with runtime_after(mail, log, CallbackInteractionProvider(never), DENY) as runtime:
        result = await runtime.resume()

    assert [observation.code for observation in result.observations] == ["outcome_unknown"]
    assert mail.sent == 1


async def test_a_run_that_is_cancelled_meanwhile_says_that_the_outcome_is_unknown() -> None:
    mail = Mail()
    log = await log_of_a_run_that_died(mail)
    asked = asyncio.Event()

    async def think(question: Question) -> bool:
        asked.set()
        await asyncio.Event().wait()
        return True

    async with runtime_after(mail, log, CallbackInteractionProvider(think)) as runtime:
        resuming = asyncio.create_task(runtime.resume())
        await asked.wait()
        await runtime.cancel()
        result = await resuming

    assert [observation.code for observation in result.observations] == ["outcome_unknown"]
    assert mail.sent == 1


async def test_killed_while_the_question_was_written_it_still_does_not_run_without_a_yes() -> None:
    mail = Mail()
    log = await log_of_a_run_that_died(mail)
    async with runtime_after(mail, log, HeadlessInteractionProvider("wait")) as runtime:
        await runtime.resume()
    events = await log.read("run")
    judged = next(at for at, entry in enumerate(events) if b"unknown-outcome" in entry.body)
    killed = MemoryLog()
    killed.append("run", events[: judged + 1])

    async with runtime_after(mail, killed, HeadlessInteractionProvider("wait")) as runtime:
        result = await runtime.resume()

    assert [question.layer for question in result.questions] == ["recovery"]
    assert mail.sent == 1


@pytest.mark.parametrize("fallback", ["approve", "deny"])
async def test_only_a_person_can_say_that_it_may_run_again(fallback: Fallback) -> None:
    mail = Mail()
    log = await log_of_a_run_that_died(mail)

    async with runtime_after(mail, log, HeadlessInteractionProvider(fallback)) as runtime:
        result = await runtime.resume()

    assert [observation.code for observation in result.observations] == ["outcome_unknown"]
    assert mail.sent == 1


async def test_whatever_refuses_it_later_nobody_is_told_that_nothing_was_executed() -> None:
    mail = Mail()
    log = await log_of_a_run_that_died(mail)
    idempotent = msgspec.structs.replace(mail.tool(), idempotent=True)

    async with ToolRuntime(tools=[idempotent], policy=DENY, log=log, run_id="run") as runtime:
        (observation,) = (await runtime.resume()).observations

    assert (observation.code, observation.side_effects) == ("outcome_unknown", "unknown")
    assert "policy_denied" in observation.summary


async def test_what_a_person_had_written_is_not_replaced_by_what_the_model_wrote() -> None:
    mail, log = Mail(), MemoryLog()
    asks = RulePolicy([Rule(id="mail", verdict="ask", tools="send")])
    edits = CallbackInteractionProvider(lambda question: Answer(approved=True, arguments={"to": "eve"}))
    idempotent = msgspec.structs.replace(mail.tool(), idempotent=True)
    killed = MemoryLog()
    async with ToolRuntime(tools=[idempotent], policy=asks, log=log, run_id="run", interaction=edits) as runtime:
        running = asyncio.create_task(runtime.execute([CALL]))
        await mail.begun.wait()
        killed.append("run", await log.read("run"))
        running.cancel()
        await asyncio.wait([running])

    async with ToolRuntime(tools=[idempotent], policy=ALLOW, log=killed, run_id="run") as runtime:
        (observation,) = (await runtime.resume()).observations

    assert observation.code == "outcome_unknown"
    assert mail.sent == 1
