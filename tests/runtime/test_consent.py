"""A tool that acts for a user elsewhere waits for that user, whatever policy and other people say."""

from typing import Any

import msgspec
import pytest

from interlock import (
    AgentExecutionError,
    CallbackInteractionProvider,
    FailSafeConfig,
    HeadlessInteractionProvider,
    Limits,
    PolicyDecision,
    Question,
    Rule,
    RulePolicy,
    RunState,
    ToolContext,
    ToolRuntime,
    Verdict,
    to_run_events,
    tool,
)
from interlock.domain.call import KeyFact
from interlock.domain.errors import ConsentError
from interlock.domain.event import PolicyEvaluated
from interlock.domain.payload import ApprovalBinding, definition_digest
from interlock.domain.tool import Consent, ConsentBinding
from tests.pipeline.approval_e2e.scene import HandClock
from tests.support import call, facts

TOKEN = "opaque-access-token-of-ada"
SEND = call("c1", "send_mail", to="bob")


class Access:
    """Tokens of users, as somebody gives and takes them."""

    can_ask = True

    def __init__(self, token: str | None = None) -> None:
        self.held = token
        self.asked: list[tuple[ConsentBinding, Consent]] = []
        self.error = ""

    async def token(self, binding: ConsentBinding, consent: Consent) -> str | None:
        self.asked.append((binding, consent))
        if self.error:
            raise ConsentError(self.error)
        return self.held


class Mail:
    def __init__(self, **declared: Any) -> None:
        self.sent: list[tuple[str, str]] = []
        need = Consent(provider="mail", scopes=("mail.send",))

        @tool(consent=need, **declared)
        def send_mail(to: str, context: ToolContext) -> str:
            """Send a mail."""
            self.sent.append((to, context.access_token))
            return f"sent with {context.access_token}"

        self.tool = send_mail

    def runtime(self, access: Any, **options: Any) -> ToolRuntime:
        about: dict[str, Any] = {"requester": "ada", "interaction": HeadlessInteractionProvider("wait")} | options
        return ToolRuntime(tools=[self.tool], consents=access, **about)


async def shown(runtime: ToolRuntime) -> list[str]:
    return [event.type for step in await runtime.replay() for event in to_run_events(step.event)]


async def types(runtime: ToolRuntime) -> list[str]:
    return [step.event.type for step in await runtime.replay()]


async def test_a_provider_is_not_asked_for_a_consent() -> None:
    """Only the user can give it, elsewhere; until then the question stays as it is."""
    mail, asked = Mail(), list[Question]()
    person = CallbackInteractionProvider(lambda question: asked.append(question) or True)
    async with mail.runtime(Access(), interaction=person) as runtime:
        first = await runtime.execute([SEND])
        again = await runtime.resume()

    assert (len(first.questions), again.questions) == (1, first.questions)
    assert (asked, mail.sent) == ([], [])


@pytest.mark.requirement("R130", "R132", "R139", "R154", "R155")
async def test_without_consent_the_run_waits_and_with_it_the_tool_gets_the_users_token() -> None:
    mail, access = Mail(), Access()
    async with mail.runtime(access) as runtime:
        paused = await runtime.execute([SEND])
        [question] = paused.questions
        assert (paused.state, paused.status, mail.sent) == (RunState.PAUSED_CONSENT, "PAUSED_CONSENT", [])
        assert (question.kind, question.provider, question.scopes) == ("consent", "mail", ("mail.send",))
        assert "ada" in question.prompt
        access.held = TOKEN
        await runtime.decide(question.action_id, approved=True, by="ada")
        done = await runtime.resume()

        assert (done.state, mail.sent) == (RunState.RUNNING, [("bob", TOKEN)])
        assert [word for word in await shown(runtime) if word != "TOOL_CALL"] == ["CONSENT_REQUIRED"]


async def test_a_consent_question_says_who_acts_for_whom() -> None:
    mail = Mail(version="3", risk="network", origin="mcp", source="post", capability="POST /mails/{to}")
    policy = RulePolicy([Rule(id="all", verdict="allow")])
    options: dict[str, Any] = {"run_id": "run_1", "limits": Limits(consent_seconds=60), "policy": policy}
    async with mail.runtime(Access(), agent="clerk", **options) as runtime:
        [question] = (await runtime.execute([SEND])).questions
        [judged] = [fact for fact in await facts(runtime) if isinstance(fact, PolicyEvaluated)]

    definition = definition_digest(mail.tool)
    shown = definition.removeprefix("sha256:")[:12]
    acts = f"send_mail of the agent clerk (definition {shown}) acts for ada at mail"
    assert msgspec.structs.asdict(question) | {
        "action_id": "",
        "asked_at": 0,
        "expires_at": 0,
    } == msgspec.structs.asdict(
        Question(
            action_id="",
            run_id="run_1",
            agent="clerk",
            call_id="c1",
            tool_name="send_mail",
            kind="consent",
            prompt=f"{acts}, and needs their consent to mail.send.",
            arguments={"to": "bob"},
            payload_hash="",
            risk=("network",),
            bound=ApprovalBinding(tool_origin="mcp", tool_source="post", tool_version="3", tool_definition=definition),
            layer="consent",
            reason="The tool declares that it acts for a user at mail.",
            capability="POST /mails/bob",
            title="send_mail: to=bob",
            key_facts=(KeyFact("to", "bob"),),
            provider="mail",
            scopes=("mail.send",),
        )
    )
    assert question.expires_at == question.asked_at + 60 * 10**9
    decision = judged.decision
    assert (decision.verdict, decision.layer, decision.rule_ids) == (Verdict.ASK, "consent", ("interlock:consent",))
    assert (decision.reason, decision.policy_digest) == (question.prompt, policy.digest)


