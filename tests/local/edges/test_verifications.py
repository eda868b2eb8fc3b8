"""Tests have passed only when they ran and passed: nothing else in a script makes it so."""

from pathlib import Path

import pytest

from tests.local.toolbox import box, commands_of

_FAILING = "#!/bin/sh\necho '1 failed in 0.01s'\nexit 1\n"
_PASSING = "#!/bin/sh\necho '2 passed in 0.01s'\n"
_COLLECTING = "#!/bin/sh\necho 'test_a.py::test_a'; echo; echo '1 test collected in 0.01s'\n"


def _pytest_in(folder: Path, script: str) -> Path:
    program = folder / "pytest"
    program.write_text(script)
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    "script",
    [
        "./pytest >/dev/null || true; echo '5 passed in 0.10s'",
        "./pytest | grep -c x; echo '5 passed in 0.10s'",
        "false && ./pytest; echo '5 passed in 0.10s'",
        "echo '5 passed in 0.10s' || ./pytest",
        "./pytest >/dev/null & echo '5 passed in 0.10s'",
    ],
)
async def test_a_line_that_a_script_prints_itself_is_no_passed_test(tmp_path: Path, script: str) -> None:
    async with box(_pytest_in(tmp_path, _FAILING), commands=commands_of("bubblewrap")) as run:
        said = await run.bash(script)

    assert said.facts["verification"]["ok"] is not True
    assert "passed" not in said.summary


@pytest.mark.parametrize(
    "script", ["./pytest || true", "./pytest; true", "./pytest | tail -n 5", "./pytest 2>&1 | cat"]
)
async def test_a_failure_is_one_whatever_the_exit_code(tmp_path: Path, script: str) -> None:
    async with box(_pytest_in(tmp_path, _FAILING), commands=commands_of("bubblewrap")) as run:
        said = await run.bash(script)

    assert (said.exit_code, said.facts["verification"]["ok"]) == (0, False)


@pytest.mark.parametrize("options", ["--collect-only -q", "--co", "-h", "-V", "--fixtures", "--setup-plan"])
async def test_a_program_that_was_only_asked_has_tested_nothing(tmp_path: Path, options: str) -> None:
    async with box(_pytest_in(tmp_path, _COLLECTING), commands=commands_of("bubblewrap")) as run:
        said = await run.bash(f"./pytest {options}")

    assert said.facts.get("verification", {}).get("ok") is not True
    assert "passed" not in said.summary


async def test_make_that_only_prints_has_tested_nothing(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("test:\n\tfalse\n")
    async with box(tmp_path, commands=commands_of("bubblewrap")) as run:
        said = await run.bash("make -n test")

    assert said.exit_code == 0
    assert said.facts.get("verification", {}).get("ok") is not True


async def test_tests_that_passed_have_and_an_edit_makes_another_state(tmp_path: Path) -> None:
    async with box(_pytest_in(tmp_path, _PASSING), commands=commands_of("bubblewrap")) as run:
        first = (await run.bash("cd . && ./pytest")).facts["verification"]
        await run.call("write_file", path="new.py", content="x = 1\n")
        second = (await run.bash("./pytest")).facts["verification"]

    assert (first["ok"], first["counts"]["passed"], second["ok"]) == (True, 2, True)
    assert first["workspace"] != second["workspace"]
