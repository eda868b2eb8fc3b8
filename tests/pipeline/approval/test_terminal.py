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
from interlock.interaction.terminal_dialog import KEYS, SCOPE_OF_KEY, find_high_risk
from interlock.policy.files.saved_rules import find_rule_problem
from tests.pipeline.approval.person import HASH, Person, at_terminal, make_question

BY = f"terminal:{pwd.getpwuid(os.getuid()).pw_name}"
RULE = "allow: bash(ls -la)"
YES = Answer(approved=True, by=BY)
REASON = "Enter for none): <"


def no(reason: str = "") -> Answer:
    return Answer(approved=False, reason=reason, by=BY)


@pytest.fixture
def person() -> Generator[Person]:
    with at_terminal() as person:
        yield person


async def test_y_is_a_yes_to_this_call_once(person: Person) -> None:
    assert await person.answers(make_question(), "y\n") == YES


@pytest.mark.parametrize("word", ["yes", " y ", "Y", "YES"])
async def test_a_yes_may_be_a_word(person: Person, word: str) -> None:
    assert await person.answers(make_question(), word + "\n") == YES


async def test_enter_alone_is_no(person: Person) -> None:
    assert await person.answers(make_question(), "\n") == no()


async def test_the_end_of_the_input_is_no(person: Person) -> None:
    assert await person.answers(make_question(), "\x04") == no("The input ended without an answer.")


async def test_n_asks_for_the_reason_that_the_model_is_told(person: Person) -> None:
    assert await person.answers(make_question(), "n\n", REASON + "use git rm \n") == no("use git rm")
    assert await person.answers(make_question(), "no\n", REASON + "\n") == no()
    assert await person.answers(make_question(), "n\n", REASON + "\x04") == no()


async def test_an_unknown_key_is_told_what_is_possible_and_the_third_is_no(person: Person) -> None:
    answer = await person.answers(make_question(), "x\n", "yy\n", "\x1b[A\n")

    assert answer == no("Three answers were not understood.")
    assert "x is not one of the keys.\ny once | n no | e edit | v view all | ? explain\n" in plain(person)
    assert r"\u{1b}[a is not one of the keys." in plain(person)


@pytest.mark.parametrize("key", ["s", "w", "r"])
async def test_a_key_for_more_than_the_question_allows_is_unknown(person: Person, key: str) -> None:
    question = make_question(suggested_rule=RULE)

    assert await person.answers(question, f"{key}\n", "\n") == no()
    assert f"{key} is not one of the keys." in plain(person)


@pytest.mark.parametrize("scope", ["run", "window", "rule"])
async def test_s_is_a_yes_for_this_run(person: Person, scope: str) -> None:
    answer = await person.answers(make_question(scope=scope), "s\n")

    assert answer == Answer(approved=True, by=BY, scope="run")


async def test_w_is_a_yes_for_some_minutes(person: Person) -> None:
    answer = await person.answers(make_question(scope="window"), "w\n", "1440)? <15\n", now=lambda: 1_000)

    assert answer == Answer(approved=True, by=BY, scope="window", until=1_000 + 15 * 60 * 10**9)


@pytest.mark.parametrize("minutes", ["", "0", "1441", "-5", "1.5", "x", "\u0665"])
async def test_minutes_that_are_none_approve_nothing(person: Person, minutes: str) -> None:
    question = make_question(scope="window")

    assert await person.answers(question, "w\n", f"1440)? <{minutes}\n", "\n") == no()


async def test_r_saves_the_rule_that_was_shown(person: Person) -> None:
    question = make_question(scope="rule", suggested_rule=RULE)

    answer = await person.answers(question, "r\n", "narrower rule: <y\n")

    assert answer == Answer(approved=True, by=BY, scope="rule", rule=RULE)
    assert f"this rule would be saved:\n  - {RULE}\n" in plain(person)


@pytest.mark.requirement("P22")
async def test_r_shows_a_narrower_rule_before_saving(person: Person) -> None:
    rule, other = "{decision: allow, tools: bash}", "{decision: allow, tools: bash, agent: a}"
    question = make_question(scope="rule", suggested_rule=rule)
    keys = ("r\n", f"narrower rule: <{other}\n", "narrower rule: <y\n")

    answer = await person.answers(question, *keys, find_rule_problem=find_rule_problem)

    assert answer == Answer(approved=True, by=BY, scope="rule", rule=other)
    assert f"this rule would be saved:\n  - {other}\n" in plain(person)


