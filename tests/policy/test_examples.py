"""Rules carry examples, and a file whose examples do not hold is refused."""

import pytest

from interlock.domain.errors import ConfigurationError
from interlock.domain.tool import PermissionMode
from interlock.policy.engine.rule import ResourceDeclaration
from interlock.policy.files.examples import read_example
from interlock.policy.files.policy_files import read_layer
from interlock.policy.files.problems import PolicyFileError


def load(text: str) -> None:
    read_layer("policy.yaml", "user", f"version: 1\n{text}".encode())


def refusal(text: str) -> list[str]:
    with pytest.raises(PolicyFileError) as refused:
        load(text)
    return [str(problem) for problem in refused.value.problems]


def test_examples_that_hold_are_accepted_for_every_kind_of_condition() -> None:
    load("""
resources:
  - {tools: "mcp__fs__*", arguments: {file.path: path}}
deny:
  - path: secrets/**
    matches:
      - read_file(secrets/key)
      - bash(cat secrets/key)
      - mcp__fs__read(path:secrets/key)
      - deploy(path:secrets/key)
      - {tool: mcp__fs__read, arguments: {file: {path: secrets/key}}}
    does_not_match: [read_file(src/a.py), bash(npm test), deploy]
  - host: "*.evil.example"
    matches: ["WebFetch(host:https://www.evil.example/x)", {tool: get, host: evil.example}]
    does_not_match: [web_fetch(domain:example.com)]
  - tools: bash(git push:*)
    matches: [bash(git push), bash(git push origin main), "bash(npm test && git push)"]
    does_not_match: [bash(git pull)]
rules:
  - id: mail
    decision: ask
    tools: send_mail
    mode: default
    agent: build*
    interactive: false
    risk: network
    arguments: {to: {regex: "@example\\\\.com$"}}
    when: size(arguments.to) > 5
    expires: 2001-01-01T00:00:00Z
    matches:
      - {tool: send_mail, agent: builder, risk: network, arguments: {to: bob@example.com}}
    does_not_match:
      - {tool: send_mail, agent: builder, risk: network, arguments: {to: bob@example.org}}
      - {tool: send_mail, agent: tester, risk: network, arguments: {to: bob@example.com}}
      - {tool: send_mail, agent: builder, risk: network, mode: trusted, arguments: {to: bob@example.com}}
      - {tool: send_mail, agent: builder, risk: network, interactive: true, arguments: {to: bob@example.com}}
      - {tool: send_mail, agent: builder, risk: read, arguments: {to: bob@example.com}}
  - id: server
    decision: deny
    tools: mcp__files__read
    matches: [mcp__files__read, {tool: read, origin: mcp, server: files}]
    does_not_match: [mcp__files__write, mcp__other__read, {tool: read, origin: local, server: files}]
allow:
  - tools: bash(npm test)
    matches: [bash(npm test)]
    does_not_match: [bash(npm test --watch), bash(npm test; rm x), "bash(npm test $(rm x))"]
""")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "deny:\n  - path: a/**\n    matches:\n      - read_file(a/x)\n      - read_file(b/x)",
            "policy.yaml:6: this example should match, and the rule user:deny:path=a/** says nothing about it",
        ),
        (
            "deny:\n  - tools: bash\n    does_not_match:\n      - bash(ls)",
            "policy.yaml:5: this example should not match, and the rule user:deny:bash would deny",
        ),
        (
            "rules:\n  - {id: q, decision: request_input, target_arg: a,\n     does_not_match: [x]}",
            "policy.yaml:4: this example should not match, and the rule q would ask for a value",
        ),
        ("deny:\n  - tools: x\n    matches:\n    - x(y)", "policy.yaml:5: this example stands for no call: 'x(y)'"),
    ],
)
def test_an_example_that_does_not_hold_refuses_the_file_with_its_line(text: str, told: str) -> None:
    assert [problem[: len(told)] for problem in refusal(text)] == [told]


def test_all_failing_examples_are_told() -> None:
    problems = refusal("deny:\n  - tools: a\n    matches: [b, c]\n  - tools: d\n    does_not_match:\n      - d\n")

    assert [problem.split(": ")[0] for problem in problems] == ["policy.yaml:4", "policy.yaml:4", "policy.yaml:7"]


def test_an_example_stands_for_a_call() -> None:
    event = read_example("mcp__fs__read(path:a/b)", [ResourceDeclaration("mcp__*", {"file.path": "path"})])

    assert (event.tool_name, event.tool.origin, event.tool.source) == ("mcp__fs__read", "mcp", "fs")
    assert event.arguments == {"file": {"path": "a/b"}}
    assert event.tool.resources == {"file.path": "path"}
    assert event.situation.mode is PermissionMode.DEFAULT
    assert read_example("Edit(a)").tool_name == "edit_file"
    with pytest.raises(ConfigurationError):
        read_example("no call")


def test_arguments_may_have_any_name() -> None:
    load("""
deny:
  - tools: x
    arguments: {cls: 1, self: 2, _fields_set: 3, model_config: 4}
    matches: [{tool: x, arguments: {cls: 1, self: 2, _fields_set: 3, model_config: 4}}]
    does_not_match: [x]
""")
