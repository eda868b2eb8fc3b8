"""The provider that asks on a terminal, on a real one: what each key does, and what is never a yes."""

import os
import pwd
from collections.abc import Generator
from typing import Any

import msgspec
import pytest

from interlock.domain.call import Answer, Question
from interlock.domain.decision import APPROVAL_SCOPES
from interlock.domain.payload import ApprovalBinding, ExecutionEnvironment, FileOperand
from interlock.domain.trial import Trial
from interlock.interaction.terminal_dialog import KEYS, SCOPE_OF_KEY, ChangedRule, DialogSupport, find_high_risk
from interlock.policy.files.saved_rules import find_rule_problem
from tests.each import each
from tests.pipeline.approval.person import HASH, Person, at_terminal, make_question

BY = f"terminal:{pwd.getpwuid(os.getuid()).pw_name}"
RULE = "allow: bash(ls -la)"
YES = Answer(approved=True, by=BY, channel="terminal")
REASON = "(Enter: none): <"
EDIT = f"allow: {RULE}<"
PAGE, CUT = "q stop] <", "d show all first: <"


def no(reason: str = "") -> Answer:
    return Answer(approved=False, reason=reason, by=BY, channel="terminal")


ENDED = no("The input ended without an answer.")


@pytest.fixture
def person() -> Generator[Person]:
    with at_terminal() as person:
        yield person


async def test_y_approves_this_call_once(person: Person) -> None:
    assert await person.answers(make_question(), "y") == YES
    assert await person.answers(make_question(), "Y") == YES


async def test_the_end_of_the_input_is_no(person: Person) -> None:
    assert await person.answers(make_question(), "\x04") == ENDED


async def test_n_asks_for_the_reason_that_the_model_is_told(person: Person) -> None:
    assert await person.answers(make_question(), "n", REASON + "use git rm \n") == no("use git rm")
    assert await person.answers(make_question(), "n", REASON + "\n") == no()
    assert await person.answers(make_question(), "n", REASON + "\x04") == no()


@pytest.mark.parametrize("keys", ["x", "\n", " ", "\x1b", "\x1b[A", "yy", "y\n", "\x1b[201~y\n", "\xff", "\u00e9", "1"])
async def test_other_keys_are_no_answer(person: Person, keys: str) -> None:
    """They change no row but that of the choices, however many come."""
    asked, hint = make_question(), "Press one of these: y n e d ? "

    answer = await person.answers(asked, keys, *(f"{hint}<{keys}" for _ in range(5)), f"{hint}<y")

    assert answer == YES
    assert len([row for row in person.screen.display if row.strip()]) == 6


@pytest.mark.parametrize("key", ["s", "w", "a"])
async def test_a_key_for_more_than_the_question_allows_is_unknown(person: Person, key: str) -> None:
    question = make_question(suggested_rule=RULE)

    assert await person.answers(question, key, "Press one of these: y n e d ? <y") == YES


@pytest.mark.parametrize("scope", ["run", "window", "rule"])
async def test_s_is_a_yes_for_this_run(person: Person, scope: str) -> None:
    answer = await person.answers(make_question(scope=scope), "s")

    assert answer == Answer(approved=True, by=BY, channel="terminal", scope="run")


async def test_w_is_a_yes_for_some_minutes(person: Person) -> None:
    answer = await person.answers(make_question(scope="window"), "w", "1440)? <15\n", now=lambda: 1_000)

    assert answer == Answer(approved=True, by=BY, channel="terminal", scope="window", until=1_000 + 15 * 60 * 10**9)


@pytest.mark.parametrize("minutes", ["", "0", "1441", "-5", "1.5", "x", "\u0665"])
async def test_minutes_that_are_none_approve_nothing(person: Person, minutes: str) -> None:
    question = make_question(scope="window")

    assert await person.answers(question, "w", f"1440)? <{minutes}\n", "y") == YES


