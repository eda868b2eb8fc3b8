"""What people do about consent: only the person that a run acts for, and one consent answers all that it covers."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from interlock.domain.call import Answer
from interlock.domain.errors import ConfigurationError, DecisionConflictError, LogCorruptError
from interlock.domain.state.lifecycle import ActionState
from interlock.domain.tool import Consent
from interlock.oauth.consents import ConsentRequest, ConsentResult
from interlock.oauth.flow import Callback
from interlock.server.core.audit.audit_log import AuditLog, AuditLogEntry
from interlock.server.core.consent_service import ConsentDecision, ConsentProblem, ConsentRedirect, ConsentService
from interlock.server.core.database.sqlite import SqliteDatabase
from interlock.server.core.identity.principal import Principal, Role
from interlock.server.core.index.rows import ActionQuery, ActionRow, Page
from tests.oauth.scene import READ, REDIRECT, Scene, at_provider, bound_to, gives

ADA = Principal(name="user:ada", kind="person")
EVE = Principal(name="user:eve", kind="person", roles=frozenset({Role.ADMIN, Role.OPERATOR}))
SEND = Consent(provider="mail", scopes=("mail.read", "mail.send"))
_AFTER = {True: ActionState.APPROVED, False: ActionState.REJECTED}


@dataclass
class Board:
    """Questions as the index has them, and what was decided about them."""

    rows: dict[str, ActionRow] = field(default_factory=dict[str, ActionRow])
    asks_for: dict[str, ConsentRequest] = field(default_factory=dict[str, ConsentRequest])
    decided: list[tuple[str, str, Answer]] = field(default_factory=list[tuple[str, str, Answer]])
    #: Questions of runs whose events are not what was written.
    damaged: set[str] = field(default_factory=set[str])

    def ask(self, action_id: str, consent: Consent = READ, **more: str) -> None:
        row = ActionRow(
            action_id=action_id,
            run_id=f"run_of_{action_id}",
            agent=more.get("agent", "helper"),
            requester=more.get("requester", "user:ada"),
            created_by="key:bot",
            call_id="call",
            tool=more.get("tool", "read_mail"),
            capability="read_mail",
            kind=more.get("kind", "consent"),
            payload_hash="",
            state=ActionState.PENDING,
            asked_at=len(self.rows),
            asked_seq=3,
        )
        binding = bound_to(
            user=row.requester, tool=row.tool, agent=row.agent, definition=more.get("definition", "sha256:1")
        )
        self.rows[action_id], self.asks_for[action_id] = row, ConsentRequest(binding, consent, action_id)

    async def get_action(self, action_id: str) -> ActionRow | None:
        return self.rows.get(action_id)

    async def list_actions(self, query: ActionQuery) -> Page[ActionRow]:
        assert query.statuses == {"PENDING"}
        assert query.kinds == {"consent"}
        fit = [
            row
            for row in self.rows.values()
            if row.state is ActionState.PENDING
            and row.kind == "consent"
            and query.person in {None, row.requester, row.created_by}
            and row.asked_at > int(query.cursor or -1)
        ]
        page = fit[: query.limit]
        return Page(tuple(page), str(page[-1].asked_at) if len(fit) > len(page) else "")

    async def consent_of(self, row: ActionRow) -> ConsentRequest | None:
        if row.action_id in self.damaged:
            raise LogCorruptError("event 1 is not what was written")
        return self.asks_for.get(row.action_id)

    async def decide(self, run_id: str, action_id: str, answer: Answer) -> None:
        row = self.rows[action_id]
        if row.state is not ActionState.PENDING:
            raise DecisionConflictError("It has an answer.")
        assert run_id == row.run_id
        self.decided.append((run_id, action_id, answer))
        self.rows[action_id] = msgspec.structs.replace(row, state=_AFTER[answer.approved], decided_by=answer.by)


@dataclass
class Desk:
    scene: Scene
    board: Board
    journal: AuditLog
    consenting: ConsentService

    async def start(self, action_id: str, who: Principal = ADA) -> str:
        """The state that the person's browser was sent off with."""
        going = await self.consenting.start(who, action_id, "session")
        assert isinstance(going, ConsentRedirect)
        return parse_qs(urlsplit(going.url).query)["state"][0]

    async def give(self, action_id: str) -> ConsentDecision | ConsentProblem:
        state = await self.start(action_id)
        return await self.consenting.handle_callback({"state": state, "code": "code"}, ADA, "session")

    async def noted(self) -> list[AuditLogEntry]:
        return list(await self.journal.read())


