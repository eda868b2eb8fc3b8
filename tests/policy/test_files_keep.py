"""Rules that people keep: put into the user's file and taken out again, with everything else as it was."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.domain.decision import Verdict
from interlock.domain.errors import ConfigurationError
from interlock.policy.files.examples import read_example
from interlock.policy.files.policy_files import PolicyFiles
from interlock.policy.files.problems import PolicyFileError
from tests.patience import HANG_SECONDS

NPM_TEST = '{"id": "npm-test", "decision": "allow", "tools": "bash", "command": {"is": "npm test"}}'
MINE = """\
# Mine. Do not touch.
version: 1
deny:   [ "bash(git push)" ]   # never

rules:
  # the first
  - id: first
    decision: ask
    tools: mail
    reason: >
      a long
      reason
  # after the last

allow: [read_file]
# the end"""
KEPT = """\
  # interlock: kept rules begin here; each line is a rule, written by the program
  - {"id": "npm-test", "decision": "allow", "tools": "bash", "command": {"is": "npm test"}}
  # interlock: kept rules end here
"""
EMPTY_BLOCK = "".join(line for line in KEPT.splitlines(keepends=True) if "npm-test" not in line)


def verdict(policy: PolicyFiles, call: str) -> Verdict:
    return policy.evaluate(read_example(call)).verdict


@pytest.fixture
def user(tmp_path: Path) -> Path:
    return tmp_path / "user.yaml"


@pytest.mark.parametrize("rules", ["rules: []  # none yet", "rules:\n  []"])
def test_an_empty_list_takes_a_rule(user: Path, rules: str) -> None:
    user.write_text(f"version: 1\n{rules}\nallow: [read_file]\n")

    PolicyFiles(user=user).keep(NPM_TEST)

    policy = PolicyFiles(user=user)
    assert (policy.problems, verdict(policy, "bash(npm test)")) == ((), Verdict.ALLOW)
    assert user.read_text().endswith("\nallow: [read_file]\n")


def test_a_kept_rule_holds_at_once_and_after_a_revoke_no_longer(user: Path) -> None:
    user.write_text(MINE)
    policy = PolicyFiles(user=user)
    assert verdict(policy, "bash(npm test)") is Verdict.ASK

    assert policy.keep(NPM_TEST) == "npm-test"
    assert verdict(policy, "bash(npm test)") is Verdict.ALLOW
    assert verdict(PolicyFiles(user=user), "bash(npm test)") is Verdict.ALLOW
    before, after = MINE.split("  # after the last")
    assert user.read_text() == f"{before}{KEPT}  # after the last{after}"

    assert policy.revoke("npm-test")
    assert verdict(policy, "bash(npm test)") is Verdict.ASK
    assert user.read_text() == f"{before}{EMPTY_BLOCK}  # after the last{after}"
    assert not policy.revoke("npm-test")
    assert not policy.revoke("first")


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("version: 1\n", f"version: 1\nrules:\n{KEPT}"),
        ("version: 1", f"version: 1\nrules:\n{KEPT}"),
        ("version: 1\nrules:\ndeny: []\n", f"version: 1\nrules:\n{KEPT}deny: []\n"),
        ("version: 1\nrules:  # none yet\n", f"version: 1\nrules:  # none yet\n{KEPT}"),
        (
            "rules:\n  - {id: a, decision: ask}\nversion: 1\n",
            f"rules:\n  - {{id: a, decision: ask}}\n{KEPT}version: 1\n",
        ),
        (
            "version: 1\nrules:\n- id: a\n  decision: deny\n  tools: x",
            "version: 1\nrules:\n- id: a\n  decision: deny\n  tools: x\n"
            + KEPT.replace("  #", "#").replace("  - {", "- {"),
        ),
        (f"version: 1\nrules:\n{EMPTY_BLOCK}", f"version: 1\nrules:\n{KEPT}"),
        (
            f"version: 1\nrules:\n{EMPTY_BLOCK}  - {{id: a, decision: deny, tools: x}}\n",
            f"version: 1\nrules:\n{KEPT}  - {{id: a, decision: deny, tools: x}}\n",
        ),
    ],
)
def test_a_rule_finds_its_place_however_the_file_is_written(user: Path, text: str, kept: str) -> None:
    text = text.replace("decision: ask}", "decision: ask, tools: x}")
    kept = kept.replace("decision: ask}", "decision: ask, tools: x}")
    user.write_text(text)
    policy = PolicyFiles(user=user)

    policy.keep(NPM_TEST)

    assert user.read_text() == kept
    assert verdict(policy, "bash(npm test)") is Verdict.ALLOW