async def test_a_consent_without_scopes_and_agent_names_neither() -> None:
    def send_mail(to: str) -> None: ...

    declared = tool(send_mail, consent=Consent(provider="mail"))
    async with ToolRuntime(tools=[declared], consents=Access(), requester="ada") as runtime:
        [question] = (await runtime.execute([SEND])).questions

    shown = definition_digest(declared).removeprefix("sha256:")[:12]
    assert question.prompt == f"send_mail (definition {shown}) acts for ada at mail, and needs their consent."


async def test_with_consent_nobody_is_asked() -> None:
    mail, access = Mail(), Access(TOKEN)
    async with mail.runtime(access) as runtime:
        done = await runtime.execute([SEND])

    assert (done.questions, mail.sent) == ((), [("bob", TOKEN)])
    binding, consent = access.asked[0]
    assert (binding.user, binding.tool, binding.definition) == ("ada", "send_mail", definition_digest(mail.tool))
    assert consent == Consent(provider="mail", scopes=("mail.send",))


async def test_a_token_is_neither_shown_to_the_model_nor_written_down() -> None:
    mail = Mail()
    async with mail.runtime(Access(TOKEN)) as runtime:
        done = await runtime.execute([SEND])
        written = str(await runtime.replay()).encode()

    assert "[redacted:access_token]" in str(done.observations[0])
    assert TOKEN.encode() not in written
    assert TOKEN not in str(done)


@pytest.mark.requirement("R157")
async def test_consent_and_approval_are_separate_and_a_call_may_need_both() -> None:
    mail, access = Mail(risk="network"), Access()
    async with mail.runtime(access) as runtime:
        [consent] = (await runtime.execute([SEND])).questions
        access.held = TOKEN
        await runtime.decide(consent.action_id, approved=True, by="ada")
        paused = await runtime.resume()
        [approval] = paused.questions
        assert (consent.kind, approval.kind, mail.sent) == ("consent", "approval", [])
        assert paused.state is RunState.PAUSED_APPROVAL
        await runtime.decide(approval.action_id, approved=True, by="bob")
        await runtime.resume()

        assert mail.sent == [("bob", TOKEN)]
        order = [word for word in await types(runtime) if word.startswith(("run.", "consent.", "approval."))]
    assert order[1:] == [
        "consent.requested", "run.paused", "run.resumed", "consent.granted",
        "approval.requested", "run.paused", "run.resumed", "approval.granted",
    ]  # fmt: skip


async def test_consent_that_was_taken_back_while_somebody_approved_is_asked_for_again() -> None:
    mail, access = Mail(risk="network"), Access(TOKEN)
    async with mail.runtime(access) as runtime:
        [approval] = (await runtime.execute([SEND])).questions
        access.held = None
        await runtime.decide(approval.action_id, approved=True, by="bob")
        paused = await runtime.resume()
        [consent] = paused.questions
        states = [action.status for action in await runtime.actions()]

    assert (consent.kind, paused.state, mail.sent) == ("consent", RunState.PAUSED_CONSENT, [])
    assert states == ["VOID", "PENDING"]


@pytest.mark.requirement("R134")
async def test_consent_that_is_refused_fails_the_run_as_it_waits() -> None:
    mail = Mail()
    async with mail.runtime(Access(), fail_safe=FailSafeConfig(rejection_policy="fail")) as runtime:
        [question] = (await runtime.execute([SEND])).questions
        await runtime.decide(question.action_id, approved=False, reason="not this one", by="ada")
        with pytest.raises(AgentExecutionError, match="refused: not this one"):
            await runtime.resume()

        assert (await runtime.state(), mail.sent) == (RunState.FAILED, [])
        assert "run.resumed" not in await types(runtime)


async def test_consent_that_nobody_gives_in_time_is_expired_and_not_refused() -> None:
    mail, clock = Mail(), HandClock()
    limits = Limits(consent_seconds=60.0)
    async with mail.runtime(Access(), limits=limits, clock=clock.clock()) as runtime:
        await runtime.execute([SEND])
        clock.passes(61)
        [seen] = (await runtime.resume()).observations

    assert (seen.code, mail.sent) == ("consent_expired", [])


async def test_what_policy_refuses_asks_no_user_for_consent() -> None:
    class No:
        def evaluate(self, event: Any) -> Any:
            return PolicyDecision(verdict=Verdict.DENY, reason="Not today.")

    mail, access = Mail(), Access()
    async with mail.runtime(access, policy=No()) as runtime:
        done = await runtime.execute([SEND])

    assert (done.observations[0].code, access.asked, done.questions) == ("policy_denied", [], ())


@pytest.mark.parametrize(
    ("access", "requester", "words"),
    [
        (None, "ada", "no user can be asked"),
        (Access(), "", "acts for no user"),
    ],
)
async def test_where_nobody_can_be_asked_the_call_is_refused_in_words(access: Any, requester: str, words: str) -> None:
    mail = Mail()
    async with mail.runtime(access, requester=requester) as runtime:
        [seen] = (await runtime.execute([SEND])).observations

    assert (seen.code, mail.sent) == ("consent_unavailable", [])
    assert words in str(seen)


async def test_a_provider_that_cannot_be_reached_fails_the_call_and_asks_nobody() -> None:
    mail, access = Mail(), Access()
    access.error = "connection refused"
    async with mail.runtime(access) as runtime:
        done = await runtime.execute([SEND])

    assert (done.observations[0].code, done.questions) == ("consent_unavailable", ())
    assert "connection refused" in str(done.observations[0])
