"""The bash invocation of a command: its limits, its variables, and how the shell reports its working folder at the
end.

Bash reads a few lines of ours before the script (`BASH_ENV`, from a descriptor), then the script exactly as it came
(`-c`): line numbers and messages are the script's own. Our lines set the limits and a trap for the end, and say on the
report descriptor that the script begins now. A program with its words is started by bash as well, for the limits.

The folder to start in is entered here, once everything is mounted, and compared with a descriptor of the folder that
was decided on: a link that took its name meanwhile leads nowhere.

What is on the report descriptor are words, each ended by NUL: `waiting`, where a descriptor is given to wait for leave
(should it end without a byte, the supervisor is gone, and nothing is executed); then `moved` (the folder
is another one), `started`, `ready` (a program follows) or `missing` (there is no such program); then `ended`, the exit
code, and the folder with a newline, unless a signal, `exec` or a trap of the script's own came before. A command can
write there, too, so what it says is believed of nothing but itself.
"""

import re
import shlex
from collections.abc import Mapping

from ...domain.errors import SandboxSetupError
from ..host.programs import SYSTEM_PATH
from ..interface import CommandSpec

MAX_SCRIPT_BYTES = 100_000
_MAX_WORDS_BYTES = 1_000_000
_MAX_ENVIRONMENT_BYTES = 100_000
HOME, TEMPORARY = "/home/agent", "/tmp"  # noqa: S108 inside of a sandbox, where it is empty and private

_VARIABLES = {
    "PATH": SYSTEM_PATH,
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "SHELL": "/bin/bash",
    "USER": "agent",
    "LOGNAME": "agent",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
}
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Make a program load or execute what they name, before the command itself is reached.
_REFUSED_VARIABLES = re.compile(
    r"LD_\w*|GCONV_PATH|LOCPATH|NLSPATH|GLIBC_TUNABLES|MALLOC_\w*"
    r"|BASH_ENV|BASH_FUNC\w*|BASHOPTS|SHELLOPTS|ENV|CDPATH|IFS|PS4|PROMPT_COMMAND|GLOBIGNORE"
    r"|PYTHON\w*|NODE_OPTIONS|PERL5\w*|PERLLIB|RUBYOPT|RUBYLIB|JAVA_TOOL_OPTIONS"
)
_BASH_OPTIONS = ("--norc", "--noprofile")
_START_PROGRAM = (
    'if type -P -- "$1" >/dev/null; then printf "ready\\0" >&{fd}; exec -- "$@" {fd}>&-; '
    'else printf "missing\\0" >&{fd}; fi'
)


def check_command(command: CommandSpec) -> None:
    """Raise `SandboxSetupError` for commands that bash cannot be given. Nothing was executed."""
    if bool(command.script) == bool(command.argv):
        raise SandboxSetupError("A command is either a script or a program with its words. Nothing was executed.")
    for text in (command.script, *command.argv, command.cwd):
        _check_encodable(text)
    if len(command.script.encode()) > MAX_SCRIPT_BYTES:
        raise SandboxSetupError(
            f"The script is longer than {MAX_SCRIPT_BYTES} bytes. Nothing was executed. "
            "Write it to a file in the workspace and run that."
        )
    if sum(len(word.encode()) for word in command.argv) > _MAX_WORDS_BYTES:
        raise SandboxSetupError(f"The program's words are longer than {_MAX_WORDS_BYTES} bytes. Nothing was executed.")


def build_environment(extra: Mapping[str, str], home: str = HOME, temporary: str = TEMPORARY) -> dict[str, str]:
    """Return the base environment of every command, with the caller's variables."""
    for name, value in extra.items():
        if not _VARIABLE_NAME.fullmatch(name) or _REFUSED_VARIABLES.fullmatch(name):
            raise SandboxSetupError(f"The variable {name[:100]!r} cannot be given to a command. Nothing was executed.")
        _check_encodable(value)
    if sum(len(value.encode()) for value in extra.values()) > _MAX_ENVIRONMENT_BYTES:
        raise SandboxSetupError(f"The variables hold more than {_MAX_ENVIRONMENT_BYTES} bytes. Nothing was executed.")
    return {**_VARIABLES, "HOME": home, "TMPDIR": temporary, **extra}


def build_argv(command: CommandSpec, bash: str, report_fd: int) -> tuple[str, ...]:
    """Return the program and words to execute. `BASH_ENV` must be set to where the prelude can be read."""
    if command.script:
        return (bash, *_BASH_OPTIONS, "-c", command.script, "bash")
    return (bash, *_BASH_OPTIONS, "-c", _START_PROGRAM.format(fd=report_fd), "bash", *command.argv)


def build_prelude(
    command: CommandSpec, report_fd: int, prelude_fd: int, gate_fd: int = -1, folder_fd: int = -1
) -> bytes:
    """Return the prelude that bash reads first, by descriptors that are closed before the command begins."""
    limits = command.profile.limits
    # Core files, size of a file, data, open files; processes, which count those of the user namespace, so they can be
    # limited inside of a new one only. What the host has set lower stays lower.
    numbers = {
        **{"c": 0, "f": limits.file_bytes >> 10, "d": limits.memory_bytes >> 10},
        **{"n": limits.open_files, "u": limits.processes},
    }
    limit_words = " ".join(f"ulimit -{letter} {number};" for letter, number in numbers.items())
    lines = [f"{{ {limit_words} }} 2>/dev/null", "umask 022", "unset BASH_ENV", f"exec {prelude_fd}<&-"]
    if gate_fd >= 0:
        # Everything is mounted by now, so it can be looked at while the limits are set.
        lines.insert(0, f'printf "waiting\\0" >&{report_fd}')
        lines.append(f"read -r -N 1 -u {gate_fd} || exit 1; exec {gate_fd}<&-; unset REPLY")
    if folder_fd >= 0:
        folder = shlex.quote(command.cwd or command.profile.workspace)
        # In an overlay it has another device: there it is compared at the gate.
        is_same = f". -ef /proc/self/fd/{folder_fd}" if command.overlay is None else f"$PWD == {folder}"
        is_there = f"builtin cd -P -- {folder} && [[ {is_same} ]]"
        moved = f'{{ printf "moved\\0" >&{report_fd}; exit 1; }}'
        lines.append(f"{is_there} || {moved}; exec {folder_fd}<&-; unset OLDPWD")
    if command.script:
        # The group sends what `set -x` would print of it, and errors of a folder that is gone, nowhere.
        ended = f'{{ builtin printf "ended\\0%d\\0" $?; builtin pwd -P; }} 2>/dev/null >&{report_fd}'
        lines += [f"trap '{ended}' EXIT", f'printf "started\\0" >&{report_fd}']
    return "\n".join([*lines, ""]).encode()


def _check_encodable(text: str) -> None:
    if "\0" in text:
        raise SandboxSetupError("A command cannot hold a NUL character. Nothing was executed.")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise SandboxSetupError("A command cannot hold half a character (a surrogate). Nothing was executed.") from None
