"""Builtins of bash that run text, or that change what the commands after them mean."""

import re

from .command import SimpleCommand
from .word_set import make_word_set

#: Words that are no programs where a command starts.
RESERVED_WORDS = make_word_set(
    "! { } [[ ]] if then else elif fi for while until do done case esac select function coproc in"
)

#: Why they are never read any further.
_BUILTIN_REASONS = (
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
        make_word_set(
            "alias unalias bind hash enable compgen complete compopt shopt set unset export readonly declare "
            "typeset local umask ulimit"
        ),
        "it changes what later commands mean",
    )
    | dict.fromkeys(
        make_word_set("let read mapfile readarray getopts fc history wait jobs suspend logout shift times"),
        "it evaluates text or sets variables",
    )
)
_ARITHMETIC_TESTS = frozenset(("-eq", "-ne", "-lt", "-le", "-gt", "-ge"))
_VARIABLE_TESTS = frozenset(("-v", "-R"))
_INTEGER = re.compile(r"[+-]?\d{1,18}", re.ASCII)


def explain_builtin(command: SimpleCommand) -> str:
    """Why this command must not be taken at its words; empty when it may."""
    name, operands = command.argv[0], command.argv[1:]
    if name in RESERVED_WORDS:
        return "it has control flow or another compound command"
    if name in _BUILTIN_REASONS:
        return _BUILTIN_REASONS[name]
    if name == "printf" and operands[:1] and operands[0].startswith("-v"):
        return "printf -v evaluates a name"
    if name in ("test", "[") and not _is_plain_test(operands):
        return "a test evaluates one of its words"
    return ""


def _is_plain_test(operands: tuple[str, ...]) -> bool:
    if not _VARIABLE_TESTS.isdisjoint(operands):
        return False
    compared = [at for at, word in enumerate(operands) if word in _ARITHMETIC_TESTS]
    return all(
        _INTEGER.fullmatch(word)
        for at in compared
        for word in (*operands[max(at - 1, 0) : at], *operands[at + 1 : at + 2])
    )
