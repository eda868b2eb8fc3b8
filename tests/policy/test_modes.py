"""What each permission mode makes of each kind of call, with and without rules: every cell of the table."""

from pathlib import Path
from typing import NamedTuple

import pytest

from interlock.domain.decision import Decision
from interlock.domain.tool import CallContext, JsonObject, PermissionMode
from interlock.policy.engine.example_event import ToolDeclaration, example_event
from interlock.policy.engine.rule import DefaultVerdict, Rule
from interlock.policy.engine.rule_policy import RulePolicy
from interlock.policy.interface import PolicyEvent
from tests.each import each

MODES = tuple(PermissionMode)


class Kind(NamedTuple):
    tool: str
    arguments: JsonObject
    #: Without any rule, in the order of `Mode`: read_only, default, accept_edits, contained, trusted.
    verdicts: str
    declared: ToolDeclaration = ToolDeclaration()


def bash(script: str, verdicts: str) -> Kind:
    return Kind("bash", {"command": script}, verdicts)


KINDS = {
    "reads": Kind("read_file", {"path": "src/a.py"}, "allow allow allow allow allow"),
    "has no risk": Kind("plain", {}, "allow allow allow allow allow"),
    "edits inside": Kind("edit_file", {"path": "src/a.py"}, "deny ask allow allow allow"),
    "edits outside": Kind("edit_file", {"path": "/etc/motd"}, "deny ask ask ask allow"),
    "edits above": Kind("edit_file", {"path": "src/../../x"}, "deny ask ask ask allow"),
    "edits beside": Kind("edit_file", {"path": "../project-evil/x"}, "deny ask ask ask allow"),
    "edits in and out": Kind("edit_file", {"path": ["src/a.py", "/etc/motd"]}, "deny ask ask ask allow"),
    "edits at home": Kind("edit_file", {"path": "~/.bashrc"}, "deny ask ask ask allow"),
    "edits an unreadable path": Kind("edit_file", {"path": "a\0b"}, "deny ask ask ask allow"),
    "edits no path": Kind("edit_file", {}, "deny ask ask ask allow"),
    "writes without a declared path": Kind("save", {"path": "a"}, "deny ask ask ask allow", {"risk": ("write",)}),
    "command that reads": bash("ls src", "allow allow allow allow allow"),
    "commands that read": bash("ls src && cat src/a.py | wc -l", "allow allow allow allow allow"),
    "command that reads outside": bash("cat /etc/passwd", "deny ask ask allow allow"),
    "command that writes": bash("touch src/a.py", "deny ask ask allow allow"),
    "command that runs scripts": bash("npm test", "deny ask ask allow allow"),
    "commands of which one writes": bash("ls src; rm src/a.py", "deny ask ask allow allow"),
    "redirect inside": bash("echo hi > out.txt", "deny ask allow allow allow"),
    "redirect outside": bash("echo hi > /etc/motd", "deny ask ask allow allow"),
    "opaque script": bash("$RUN it", "deny ask ask allow allow"),
    "script that is no text": Kind("bash", {"command": 7}, "deny ask ask allow allow"),
    "empty script": bash("", "deny ask ask allow allow"),
    "network": Kind("fetch", {"url": "https://a.example"}, "deny ask ask ask allow", {"risk": ("network",)}),
    "delegates": Kind("ask_agent", {}, "deny ask ask ask allow", {"risk": ("delegate",)}),
    "reads and executes": Kind("job", {}, "deny ask ask ask allow", {"risk": ("read", "execute")}),
}
cells = each(
    "kind, mode, alone",
    [(kind, mode, alone) for kind in KINDS.values() for mode, alone in zip(MODES, kind.verdicts.split(), strict=True)],
)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    (made / "src").mkdir(parents=True)
    (made / "src" / "a.py").write_text("1")
    return made


def event(kind: Kind, mode: PermissionMode, workspace: Path) -> PolicyEvent:
    situation = CallContext(run_id="run_1", mode=mode, workspace=str(workspace))
    return example_event(kind.tool, kind.arguments, situation, **kind.declared)


def decide(
    kind: Kind, mode: PermissionMode, workspace: Path, *rules: Rule, default: DefaultVerdict = "risk"
) -> Decision:
    return RulePolicy(rules, default).evaluate(event(kind, mode, workspace))


