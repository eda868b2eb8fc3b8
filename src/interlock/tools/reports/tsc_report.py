"""tsc: errors on one line each, or the pretty form with a last line that counts them.

src/shop.ts(2,7): error TS2322: Type ...        src/shop.ts:2:7 - error TS2322: Type ...
                                                Found 3 errors in 2 files.
"""

import re

import msgspec

from .diagnostics import Diagnostic, make_findings
from .output import CommandOutput
from .report import Findings

_TSC_PLAIN = re.compile(r"(\S.*)\(([0-9]{1,9}),[0-9]{1,9}\): error (TS[0-9]{1,6}: .*)")
_TSC_PRETTY = re.compile(r"(\S.*):([0-9]{1,9}):[0-9]{1,9} - error (TS[0-9]{1,6}: .*)")
_TSC_NO_FILE = re.compile(r"()()error (TS[0-9]{1,6}: .*)")
_TSC_FOUND = re.compile(
    r"Found ([0-9]{1,9}) errors?(?: in (?:[0-9]{1,9} files|the same file, starting at: .*|[^()]*:[0-9]{1,9}))?\.?"
)


def read_tsc(output: CommandOutput, exit_code: int | None) -> Findings | None:
    del exit_code
    errors = [error for line in output.lines if " TS" in line and (error := _parse_tsc_error(line))]
    if not errors:
        return None
    found = make_findings("tsc", output, _find_tsc_total(output.lines), errors)
    # The code of an error is enough to know the program.
    return found and msgspec.structs.replace(found, sure=True)


def _parse_tsc_error(line: str) -> Diagnostic | None:
    match = _TSC_PLAIN.fullmatch(line) or _TSC_PRETTY.fullmatch(line) or _TSC_NO_FILE.fullmatch(line)
    return Diagnostic(match[1], match[2], match[3]) if match else None


def _find_tsc_total(lines: list[str]) -> tuple[int, int] | None:
    found = ((at, match) for at in range(len(lines) - 1, -1, -1) if (match := _TSC_FOUND.fullmatch(lines[at])))
    return next(((at, int(match[1])) for at, match in found), None)
