"""What the log, the question and the observation say about what holds a command back, and what it really cannot do."""

import os
from pathlib import Path
from typing import Any

import pytest

from interlock import Rule, RulePolicy
from interlock.domain.event import InvocationStarted, PolicyEvaluated
from interlock.sandbox.commands.bubblewrap import BubblewrapSandbox
from interlock.sandbox.commands.landlock import LandlockSandbox, find_unavailable_reason
from interlock.sandbox.commands.unconfined import UnconfinedSandbox
from interlock.sandbox.interface import CAPABILITIES
from tests.sandbox.ordinary_user import pytest_as_ordinary_user

from .runs import Person, local_run, message_of, text_of

#: The variables that every command gets, or that bash sets by itself.
_FEW = frozenset(
    (
        *("HOME", "LANG", "LC_ALL", "LOGNAME", "OLDPWD", "PATH", "PWD", "SHELL", "SHLVL", "TERM", "TMPDIR", "TZ"),
        *("USER", "_", "BASH_ENV", "PAGER", "GIT_EDITOR", "GIT_OPTIONAL_LOCKS", "GIT_PAGER", "GIT_TERMINAL_PROMPT"),
    )
)
ALLOW_ALL = RulePolicy([Rule(id="all", verdict="allow", tools="*")])


@pytest.mark.requirement("R017", "R195", "R230")
@pytest.mark.parametrize(
    ("arguments", "profile", "cwd"),
    [
        ({"command": "touch x"}, "workspace-write", ""),
        ({"command": "ls", "cwd": "src"}, "read-only", "/src"),
        ({"command": "sleep 60", "background": True}, "workspace-write", ""),
    ],
)
async def test_the_start_of_a_command_says_what_holds_it_back(
    root: Path, confined: None, arguments: dict[str, Any], profile: str, cwd: str
) -> None:
    async with local_run(root) as run:
        await run.do("bash", **arguments)
        started = await run.started("c1")
        held = run.box.confinement

    assert (started.sandbox, started.profile) == (held.backend, profile)
    assert started.capabilities == held.capabilities
    assert set(started.capabilities) <= set(CAPABILITIES)
    assert started.cwd == f"{root}{cwd}"


@pytest.mark.requirement("R017")
@pytest.mark.parametrize("tool", ["grep", "glob"])
async def test_a_search_is_held_back_as_well_and_can_write_nothing(root: Path, confined: None, tool: str) -> None:
    async with local_run(root) as run:
        found = await run.do(tool, pattern="add" if tool == "grep" else "**/*.py")
        started = await run.started("c1")

    assert "src/sums.py" in text_of(found)
    assert (started.sandbox, started.profile) == (run.box.confinement.backend, "read-only")


@pytest.mark.requirement("R017")
async def test_what_the_sandbox_refused_is_a_warning_of_that_call_and_no_failure_of_the_sandbox(
    root: Path, confined: None
) -> None:
    async with local_run(root) as run:
        fine = await run.bash("echo 'Read-only file system' is what it would say")
        refused = await run.bash("touch /usr/x")
        offline = await run.bash("exec 3<>/dev/tcp/192.0.2.1/80")
        quiet, said, cut_off = [await run.warnings(call_id) for call_id in ("c1", "c2", "c3")]
        completed = await run.completed("c2")

    assert (fine.ok, quiet) == (True, [])
    assert (refused.code, refused.exit_code, completed.code) == ("command_failed", 1, "command_failed")
    assert [violation["cause"] for violation in refused.facts["violations"]] == ["read_only"]
    assert said == [f"The sandbox probably refused something (read_only): {refused.facts['violations'][0]['line']}"]
    assert "Only the workspace and temporary folders can be written" in text_of(refused)
    assert (offline.facts["violations"][0]["cause"], len(cut_off)) == ("network", 1)