def is_refused(kind: Kind, mode: PermissionMode) -> bool:
    """By the mode itself, whatever rules say."""
    return mode is PermissionMode.READ_ONLY and kind.verdicts.startswith("deny")


def is_answered(kind: Kind, mode: PermissionMode) -> bool:
    """By the mode itself, where no rule matches."""
    by_mode = dict(zip(MODES, kind.verdicts.split(), strict=True))
    return by_mode[PermissionMode.DEFAULT] == "ask" and by_mode[mode] == "allow"


@cells
def test_without_rules(kind: Kind, mode: PermissionMode, alone: str, workspace: Path) -> None:
    assert decide(kind, mode, workspace).verdict == alone


@cells
def test_with_a_rule_that_asks(kind: Kind, mode: PermissionMode, alone: str, workspace: Path) -> None:
    decision = decide(kind, mode, workspace, Rule(id="r", verdict="ask"))

    assert decision.verdict == ("deny" if is_refused(kind, mode) else "ask")


@pytest.mark.requirement("R215")
@cells
def test_with_a_rule_that_denies(kind: Kind, mode: PermissionMode, alone: str, workspace: Path) -> None:
    decision = decide(kind, mode, workspace, Rule(id="r", verdict="deny"))

    assert decision.verdict == "deny"
    assert "r" in decision.rule_ids


@cells
def test_with_a_rule_that_allows(kind: Kind, mode: PermissionMode, alone: str, workspace: Path) -> None:
    decision = decide(kind, mode, workspace, Rule(id="r", verdict="allow"))

    assert decision.verdict == ("deny" if is_refused(kind, mode) else "allow")


@cells
def test_with_a_policy_that_denies_by_default(kind: Kind, mode: PermissionMode, alone: str, workspace: Path) -> None:
    assert decide(kind, mode, workspace, default="deny").verdict == "deny"


@cells
def test_with_a_policy_that_asks_by_default(kind: Kind, mode: PermissionMode, alone: str, workspace: Path) -> None:
    is_contained = mode is PermissionMode.CONTAINED and kind.tool == "bash"
    answered_by_mode = mode is PermissionMode.TRUSTED or is_answered(kind, mode) or is_contained

    decision = decide(kind, mode, workspace, default="ask")

    expected = "deny" if is_refused(kind, mode) else "allow" if answered_by_mode else "ask"
    # `echo` asks then, though the file that it is redirected to is accepted.
    if kind == KINDS["redirect inside"] and mode is PermissionMode.ACCEPT_EDITS:
        expected = "ask"
    assert decision.verdict == expected


@cells
def test_with_a_policy_that_allows_by_default(kind: Kind, mode: PermissionMode, alone: str, workspace: Path) -> None:
    decision = decide(kind, mode, workspace, default="allow")

    assert decision.verdict == ("deny" if is_refused(kind, mode) else "allow")


@pytest.mark.requirement("R211")
@cells
def test_a_mode_that_decides_says_so(kind: Kind, mode: PermissionMode, alone: str, workspace: Path) -> None:
    decision = decide(kind, mode, workspace)

    by_mode = is_refused(kind, mode) or mode is PermissionMode.TRUSTED or is_answered(kind, mode)
    assert decision.rule_ids == ((f"mode:{mode}",) if by_mode else ())
    assert ("permission mode" in decision.layer) == by_mode


@pytest.mark.requirement("R211")
def test_what_read_only_refuses_names_the_mode_the_rules_that_agree_and_the_policy(workspace: Path) -> None:
    rule = Rule(id="no-tests", verdict="deny", command="npm test", layer="user rule")
    policy = RulePolicy([rule])
    by_both = policy.evaluate(event(KINDS["command that runs scripts"], PermissionMode.READ_ONLY, workspace))
    by_mode = policy.evaluate(event(KINDS["command that writes"], PermissionMode.READ_ONLY, workspace))

    assert (by_both.verdict, by_mode.verdict) == ("deny", "deny")
    assert set(by_both.rule_ids) == {"mode:read_only", "no-tests"}
    assert set(by_both.layer.split(", ")) == {"permission mode", "user rule"}
    assert (by_mode.rule_ids, by_mode.layer) == (("mode:read_only",), "permission mode")
    assert by_mode.reason == "The run is in read-only mode, and this may change something."
    assert (by_both.policy_digest, by_mode.policy_digest) == (policy.digest, policy.digest)


