"""Why a call is decided as it is, and where each rule is held to."""

import pytest

from interlock.domain.tool import CallContext
from interlock.policy.analysis.explain import Enforcement, Explanation, Mask, explain, find_masks
from interlock.policy.engine.example_event import example_event
from interlock.policy.engine.rule import ArgumentIs, CommandPattern, Rule
from interlock.policy.engine.rule_policy import RulePolicy
from tests.each import each

SECRETS = Rule(id="secrets", verdict="deny", path="secrets/**")
PUSH = Rule(id="push", verdict="ask", command="git push")
NPM = Rule(id="npm", verdict="allow", command=[CommandPattern(("npm", "test"), exact=True)])
HOST = Rule(id="host", verdict="deny", host="evil.example")
POLICY = RulePolicy([SECRETS, PUSH, NPM, HOST])


def explained(script: str, policy: RulePolicy = POLICY) -> Explanation:
    situation = CallContext(run_id="run_1", workspace="/nowhere/project")
    return explain(policy, example_event("bash", {"command": script}, situation))


def test_every_part_is_listed_with_every_rule_that_spoke_about_it() -> None:
    explanation = explained("npm test && sudo git push > secrets/log")

    assert [part.what for part in explanation.parts] == ["npm test", "sudo git push", "the call"]
    assert [[said.rule_ids for said in part.said] for part in explanation.parts] == [
        [("npm",)],
        [("push",)],
        [("secrets",)],
    ]
    assert [part.decision.verdict for part in explanation.parts] == ["allow", "ask", "deny"]
    assert explanation.parts[1].facts == ("runs as another user", "uses the network")
    assert explanation.parts[2].paths == ("secrets/log",)
    assert (explanation.tool, explanation.decision.verdict) == ("bash", "deny")
    assert explanation.decision == POLICY.evaluate(
        example_event(
            "bash",
            {"command": "npm test && sudo git push > secrets/log"},
            CallContext(run_id="run_1", workspace="/nowhere/project"),
        )
    )
    assert explanation.policy_digest == POLICY.digest


def test_what_could_not_be_known_is_said() -> None:
    explanation = explained("$X")

    assert explanation.parts[-1].opaque
    assert explanation.decision.verdict == "ask"


def test_a_call_that_no_rule_speaks_about_has_parts_and_no_enforcement() -> None:
    explanation = explained("make")

    assert [(part.what, part.said) for part in explanation.parts] == [("make", ())]
    assert explanation.enforcement == ()


def test_a_rule_about_a_path_is_held_to_in_four_places() -> None:
    explanation = explained("cat secrets/key")

    assert explanation.enforcement == (
        Enforcement("secrets", "gate", "before every call, whichever way it came in"),
        Enforcement(
            "secrets",
            "arguments",
            "on the paths that the arguments of file tools, MCP tools and other tools are declared to name",
        ),
        Enforcement("secrets", "commands", "on the paths that the words of commands and redirects name"),
        Enforcement(
            "secrets", "sandbox", "as a mask: to be hidden from commands, also where none of their words name it"
        ),
    )


@pytest.mark.parametrize(
    ("rule", "script", "points"),
    [
        (HOST, "curl https://evil.example", ["gate", "arguments", "commands"]),
        (PUSH, "git push", ["gate", "commands"]),
        (Rule(id="r", verdict="deny"), "ls", ["gate"]),
        (Rule(id="r", verdict="ask", path="x"), "cat x", ["gate", "arguments", "commands"]),
        (Rule(id="r", verdict="deny", path="x", tools="bash"), "cat x", ["gate", "arguments", "commands"]),
        (
            Rule(id="r", verdict="deny", path="x", access="write"),
            "touch x",
            ["gate", "arguments", "commands", "sandbox"],
        ),
    ],
)
def test_each_kind_of_rule_has_its_enforcement_points(rule: Rule, script: str, points: list[str]) -> None:
    assert [each.point for each in explained(script, RulePolicy([rule])).enforcement] == points


def test_a_rule_about_writing_is_a_read_only_mask() -> None:
    policy = RulePolicy([Rule(id="r", verdict="deny", path="dist/**", access="write")])

    assert find_masks(policy) == (Mask("r", "dist/**", "write"),)
    assert explained("touch dist/x", policy).enforcement[-1].how.startswith("as a mask: to be read-only for commands")


def test_masks_are_the_paths_that_are_denied_to_every_tool() -> None:
    policy = RulePolicy([SECRETS, PUSH, Rule(id="z", verdict="deny", tools=["*"], path=[".env", "*.pem"]), HOST])

    assert find_masks(policy) == (Mask("secrets", "secrets/**"), Mask("z", ".env"), Mask("z", "*.pem"))


@each(
    "rule",
    [
        Rule(id="r", verdict="ask", path="x"),
        Rule(id="r", verdict="allow", path="x"),
        Rule(id="r", verdict="deny", path="x", tools="bash"),
        Rule(id="r", verdict="deny", path="x", tools="read_*"),
        Rule(id="r", verdict="deny", path="x", tools=["read_*", "bash"]),
        Rule(id="r", verdict="deny", path="x", risk="write"),
        Rule(id="r", verdict="deny", path="x", origin="mcp"),
        Rule(id="r", verdict="deny", path="x", server="web"),
        Rule(id="r", verdict="deny", path="x", command="cat"),
        Rule(id="r", verdict="deny", path="x", host="a.example"),
        Rule(id="r", verdict="deny", path="x", agent="coder"),
        Rule(id="r", verdict="deny", path="x", mode="trusted"),
        Rule(id="r", verdict="deny", path="x", interactive=True),
        Rule(id="r", verdict="deny", path="x", interactive=False),
        Rule(id="r", verdict="deny", path="x", arguments={"a": ArgumentIs(1)}),
        Rule(id="r", verdict="deny", path="x", when=lambda event: True),
        Rule(id="r", verdict="deny", command="rm"),
    ],
)
def test_what_is_denied_only_sometimes_is_no_mask(rule: Rule) -> None:
    assert find_masks(RulePolicy([rule])) == ()


@each("name", ["cls", "self", "_fields_set", "values", "model_config", "__class__", "tool_name", ""])
def test_arguments_may_have_any_name(name: str) -> None:
    assert example_event("t", {name: 1}).arguments == {name: 1}


def test_what_a_built_in_tool_names_is_known_by_its_name() -> None:
    read, edit, run = (example_event(name, {}).tool for name in ("read_file", "edit_file", "bash"))

    assert [dict(tool.resources) for tool in (read, edit, run)] == [
        {"path": "path"},
        {"path": "path"},
        {"command": "command", "cwd": "folder", "hosts": "host"},
    ]
    assert [(set(tool.risk), tool.read_only) for tool in (read, edit, run)] == [
        ({"read"}, True),
        ({"write"}, False),
        ({"execute"}, False),
    ]
    assert example_event("other", {}).tool.resources == {}
