"""From what a policy file says to rules: what becomes of each key, and what is refused because it can mean nothing."""

import pytest

from interlock.policy.engine.rule import (
    ArgumentGlob,
    ArgumentIs,
    ArgumentRegex,
    CommandPattern,
    ResourceDeclaration,
    Rule,
)
from interlock.policy.files.layer_compiler import Layer, LayerRules
from interlock.policy.files.policy_files import read_layer
from interlock.policy.files.problems import PolicyFileError
from tests.each import each

YEAR_2030 = 1_893_456_000


def read(text: str, layer: Layer = "user", now: int = 0) -> LayerRules:
    return read_layer("policy.yaml", layer, f"version: 1\n{text}".encode(), now=lambda: now)


def refusal(text: str, layer: Layer = "user") -> list[str]:
    with pytest.raises(PolicyFileError) as refused:
        read(text, layer)
    return [str(problem) for problem in refused.value.problems]


def test_every_key_of_a_rule_reaches_the_rule() -> None:
    layer = read("""
default: deny
resources: [{tools: "mcp__fs__*", arguments: {path: path}}]
rules:
  - id: everything
    decision: ask
    tools: [send_mail, Read]
    origin: mcp
    server: [mail, post]
    risk: network
    path: [secrets/**, .env]
    access: write
    command: [git push, {is: npm test}, {words: [make, "*"], exact: true}]
    host: "*.example.com"
    arguments: {to: {glob: "*@x"}, n: 1, o: {is: {a: 1}}, text: {regex: "^a+$"}, deep.name: [1]}
    agent: build*
    mode: [default, trusted]
    interactive: true
    reason: because
    message: do that instead
    prompt: really?
    scope: once
    answer_within: 90m
    approver: client
    expires: 2030-01-01T01:00:00.25+01:00
""")

    assert layer.default == "deny"
    assert layer.resources == (ResourceDeclaration("mcp__fs__*", {"path": "path"}),)
    assert layer.rules == (
        Rule(
            id="everything",
            verdict="ask",
            tools=("send_mail", "read_file", "grep", "glob", "list_dir"),
            origin="mcp",
            server=["mail", "post"],
            risk=["network"],
            path=["secrets/**", ".env"],
            access="write",
            command=[
                CommandPattern(("git", "push")),
                CommandPattern(("npm", "test"), exact=True),
                CommandPattern(("make", "*"), exact=True),
            ],
            host=["*.example.com"],
            arguments={
                "to": ArgumentGlob("*@x"),
                "n": ArgumentIs(1),
                "o": ArgumentIs({"a": 1}),
                "text": ArgumentRegex("^a+$"),
                "deep.name": ArgumentIs([1]),
            },
            agent=["build*"],
            mode=["default", "trusted"],
            interactive=True,
            reason="because",
            advice="do that instead",
            prompt="really?",
            layer="user rule",
            scope="once",
            answer_within_seconds=5400.0,
            approver="client",
            expires_at=YEAR_2030 * 10**9 + 250_000_000,
        ),
    )


def test_a_short_list_gives_rules_with_ids_that_stay_when_others_move() -> None:
    one = read("deny: ['bash(git push)', {path: .env}]\nallow: [read_file]")
    other = read("deny: [{path: .env, reason: secret}, mail, 'bash(git push)']")

    assert [rule.id for rule in one.rules] == [
        "user:deny:bash(git push)",
        "user:deny:path=.env",
        "user:allow:read_file",
    ]
    assert {rule.id for rule in one.rules} & {rule.id for rule in other.rules} == {
        "user:deny:bash(git push)",
        "user:deny:path=.env",
    }


def test_a_made_id_is_short_and_unique_however_long_the_rule() -> None:
    layer = read(f"deny: [{{path: '{'a' * 900}'}}, {{path: '{'a' * 901}'}}]")

    assert len({rule.id for rule in layer.rules}) == 2
    assert all(len(rule.id) <= 100 for rule in layer.rules)


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        ("managed", "enterprise policy"),
        ("user", "user rule"),
        ("project", "project rule"),
        ("session", "session rule"),
    ],
)
def test_a_rule_says_which_layer_it_is_of(layer: Layer, said: str) -> None:
    assert [rule.layer for rule in read("deny: [bash]", layer).rules] == [said]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("allow: [read_file]", "policy.yaml:2: a project file can only tighten: put what is allowed"),
        ("rules:\n  - {id: a, decision: allow}", "policy.yaml:3: a project file can only tighten"),
        (
            "ask:\n  - {tools: x, approver: client}",
            "policy.yaml:3: a project file can only tighten: say in the user's file",
        ),
        ("default: allow", "policy.yaml:2: a project file can only tighten: its default"),
        ("resources: [{tools: x, arguments: {a: path}}]", "policy.yaml:2: a project file can only tighten: what"),
    ],
)
def test_a_project_file_can_only_tighten(text: str, told: str) -> None:
    assert refusal(text, "project")[0].startswith(told)
    read(text, "user")