@pytest.fixture
async def desk() -> AsyncGenerator[Desk]:
    database = SqliteDatabase(":memory:")
    async with at_provider() as scene:
        board, journal = Board(), AuditLog(database, scene.clock)
        consenting = ConsentService(
            consents=scene.consents,
            questions=board,
            read_request=board.consent_of,
            decide=board.decide,
            audit_log=journal,
            redirect_url=REDIRECT,
        )
        yield Desk(scene, board, journal, consenting)
    database.close()


async def test_a_person_sees_what_they_are_asked_for_and_nobody_else_does(desk: Desk) -> None:
    desk.board.ask("act_1")
    desk.board.ask("act_2", SEND, tool="send_mail")
    desk.board.ask("act_3", requester="user:bob")

    waiting = await desk.consenting.list_pending(ADA)

    assert [(one.question.action_id, one.consent) for one in waiting] == [("act_1", READ), ("act_2", SEND)]
    assert await desk.consenting.list_pending(EVE) == ()
    assert await desk.consenting.list_pending(Principal(name="key:bot", kind="key")) == ()


async def test_a_consent_answers_every_question_that_it_covers(desk: Desk) -> None:
    for number in range(120):
        desk.board.ask(f"act_{number}")
    desk.board.ask("more", SEND)
    desk.board.ask("other_tool", tool="send_mail")
    desk.board.ask("other_user", requester="user:bob")

    done = await desk.give("act_7")

    assert isinstance(done, ConsentDecision)
    assert (done.run_id, done.action_id, done.approved) == ("run_of_act_7", "act_7", True)
    assert len(done.also_answered) == 119
    assert {action_id for _, action_id, _ in desk.board.decided} == {f"act_{number}" for number in range(120)}
    assert {answer for *_, answer in desk.board.decided} == {
        Answer(approved=True, by="user:ada", reason="Consent was given at mail.", channel="console")
    }
    (given,) = await desk.consenting.list_granted(ADA)
    assert (given.provider, given.tool, given.scopes) == ("mail", "read_mail", ("mail.read",))
    assert [(entry.by, entry.action, entry.outcome) for entry in await desk.noted()] == [
        ("user:ada", "consent.given", "done")
    ]


async def test_what_was_given_already_answers_a_question_at_once(desk: Desk) -> None:
    desk.board.ask("act_1")
    await desk.give("act_1")
    desk.board.ask("act_2")

    assert await desk.consenting.start(ADA, "act_2", "session") == ConsentDecision(
        run_id="run_of_act_2", action_id="act_2", approved=True
    )


@pytest.mark.parametrize("who", [EVE, Principal(name="key:bot", kind="key"), Principal(name="user:ada", kind="key")])
async def test_nobody_else_may_whatever_their_roles(desk: Desk, who: Principal) -> None:
    desk.board.ask("act_1")

    outcomes = [
        await desk.consenting.start(who, "act_1", "session"),
        await desk.consenting.reject(who, "act_1"),
    ]

    assert [outcome.code for outcome in outcomes if isinstance(outcome, ConsentProblem)] == ["not_yours"] * 2
    assert desk.board.decided == []
    assert {(entry.by, entry.outcome) for entry in await desk.noted()} == {(who.name, "refused")}


async def test_a_run_that_acts_for_nobody_cannot_be_consented_for(desk: Desk) -> None:
    desk.board.ask("act_1", requester="")
    problem = await desk.consenting.start(Principal(name="", kind="person"), "act_1", "session")
    assert isinstance(problem, ConsentProblem)
    assert problem.code == "not_yours"


async def test_what_is_no_question_for_consent_is_unknown(desk: Desk) -> None:
    desk.board.ask("approval", kind="approval")
    for action_id in ("approval", "nothing"):
        for outcome in (
            await desk.consenting.start(ADA, action_id, "session"),
            await desk.consenting.reject(ADA, action_id),
        ):
            assert isinstance(outcome, ConsentProblem)
            assert outcome.code == "unknown"


async def test_who_comes_back_as_somebody_else_gets_nothing_and_the_journal_says_so(desk: Desk) -> None:
    desk.board.ask("act_1")
    state = await desk.start("act_1")

    problem = await desk.consenting.handle_callback({"state": state, "code": "code"}, EVE, "hers")

    assert isinstance(problem, ConsentProblem)
    assert problem.code == "refused"
    assert desk.board.decided == []
    assert desk.scene.endpoint.forms == []
    (entry,) = await desk.noted()
    assert (entry.by, entry.action, entry.target, entry.outcome) == (
        "user:eve",
        "consent.returned",
        "act_1",
        "refused",
    )
    assert entry.detail == {"why": "other_session", "begun_by": "user:ada"}


