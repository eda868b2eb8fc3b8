"""The report of a test or check command, as facts: counts, failing names, the first failure.

A count is a number the program printed, or one that was counted in all of its output. Where neither is there it is
None: an unknown count is never a guess.
"""

import re
from typing import NamedTuple

import msgspec

#: How many failing names a report holds; `more_failing` says how many there are beyond them.
MAX_FAILING = 20
MAX_NAME_CHARS = 200
MAX_MESSAGE_CHARS = 300


class FailureLocation(msgspec.Struct, frozen=True, kw_only=True):
    """Where a failure was, as the program printed it."""

    file: str
    line: int
    message: str


class CheckReport(msgspec.Struct, frozen=True, kw_only=True):
    """The parsed result of a test or check command."""

    program: str
    #: The exit code was 0 and the output speaks of no failure. One of the two is not enough: a command may end in
    #: `| tail` or `|| true`, and a test may print what it likes.
    ok: bool
    passed: int | None = None
    failed: int | None = None
    errors: int | None = None
    skipped: int | None = None
    #: Test ids, or `file:line` of an error.
    failing: tuple[str, ...] = ()
    more_failing: int = 0
    first_failure: FailureLocation | None = None
    #: One line, such as `pytest: 1 failed, 3 passed`.
    summary: str


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """What one reader found in an output, before the exit code is looked at."""

    program: str
    #: The number of the line that decided, so that of several programs in one output the last is known.
    at: int
    #: The output speaks of no failure.
    clean: bool
    #: A line was found that only this program prints. Without one, the name of the program must come from elsewhere.
    sure: bool = True
    passed: int | None = None
    failed: int | None = None
    errors: int | None = None
    skipped: int | None = None
    #: Where a program says only how many tests it ran.
    ran: int | None = None
    failing: tuple[str, ...] = ()
    first_failure: FailureLocation | None = None


def build_report(found: Findings, exit_code: int | None) -> CheckReport:
    """Build the report of a check from its findings and exit code."""
    ok = exit_code == 0 and found.clean
    names = [name[:MAX_NAME_CHARS] for name in found.failing]
    shown = tuple(dict.fromkeys(names))[:MAX_FAILING]
    failing = max(len(names), (found.failed or 0) + (found.errors or 0))
    return CheckReport(
        program=found.program,
        ok=ok,
        passed=found.passed,
        failed=found.failed,
        errors=found.errors,
        skipped=found.skipped,
        failing=shown,
        more_failing=failing - sum(name in shown for name in names),
        first_failure=found.first_failure,
        summary=f"{found.program}: {_summarize(found, exit_code, ok)}",
    )


def find_last(pattern: re.Pattern[str], lines: list[str]) -> int | None:
    """Return the number of the last line that the pattern fits; None without one."""
    return next((at for at in range(len(lines) - 1, -1, -1) if pattern.fullmatch(lines[at])), None)


def make_location(file: str, line: str, message: str) -> FailureLocation:
    """Build the place of a failure, cut to the limits."""
    return FailureLocation(
        file=file.strip()[:MAX_NAME_CHARS], line=int(line), message=message.strip()[:MAX_MESSAGE_CHARS]
    )


def _summarize(found: Findings, exit_code: int | None, ok: bool) -> str:
    counts = _format_counts(found)
    if ok:
        return counts or "passed"
    if counts and found.clean is not (exit_code == 0):
        counts += ", no exit code" if exit_code is None else f", exit code {exit_code}"
    return counts or ("no result" if exit_code is None else f"failed, exit code {exit_code}")


def _format_counts(found: Findings) -> str:
    named = (
        (found.ran, "run"),
        (found.failed, "failed"),
        (found.errors, "error" if found.errors == 1 else "errors"),
        (found.passed, "passed"),
        (found.skipped, "skipped"),
    )
    if parts := [f"{count} {word}" for count, word in named if count]:
        return ", ".join(parts)
    if found.failing:
        return f"{len(found.failing)} named as failing"
    if found.passed == 0 or found.ran == 0:
        return "no tests ran"
    return "no errors" if found.errors == 0 and found.failed is None else ""


MAX_CHARS = 1024 * 1024
MAX_LINE_CHARS = 1_000
#: A summary stands at the end of an output, so more of the end is kept.
MAX_HEAD_LINES = 5_000
MAX_TAIL_LINES = 15_000

#: Colours and cursor moves, titles and links, character sets, and the short ones. Each is matched from its first
#: character without going back, so the work is linear whatever follows.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*+[ -/]*+[@-~]?|[\]PX^_][^\x07\x1b\n]*+(?:\x07|\x1b\\)?|[ -/]++[0-~]?|[0-~])?")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class CommandOutput(NamedTuple):
    """The lines of an output, and whether they are complete."""

    lines: list[str]
    #: These are all lines: what is counted in them is the number there was.
    is_complete: bool


def parse_output(text: str, *, whole: bool) -> CommandOutput:
    """Split output into lines without control sequences, cut to the limits."""
    if len(text) > MAX_CHARS:
        whole = False
        text = f"{text[: MAX_CHARS // 4]}\n{text[-(MAX_CHARS - MAX_CHARS // 4) :]}"
    text = _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    lines = _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text).split("\n")
    if len(lines) > MAX_HEAD_LINES + MAX_TAIL_LINES:
        whole = False
        lines = lines[:MAX_HEAD_LINES] + lines[-MAX_TAIL_LINES:]
    return CommandOutput([line[:MAX_LINE_CHARS].rstrip() for line in lines], whole)
