"""Builtins of bash that run text, or that change what the commands after them mean."""

import re

from .command import SimpleCommand
from .word_set import word_set

#: Words that are no programs where a command starts.
RESERVED = word_set("! { } [[ ]] if then else elif fi for while until do done case esac select function coproc in")

#: Why they are never read any further.
_REASONS = (
    {
        "eval": "eval runs text",
        "source": "it runs a file inside the shell",
        ".": "it runs a file inside the shell",
        "trap": "trap runs text later",
        "pushd": "it changes to a folder that is not named",
        "popd": "it changes to a folder that is not named",
        "exec": "exec changes the shell itself",
    }
    | dict.fromkeys(
        word_set(
            "alias unalias bind hash enable compgen complete compopt shopt set unset export readonly declare "
            "typeset local umask ulimit"
        ),
        "it changes what later commands mean",
    )
    | dict.fromkeys(
        word_set("let read mapfile readarray getopts fc history wait jobs suspend logout shift times"),
        "it evaluates text or sets variables",
    )
)
_ARITHMETIC = frozenset(("-eq", "-ne", "-lt", "-le", "-gt", "-ge"))
_VARIABLES = frozenset(("-v", "-R"))
_NUMBER = re.compile(r"[+-]?\d{1,18}", re.ASCII)


def builtin_reason(command: SimpleCommand) -> str:
    """Why this command must not be taken at its words; empty when it may."""
    name, operands = command.argv[0], command.argv[1:]
    if name in RESERVED:
        return "it has control flow or another compound command"
    if name in _REASONS:
        return _REASONS[name]
    if name == "printf" and operands[:1] and operands[0].startswith("-v"):
        return "printf -v evaluates a name"
    if name in ("test", "[") and not _is_plain_test(operands):
        return "a test evaluates one of its words"
    return ""


def _is_plain_test(operands: tuple[str, ...]) -> bool:
    if not _VARIABLES.isdisjoint(operands):
        return False
    compared = [at for at, word in enumerate(operands) if word in _ARITHMETIC]
    return all(
        _NUMBER.fullmatch(word)
        for at in compared
        for word in (*operands[max(at - 1, 0) : at], *operands[at + 1 : at + 2])
    )