@pytest.mark.requirement("R017", "R205")
async def test_a_command_that_could_not_be_confined_did_not_run_and_is_no_failed_command(root: Path) -> None:
    broken = BubblewrapSandbox("/nonexistent/bwrap")

    async with local_run(root, box={"commands": broken}) as run:
        result = await run.propose(("bash", {"command": "touch ran"}))
        [failed] = result.observations
        behind = await run.bash("touch ran", background=True)
        searched = await run.do("grep", pattern="add")
        read = await run.do("read_file", path="notes.txt")
        completed = await run.completed("c1")

    assert failed.failure is not None
    assert (failed.code, behind.code) == ("sandbox_setup_failed", "sandbox_setup_failed")
    assert (failed.exit_code, failed.side_effects, failed.failure.retryable) == (None, (), False)
    assert (completed.code, completed.exit) == ("sandbox_setup_failed", "error")
    assert "Nothing was executed" in message_of(result)
    assert (searched.code, read.ok) == ("sandbox_setup_failed", True)
    assert not (root / "ran").exists()


@pytest.mark.requirement("R230")
async def test_a_bubblewrap_that_fails_is_no_command_that_fails(root: Path, tmp_path: Path) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'setting up uid map: Permission denied' >&2\nexit 1\n")
    fake.chmod(0o755)

    async with local_run(root, box={"commands": BubblewrapSandbox(str(fake))}) as run:
        failed = await run.bash("touch ran")

    assert (failed.code, failed.exit_code) == ("sandbox_setup_failed", None)
    assert "uid map" in failed.summary
    assert not (root / "ran").exists()


# A host that cannot hold commands back.


@pytest.mark.requirement("R216", "R230")
@pytest.mark.parametrize("mode", ["default", "accept_edits", "trusted"])
@pytest.mark.parametrize("command", ["ls", "touch x"])
async def test_without_a_sandbox_every_command_is_a_question_whatever_rules_and_modes_say(
    root: Path, mode: str, command: str
) -> None:
    person = Person()

    options: dict[str, Any] = {"policy": ALLOW_ALL, "mode": mode, "interaction": person}
    async with local_run(root, box={"commands": UnconfinedSandbox()}, **options) as run:
        done = await run.bash(command)
        again = await run.bash(command)
        started = await run.started("c1")
        reasons = [fact.decision.reason for fact in await run.facts(PolicyEvaluated)]

    assert (done.ok, again.ok, len(person.asked)) == (True, True, 2)
    assert all(question.scope == "once" for question in person.asked)
    assert "sandbox: none" in person.asked[0].risk
    assert all("Nothing holds commands back" in reason for reason in reasons)
    assert (started.sandbox, started.profile, started.capabilities) == ("none", "workspace-write", ("kill_tree",))
    assert done.facts["backend"] == "none"


async def test_without_a_sandbox_and_with_nobody_to_ask_nothing_runs(root: Path) -> None:
    async with local_run(root, box={"commands": UnconfinedSandbox()}, policy=ALLOW_ALL) as run:
        refused = await run.bash("ls")
        behind = await run.bash("touch x", background=True)
        started = await run.facts(InvocationStarted)

    assert ({refused.code, behind.code}, started) == ({"approval_unavailable"}, [])
    assert not (root / "x").exists()


@pytest.mark.requirement("R230", "R211")
@pytest.mark.parametrize("command", ["ls", "touch x"])
async def test_a_run_that_only_reads_starts_no_command_where_that_cannot_be_held(root: Path, command: str) -> None:
    person = Person()

    options: dict[str, Any] = {"policy": ALLOW_ALL, "mode": "read_only", "interaction": person}
    async with local_run(root, box={"commands": UnconfinedSandbox()}, **options) as run:
        refused = await run.bash(command)
        decision = (await run.judged("c1")).decision
        read = await run.do("read_file", path="notes.txt")

    assert (refused.code, decision.verdict, person.asked) == ("policy_denied", "deny", [])
    assert "sandbox:read_only" in decision.rule_ids
    assert read.ok