@pytest.mark.requirement("P22")
@pytest.mark.parametrize("options", [{}, {"find_rule_problem": find_rule_problem}])
async def test_r_takes_no_wider_rule(person: Person, options: dict[str, Any]) -> None:
    rule = "{decision: allow, tools: bash}"
    question = make_question(scope="rule", suggested_rule=rule)
    keys = ("r\n", "narrower rule: <{decision: allow}\n", "narrower rule: <y\n")

    assert await person.answers(question, *keys, **options) == Answer(approved=True, by=BY, scope="rule", rule=rule)
    assert plain(person).count(f"this rule would be saved:\n  - {rule}\n") == 2


async def test_a_rule_that_is_not_saved_approves_nothing(person: Person) -> None:
    question = make_question(scope="rule", suggested_rule=RULE)

    assert await person.answers(question, "r\n", "narrower rule: <\n", "\n") == no()


async def test_without_a_rule_that_could_be_saved_there_is_no_such_key(person: Person) -> None:
    assert await person.answers(make_question(scope="rule"), "r\n", "\n") == no()


async def test_explain_says_who_asks_and_what_each_answer_covers(person: Person) -> None:
    question = make_question(scope="rule", suggested_rule=RULE, risk=())

    assert await person.answers(question, "?\n", "y\n") == YES
    text = plain(person)
    assert "asked by the rules:\n  - ask-shell\nlayer: user rule\nreason: Commands are asked about.\n" in text
    assert "risk:\n  - none was named\nsandbox: bwrap\n" in text
    for key in ("y once: this call, once", "s this run: this call", "w for minutes: the", "r save a rule: what"):
        assert f"  - {key}" in text


async def test_explain_says_when_nothing_holds_the_call_back(person: Person) -> None:
    question = make_question(rule_ids=(), layer="", bound=ApprovalBinding())

    await person.answers(question, "?\n", "\n")

    assert "sandbox: none: it runs with everything that this process may do" in plain(person)
    assert "no rule; the tool's declared risk asks" in plain(person)


async def test_explain_names_the_versions_that_an_approval_is_bound_to(person: Person) -> None:
    around = ExecutionEnvironment(files=(FileOperand("logs", "", "a folder"),))
    bound = ApprovalBinding(tool_version="3", tool_definition="sha256:d", policy="sha256:p", surroundings=around)

    await person.answers(make_question(bound=bound), "?\n", "\n")

    assert "policy: sha256:p\ntool version: 3 sha256:d\n" in plain(person)
    assert "  - NOT to the files shown as not fixed\n" in plain(person)


