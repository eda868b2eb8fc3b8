"""What counts as an answer: a provider that fails, is late or oversteps never approves."""

import asyncio
from typing import Any

import pytest

from interlock import Answer, HeadlessInteractionProvider, Limits, Rule, RulePolicy, ToolRuntime, tool
from interlock.app import App
from interlock.domain.call import Question
from interlock.domain.decision import RECOVERY_LAYER
from interlock.domain.effect import Effect
from interlock.interaction.interface import Fallback
from interlock.pipeline.approval.answer import ask_provider, find_answer_problem, validate_answer
from tests.each import each
from tests.support import call

from .person import make_question

SECOND = 1_000_000_000
NOW = 1_700_000_000 * SECOND


class Provider:
    """Answers with a value, raises it, or never answers."""

    interactive = True

    def __init__(self, says: Any = None, *, fallback: Fallback = "deny", timeout: float | None = None) -> None:
        self._says = says
        self.approval_fallback: Fallback = fallback
        self.approval_timeout_s = timeout

    async def ask(self, question: Question) -> Any:
        if self._says is Ellipsis:
            await asyncio.Event().wait()
        if isinstance(self._says, Exception):
            raise self._says
        return self._says


async def ask(provider: Provider, question: Question | None = None) -> Answer | None:
    return await ask_provider(question or make_question(), provider, lambda: NOW)


REPEATED = Effect(key="refund:1", digest="d", earlier_run_id="run_0", earlier_call_id="c0")


class TestProvider:
    async def test_an_answer_is_passed_on(self) -> None:
        for answer in (Answer(approved=True, by="ada"), Answer(approved=False, reason="No."), None):
            assert await ask(Provider(answer)) is answer

    async def test_one_that_raises_refuses(self) -> None:
        said = await ask(Provider(OSError("no terminal")))

        assert said == Answer(approved=False, reason="The question could not be asked: OSError: no terminal.")

    async def test_one_that_returns_something_else_refuses(self) -> None:
        assert await ask(Provider("yes")) == Answer(approved=False, reason="The provider answered with str.")

    async def test_one_that_oversteps_refuses_in_its_name(self) -> None:
        said = await ask(Provider(Answer(approved=True, by="ada", scope="run")), make_question(scope="once"))

        assert said is not None
        assert (said.approved, said.by) == (False, "ada")
        assert "The widest scope of this question is 'once'" in said.reason

    @pytest.mark.parametrize("fields", [{"layer": RECOVERY_LAYER}, {"effect": REPEATED}], ids=["recovery", "effect"])
    async def test_only_a_person_approves_what_may_happen_twice(self, fields: dict[str, Any]) -> None:
        question = make_question(**fields)
        said = await ask(Provider(Answer(approved=True, by="headless")), question)

        assert said == Answer(approved=False, reason="Only a person can say that it may run again.", by="headless")
        for answer in (Answer(approved=True, by="ada"), Answer(approved=False, by="headless")):
            assert await ask(Provider(answer), question) is answer
        plain = Answer(approved=True, by="headless")
        assert await ask(Provider(plain)) is plain


class TestTimeout:
    @pytest.mark.parametrize(
        ("fallback", "fields", "approved"),
        [
            ("approve", {}, True),
            ("approve", {"expires_at": NOW + 3_600 * SECOND}, True),
            ("approve", {"expires_at": NOW}, False),
            ("approve", {"kind": "input", "target_arg": "command"}, False),
            ("approve", {"layer": RECOVERY_LAYER}, False),
            ("deny", {}, False),
        ],
    )
    async def test_the_fallback_answers(self, fallback: Fallback, fields: dict[str, Any], approved: bool) -> None:
        said = await ask(Provider(..., fallback=fallback, timeout=0.0), make_question(**fields))

        assert said == Answer(approved=approved, reason="Nobody answered in time.", expired=True, by="fallback")

    async def test_the_fallback_wait_leaves_it_open(self) -> None:
        assert await ask(Provider(..., fallback="wait", timeout=0.0)) is None

    @pytest.mark.parametrize("seconds", [None, 3_600.0])
    async def test_the_expiry_of_the_question_comes_first(self, seconds: float | None) -> None:
        provider = Provider(..., fallback="wait", timeout=seconds)

        assert await ask(provider, make_question(expires_at=NOW - SECOND)) is None

    async def test_without_a_timeout_a_late_answer_counts(self) -> None:
        class Late(Provider):
            async def ask(self, question: Question) -> Any:
                said: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
                asyncio.get_running_loop().call_soon(said.set_result, Answer(approved=True))
                return await said

        assert await ask(Late()) == Answer(approved=True)
        assert await ask(Late(timeout=3_600.0), make_question(expires_at=NOW + 3_600 * SECOND)) == Answer(approved=True)


@each(
    ("answer", "fields", "problem"),
    [
        (Answer(approved=True), {}, ""),
        (Answer(approved=True, value=float("nan")), {}, "The value is not JSON"),
        (Answer(approved=True, arguments={"x": object()}), {}, "The value is not JSON"),
        (Answer(approved=True, value="x"), {"kind": "consent"}, "A consent is given or refused"),
        (Answer(approved=True, arguments={}), {"kind": "consent"}, "A consent is given or refused"),
        (Answer(approved=True), {"kind": "consent"}, ""),
        (Answer(approved=True, arguments={}), {"kind": "input"}, "Arguments that a person edited are approved once"),
        (Answer(approved=True, arguments={}, scope="run"), {"scope": "run"}, "Arguments that a person edited"),
        (Answer(approved=True, scope="window"), {"scope": "window"}, "A window needs its end"),
        (Answer(approved=True, until=1), {}, "A window needs its end"),
        (Answer(approved=True, rule="allow: ls"), {}, "A window needs its end"),
        (Answer(approved=True, scope="rule"), {"scope": "rule"}, "A window needs its end"),
    ],
)
def test_what_is_wrong_with_an_answer_is_said(answer: Answer, fields: dict[str, Any], problem: str) -> None:
    assert find_answer_problem(make_question(**fields), answer).startswith(problem)
    assert bool(find_answer_problem(make_question(**fields), answer)) == bool(problem)


async def test_a_consent_is_checked_while_it_is_open() -> None:
    app = App()
    said = validate_answer(make_question(kind="consent"), Answer(approved=True, value="x"), app.parts)
    await app.close()

    assert said.startswith("A consent is given or refused")


@pytest.mark.parametrize("most", [1, 2])
async def test_no_more_questions_are_open_than_allowed(most: int) -> None:
    def send(to: str) -> str:
        return to

    options: dict[str, Any] = {
        "policy": RulePolicy([Rule(id="ask", verdict="ask", tools="*")]),
        "limits": Limits(max_open_questions=most),
        "interaction": HeadlessInteractionProvider("wait"),
    }
    calls = [call(f"c{number}", "send", to=f"{number}") for number in range(3)]
    async with ToolRuntime(tools=[tool(send, risk="write", concurrency="safe")], **options) as runtime:
        result = await runtime.execute(calls)

        again = await runtime.resume()

    assert again.questions == result.questions
    assert len(result.questions) == most
    assert [seen.code for seen in result.observations] == ["too_many_questions"] * (3 - most)
    assert all(f"{most} questions of this run are open already" in seen.summary for seen in result.observations)