async def test_a_saves_the_rule_that_was_shown(person: Person) -> None:
    question = make_question(scope="rule", suggested_rule=RULE)

    answer = await person.answers(question, "a", f"{EDIT}\n")

    assert answer == Answer(approved=True, by=BY, channel="terminal", scope="rule", rule=RULE)
    assert f"always allow here:\n  - {RULE}\n" in plain(person)


class Comparing(DialogSupport):
    def parse_rule(self, text: str, suggested: str) -> ChangedRule:
        return ChangedRule(text, find_rule_problem(text, suggested))


@pytest.mark.requirement("P22")
async def test_a_shows_a_changed_rule_before_saving(person: Person) -> None:
    rule, other = "{decision: allow, tools: bash}", "{decision: allow, tools: bash, agent: a}"
    question = make_question(scope="rule", suggested_rule=rule)
    keys = ("a", f"allow: {rule}<\x7f", "tools: bash<, agent: a}", "agent: a}<\n", f"allow: {other}<\n")

    answer = await person.answers(question, *keys, support=Comparing())

    assert answer == Answer(approved=True, by=BY, channel="terminal", scope="rule", rule=other)
    assert f"always allow here:\n  - {other}\n" in plain(person)


@pytest.mark.requirement("P22")
@pytest.mark.parametrize("options", [{}, {"support": Comparing()}])
async def test_a_takes_no_wider_rule(person: Person, options: dict[str, Any]) -> None:
    rule = "{decision: allow, tools: bash}"
    question = make_question(scope="rule", suggested_rule=rule)
    keys = (
        "a",
        f"allow: {rule}<\x15",
        "\rallow: <{decision: allow}",
        "\rallow: {decision: allow}<\n",
        f"allow: {rule}<\n",
    )

    assert await person.answers(question, *keys, **options) == Answer(
        approved=True, by=BY, channel="terminal", scope="rule", rule=rule
    )
    assert plain(person).count(f"always allow here:\n  - {rule}\n") == 2


@pytest.mark.parametrize("key", ["\x1b", "\x04"])
async def test_a_rule_that_is_not_saved_approves_nothing(person: Person, key: str) -> None:
    question = make_question(scope="rule", suggested_rule=RULE)

    assert await person.answers(question, "a", EDIT + key, "\x04") == ENDED


async def test_a_pasted_line_break_saves_no_rule(person: Person) -> None:
    question = make_question(scope="rule", suggested_rule=RULE)

    answer = await person.answers(question, "a", f"{EDIT}x\n", f"{RULE}x<\x1b", "y")

    assert answer == YES


async def test_a_rule_with_invisible_text_is_confirmed_not_edited(person: Person) -> None:
    question = make_question(scope="rule", suggested_rule="{tools: b\u200bash}")

    answer = await person.answers(question, "a", "Save it? y yes  n no: <n", "a", "Save it? y yes  n no: <y")

    assert answer.rule == question.suggested_rule
    assert r"  - {tools: b\u{200b}ash}" in plain(person)


async def test_without_a_rule_that_could_be_saved_there_is_no_such_key(person: Person) -> None:
    assert await person.answers(make_question(scope="rule"), "a", "y n e d s w ? <y") == YES


async def test_details_say_who_asks_and_what_each_key_covers(person: Person) -> None:
    question = make_question(scope="rule", suggested_rule=RULE)

    assert await person.answers(question, "d", "y") == YES
    text = plain(person)
    assert "rules:\n  - ask-shell\nreason: Commands are asked about.\n" in text
    assert "run, call, question: run_1, call_1, act_1\n" in text
    for key in ("y, once: this call, once", "s, this run: this call", "w, for minutes: the", "a, always: what"):
        assert f"  - {key}" in text


async def test_a_question_mark_lists_the_keys(person: Person) -> None:
    assert await person.answers(make_question(), "?", "y") == YES
    assert "  - n, no: nothing runs, and the model gets your reason" in plain(person)


