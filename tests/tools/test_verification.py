"""When a script proves that tests passed, and which ones people would say they were."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.policy.engine.call_parts import list_script_commands
from interlock.sandbox.interface import CommandExit
from interlock.tools.shell.verification import CommandVerification, ScriptOutput, build_verification, has_check_program
from tests.each import each

PYTEST_PASSED = "..    [100%]\n2 passed in 0.01s\n"
PYTEST_FAILED = "F.    [100%]\n1 failed, 1 passed in 0.01s\n"
RUFF_PASSED = "All checks passed!\n"


def words(script: str) -> Sequence[Sequence[str]]:
    return list_script_commands(script) or ()


def after(script: str, text: str = "", exit_code: int | None = 0) -> CommandVerification:
    ended = CommandExit(reason="exited", exit_code=exit_code, duration_seconds=1.0)
    return build_verification(script, words(script), ScriptOutput(text, True, ended), "before", "after")


@each(
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
    assert not has_check_program(words(script))


def test_of_several_programs_the_one_that_failed_tells() -> None:
    said = after("ruff check . ; pytest", RUFF_PASSED + PYTEST_FAILED, 1)

    assert (said.program, said.ok, said.counts["failed"]) == ("pytest", False, 1)


def test_of_several_programs_that_passed_the_last_tells() -> None:
    said = after("ruff check . && pytest", RUFF_PASSED + PYTEST_PASSED)

    assert (said.program, said.ok, said.counts["passed"]) == ("pytest", True, 2)


def test_a_report_of_failures_outweighs_an_exit_code() -> None:
    assert after("pytest || true", PYTEST_FAILED).ok is False


@pytest.mark.parametrize(
    "script",
    [
        "pytest",
        "CI=1 timeout 60 pytest -k 'a;b|c' > log 2>&1",
        "cd app && pytest \\\n  -q",
        "ls | grep -c x && pytest",
        "pytest 2>&1 | tail -n 5",
        "cd app && pytest |& tee out.log | tail -20",
        "ruff check . && pytest | head -50",
    ],
)
def test_a_clean_report_counts_where_the_exit_code_is_that_of_the_tests(script: str) -> None:
    assert after(script, PYTEST_PASSED).ok is True


@each(
    "script",
    [
        "pytest >/dev/null || true; echo '2 passed in 0.01s'",
        "false && pytest; echo '2 passed in 0.01s'",
        "echo '2 passed in 0.01s' || pytest",
        "pytest & echo '2 passed in 0.01s'",
        "pytest\necho '2 passed in 0.01s'",
        "! pytest",
        "(pytest; true)",
        "echo '2 passed in 0.01s' && exit && pytest",
        "bash -c 'pytest || true'",
        "pytest | grep passed",
        "pytest | cat old.log",
        "pytest | cat < old.log",
        "pytest | tail -5 old.log",
        "pytest > log | cat",
        "pytest | tail -n 0 && echo '2 passed in 0.01s'",
        "pytest -q a && pytest -q b | head -n 0",
        "make test && pytest | tail -n 0",
    ],
)
def test_a_clean_report_proves_nothing_where_the_exit_code_may_be_another_s(script: str) -> None:
    assert after(script, PYTEST_PASSED).ok is None


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("mypy . | cat", ""),
        ("pytest | tail", "no tests ran in 0.01s\n"),
        ("pytest -q | head -1", "..    [ 50%]\n"),
        ("go test ./... | head -1", "ok  \texample.com/shop\t0.005s\n"),
    ],
)
def test_behind_a_pipe_only_a_report_to_the_end_counts(script: str, text: str) -> None:
    assert after(script, text).ok is None


def test_tests_that_failed_out_of_sight_have_not_passed() -> None:
    text = "    Finished `test` profile [unoptimized] target(s) in 0.05s\nerror: test failed, to rerun pass `--lib`\n"

    assert after("cargo test | tail -n 0", text).ok is False


@given(st.text(alphabet="ab '\"\\;&|()`$!#<>{}\n-") | st.text())
def test_no_script_is_believed_in_which_the_tests_are_not_found(script: str) -> None:
    ended = CommandExit(reason="exited", exit_code=0, duration_seconds=1.0)

    assert build_verification(script, [["pytest"]], ScriptOutput(PYTEST_PASSED, True, ended), "", "").ok is None


def test_a_run_without_an_exit_code_did_not_pass() -> None:
    assert after("pytest", PYTEST_PASSED, None).ok is False


def test_the_facts_say_whether_the_files_changed_meanwhile() -> None:
    assert after("pytest", PYTEST_PASSED).to_facts("pytest") == {
        "program": "pytest",
        "command": "pytest",
        "exit_code": 0,
        "ok": True,
        "counts": {"passed": 2, "failed": 0, "errors": 0, "skipped": 0},
        "workspace": "after",
        "workspace_before": "before",
        "changed_during": True,
    }
