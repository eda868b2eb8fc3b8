"""When a script proves that tests passed, and which ones people would say they were."""

from collections.abc import Sequence

import pytest

from interlock.policy.scripts import commands_in
from interlock.sandbox.interface import Ended
from interlock.tools.verification import Said, Verification, verifies, verify

PYTEST_PASSED = "..    [100%]\n2 passed in 0.01s\n"
PYTEST_FAILED = "F.    [100%]\n1 failed, 1 passed in 0.01s\n"
RUFF_PASSED = "All checks passed!\n"


def words(script: str) -> Sequence[Sequence[str]]:
    return commands_in(script) or ()


def after(script: str, text: str = "", exit_code: int | None = 0) -> Verification:
    ended = Ended(reason="exited", exit_code=exit_code, duration_seconds=1.0)
    return verify(script, words(script), Said(text, True, ended), "before", "after")


@pytest.mark.parametrize(
    ("script", "label"),
    [
        ("npm test", "npm test"),
        ("npm run test -- --ci", "npm run test"),
        ("yarn test", "yarn test"),
        ("cd app && cargo test --all", "cargo test"),
        ("go test ./...", "go test"),
        ("make -C app check", "make check"),
        ("uv run ruff check .", "ruff check"),
        ("python3 -m pytest -q", "pytest"),
        ("timeout 60 .venv/bin/mypy src", "mypy"),
    ],
)
def test_a_run_is_called_what_people_call_it(script: str, label: str) -> None:
    assert after(script).label == label


@pytest.mark.parametrize("script", ["ls", "echo pytest", "pytest --version", "cat test.log", "for x in $(y); do", ""])
def test_other_scripts_verify_nothing(script: str) -> None:
    assert not verifies(words(script))


def test_of_several_programs_the_one_that_failed_tells() -> None:
    said = after("ruff check . ; pytest", RUFF_PASSED + PYTEST_FAILED, 1)

    assert (said.program, said.ok, said.counts["failed"]) == ("pytest", False, 1)


def test_of_several_programs_that_passed_the_last_tells() -> None:
    said = after("ruff check . && pytest", RUFF_PASSED + PYTEST_PASSED)

    assert (said.program, said.ok, said.counts["passed"]) == ("pytest", True, 2)


def test_a_report_of_failures_outweighs_an_exit_code() -> None:
    assert after("pytest || true", PYTEST_FAILED).ok is False


def test_a_run_without_an_exit_code_did_not_pass() -> None:
    assert after("pytest", PYTEST_PASSED, None).ok is False


def test_the_facts_say_whether_the_files_changed_meanwhile() -> None:
    assert after("pytest", PYTEST_PASSED).facts("pytest") == {
        "program": "pytest",
        "command": "pytest",
        "exit_code": 0,
        "ok": True,
        "counts": {"passed": 2, "failed": 0, "errors": 0, "skipped": 0},
        "workspace": "after",
        "workspace_before": "before",
        "changed_during": True,
    }