@pytest.mark.skipif(os.geteuid() == 0, reason="Landlock does not hold root; an ordinary user runs this file, too")
@pytest.mark.requirement("R216", "R230", "R232")
async def test_landlock_is_announced_and_asked_about_and_still_holds_commands_back(root: Path, tmp_path: Path) -> None:
    if problem := find_unavailable_reason():
        pytest.skip(problem)
    person = Person()
    (tmp_path / "secret.txt").write_text("hunter2")

    async with local_run(root, box={"commands": LandlockSandbox()}, policy=ALLOW_ALL, interaction=person) as run:
        looked = await run.bash("cat notes.txt")
        wrote = await run.bash(f"echo 2 > made.txt; touch {tmp_path}/x; cat {tmp_path}/secret.txt; true")
        started = await run.facts(InvocationStarted)

    assert [question.rule_ids[-1] for question in person.asked] == ["sandbox:degraded"] * 2
    assert "sandbox: landlock" in person.asked[0].risk
    assert [(fact.sandbox, fact.profile) for fact in started] == [
        ("landlock", "read-only"),
        ("landlock", "workspace-write"),
    ]
    assert {"files", "network_off"} <= set(started[0].capabilities)
    assert (looked.facts["backend"], (root / "made.txt").read_text()) == ("landlock", "2\n")
    assert "hunter2" not in text_of(wrote)
    assert not (tmp_path / "x").exists()


# What an allowed command cannot do.


@pytest.mark.requirement("R232")
async def test_an_allowed_command_reads_no_home_and_no_credentials_and_writes_no_system_paths(
    root: Path, confined: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/id_ed25519").write_text("PRIVATE KEY hunter2")
    (root / ".env").write_text("PASSWORD=hunter2")
    (root / "deploy.p12").write_text("PRIVATE KEY hunter2")
    monkeypatch.setenv("HOME", str(home))
    reads = f"cat {home}/.ssh/id_ed25519 ~/.ssh/id_ed25519 .env deploy.p12 /etc/shadow /proc/1/environ"
    script = f"{reads}; ls {home} {Path.home()}; touch /usr/x /etc/x /bin/x {tmp_path}/x {home}/x; true"

    async with local_run(root, policy=ALLOW_ALL) as run:
        done = await run.bash(script)
        kept = await run.text_of_artifact(done.facts["output"], limit=30_000)

    assert done.ok
    assert "hunter2" not in kept + text_of(done)
    assert "root:" not in kept
    written = (Path("/usr/x"), Path("/etc/x"), Path("/bin/x"), tmp_path / "x", home / "x")
    assert not [path for path in written if path.exists()]


@pytest.mark.requirement("R234")
async def test_a_command_has_the_variables_it_was_given_and_none_of_ours(
    root: Path, confined: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "LD_PRELOAD_X", "PYTHONPATH", "SSH_AUTH_SOCK", "MY_OWN"):
        monkeypatch.setenv(name, "inherited-value")

    async with local_run(root, box={"environment": {"CI": "1"}}) as run:
        done = await run.bash("env; tr '\\0' '\\n' < /proc/1/environ; cat /proc/*/environ | tr '\\0' '\\n'")

    names = {line.partition("=")[0] for line in text_of(done).splitlines() if "=" in line}
    assert "CI=1" in text_of(done)
    assert "inherited-value" not in text_of(done)
    assert names <= {"CI", *_FEW}


@pytest.mark.requirement("R230", "R237")
async def test_a_script_of_several_commands_tells_where_it_ended_and_the_next_one_starts_anew(
    root: Path, confined: None
) -> None:
    async with local_run(root) as run:
        first = await run.bash("cd src && X=5 && pwd; echo err >&2; exit 7")
        second = await run.bash('echo "x is [$X] in $(basename $PWD)"')

    assert (first.exit_code, first.facts["cwd"], second.facts["cwd"]) == (7, "src", ".")
    assert "the shell ended in src" in text_of(first)
    assert text_of(second) == "x is [] in project"


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests are run by an ordinary user already")
def test_all_is_the_same_for_an_ordinary_user() -> None:
    others = (str(Path(__file__).with_name(name)) for name in ("test_hosts.py", "test_restart.py"))
    pytest_as_ordinary_user(__file__, *others)