def test_lines_end_as_they_do_in_the_file(user: Path) -> None:
    user.write_bytes(MINE.replace("\n", "\r\n").encode())
    PolicyFiles(user=user).keep(NPM_TEST)

    assert user.read_bytes().count(b"\n") == user.read_bytes().count(b"\r\n")


def test_a_missing_file_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    user = tmp_path / "config" / "user.yaml"
    policy = PolicyFiles(user=user)
    assert verdict(policy, "read_file(a)") is Verdict.DENY

    rule_id = policy.keep("- {decision: allow, tools: 'bash(npm test)'}")

    assert rule_id.startswith("kept-")
    assert stat.S_IMODE(user.stat().st_mode) == 0o600
    assert policy.problems == ()
    assert verdict(policy, "bash(npm test)") is Verdict.ALLOW
    assert policy.revoke(rule_id)
    assert PolicyFiles(user=user).problems == ()


def test_mode_and_link_of_a_file_stay(tmp_path: Path, user: Path) -> None:
    target = tmp_path / "dotfiles.yaml"
    target.write_text("version: 1\n")
    target.chmod(0o640)
    user.symlink_to(target)

    PolicyFiles(user=user).keep(NPM_TEST)

    assert user.is_symlink()
    assert "npm-test" in target.read_text()
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dotfiles.yaml", "user.yaml"]


def test_a_rule_that_is_kept_already_is_not_kept_twice(user: Path) -> None:
    user.write_text("version: 1\n")
    policy = PolicyFiles(user=user)
    policy.keep("{id: other, decision: allow, tools: other}")
    policy.keep(NPM_TEST)
    once = user.read_bytes()

    assert policy.keep(NPM_TEST) == "npm-test"
    assert user.read_bytes() == once
    assert policy.revoke("npm-test")
    assert [rule.id for rule in policy.rules] == ["other"]


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("{id: a, decision: deny, tools: bash}", "Only rules that allow are kept"),
        ("{id: a, tools: bash}", "Only rules that allow are kept"),
        ("bash(npm test)", "has keys"),
        ("", "one line"),
        ("{decision: allow,\n tools: bash}", "one line"),
        ("{decision: allow", "no rule to keep"),
        ("{decision: allow, tools: &a bash}", "no rule to keep"),
        ("\ud800", "no rule to keep"),
        ("{decision: allow, tols: bash}", "Did you mean `tools`"),
        ("{decision: allow, id: first, tools: bash}", "the id first is given twice"),
        ("{decision: allow, id: ok, tools: 'bash(git push)'}", "this can never decide"),
        ("{decision: allow, tools: bash, matches: [mail]}", "this example should match"),
        ("{decision: allow, id: theirs, tools: bash}", "the id theirs is given twice"),
    ],
)
def test_a_rule_that_the_file_would_refuse_changes_nothing(tmp_path: Path, user: Path, rule: str, words: str) -> None:
    user.write_text(MINE)
    managed = tmp_path / "managed.yaml"
    managed.write_text("version: 1\nrules: [{id: theirs, decision: deny, tools: x}]\n")
    policy = PolicyFiles(user=user, managed=managed)
    digest = policy.digest

    with pytest.raises(ConfigurationError, match=words):
        policy.keep(rule)

    assert user.read_text() == MINE
    assert (policy.digest, policy.problems) == (digest, ())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["managed.yaml", "user.yaml"]


