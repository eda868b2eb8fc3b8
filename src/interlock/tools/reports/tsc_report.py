"""tsc: errors on one line each, or the pretty form with a last line that counts them.

src/shop.ts(2,7): error TS2322: Type ...        src/shop.ts:2:7 - error TS2322: Type ...
                                                Found 3 errors in 2 files.
"""

import re

import msgspec

from .diagnostics import Diagnostic, checked
from .output import Output
from .report import Findings

_PLAIN = re.compile(r"(\S.*)\(([0-9]{1,9}),[0-9]{1,9}\): error (TS[0-9]{1,6}: .*)")
_PRETTY = re.compile(r"(\S.*):([0-9]{1,9}):[0-9]{1,9} - error (TS[0-9]{1,6}: .*)")
_NO_FILE = re.compile(r"()()error (TS[0-9]{1,6}: .*)")
_FOUND = re.compile(
    r"Found ([0-9]{1,9}) errors?(?: in (?:[0-9]{1,9} files|the same file, starting at: .*|[^()]*:[0-9]{1,9}))?\.?"
)


def read(output: Output, exit_code: int | None) -> Findings | None:
    del exit_code
    errors = [error for line in output.lines if " TS" in line and (error := _error(line))]
    if not errors:
        return None
    found = checked("tsc", output, _stated(output.lines), errors)
    # The code of an error is enough to know the program.
    return found and msgspec.structs.replace(found, sure=True)


def _error(line: str) -> Diagnostic | None:
    match = _PLAIN.fullmatch(line) or _PRETTY.fullmatch(line) or _NO_FILE.fullmatch(line)
    return Diagnostic(match[1], match[2], match[3]) if match else None


def _stated(lines: list[str]) -> tuple[int, int] | None:
    found = ((at, match) for at in range(len(lines) - 1, -1, -1) if (match := _FOUND.fullmatch(lines[at])))
    return next(((at, int(match[1])) for at, match in found), None)
