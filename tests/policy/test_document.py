"""What a policy file may say, and what it is told when it says something else."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.policy.files.document import PolicyDocument, parse_document
from interlock.policy.files.problems import PolicyFileError
from interlock.policy.files.source import parse_source
from tests.each import each


def document(text: str) -> PolicyDocument:
    return parse_document(parse_source(text.encode(), "policy.yaml"))


def refusal(text: str) -> list[str]:
    with pytest.raises(PolicyFileError) as refused:
        document(text)
    return [str(problem) for problem in refused.value.problems]


def test_a_file_has_short_lists_and_rules_in_full() -> None:
    read = document("""
version: 1
default: ask
resources:
  - {tools: "mcp__fs__*", arguments: {path: path, uri: host}}
deny: ["bash(git reset --hard)", {path: "secrets/**"}, {path: .env}, {host: "*.evil.example"}]
allow: ["read_file", "bash(npm run lint:*)"]
ask:
rules:
  - id: mail
    decision: ask
    tools: [send_mail, mail]
    arguments: {to: {glob: "*@example.com"}, urgent: true, cc: {is: null}, body: {text: x}}
    command: [make, {is: npm test}, {words: [git, push], exact: true}]
    answer_within: 2h
    matches: ["send_mail", {tool: mail, arguments: {to: bob@example.com}}]
""")

    assert read.model_dump(exclude_defaults=True) == {
        "version": 1,
        "default": "ask",
        "resources": [{"tools": "mcp__fs__*", "arguments": {"path": "path", "uri": "host"}}],
        "deny": ["bash(git reset --hard)", {"path": ["secrets/**"]}, {"path": [".env"]}, {"host": ["*.evil.example"]}],
        "allow": ["read_file", "bash(npm run lint:*)"],
        "rules": [
            {
                "id": "mail",
                "decision": "ask",
                "tools": ["send_mail", "mail"],
                "arguments": {"to": {"glob": "*@example.com"}, "urgent": True, "cc": {}, "body": {"text": "x"}},
                "command": ["make", {"whole": "npm test"}, {"words": ["git", "push"], "exact": True}],
                "answer_within": "2h",
                "matches": ["send_mail", {"tool": "mail", "arguments": {"to": "bob@example.com"}}],
            }
        ],
    }


@each(
    ("text", "told"),
    [
        ("", "policy.yaml:1: the file is empty"),
        ("- bash", "policy.yaml:1: a policy has keys, beginning with `version: 1`"),
        ("deny: []", "policy.yaml:1: version: this key is missing"),
        ("version: 2", "policy.yaml:1: version: it should be less than or equal to 1"),
        ("version: true", "policy.yaml:1: version: it should be a valid integer"),
        ("version: 1\ndefualt: ask", "policy.yaml:2: defualt: there is no such key. Did you mean `default`?"),
        ("version: 1\ndeny:\n  - {paht: x}", "policy.yaml:3: paht: there is no such key. Did you mean `path`?"),
        ("version: 1\ndeny: bash", "policy.yaml:2: deny: it should be a list"),
        ("version: 1\ndeny:\n  - a\n  - 5", "policy.yaml:4: deny: it should be a text or keys with values"),
        ("version: 1\ndefault: maybe", "policy.yaml:2: default: it should be 'risk', 'allow', 'ask' or 'deny'"),
        ("version: 1\nallow:\n  - tools: bash\n    command:", "policy.yaml:4: command: this key has no value"),
        ("version: 1\nallow:\n  - tools: bash\n    mode:", "policy.yaml:4: mode: this key has no value"),
        ("version: 1\nallow:\n  - tools: bash\n    path: []", "policy.yaml:4: path: "),
        ("version: 1\nallow:\n  - tools: bash\n    path: ''", "policy.yaml:4: path: "),
        ("version: 1\nallow:\n  - tools: bash\n    decision: deny", "policy.yaml:4: decision: there is no such key"),
        ("version: 1\nrules:\n  - id: a b\n    decision: ask", "policy.yaml:3: id: letters, digits"),
        ("version: 1\nrules:\n  - id: a\n    decision: maybe", "policy.yaml:4: decision: it should be 'allow', 'ask'"),
        ("version: 1\nrules:\n  - decision: ask", "policy.yaml:3: id: this key is missing"),
        (
            "version: 1\nask:\n  - arguments:\n      to: {is: 1, like: 2}",
            "policy.yaml:4: like: beside is, glob or regex there is nothing else",
        ),
        ("version: 1\nask:\n  - command: {iss: a}", "policy.yaml:3: iss: there is no such key. Did you mean `is`?"),
        ("version: 1\nask:\n  - interactive: 1", "policy.yaml:3: interactive: it should be a valid boolean"),
        ("version: 1\nask:\n  - reason: 5", "policy.yaml:3: reason: it should be a valid string"),
        ("version: 1\nask:\n  - risk: wrote", "policy.yaml:3: risk: it should be 'read', 'write'"),
        (
            "version: 1\nask:\n  - matches: [{toool: x}]",
            "policy.yaml:3: toool: there is no such key. Did you mean `tool`?",
        ),
        ("version: 1\nresources: [{tools: x, arguments: {a: file}}]", "policy.yaml:2: a: it should be 'path', 'host'"),
    ],
)
def test_what_a_file_may_not_say_is_told_with_line_key_and_remedy(text: str, told: str) -> None:
    assert any(problem.startswith(told) for problem in refusal(text)), refusal(text)


def test_all_problems_of_a_file_are_told_in_the_order_of_its_lines() -> None:
    problems = refusal("version: 1\ndeny: [{a: b}]\nrules:\n  - {id: x}\n  - {decision: ask}\nwhat: 1\n")

    assert [problem.split(": ")[0] for problem in problems] == [f"policy.yaml:{line}" for line in (2, 4, 5, 6)]


KEYS = st.sampled_from(
    ["version", "deny", "rules", "id", "tools", "path", "command", "arguments", "is", "matches", "when", "when", "x"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["bash", "ask", "", "a b", "x(y)"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None)
@given(st.dictionaries(KEYS, VALUES, max_size=6))
def test_any_value_is_a_document_or_is_refused(value: dict[str, object]) -> None:
    source = parse_source(b"{}", "policy.yaml")
    whole = type(source)(source.path, {"version": 1, **value}, source.lines)

    try:
        read = parse_document(whole)
    except PolicyFileError:
        return
    assert read.version == 1