@pytest.mark.parametrize(
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


async def test_a_user_without_a_name_is_a_number(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)

    assert await person.answers(make_question(), "y\n") == Answer(approved=True, by=f"terminal:{os.getuid()}")


async def test_a_high_risk_takes_the_beginning_of_the_hash(person: Person) -> None:
    question = make_question(risk=("execute", "deletes files that git does not know"), scope="run")

    assert await person.answers(question, "y\n", "of the hash: <5eed\n") == YES
    assert await person.answers(question, "s\n", "of the hash: <5EED\n") == Answer(approved=True, by=BY, scope="run")
    assert "high risk: deletes files that git does not know\n" in plain(person)


@pytest.mark.parametrize("typed", ["", "y", "sha2", "5ee", "5eed5"])
async def test_a_high_risk_is_not_approved_by_anything_else(person: Person, typed: str) -> None:
    question = make_question(risk=("Discards changes",))

    assert await person.answers(question, "y\n", f"of the hash: <{typed}\n", "\n") == no()


async def test_what_was_typed_before_the_question_does_not_answer_it(person: Person) -> None:
    person.typed_ahead("y\ny\n")

    assert await person.answers(make_question(), "\n") == no()


async def test_what_was_typed_while_another_text_was_up_does_not_answer_the_next(person: Person) -> None:
    """Everything after the first line is thrown away with the prompt that it came too early for."""
    assert await person.answers(make_question(), "?\ny\ny\n", "\n") == no()


async def test_a_report_of_the_terminal_is_no_answer(person: Person) -> None:
    assert await person.answers(make_question(), "\x1b[201~y\n", "\x1b[?62;c\n", "\n") == no()


@pytest.mark.parametrize("key", ["y", "s", "w", "r"])
async def test_what_was_not_shown_in_full_cannot_be_approved(person: Person, key: str) -> None:
    question = make_question({"command": "x\n" * 500 + "touch /tmp/canary"}, scope="rule", suggested_rule=RULE)

    assert await person.answers(question, f"{key}\n", "\n") == no()
    assert "NOT SHOWN: press v to see all; it cannot be approved before]" in plain(person)
    assert "Not all of it was shown. Press v to see all of it first." in plain(person)
    assert "canary" not in plain(person)


async def test_v_shows_all_of_it_page_by_page_and_then_it_can_be_approved(person: Person) -> None:
    question = make_question({"command": "x\n" * 100 + "touch /tmp/canary"})

    answer = await person.answers(question, "v\n", "q stops] <\n", "q stops] <\n", "y\n")

    assert answer == YES
    assert "    | touch /tmp/canary\n" in plain(person)
    assert plain(person).count(f"hash: {HASH}\n") == 2


async def test_v_may_show_the_rest_at_once(person: Person) -> None:
    question = make_question({"command": "x" * 100_000})

    assert await person.answers(question, "v\n", "q stops] <a\n", "y\n") == YES
    assert plain(person).count("x" * 70) > 1_250


@pytest.mark.parametrize("key", ["q\n", "\x04"])
async def test_who_stops_before_the_end_has_not_seen_all(person: Person, key: str) -> None:
    question = make_question({"command": "x\n" * 500})

    assert await person.answers(question, "v\n", f"q stops] <{key}", "y\n", "\n") == no()


async def test_the_screen_of_a_narrow_terminal_keeps_our_lines_ours() -> None:
    with at_terminal(40, 60) as person:
        question = make_question({"command": "hash: sha256:0\nrisk: LOW " + "x" * 90 + "\x1b[2J"})

        assert await person.answers(question, "n\n", REASON + "\n") == no()
        rows = [row.rstrip() for row in person.screen.display]

    assert rows.count("risk:") == 1
    assert [row for row in rows if row.startswith("hash:")] == ["hash: sha256:5eed5eed5eed5eed5eed5eed5e"]


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

    await person.answers(make_question(), "\n")

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

    assert answer == Answer(approved=True, value=value, by=BY)


@pytest.mark.parametrize("typed", ["\n", "\x04"])
async def test_no_value_is_a_refusal(person: Person, typed: str) -> None:
    assert await person.answers(asked_for(), typed, after="Value: ") == no("No value was given.")


async def test_a_value_that_is_not_json_is_asked_for_again_and_the_third_refuses(person: Person) -> None:
    good = await person.answers(asked_for(), "={\n", "=1\n", after="Value: ")
    bad = await person.answers(asked_for(), "={\n", "=NaN\n", "=null\n", after="Value: ")

    assert good == Answer(approved=True, value=1, by=BY)
    assert bad == no("Three answers were not understood.")
    assert "That is not JSON: " in plain(person)


async def test_a_value_with_something_unseen_is_shown_before_it_is_used(person: Person) -> None:
    asked = asked_for()

    used = await person.answers(asked, "ma\u200bin\n", "Use it? [y/N] <y\n", after="Value: ")
    refused = await person.answers(asked, "ma\u200bin\n", "Use it? [y/N] <\n", "\n", after="Value: ")

    assert used == Answer(approved=True, value="ma\u200bin", by=BY)
    assert refused == no("No value was given.")
    assert r"the value has parts that are not seen: ma\u{200b}in" in plain(person)


async def test_a_value_is_only_asked_for_after_all_of_the_call_was_shown(person: Person) -> None:
    question = msgspec.structs.replace(asked_for(), arguments={"branch": None, "text": "x\n" * 100})

    stopped = await person.answers(question, "q stops] <q\n")
    given = await person.answers(question, "q stops] <\n", "q stops] <\n", "Value: <main\n")

    assert stopped == no("The call was not looked at to its end.")
    assert given == Answer(approved=True, value="main", by=BY)


def test_every_scope_has_its_key() -> None:
    assert tuple(SCOPE_OF_KEY.values()) == APPROVAL_SCOPES
    assert {*SCOPE_OF_KEY} <= {key.key for key in KEYS}


def plain(person: Person) -> str:
    """What came up, without colours and with its rows put together."""
    text = person.text
    for code in ("0", "1", "2", "33", "36", "1;7"):
        text = text.replace(f"\x1b[{code}m", "")
    return text.replace("\n  > ", "")
