"""Commands with the toolchain of a project, for real: environments outside and inside of the workspace."""

import sys
import venv
from pathlib import Path

import pytest

from interlock import Rule, RulePolicy
from interlock.sandbox.workspace.toolchain import Toolchain, detect_toolchain

from .runs import local_run, text_of

pytestmark = pytest.mark.usefixtures("confined")


def make_environment(place: Path, **modules: str) -> Path:
    venv.create(place, symlinks=True)
    [packages] = place.glob("lib/python3*/site-packages")
    for name, text in modules.items():
        (packages / f"{name}.py").write_text(text)
    return place


def box(found: Toolchain) -> dict[str, object]:
    return {"extra_read_paths": found.folders, "environment": found.environment}


async def test_active_environment_is_used_and_not_written(root: Path, tmp_path: Path) -> None:
    active = make_environment(tmp_path / "envs/web", pytest="print('7 passed')")
    found = detect_toolchain(str(root), {"PATH": f"{active}/bin:/usr/bin", "VIRTUAL_ENV": str(active)})

    async with local_run(root, box=box(found)) as run:
        tested = await run.bash("python -m pytest")
        written = await run.bash(f"touch {active}/bin/python {active}/lib/new")
        beside = await run.bash(f"ls -A {tmp_path} {active.parent}")

    assert (tested.ok, text_of(tested)) == (True, "7 passed")
    assert written.code == "command_failed"
    assert not (active / "lib/new").exists()
    assert text_of(beside).split() == [f"{tmp_path}:", "envs", "project", f"{active.parent}:", "web"]


async def test_environment_made_by_a_command_is_found_by_the_next(root: Path) -> None:
    found = detect_toolchain(str(root), {"PATH": f"{sys.base_prefix}/bin:/usr/bin"})

    async with local_run(root, box=box(found)) as run:
        made = await run.bash(f"{sys.base_prefix}/bin/python3 -m venv --without-pip .venv")
        used = await run.bash("command -v python")

    assert (made.ok, text_of(used)) == (True, f"{root}/.venv/bin/python")


async def test_proved_command_uses_programs_of_the_system(root: Path) -> None:
    """A model may write `.venv/bin/cat`: what runs without approval because it only reads must be another one."""
    fake = root / ".venv/bin/cat"
    fake.parent.mkdir(parents=True)
    fake.write_text("#!/bin/sh\necho fake\n")
    fake.chmod(0o755)
    found = detect_toolchain(str(root), {"PATH": "/usr/bin"})

    async with local_run(root, box=box(found), mode="default") as run:
        proved = await run.bash("cat notes.txt")
    allowed = RulePolicy([Rule(id="all", verdict="allow", tools="*")])
    async with local_run(root, box=box(found), policy=allowed) as run:
        other = await run.bash("cat notes.txt > copy && cat copy")

    assert text_of(proved) == "one\ntwo\nthree"
    assert text_of(other) == "fake"