async def test_coming_back_twice_is_refused_and_changes_nothing(desk: Desk) -> None:
    desk.board.ask("act_1")
    state = await desk.start("act_1")
    came_back = {"state": state, "code": "code"}
    assert isinstance(await desk.consenting.handle_callback(came_back, ADA, "session"), ConsentDecision)

    problem = await desk.consenting.handle_callback(came_back, ADA, "session")

    assert isinstance(problem, ConsentProblem)
    assert (problem.code, problem.message) == (
        "refused",
        "This was used already. If it did not work, begin again.",
    )
    assert len(desk.board.decided) == 1


@pytest.mark.parametrize(
    "params", [{}, {"state": "x" * 43}, {"state": "\ud800", "code": "\x00"}, {"error": "access_denied"}]
)
async def test_coming_back_from_nowhere_is_refused(desk: Desk, params: dict[str, str]) -> None:
    problem = await desk.consenting.handle_callback(params, ADA, "session")
    assert isinstance(problem, ConsentProblem)
    assert problem.code == "refused"
    assert [entry.detail["why"] for entry in await desk.noted()] == ["unknown_state"]


async def test_a_no_at_the_provider_is_a_no_to_the_question(desk: Desk) -> None:
    desk.board.ask("act_1")
    desk.board.ask("act_2")
    state = await desk.start("act_1")

    done = await desk.consenting.handle_callback({"state": state, "error": "access_denied"}, ADA, "session")

    assert done == ConsentDecision(run_id="run_of_act_1", action_id="act_1", approved=False)
    assert desk.board.decided == [
        (
            "run_of_act_1",
            "act_1",
            Answer(approved=False, by="user:ada", reason="You did not give access at mail.", channel="console"),
        )
    ]


@pytest.mark.parametrize(
    ("params", "code"),
    [({"error": "server_error"}, "refused"), ({"code": ""}, "refused"), ({"code": "x"}, "unavailable")],
)
async def test_a_failure_at_the_provider_leaves_the_question_open(
    desk: Desk, params: dict[str, str], code: str
) -> None:
    desk.board.ask("act_1")
    desk.scene.answers((503, b""))
    state = await desk.start("act_1")

    problem = await desk.consenting.handle_callback({"state": state, **params}, ADA, "session")

    assert isinstance(problem, ConsentProblem)
    assert problem.code == code
    assert desk.board.decided == []
    desk.scene.answers(gives())
    assert isinstance(await desk.give("act_1"), ConsentDecision)


async def test_refusing_twice_is_refusing_and_refusing_what_was_given_is_not_possible(desk: Desk) -> None:
    desk.board.ask("act_1")
    desk.board.ask("act_2", tool="send_mail")
    no = ConsentDecision(run_id="run_of_act_1", action_id="act_1", approved=False)

    assert await desk.consenting.reject(ADA, "act_1", "not now") == no
    assert await desk.consenting.reject(ADA, "act_1", "not now") == no
    assert len(desk.board.decided) == 1
    problem = await desk.consenting.start(ADA, "act_1", "session")
    assert isinstance(problem, ConsentProblem)
    assert (problem.code, problem.details) == ("closed", {"decided": "REJECTED", "attempted": "consent"})

    await desk.give("act_2")
    problem = await desk.consenting.reject(ADA, "act_2")
    assert isinstance(problem, ConsentProblem)
    assert (problem.code, problem.details) == ("closed", {"decided": "APPROVED", "attempted": "refusal"})


async def test_a_question_that_closed_meanwhile_is_said_to_be_closed(desk: Desk) -> None:
    desk.board.ask("act_1")
    state = await desk.start("act_1")
    row = desk.board.rows["act_1"]
    desk.board.rows["act_1"] = msgspec.structs.replace(row, state=ActionState.EXPIRED)

    problem = await desk.consenting.handle_callback({"state": state, "code": "code"}, ADA, "session")

    assert isinstance(problem, ConsentProblem)
    assert (problem.code, problem.details["decided"]) == ("closed", "EXPIRED")


async def test_answers_that_cross_leave_one_answer(desk: Desk) -> None:
    desk.board.ask("act_1")
    state = await desk.start("act_1")

    async with asyncio.TaskGroup() as group:
        gave = group.create_task(desk.consenting.handle_callback({"state": state, "code": "code"}, ADA, "session"))
        refused = group.create_task(desk.consenting.reject(ADA, "act_1"))

    assert len(desk.board.decided) == 1
    assert sorted(isinstance(task.result(), ConsentDecision) for task in (gave, refused)) == [False, True]