async def test_details_name_what_an_approval_is_bound_to(person: Person) -> None:
    files = (FileOperand("logs", "", "a folder"), FileOperand("guess"), FileOperand("a.sh", "ab" * 32))
    bound = ApprovalBinding(
        tool_version="3",
        tool_definition="sha256:d",
        policy="sha256:p",
        surroundings=ExecutionEnvironment(files=files),
    )

    await person.answers(make_question(bound=bound), "d", "\x04")

    text = plain(person)
    assert "policy: sha256:p\ntool version: 3 sha256:d\n" in text
    assert "  - NOT to the files shown as not fixed\n" in text
    assert f"files, as they are now:\n  - a.sh (sha256 {'ab' * 32})\nNOT fixed" in text
    assert "guess" not in text


@each(
    ("told", "high"),
    [
        ("deletes files", True),
        ("may Discard changes", True),
        ("force-pushes", True),
        ("reads secrets", True),
        ("execute", False),
        ("may run postinstall scripts", False),
        ("output truncated to 30000 chars", False),
        ("sandbox on, network enforced off", False),
    ],
)
def test_a_word_of_a_risk_fact_makes_it_high(told: str, high: bool) -> None:
    assert bool(find_high_risk(make_question(risk=("write", told)))) == high


def test_what_was_tried_is_no_high_risk() -> None:
    question = make_question(risk=("deletes files",))
    tried = msgspec.structs.replace(question, trial=Trial(digest="d", change_count=1))

    assert (find_high_risk(question), find_high_risk(tried)) == ("deletes files", "")


async def test_a_user_without_a_name_is_a_number(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)

    assert await person.answers(make_question(), "y") == Answer(
        approved=True, by=f"terminal:{os.getuid()}", channel="terminal"
    )


async def test_a_high_risk_takes_the_beginning_of_the_hash(person: Person) -> None:
    question = make_question(risk=("execute", "deletes files that git does not know"), scope="run")

    assert await person.answers(question, "y", "of the hash: <5eed\n") == YES
    assert await person.answers(question, "s", "of the hash: <5EED\n") == Answer(
        approved=True, by=BY, channel="terminal", scope="run"
    )
    assert "high risk: deletes files that git does not know\n" in plain(person)


@pytest.mark.parametrize("typed", ["", "y", "sha2", "5ee", "5eed5"])
async def test_a_high_risk_is_not_approved_by_anything_else(person: Person, typed: str) -> None:
    question = make_question(risk=("Discards changes",))

    assert await person.answers(question, "y", f"of the hash: <{typed}\n", "\x04") == ENDED


@pytest.mark.parametrize("typed", ["y", "y\n", "yes please"])
async def test_what_was_typed_before_the_question_does_not_answer_it(person: Person, typed: str) -> None:
    person.types(typed)

    assert await person.answers(make_question(), "\x04") == ENDED


@pytest.mark.parametrize("key", ["y", "s", "w", "a"])
async def test_what_was_not_shown_in_full_cannot_be_approved(person: Person, key: str) -> None:
    question = make_question({"command": "x\n" * 500 + "touch /tmp/canary"}, scope="rule", suggested_rule=RULE)

    assert await person.answers(question, f"{CUT}{key}", "Press one of these: n e d ? <\x04") == ENDED
    assert "... 458 more lines, press d\n" in plain(person)
    assert "canary" not in plain(person)


async def test_d_shows_all_of_it_page_by_page_and_then_it_can_be_approved(person: Person) -> None:
    question = make_question({"command": "x\n" * 100 + "touch /tmp/canary"})

    answer = await person.answers(question, f"{CUT}d", f"{PAGE} ", f"{PAGE} ", "y")

    assert answer == YES
    assert "    | touch /tmp/canary\n" in plain(person)
    assert plain(person).count(f"hash: {HASH}\n") == 1


async def test_d_may_show_the_rest_at_once(person: Person) -> None:
    question = make_question({"command": "x" * 100_000})

    assert await person.answers(question, f"{CUT}d", f"{PAGE}a", "y") == YES
    assert plain(person).count("x" * 70) > 1_250


