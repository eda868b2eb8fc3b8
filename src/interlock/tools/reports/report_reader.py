"""Parses the output of a program to a report.

A named program is read by its own reader. `npm` and `make` run what a project chose: there every reader that could
apply looks, and the reports differ in shape enough for only the right ones to find something. Of several, a failing
one says more than a clean one, and a later one more than an earlier one.
"""

from collections.abc import Callable, Mapping

from . import cargo_report, checker_reports, go_report, node_report, pytest_report, unittest_report
from .jest_report import read_jest, read_vitest
from .report import CheckReport, CommandOutput, Findings, build_report, parse_output

_Reader = Callable[[CommandOutput, int | None], Findings | None]

_READERS: Mapping[str, _Reader] = {
    "pytest": pytest_report.read_pytest,
    "unittest": unittest_report.read_unittest,
    "jest": read_jest,
    "vitest": read_vitest,
    "node": node_report.read_node,
    "tsc": checker_reports.read_tsc,
    "go": go_report.read_go,
    "cargo": cargo_report.read_cargo,
    "mypy": checker_reports.read_mypy,
    "ruff": checker_reports.read_ruff,
}
_PROGRAMS_BY_RUNNER: Mapping[str, tuple[str, ...]] = {"npm": ("jest", "vitest", "node", "tsc"), "make": tuple(_READERS)}
#: Programs that print nothing, at least with an option, if there is nothing wrong.
_SILENT = frozenset(("tsc", "cargo", "mypy", "ruff"))


def is_check_program(program: str) -> bool:
    """Return whether a run of the program is evidence about the code: tests, types, lint."""
    return program in _READERS or program in _PROGRAMS_BY_RUNNER


def read_report(program: str, text: str, exit_code: int | None, *, whole: bool = True) -> CheckReport | None:
    """Return the report; None where the text is not the output of a run of the program. `whole` is False for the ends
    of a longer text.

    `exit_code` is None where there is none, as after a signal; a run without exit code 0 is never `ok`.
    """
    if not is_check_program(program):
        return None
    output = parse_output(text, whole=whole)
    if program in _SILENT and exit_code == 0 and whole and not any(output.lines):
        return build_report(Findings(program=program, at=0, clean=True, errors=0), exit_code)
    names = _PROGRAMS_BY_RUNNER.get(program, (program,))
    read = (_READERS[name](output, exit_code) for name in names)
    found = [findings for findings in read if findings is not None and (findings.sure or program in _READERS)]
    return build_report(max(found, key=lambda one: (not one.clean, one.at)), exit_code) if found else None
