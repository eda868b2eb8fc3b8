"""Exit codes, the same for every command."""

from collections.abc import Mapping
from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of commands."""

    OK = 0
    FAILED = 1
    USAGE = 2
    WAITING = 3
    REFUSED = 4
    UNAVAILABLE = 75
    INTERRUPTED = 130


MEANINGS: Mapping[ExitCode, str] = {
    ExitCode.OK: "done",
    ExitCode.FAILED: "failed",
    ExitCode.USAGE: "bad usage, or a file that cannot be read",
    ExitCode.WAITING: "waiting for a person",
    ExitCode.REFUSED: "refused by a policy or a person",
    ExitCode.UNAVAILABLE: "the database is gone",
    ExitCode.INTERRUPTED: "interrupted",
}


def format_exit_codes(**meanings: str) -> str:
    """Return the exit codes of a command for its help: `format_exit_codes(ok="done")`. Default: all of them."""
    codes = {ExitCode[name.upper()]: meaning for name, meaning in meanings.items()} or MEANINGS
    return f"Exit codes: {'; '.join(f'{code.value} {meaning}' for code, meaning in codes.items())}."