@each(
    ("text", "told"),
    [
        ("deny:\n  - mail(bob)", "policy.yaml:3: 'mail(bob)': it is not known what the pattern is about"),
        ("deny:\n  - tools: [a, 'bash(b)']", "policy.yaml:3: 'bash(b)': a pattern stands alone"),
        ("deny:\n  - tools: bash(a)\n    command: b", "policy.yaml:4: command is said twice"),
        ('deny:\n  - tools: a\n    path: "a\\0b"', "policy.yaml:4: 'a\\x00b' is no pattern of paths"),
        ("deny:\n  - path: [a, ' ']", "policy.yaml:3: ' ' is no pattern of paths"),
        ("deny:\n  - command: ' '", "policy.yaml:3: ' ': a command has at least one word"),
        ("deny:\n  - command: {words: ['']}", "policy.yaml:3: a command has at least one word"),
        ("deny:\n  - command: {words: []}", "policy.yaml:3: words: "),
        ("deny:\n  - command: {is: a, words: [a]}", "policy.yaml:3: exactly one of is and words"),
        ("deny:\n  - command: {is: a, exact: true}", "policy.yaml:3: exact goes with words"),
        ("deny:\n  - command:\n    - a\n    - b && c", "policy.yaml:5: 'b && c': a rule is about one command"),
        ("deny:\n  - host: https://example.com/", "policy.yaml:3: 'https://example.com/': the host alone"),
        ("deny:\n  - host: ex*mple.com", "policy.yaml:3: 'ex*mple.com' is no host"),
        ("deny:\n  - host: bücher.example", "policy.yaml:3: 'bücher.example': write the name as it is sent"),
        ("deny:\n  - arguments:\n      a: 1\n      b: {regex: '('}", "policy.yaml:5: '(' is no RE2 pattern"),
        ("deny:\n  - arguments: {a: {regex: '(?=a)'}}", "policy.yaml:3: '(?=a)' is no RE2 pattern"),
        ("deny:\n  - arguments: {a: {regex: '((a{99}){99}){99}'}}", "policy.yaml:3: "),
        ("deny:\n  - arguments: {a: {regex: '\\1'}}", "policy.yaml:3: "),
        (f"deny:\n  - arguments: {{a: {{regex: {'a' * 1001}}}}}", "policy.yaml:3: regex: "),
        ("deny:\n  - arguments: {a: {regex: a, glob: b}}", "policy.yaml:3: exactly one of is, glob and regex"),
        ("deny:\n  - arguments: {a..b: 1}", "policy.yaml:3: 'a..b' is no dotted name"),
        ("deny:\n  - tools: bash\n    when: tool ==", "policy.yaml:4: when is not CEL"),
        ("deny:\n  - when: tol == 'bash'", "policy.yaml:3: when knows no 'tol'"),
        ("deny:\n  - expires: tomorrow", "policy.yaml:3: 'tomorrow' is no time of RFC 3339"),
        ("deny:\n  - expires: 2030-02-30T00:00:00Z", "policy.yaml:3: '2030-02-30T00:00:00Z' is no time"),
        ("deny:\n  - expires: 2030-01-01T00:00:00", "policy.yaml:3: '2030-01-01T00:00:00' is no time"),
        ("ask:\n  - answer_within: 2y", "policy.yaml:3: '2y' is no time: write seconds"),
        ("ask:\n  - answer_within: 0", "policy.yaml:3: a time is more than 0 seconds"),
        ("ask:\n  - answer_within: 99999w", "policy.yaml:3: a time is more than 0 seconds"),
        (
            "allow:\n  - {tools: x, approver: client}",
            "policy.yaml:3: approver is for rules that ask; this one says allow",
        ),
        ("ask:\n  - {tools: x, approver: me}", "policy.yaml:3: approver: it should be 'person' or 'client'"),
        ("deny:\n  - answer_within: 5", "policy.yaml:3: answer_within is for rules that ask; this one says deny"),
        ("deny:\n  - prompt: why", "policy.yaml:3: prompt is for rules that ask"),
        ("deny:\n  - scope: run", "policy.yaml:3: scope is for rules that ask"),
        ("deny:\n  - access: read", "policy.yaml:3: access is read or write, and says something about a path"),
        ("deny:\n  - tools: [é, b]", "policy.yaml:3: no tool can be called"),
        ("rules:\n  - {id: a, decision: request_input}", "policy.yaml:3: request_input needs a target_arg"),
        ("rules:\n  - {id: a, decision: ask, target_arg: b}", "policy.yaml:3: request_input needs a target_arg"),
        (
            "rules:\n  - {id: a, decision: ask}\n  - {id: a, decision: deny, tools: b}",
            "policy.yaml:4: the id a is given",
        ),
        ("deny:\n  - bash\n  - bash", "policy.yaml:4: the same rule is given twice; first in line 3"),
        ("resources: [{tools: x, arguments: {.a: path}}]", "policy.yaml:2: '.a' is no dotted name"),
    ],
)
def test_what_can_never_be_meant_is_refused_with_its_line(text: str, told: str) -> None:
    assert any(problem.startswith(told) for problem in refusal(text)), refusal(text)