@pytest.mark.parametrize(
    "text",
    ["{version: 1}", "version: 1\nrules: [{id: a, decision: ask}]\n", "version: 1\n...\n"],
)
def test_a_file_that_cannot_be_changed_line_by_line_is_left_alone(user: Path, text: str) -> None:
    user.write_text(text)
    policy = PolicyFiles(user=user)

    with pytest.raises(ConfigurationError):
        policy.keep(NPM_TEST)
    assert user.read_text() == text


def test_nothing_is_kept_without_a_file_of_the_user_or_in_a_broken_one(tmp_path: Path, user: Path) -> None:
    with pytest.raises(ConfigurationError, match="No user policy file"):
        PolicyFiles().keep(NPM_TEST)
    with pytest.raises(ConfigurationError, match="YAML files only"):
        PolicyFiles(user=tmp_path / "user.toml").keep(NPM_TEST)
    user.write_text("version: 1\nwhat: 1\n")
    with pytest.raises(PolicyFileError, match="no such key"):
        PolicyFiles(user=user).keep(NPM_TEST)
    assert not PolicyFiles(user=tmp_path / "missing.yaml").revoke("a")
    user.write_bytes(b"\xff")
    with pytest.raises(PolicyFileError, match="not UTF-8"):
        PolicyFiles(user=user).revoke("a")


def test_a_file_that_cannot_be_written_says_so(user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user.write_text("version: 1\n")
    policy = PolicyFiles(user=user)

    def fail(*paths: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(PolicyFileError, match="it cannot be written: No space left on device"):
        policy.keep(NPM_TEST)

    assert user.read_text() == "version: 1\n"
    assert verdict(policy, "bash(npm test)") is Verdict.ASK
    assert [path.name for path in user.parent.iterdir()] == ["user.yaml"]


def test_a_kill_before_the_file_is_replaced_leaves_the_old_file(user: Path) -> None:
    user.write_text(MINE)
    script = f"""
import os, signal
from interlock.policy.files.policy_files import PolicyFiles
os.replace = lambda *paths: os.kill(os.getpid(), signal.SIGKILL)
PolicyFiles(user={str(user)!r}).keep({NPM_TEST!r})
"""
    ended = subprocess.run([sys.executable, "-c", script], check=False, timeout=HANG_SECONDS)

    assert ended.returncode == -9
    assert user.read_text() == MINE
    assert PolicyFiles(user=user).keep(NPM_TEST) == "npm-test"


def test_rules_kept_at_the_same_time_are_all_kept(user: Path) -> None:
    user.write_text("version: 1\n")
    policies = [PolicyFiles(user=user) for _ in range(8)]
    threads = [
        Thread(target=policy.keep, args=(f"{{id: r{number}, decision: allow, tools: t{number}}}",))
        for number, policy in enumerate(policies)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_SECONDS)

    assert {rule.id for rule in PolicyFiles(user=user).rules} == {f"r{number}" for number in range(8)}


TEXTS = st.text(max_size=12)


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=3))
def test_keeping_and_revoking_any_rules_leaves_the_rest_byte_for_byte(
    tmp_path_factory: pytest.TempPathFactory, values: list[tuple[str, str]]
) -> None:
    user = tmp_path_factory.mktemp("kept") / "user.yaml"
    user.write_text(MINE)
    policy = PolicyFiles(user=user)
    kept: list[str] = []
    for name, value in values:
        rule = {"decision": "allow", "tools": "send", "arguments": {f"a{name}": {"is": value}}}
        try:
            kept.append(policy.keep(json.dumps(rule, ensure_ascii=False)))
        except ConfigurationError:
            continue
    assert {rule.id for rule in policy.rules} >= set(kept)

    for rule_id in dict.fromkeys(kept):
        assert policy.revoke(rule_id)

    before, after = MINE.split("  # after the last")
    assert user.read_text() in (MINE, f"{before}{EMPTY_BLOCK}  # after the last{after}")