@pytest.mark.parametrize("link", ["file", "folder", "chain", "dangling"])
def test_edits_through_a_link_that_leads_out_are_not_accepted(link: str, tmp_path: Path, workspace: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("1")
    (workspace / "file").symlink_to(outside / "file")
    (workspace / "folder").symlink_to(outside)
    (workspace / "chain").symlink_to("file")
    (workspace / "dangling").symlink_to(outside / "new")
    path = "folder/file" if link == "folder" else link

    edit = decide(Kind("edit_file", {"path": path}, ""), PermissionMode.ACCEPT_EDITS, workspace)
    redirect = decide(bash(f"echo hi > {path}", ""), PermissionMode.ACCEPT_EDITS, workspace)
    read = decide(bash(f"cat {path}", ""), PermissionMode.READ_ONLY, workspace)

    assert (edit.verdict, redirect.verdict, read.verdict) == ("ask", "ask", "deny")


@pytest.mark.parametrize(
    "rule",
    [
        Rule(id="r", verdict="deny", path="secrets/**"),
        Rule(id="r", verdict="deny", command="rm"),
        Rule(id="r", verdict="deny", host="evil.example"),
        Rule(id="r", verdict="ask", path=".env"),
        Rule(id="r", verdict="request_input", command="deploy", target_arg="command"),
    ],
)
@pytest.mark.parametrize("script", ["$RUN it", 'cat "$1"', 'eval "$X"', 'python - <<< "$X"', 7])
def test_trusted_asks_when_an_opaque_script_may_be_what_a_rule_is_about(
    rule: Rule, script: object, workspace: Path
) -> None:
    decision = decide(Kind("bash", {"command": script}, ""), PermissionMode.TRUSTED, workspace, rule)

    assert (decision.verdict, decision.rule_ids) == ("ask", ("r",))
    assert "It cannot be shown that this is not what r is about." in decision.reason
    assert "Not everything can be known" in decision.reason


@pytest.mark.parametrize("script", ["$RUN it", 7])
@pytest.mark.parametrize("verdict", ["deny", "ask"])
def test_a_doubt_is_never_milder_than_a_policy_that_denies_by_default(
    verdict: str, script: object, workspace: Path
) -> None:
    rule = Rule(id="r", verdict=verdict, path="secrets/**")
    unreadable_path = Kind("read_file", {"path": "a\0b"}, "")

    assert (
        decide(Kind("bash", {"command": script}, ""), PermissionMode.DEFAULT, workspace, rule, default="deny").verdict
        == "deny"
    )
    assert decide(unreadable_path, PermissionMode.DEFAULT, workspace, rule, default="deny").verdict == "deny"


def test_a_rule_that_has_ended_or_is_for_another_agent_raises_no_doubt(workspace: Path) -> None:
    ended = Rule(id="ended", verdict="deny", path="secrets/**", expires_at=1)
    other = Rule(id="other", verdict="deny", path="secrets/**", agent="reviewer")

    for rule in (ended, other):
        assert decide(KINDS["opaque script"], PermissionMode.TRUSTED, workspace, rule).verdict == "allow"


def test_trusted_goes_beyond_no_rule_about_one_part_of_a_script(workspace: Path) -> None:
    ask = Rule(id="push", verdict="ask", command="git push")
    deny = Rule(id="env", verdict="deny", path=".env")

    asked = decide(bash("ls && git push", ""), PermissionMode.TRUSTED, workspace, ask, deny)
    refused = decide(bash("ls && git push && cat .env", ""), PermissionMode.TRUSTED, workspace, ask, deny)
    allowed = decide(bash("ls && git pull", ""), PermissionMode.TRUSTED, workspace, ask, deny)

    assert [each.verdict for each in (asked, refused, allowed)] == ["ask", "deny", "allow"]
    assert (asked.rule_ids, refused.rule_ids, allowed.rule_ids) == (("push",), ("env",), ("mode:trusted",))