@pytest.mark.parametrize("key", ["q", "\x04"])
async def test_who_stops_before_the_end_has_not_seen_all(person: Person, key: str) -> None:
    question = make_question({"command": "x\n" * 500})

    assert await person.answers(question, f"{CUT}d", f"{PAGE}{key}", f"{CUT}y", "these: n e d ? <\x04") == ENDED


async def test_a_terminal_that_is_too_narrow_refuses() -> None:
    with at_terminal(39) as person:
        answer = await person.provider().ask(make_question())

    assert answer == Answer(
        approved=False,
        reason="The terminal could not be used: OSError: it is narrower than 40 columns",
        by="terminal",
    )


@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
async def test_there_are_no_colours_where_they_are_not_wanted(
    person: Person, variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    monkeypatch.delenv("FORCE_COLOR", raising=False)

    await person.answers(make_question(), "y")

    assert "\x1b[33m" not in person.text
    assert "\x1b[36m" not in person.text


def asked_for(**fields: Any) -> Question:
    return make_question({"branch": None}, kind="input", target_arg="branch", **fields)


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("main", "main"),
        ("42", "42"),
        ("=42", 42),
        ('={"a": [1, null]}', {"a": [1, None]}),
        ('="=x"', "=x"),
        ("=false", False),
        ("\u6f22\u5b57 caf\u00e9", "\u6f22\u5b57 caf\u00e9"),
    ],
)
async def test_a_value_is_text_or_json_behind_an_equals_sign(person: Person, typed: str, value: object) -> None:
    answer = await person.answers(asked_for(), typed + "\n", after="Value: ")

    assert answer == Answer(approved=True, value=value, by=BY, channel="terminal")


@pytest.mark.parametrize("typed", ["\n", "\x04"])
async def test_no_value_is_a_refusal(person: Person, typed: str) -> None:
    assert await person.answers(asked_for(), typed, after="Value: ") == no("No value was given.")


async def test_a_value_that_is_not_json_is_asked_for_again(person: Person) -> None:
    answer = await person.answers(asked_for(), "={\n", "=NaN\n", "=null\n", "={\n", "=1\n", after="Value: ")

    assert answer == Answer(approved=True, value=1, by=BY, channel="terminal")
    assert "That is not JSON: " in plain(person)


async def test_a_value_with_something_unseen_is_shown_before_it_is_used(person: Person) -> None:
    asked = asked_for()

    used = await person.answers(asked, "ma\u200bin\n", "n no: <y", after="Value: ")
    refused = await person.answers(asked, "ma\u200bin\n", "n no: <n", "\n", after="Value: ")

    assert used == Answer(approved=True, value="ma\u200bin", by=BY, channel="terminal")
    assert refused == no("No value was given.")
    assert r"the value has parts that are not seen: ma\u{200b}in" in plain(person)


async def test_a_value_is_only_asked_for_after_all_of_the_call_was_shown(person: Person) -> None:
    question = msgspec.structs.replace(asked_for(), arguments={"branch": None, "text": "x\n" * 100})

    stopped = await person.answers(question, PAGE + "q")
    given = await person.answers(question, PAGE + " ", PAGE + " ", "Value: <main\n")

    assert stopped == no("The call was not looked at to its end.")
    assert given == Answer(approved=True, value="main", by=BY, channel="terminal")


def test_every_scope_has_its_key() -> None:
    assert tuple(SCOPE_OF_KEY.values()) == APPROVAL_SCOPES
    assert {*SCOPE_OF_KEY} <= {key.key for key in KEYS}


def plain(person: Person) -> str:
    """What came up, without colours and with its rows put together."""
    text = person.text
    for code in ("0", "1", "2", "31", "32", "33", "36", "1;7"):
        text = text.replace(f"\x1b[{code}m", "")
    return text.replace("\n  > ", "")
