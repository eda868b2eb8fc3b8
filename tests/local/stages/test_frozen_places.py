"""A project with the very environment that runs Interlock in it: no tool writes there, whatever the mode."""

import json
import os
import site
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from interlock import FileArtifacts, SqliteLog, ToolRuntime
from interlock.cli.config.settings import Settings
from interlock.cli.config.user_paths import UserPaths
from interlock.cli.session.agent import make_local_tools
from interlock.policy.files.policy_files import PolicyFiles
from tests.sandbox.ordinary_user import ROOT, pytest_as_ordinary_user

from .runs import LocalRun, local_run

pytestmark = pytest.mark.requirement("P21")

LIBRARY = f".venv/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
#: Runs the calls in the environment of the project, and prints the code of each.
PROGRAM = """
import asyncio, json, sys
from interlock import LocalTools, ToolRuntime

async def main(root, mode, calls):
    async with ToolRuntime(tools=LocalTools(root), mode=mode) as runtime:
        for number, (name, arguments) in enumerate(calls):
            result = await runtime.execute([{"id": str(number), "name": name, "arguments": arguments}])
            print(json.dumps([result.observations[0].code, result.observations[0].summary]))

asyncio.run(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    venv.create(project / ".venv", symlinks=True)
    paths = (str(ROOT / "src"), str(ROOT), *site.getsitepackages())
    (project / LIBRARY / "runtime.pth").write_text("\n".join(paths) + "\n")
    (project / LIBRARY / "code.py").write_text("trusted = True\n")
    return project


def outcomes(project: Path, mode: str, *calls: tuple[str, Mapping[str, object]]) -> list[tuple[str, str]]:
    python = project / ".venv/bin/python"
    words = [str(python), "-B", "-c", PROGRAM, str(project), mode, json.dumps(calls)]
    ended = subprocess.run(words, capture_output=True, text=True, check=True, timeout=55)
    return [tuple(json.loads(line)) for line in ended.stdout.splitlines()]


@pytest.mark.parametrize("mode", ["accept_edits", "trusted"])
def test_file_tools_do_not_write_the_running_environment(project: Path, mode: str) -> None:
    (project / "lib").symlink_to(LIBRARY)
    os.link(project / LIBRARY / "code.py", project / "mine.py")
    paths = [f"{LIBRARY}/evil.pth", "lib/evil.pth", ".venv/bin/evil", ".venv/pyvenv.cfg", "mine.py"]

    found = outcomes(project, mode, *(("write_file", {"path": path, "content": "import os"}) for path in paths))

    assert [code for code, _ in found[:3]] == ["policy_denied"] * 3
    assert "belongs to the Python environment that Interlock runs in" in found[0][1]
    assert {code for code, _ in found[3:]} <= {"policy_denied", "runtime_precondition_failed"}
    assert not list(project.rglob("evil*"))


def test_existing_code_is_not_edited(project: Path) -> None:
    (project / "copy").mkdir()
    os.link(project / LIBRARY / "code.py", project / "copy/linked.py")
    calls = [
        (name, arguments)
        for path in (f"{LIBRARY}/code.py", "copy/linked.py")
        for name, arguments in (
            ("read_file", {"path": path}),
            ("edit_file", {"path": path, "old_string": "True", "new_string": "False"}),
        )
    ]

    assert [code for code, _ in outcomes(project, "accept_edits", *calls)] == ["ok", "policy_denied"] * 2


def test_commands_do_not_write_the_running_environment(project: Path, confined: None) -> None:
    os.link(project / LIBRARY / "code.py", project / "mine.py")
    tries = [f"echo x > {LIBRARY}/evil.pth", "echo evil >> mine.py", "mv .venv x", "echo fine > fine.txt"]

    found = outcomes(project, "trusted", *(("bash", {"command": command}) for command in tries))

    assert [code for code, _ in found] == ["command_failed", "command_failed", "command_failed", "ok"]
    assert (project / LIBRARY / "code.py").read_text() == "trusted = True\n"
    assert not list(project.rglob("evil*"))


async def test_log_artifacts_and_policy_are_not_written(root: Path) -> None:
    (root / "policy.yaml").write_text("version: 1\nallow: [write_file]\n")
    own: dict[str, Any] = {
        "log": SqliteLog(root / "runs.db"),
        "artifacts": FileArtifacts(root / "artifacts"),
        "policy": PolicyFiles(user=root / "policy.yaml", workspace=str(root)),
    }
    async with local_run(root, mode="accept_edits", **own) as run:
        for path in ("runs.db", "runs.db-wal", "artifacts/x", "policy.yaml"):
            assert await code_of_write(run, path) == "policy_denied"
    await own["log"].close()


async def test_settings_and_state_of_the_command_are_not_written(root: Path) -> None:
    places = UserPaths(config=root / "config", state=root / "state")
    box = make_local_tools(str(root), Settings(), places)
    async with ToolRuntime(tools=box, mode="accept_edits") as runtime:
        run = LocalRun(root, box, runtime)
        for path in ("config/config.toml", "config/policy.yaml", "state/runs.db", "state/trust.json"):
            assert await code_of_write(run, path) == "policy_denied"


async def code_of_write(run: LocalRun, path: str) -> str:
    written = await run.do("write_file", path=path, content="x")
    assert "Interlock's own files" in written.summary
    return written.code


@pytest.mark.skipif(os.geteuid() != 0, reason="this is the ordinary user")
def test_as_an_ordinary_user_too() -> None:
    pytest_as_ordinary_user(__file__, "-k", "edited or commands")