async def test_what_is_taken_back_is_asked_for_again(desk: Desk) -> None:
    desk.board.ask("act_1")
    await desk.give("act_1")
    desk.scene.answers((200, b""))

    assert await desk.consenting.revoke(ADA, "mail", "read_mail") is True

    problem = await desk.consenting.revoke(ADA, "mail", "read_mail")
    assert isinstance(problem, ConsentProblem)
    assert problem.code == "unknown"
    assert await desk.consenting.list_granted(ADA) == ()
    desk.board.ask("act_2")
    assert isinstance(await desk.consenting.start(ADA, "act_2", "session"), ConsentRedirect)
    assert (await desk.noted())[-1].detail == {"provider": "mail", "at_provider": "taken back"}


@pytest.mark.requirement("P23")
@pytest.mark.parametrize(("part", "other"), [("agent", "other"), ("definition", "sha256:2")])
async def test_a_consent_answers_no_other_agent_or_definition(desk: Desk, part: str, other: str) -> None:
    desk.board.ask("act_1")
    desk.board.ask("act_2", READ, **{part: other})

    done = await desk.give("act_1")

    assert isinstance(done, ConsentDecision)
    assert done.also_answered == ()
    assert isinstance(await desk.consenting.start(ADA, "act_2", "session"), ConsentRedirect)
    assert await desk.consenting.answer_covered_questions() == 0
    (waiting,) = await desk.consenting.list_pending(ADA)
    assert bool(waiting.earlier_consent_at) is (part == "definition")


@pytest.mark.requirement("P23")
async def test_access_is_taken_back_from_one_agent(desk: Desk) -> None:
    for action_id, agent in (("act_1", "helper"), ("act_2", "other"), ("act_3", "third")):
        desk.board.ask(action_id, agent=agent)
        await desk.give(action_id)
    desk.scene.answers((200, b""))

    assert await desk.consenting.revoke(ADA, "mail", "read_mail", "other") is True
    assert [given.agent for given in await desk.consenting.list_granted(ADA)] == ["helper", "third"]
    assert await desk.consenting.revoke(ADA, "mail", "read_mail") is True
    assert await desk.consenting.list_granted(ADA) == ()


async def test_after_a_restart_questions_are_answered_whose_person_consented_just_before_it(desk: Desk) -> None:
    desk.board.ask("act_1")
    desk.board.ask("act_2", requester="user:bob")
    state = await desk.start("act_1")
    said = Callback(state=state, code="code")
    assert isinstance(await desk.scene.consents.finish(said, "user:ada", "session"), ConsentResult)

    assert await desk.consenting.answer_covered_questions() == 1

    assert [(action_id, answer.by) for _, action_id, answer in desk.board.decided] == [("act_1", "user:ada")]
    assert await desk.consenting.answer_covered_questions() == 0


async def test_a_run_whose_events_are_damaged_keeps_nobody_from_the_others(desk: Desk) -> None:
    for action_id in ("act_1", "act_2", "act_3"):
        desk.board.ask(action_id)
    desk.board.damaged.add("act_1")

    assert [one.question.action_id for one in await desk.consenting.list_pending(ADA)] == ["act_2", "act_3"]
    refused = await desk.consenting.start(ADA, "act_1", "session")
    given = await desk.give("act_2")
    assert await desk.consenting.answer_covered_questions() == 0

    assert isinstance(refused, ConsentProblem)
    assert (refused.code, "damaged" in refused.message) == ("unavailable", True)
    assert isinstance(given, ConsentDecision)
    assert (given.approved, given.also_answered) == (True, ("act_3",))


async def test_an_address_to_come_back_to_that_no_provider_may_use_is_refused_at_the_start(desk: Desk) -> None:
    with pytest.raises(ConfigurationError, match=r"on another host\. Set `public_url`"):
        ConsentService(
            consents=desk.scene.consents,
            questions=desk.board,
            read_request=desk.board.consent_of,
            decide=desk.board.decide,
            audit_log=desk.journal,
            redirect_url="http://10.0.0.7:8321/consents/callback",
        )


async def test_nothing_that_is_shown_or_noted_holds_a_token(desk: Desk) -> None:
    desk.scene.answers(gives("secret-access", refresh_token="secret-refresh"))
    desk.board.ask("act_1")
    done = await desk.give("act_1")

    shown = repr(
        (done, await desk.consenting.list_granted(ADA), await desk.noted(), desk.board.decided, desk.scene.consents)
    )
    assert "secret" not in shown