@each(
    ("text", "line", "winner"),
    [
        ("deny: [bash]\nallow: ['bash(npm test)']", 3, "line 2 says deny"),
        ("ask: [bash]\nallow: ['bash(npm test)']", 3, "line 2 says ask"),
        ("deny: [{tools: '*'}]\nask: [{path: .env}]", 3, "line 2 says deny"),
        ("deny: [{path: .env}]\nask: [{path: .env}]", 3, "line 2 says deny"),
        ("deny: [{path: .env}]\nask: [{path: .env, mode: trusted, tools: bash}]", 3, "line 2 says deny"),
        ("deny: [{tools: [b, c, a]}]\nask: [{tools: [c, b]}]", 3, "line 2 says deny"),
        ("rules:\n  - {id: a, decision: allow, when: interactive}\ndeny: [{when: interactive}]", 3, "line 4 says deny"),
        ("rules:\n  - {id: a, decision: request_input, target_arg: x}\nask: [bash]", 4, "line 3 says request_input"),
    ],
)
def test_a_rule_that_can_never_decide_is_refused(text: str, line: int, winner: str) -> None:
    assert refusal(text) == [f"policy.yaml:{line}: this can never decide: {winner} about the same calls"]


@pytest.mark.parametrize(
    "text",
    [
        "deny: ['bash(git push)']\nallow: [bash]",
        "deny: [{tools: bash, mode: read_only}]\nallow: [bash]",
        "deny: [{tools: bash, expires: '2030-01-01T00:00:00Z'}]\nallow: [bash]",
        "deny: [{tools: 'b*'}]\nallow: [bash]",
        "deny: [{path: .env, access: write}]\nask: [{path: .env}]",
        "deny: [{tools: bash, interactive: false}]\nallow: [{tools: bash, interactive: true}]",
        "ask: [bash]\ndeny: ['bash(git push)']",
    ],
)
def test_a_rule_that_may_decide_is_not_refused(text: str) -> None:
    assert len(read(text).rules) == 2


def test_many_rules_are_checked_in_little_time() -> None:
    rules = "".join(
        f"  - {{id: r{n}, decision: {'deny' if n % 2 else 'allow'}, tools: bash, command: c{n}}}\n"
        for n in range(1_900)
    )

    assert len(read(f"rules:\n{rules}").rules) == 1_900


def test_a_rule_that_has_ended_and_one_that_holds_for_few_tools_are_warned_about() -> None:
    text = "deny:\n  - {tools: mail, expires: '2030-01-01T00:00:00Z'}\n  - Read(secrets/**)\n"

    assert [str(warning) for warning in read(text, now=YEAR_2030 * 10**9).warnings] == [
        "policy.yaml:3: the rule user:deny:mail expires=2030-01-01T00:00:00Z has ended; it says nothing any more",
        "policy.yaml:4: this holds for read_file, grep, glob, list_dir only; "
        "{path: ...} without a tool holds for commands and all other tools, too",
    ]
    assert len(read(text, now=YEAR_2030 * 10**9 - 1).warnings) == 1
