"""Rules for what people keep saying yes to: narrow, proved on the past, and never against a no."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from interlock import Answer, CommandPattern, Rule, RulePolicy
from interlock.domain.call import Question
from interlock.domain.decision import Decision, Verdict
from interlock.domain.tool import CallContext
from interlock.policy.analysis.recorded_calls import RecordedAnswer, RecordedCall, read_recorded_calls
from interlock.policy.analysis.suggestions import find_suggestions
from interlock.policy.engine.example_event import example_event
from interlock.policy.files.policy_files import load_policy
from tests.each import each

from .recorded_runs import commands, no, record

ASKED = Decision(verdict=Verdict.ASK, reason="No rule matches.")


def asked(command: str, said: RecordedAnswer = "granted", tool: str = "bash", **about: Any) -> RecordedCall:
    event = example_event(tool, {"command": command}, **about)
    return RecordedCall(run_id="r", call_id="c", tool=tool, decision=ASKED, said=said, event=event)


def written(path: str, said: RecordedAnswer = "granted") -> RecordedCall:
    situation = CallContext(run_id="r", workspace="/work/space")
    event = example_event("write_file", {"path": path, "content": path}, situation)
    return RecordedCall(run_id="r", call_id="c", tool="write_file", decision=ASKED, said=said, event=event)


def conditions(calls: list[RecordedCall], **options: Any) -> list[dict[str, Any]]:
    beside = {"id", "decision", "tools", "reason", "matches"}
    found = [suggestion.rule for suggestion in find_suggestions(calls, **options)]
    return [{key: value for key, value in rule.items() if key not in beside} for rule in found]


async def test_the_same_command_becomes_a_rule_for_exactly_that_command(tmp_path: Path) -> None:
    calls = await commands("npm test", "npm test", "ls", "npm test", "make all")

    (suggestion,) = find_suggestions(calls)

    rule = suggestion.rule
    assert rule == {
        "id": rule["id"],
        "decision": "allow",
        "tools": "bash",
        "command": [{"words": ["npm", "test"], "exact": True}],
        "reason": "People said yes to this 3 times.",
        "matches": [{"tool": "bash", "command": "npm test"}],
    }
    assert (suggestion.covers, suggestion.out_of, suggestion.denied) == (3, 4, 0)
    file = tmp_path / "policy.yaml"
    file.write_text(yaml.safe_dump({"version": 1, "rules": [rule]}))
    policy = load_policy(file)
    assert policy.evaluate(example_event("bash", {"command": "npm test"})).verdict is Verdict.ALLOW
    for other in ("npm test --watch", "npm", "npm test && make", "sudo npm test"):
        assert policy.evaluate(example_event("bash", {"command": other})).verdict is Verdict.ASK


async def test_twice_is_not_often_unless_somebody_says_so() -> None:
    calls = await commands("npm test", "npm test")

    assert find_suggestions(calls) == []
    assert len(find_suggestions(calls, min_count=2)) == 1


def test_commands_that_begin_alike_become_a_rule_for_their_longest_common_words() -> None:
    calls = [asked(f"mytool tests/{name} -x") for name in "abc"]
    assert conditions(calls) == []

    calls = [asked(f"mytool test -p {name}") for name in "abc"]
    assert conditions(calls) == [{"command": [{"words": ["mytool", "test", "-p"]}]}]

    calls = [asked(f"mytool test {name}") for name in "abc"]
    assert conditions(calls) == [{"command": [{"words": ["mytool", "test"]}]}]


def test_commands_of_a_kind_become_a_rule_for_that_kind() -> None:
    calls = [asked(f"pytest tests/{name} -x") for name in "abc"]
    assert conditions(calls) == [{"command": [{"words": ["pytest"]}]}]

    calls = [asked(f"npm run lint -- {name}") for name in "abc"]
    assert conditions(calls) == [{"command": [{"words": ["npm", "run", "lint"]}]}]


@each(
    "beginning",
    [
        "python3.11 -m pytest",
        "python tools/x.py",
        "bash -x",
        "git -C a commit -m",
        "env -i make",
        "sudo apt install",
        "xargs -n1 rm",
        "curl -s https://example.com",
        "npm run",
        "docker run alpine",
        "uv run pytest",
        "./build.sh one",
        "/usr/bin/tool one",
        "PYTHON3 -m pytest",
        "rm -rf build",
    ],
)
def test_nothing_that_can_run_anything_is_allowed_by_its_first_words(beginning: str) -> None:
    rules = conditions([asked(f"{beginning} {name}") for name in "abcdef"])

    assert not any("words" in str(rule) and "exact" not in str(rule) for rule in rules)


def test_what_a_person_refused_is_never_covered() -> None:
    approved = [asked(f"cargo test {name}") for name in "abc"]

    for said in ("rejected", "edited"):
        assert conditions([*approved, asked("cargo test secrets", said)]) == []
    assert conditions([*[asked("npm test")] * 3, asked("npm test", "rejected")]) == []
    assert conditions([*approved, asked("cargo build", "rejected")]) == [{"command": [{"words": ["cargo", "test"]}]}]


def test_a_refusal_that_cannot_be_looked_at_leaves_only_exact_rules() -> None:
    lost = RecordedCall(run_id="r", call_id="c", tool="bash", decision=ASKED, said="rejected", lost="redacted")

    assert conditions([*[asked(f"cargo test {name}") for name in "abc"], lost]) == []
    assert conditions([*[asked("cargo test")] * 3, lost]) == [
        {"command": [{"words": ["cargo", "test"], "exact": True}]}
    ]


async def test_what_a_rule_asked_about_is_no_reason_for_another_rule() -> None:
    policy = RulePolicy([Rule(id="careful", verdict="ask", tools="bash", command="npm")])

    assert find_suggestions(await commands(*["npm test"] * 5, policy=policy)) == []


@pytest.mark.parametrize(
    "command", ["npm test $X", "eval x", "FOO=1 make x", "sudo make x", "make *.c", "make '*'", "echo a > b"]
)
def test_what_no_rule_can_say_exactly_is_not_suggested(command: str) -> None:
    assert find_suggestions([asked(command)] * 5) == []


def test_a_script_becomes_a_rule_for_all_its_commands() -> None:
    (rule,) = conditions([asked("make a && ls && make b")] * 3)

    assert rule == {"command": [{"words": ["make", "a"], "exact": True}, {"words": ["make", "b"], "exact": True}]}


async def test_the_same_arguments_become_a_rule_for_them_and_no_others(tmp_path: Path) -> None:
    (suggestion,) = find_suggestions(read_recorded_calls(await record([("send_mail", {"to": "ann"})] * 3)))

    assert suggestion.rule["arguments"] == {"to": {"is": "ann"}, "subject": {"is": "hello"}}
    file = tmp_path / "policy.yaml"
    file.write_text(yaml.safe_dump({"version": 1, "rules": [suggestion.rule]}))
    policy = load_policy(file)
    mail = {"to": "ann", "subject": "hello"}
    verdicts = [
        policy.evaluate(example_event("send_mail", arguments, risk=["network"])).verdict
        for arguments in (mail, {**mail, "bcc": "eve"}, {"to": "ann"}, {**mail, "to": "eve"})
    ]
    assert verdicts == ["allow", "ask", "ask", "ask"]


def test_paths_in_one_folder_become_a_rule_for_that_folder() -> None:
    assert conditions([written(f"src/gen/{name}.py") for name in "abc"]) == [{"path": "src/gen/*.py"}]
    assert conditions([written(f"src/gen/{name}") for name in "abc"]) == [{"path": "src/gen/*"}]
    assert conditions([written(f"/work/space/src/{name}.py") for name in "abc"]) == [{"path": "src/*.py"}]


@pytest.mark.parametrize("folder", ["", "/etc", "..", ".git", "src/.hidden", "a*b", "src/../.."])
def test_some_folders_are_never_suggested(folder: str) -> None:
    assert conditions([written(f"{folder}/{name}" if folder else name) for name in "abcd"]) == []


def test_a_folder_in_which_a_write_was_refused_is_not_suggested() -> None:
    assert conditions([*[written(f"src/{name}") for name in "abc"], written("src/d", "rejected")]) == []
    assert conditions([*[written(f"src/{name}") for name in "abc"], written("src/d/e", "rejected")]) == [
        {"path": "src/*"}
    ]


def test_a_tool_from_elsewhere_is_named_with_its_server() -> None:
    shell: dict[str, Any] = {"origin": "mcp", "risk": ["execute"], "resources": {"command": "command"}}

    (suggestion,) = find_suggestions([asked("make x", tool="shell", source="box", **shell)] * 3)

    assert {key: suggestion.rule[key] for key in ("tools", "origin", "server")} == {
        "tools": "shell",
        "origin": "mcp",
        "server": "box",
    }
    # A pattern of names would be more than this server.
    assert find_suggestions([asked("make x", tool="shell", source="b*", **shell)] * 3) == []


async def test_those_that_answer_most_come_first_and_expired_questions_are_no_yes() -> None:
    def late(question: Question) -> Answer:
        return Answer(approved=True, expired=True, by="fallback")

    often = await commands(*["make a"] * 3, *["make b"] * 4)
    never = await commands(*["make c"] * 5, says=late) + await commands(*["make d"] * 5, says=no)

    found = find_suggestions([*often, *never])

    assert [(each.rule["matches"][0]["command"], each.covers, each.out_of) for each in found] == [
        ("make b", 4, 17),
        ("make a", 3, 17),
    ]


words = st.sampled_from(["cargo", "test", "build", "-p", "a", "b", "npm", "git", "push", "*", "'*'", "$x", "sudo"])
histories = st.lists(
    st.tuples(st.lists(words, min_size=1, max_size=4).map(" ".join), st.sampled_from(["granted", "rejected", "none"])),
    max_size=12,
)


@given(history=histories, min_count=st.integers(1, 3))
def test_no_suggested_rule_ever_lets_through_what_a_person_refused(
    history: list[tuple[str, RecordedAnswer]], min_count: int
) -> None:
    calls = [asked(command, said) for command, said in history]

    for suggestion in find_suggestions(calls, min_count):
        patterns = [_pattern(each) for each in suggestion.rule["command"]]
        rule = Rule(id="it", verdict="allow", tools="bash", command=patterns)
        policy = RulePolicy([rule])
        refused = [call.event for call in calls if call.said == "rejected" and call.event is not None]
        let_through = [event for event in refused if policy.evaluate(event).verdict is Verdict.ALLOW]
        assert not any(policy.find_matching_rules(event) for event in let_through)


def _pattern(entry: dict[str, Any]) -> CommandPattern:
    return CommandPattern(tuple(entry["words"]), entry.get("exact", False))
