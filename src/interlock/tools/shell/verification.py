"""The verification by a test or check command: the program, its result, and the state of the workspace.

The exit code of a script need not be the one of the tests in it (`npm test || true`), and what a script prints need not
be from them. So tests have passed only when their report and the exit code both say so and the exit code is theirs, or
they print into nothing but `tail` and the like; and, where a program prints no report that can be read, when the script
is nothing but that one command. A failure counts wherever it is reported.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from ...sandbox.interface import CommandExit
from ..reports.exit_code import classify_evidence
from ..reports.program_detection import detect_program
from ..reports.report import CheckReport
from ..reports.report_reader import read_report

#: Without these a script is one simple command, and the exit code is that command's.
_JOINS = frozenset(";&|!()\n`$")
#: Programs that do many things, so that people name the subcommand.
_WITH_SUBCOMMAND = frozenset(("npm", "pnpm", "yarn", "make", "gmake", "cargo", "go", "ruff"))
#: Options whose value is the next word: a folder or a file.
_VALUED_OPTIONS = frozenset(("-C", "--directory", "--prefix", "--cwd", "--dir", "--manifest-path", "-f", "--config"))


class CommandVerification(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a test or check command."""

    program: str
    #: As people call it: `npm test`.
    label: str
    #: None: unknown.
    ok: bool | None
    exit_code: int | None
    #: Digests of the workspace: see `take_fingerprint`.
    workspace: str
    workspace_before: str
    report: CheckReport | None = None

    @property
    def counts(self) -> dict[str, int]:
        """Counts of the report that are known."""
        if self.report is None:
            return {}
        counted = {name: getattr(self.report, name) for name in ("passed", "failed", "errors", "skipped")}
        return {name: count for name, count in counted.items() if count is not None}

    def to_facts(self, command: str, started_call: str = "") -> dict[str, Any]:
        """Return the facts for the log. `started_call`: the call that started it, where another one reports its end."""
        told = {
            "program": self.program,
            "command": command,
            "exit_code": self.exit_code,
            "ok": self.ok,
            "counts": self.counts,
            "workspace": self.workspace,
            "workspace_before": self.workspace_before,
            "changed_during": self.workspace != self.workspace_before,
        }
        return told | {"started_call": started_call} if started_call else told


class ScriptOutput(NamedTuple):
    """What a script printed, or the ends of it, and how it ended."""

    text: str
    is_complete: bool
    command_exit: CommandExit


class _CheckRun(NamedTuple):
    program: str
    argv: Sequence[str]
    report: CheckReport | None


def has_check_program(argvs: Sequence[Sequence[str]]) -> bool:
    """Return True if one of these commands tests or checks."""
    return any(detect_program(argv) is not None for argv in argvs)


def build_verification(
    script: str, argvs: Sequence[Sequence[str]], output: ScriptOutput, workspace_before: str, workspace: str
) -> CommandVerification:
    """Return the verification after a script with such a program."""
    run = _choose_run(argvs, output)
    return CommandVerification(
        program=run.report.program if run.report is not None else run.program,
        label=_make_label(run.program, run.argv),
        ok=_is_ok(script, argvs, run, output),
        exit_code=output.command_exit.exit_code,
        workspace=workspace,
        workspace_before=workspace_before,
        report=run.report,
    )


def _choose_run(argvs: Sequence[Sequence[str]], output: ScriptOutput) -> _CheckRun:
    """Choose the first program of the script that reports a failure, else the last that reported anything."""
    exit_code = output.command_exit.exit_code
    runs = [
        _CheckRun(program, argv, read_report(program, output.text, exit_code, whole=output.is_complete))
        for argv in argvs
        if (program := detect_program(argv)) is not None
    ]
    reported = [run for run in runs if run.report is not None]
    failed = (run for run in reported if run.report is not None and _is_failure_reported(run.report))
    return next(failed, reported[-1] if reported else runs[-1])


def _is_failure_reported(report: CheckReport) -> bool:
    return bool(report.failed or report.errors or report.failing)


def _is_ok(script: str, argvs: Sequence[Sequence[str]], run: _CheckRun, output: ScriptOutput) -> bool | None:
    if output.command_exit.reason == "stopped":  # it was stopped, which says nothing of what it tests
        return False if run.report is not None and _is_failure_reported(run.report) else None
    if output.command_exit.reason != "exited" or output.command_exit.exit_code != 0:
        return False
    if run.report is None:
        return True if _JOINS.isdisjoint(script.strip()) else None
    if not run.report.ok:
        return False
    evidence = classify_evidence(script, argvs, run.program)
    has_report = bool(output.text.strip()) and _is_conclusive(run.program, run.report)
    return True if evidence == "exit_code" or (evidence == "report" and has_report) else None


def _is_conclusive(program: str, report: CheckReport) -> bool:
    """Return True if a report without an exit code shows that nothing failed. go prints a last line without numbers."""
    return program == "go" or (report.passed != 0 and (report.passed is not None or report.errors is not None))


def _make_label(program: str, argv: Sequence[str]) -> str:
    words = [
        word.rpartition("/")[2]
        for before, word in zip(("", *argv), argv, strict=False)
        if not word.startswith("-") and before not in _VALUED_OPTIONS
    ]
    at = next((at for at, word in enumerate(words) if word in _WITH_SUBCOMMAND), None)
    if at is None:
        return program
    return " ".join(words[at : at + (3 if words[at + 1 : at + 2] == ["run"] else 2)])
