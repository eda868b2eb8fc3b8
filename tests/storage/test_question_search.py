"""Search in questions: what a text asks for, and which questions have it."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from interlock.domain.call import KeyFact, Question
from interlock.storage.question_search import NumberBound, QuestionSearch, list_question_numbers, parse_search
from tests.each import each


def _ask(arguments: dict[str, Any], **fields: Any) -> Question:
    required: dict[str, Any] = {"action_id": "act_1", "run_id": "run_1", "call_id": "c1", "tool_name": "refund"}
    return Question(kind="approval", prompt="", payload_hash="sha256:1", arguments=arguments, **(required | fields))


@each(
    "text, expected",
    [
        ("", QuestionSearch((), ())),
        ("Refund  MIA", QuestionSearch(("refund", "mia"), ())),
        ("mia amount>=500", QuestionSearch(("mia",), (NumberBound("amount", ">=", 500.0),))),
        ("Order.Total < -1.5", QuestionSearch((), (NumberBound("order.total", "<", -1.5),))),
        ("a=1 b = 2", QuestionSearch((), (NumberBound("a", "=", 1.0), NumberBound("b", "=", 2.0)))),
        ("order=A-7 >=5 x>", QuestionSearch(("order=a-7", ">=5", "x>"), ())),
    ],
)
def test_text_asks_for_words_and_bounds(text: str, expected: QuestionSearch) -> None:
    assert parse_search(text) == expected


@each(
    "arguments, expected",
    [
        ({"amount": 5, "is_big": True, "note": "7 apples"}, {"amount": 5.0}),
        ({"price": "542.00 EUR", "fee": "$2", "id": "0012"}, {"price": 542.0, "fee": 2.0, "id": 12.0}),
        ({"order": {"Total": 9.5}}, {"order.total": 9.5, "total": 9.5}),
        ({"items": [{"n": 1}, {"n": 2}]}, {"items.n": 1.0, "n": 1.0}),
        ({"huge": 10**400, "nothing": None}, {}),
    ],
)
def test_numbers_have_the_names_of_their_arguments(arguments: dict[str, Any], expected: dict[str, float]) -> None:
    assert list_question_numbers(_ask(arguments)) == expected


def test_key_facts_count_where_arguments_are_hidden() -> None:
    question = _ask({"redacted": "{...}"}, key_facts=(KeyFact("amount", "700"),))

    assert parse_search("amount>=700").matches(question)
    assert not parse_search("amount>700").matches(question)


@given(st.text(max_size=60))
def test_any_text_can_be_searched_for(text: str) -> None:
    assert isinstance(parse_search(text).matches(_ask({"text": text, "n": 1})), bool)


@given(st.integers(-(10**12), 10**12), st.integers(-(10**12), 10**12))
def test_bounds_agree_with_numbers(value: int, bound: int) -> None:
    question = _ask({"n": value})

    assert parse_search(f"n>={bound}").matches(question) == (value >= bound)
    assert parse_search(f"n<{bound}").matches(question) == (value < bound)
