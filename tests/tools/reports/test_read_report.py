"""Reports are read from outputs that the programs really printed; see `fixtures/README.md`."""

from pathlib import Path

import pytest

from interlock.tools.reports.report import MAX_FAILING, CheckReport, FailureLocation
from interlock.tools.reports.report_reader import is_check_program, read_report
from tests.each import each

from .recorded import CASES, FIXTURES, Case, case

PROGRAMS = ("pytest", "unittest", "jest", "vitest", "node", "tsc", "go", "cargo", "mypy", "ruff")


def has_failures(recorded: Case) -> bool:
    return recorded.report is not None and bool(recorded.report.failing or recorded.report.more_failing)


def read(recorded: Case, program: str | None = None) -> CheckReport | None:
    return read_report(program or recorded.program, recorded.text, recorded.exit_code)


@each("recorded", CASES)
def test_a_recorded_output_is_read_as_expected(recorded: Case) -> None:
    assert read(recorded) == recorded.report


def test_every_recorded_file_has_an_expectation() -> None:
    files = {path.relative_to(FIXTURES).with_suffix("") for path in FIXTURES.glob("*/*.txt")}

    assert files == {Path(recorded.name) for recorded in CASES}


@each("recorded", [recorded for recorded in CASES if recorded.program in PROGRAMS and recorded.text.strip()])
def test_no_other_program_finds_its_report_in_an_output(recorded: Case) -> None:
    found = {other: read(recorded, other) for other in PROGRAMS if other != recorded.program}

    assert not any(found.values())


@pytest.mark.parametrize("exit_code", [1, 2, 101, 137, -9, None])
def test_no_output_is_ok_without_exit_code_0(exit_code: int | None) -> None:
    found = [read_report(recorded.program, recorded.text, exit_code) for recorded in CASES]

    assert not any(report.ok for report in found if report)


@each(
    "recorded",
    [recorded for recorded in CASES if has_failures(recorded) and recorded.case != "imitated_after_the_end"],
)
def test_an_output_with_failures_is_not_ok_though_a_pipe_hid_the_exit_code(recorded: Case) -> None:
    found = read_report(recorded.program, recorded.text, 0)

    assert found is not None
    assert not found.ok


@pytest.mark.parametrize("program", ["jest", "vitest", "node"])
def test_npm_finds_the_program_that_the_script_ran(program: str) -> None:
    recorded = case(f"{program}/some_fail_npm" if program != "vitest" else "vitest/all_pass_npm")

    assert read(recorded, "npm") == recorded.report


def test_make_names_the_program_that_failed_rather_than_one_that_passed() -> None:
    clean, failing = case("pytest/all_pass"), case("ruff/some_fail")

    for text in (clean.text + failing.text, failing.text + clean.text):
        found = read_report("make", text, 2)
        assert found is not None
        assert found.summary == "ruff: 6 errors"


def test_make_does_not_name_a_program_from_lines_that_others_print_too() -> None:
    assert read_report("make", "shop.py:1:8: F401 'os' imported but unused\n", 2) is None
    assert read_report("make", "shop.c:4:2: error: expected ';' [-Werror]\n", 2) is None


def test_a_test_that_prints_a_passing_summary_does_not_hide_its_own_failure() -> None:
    for name in ("pytest/imitated_summary", "pytest/imitated_after_the_end", "unittest/imitated_after_the_end"):
        found = read(case(name))
        assert found is not None
        assert found.failed == 1


def test_a_printed_summary_that_contradicts_the_exit_code_is_not_ok() -> None:
    assert read_report("pytest", "5 passed in 0.1s\n", 1) == CheckReport(
        program="pytest", ok=False, passed=5, failed=0, errors=0, skipped=0, summary="pytest: 5 passed, exit code 1"
    )


def test_an_output_cut_in_the_middle_keeps_stated_counts_and_drops_counted_ones() -> None:
    stated, counted = case("pytest/some_fail"), case("tsc/some_fail")

    found = read_report("pytest", stated.text, 1, whole=False)
    partly = read_report("tsc", counted.text, 2, whole=False)

    assert found == stated.report
    assert partly is not None
    assert (partly.errors, partly.ok, partly.failing) == (None, False, counted.report and counted.report.failing)


def test_results_of_several_targets_are_not_added_up_when_some_may_be_missing() -> None:
    found = read_report("cargo", case("cargo/all_pass").text, 0, whole=False)

    assert found is not None
    assert (found.ok, found.passed, found.summary) == (True, None, "cargo: passed")


def test_the_end_of_an_output_is_enough_for_the_counts() -> None:
    tail = case("pytest/some_fail").text[-700:]

    found = read_report("pytest", f"[... 84,231 bytes omitted ...]\n{tail}", 1, whole=False)

    assert found is not None
    assert found.summary == "pytest: 5 failed, 1 error, 2 passed, 1 skipped"
    assert "test_shop.py::test_parse[a - b]" in found.failing


def test_failing_names_are_bounded_and_the_rest_is_counted() -> None:
    names = "".join(f"FAILED test_shop.py::test_{n} - assert False\n" for n in range(50))
    text = f"=== short test summary info ===\n{names}=== 53 failed in 1.00s ===\n"

    found = read_report("pytest", text, 1)

    assert found is not None
    assert (len(found.failing), found.more_failing) == (MAX_FAILING, 33)


def test_a_silent_check_passed_only_with_exit_code_0_and_nothing_left_out() -> None:
    passed = read_report("tsc", "\n", 0)

    assert passed == CheckReport(program="tsc", ok=True, errors=0, summary="tsc: no errors")
    assert read_report("tsc", "", 1) is None
    assert read_report("tsc", "", 0, whole=False) is None
    assert read_report("pytest", "", 0) is None


def test_colours_and_terminal_line_ends_change_nothing() -> None:
    for program in ("pytest", "jest", "vitest"):
        assert read(case(f"{program}/some_fail_terminal")) == read(case(f"{program}/some_fail"))


def test_the_first_failure_is_where_it_was_raised() -> None:
    found = read(case("pytest/stop_at_first"))

    assert found is not None
    assert found.first_failure == FailureLocation(file="test_shop.py", line=13, message="assert 35 == 25")


def test_tests_and_checks_are_verification_and_other_commands_are_not() -> None:
    assert all(is_check_program(program) for program in (*PROGRAMS, "npm", "make"))
    assert not is_check_program("rm")
    assert read_report("rm", "1 passed in 0.1s\n", 0) is None


def test_a_unittest_run_that_broke_off_has_no_report() -> None:
    assert read_report("unittest", "Ran 3 tests in 0.001s\n\nTraceback\n", 1) is None


def test_a_failing_name_in_no_known_form_is_kept_as_printed() -> None:
    text = f"{'=' * 70}\nERROR: doctest of shop\n{'-' * 70}\nRan 1 test in 0.001s\n\nFAILED (errors=1)\n"

    found = read_report("unittest", text, 1)

    assert found is not None
    assert (found.failing, found.first_failure) == (("doctest of shop",), None)


def test_names_that_are_not_listed_right_above_a_cargo_result_are_only_counted() -> None:
    result = "test result: FAILED. 0 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s"

    found = read_report("cargo", f"running 2 tests\n    tests::a\nprinted by a test\n{result}\n", 101)

    assert found is not None
    assert (found.failing, found.more_failing) == ((), 2)
