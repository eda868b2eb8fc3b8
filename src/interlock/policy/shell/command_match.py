"""Matching of command patterns.

`matches_narrowly` is for rules that allow: the exact words, nothing around them. `matches_widely` is for rules that
deny or ask: the program wherever it is and whatever wraps it, its options in any order and spelling. Whatever matches
narrowly also matches widely.
"""

import re
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from os.path import basename

from ..patterns import fold_text
from .command import SimpleCommand
from .programs import TABLES

ANY_WORD = "*"
#: Short options and the long ones that mean the same nearly everywhere.
_EQUIVALENT_OPTIONS = {
    "r": ("R", "recursive"),
    "R": ("r", "recursive"),
    "f": ("force",),
    "y": ("yes",),
    "D": ("delete",),
    "a": ("all",),
    "n": ("dry-run",),
}


def matches_narrowly(pattern: tuple[str, ...], exact: bool, command: SimpleCommand) -> bool:
    """Return True when the command is these words, followed by others unless `exact`."""
    if command.assignments or command.wrappers or command.hidden:
        return False
    if any(word in command.globs for word in command.argv[: len(pattern)]) or (exact and command.globs):
        return False
    return pattern[:1] != (ANY_WORD,) and _starts_with(pattern, exact, command.argv)


def matches_widely(pattern: tuple[str, ...], exact: bool, command: SimpleCommand) -> bool:
    """Return True when the command may do what the pattern says, however it is written."""
    if not pattern:
        return False
    if _starts_with(pattern, exact, command.argv):
        return True
    if any(_is_program(pattern[0], wrapper, ()) for wrapper in command.wrappers) and _matches_wrapper(
        pattern, exact, command
    ):
        return True
    return _is_program(pattern[0], command.argv[0], command.globs) and _matches_arguments(pattern, exact, command)


def _starts_with(pattern: tuple[str, ...], exact: bool, words: tuple[str, ...]) -> bool:
    if not pattern or len(words) < len(pattern) or (exact and len(words) != len(pattern)):
        return False
    return all(wanted in (ANY_WORD, word) for wanted, word in zip(pattern, words, strict=False))


def _is_program(wanted: str, written: str, globs: Collection[str]) -> bool:
    if wanted == ANY_WORD:
        return True
    if "/" in wanted and wanted == written:
        return True
    name = basename(written).casefold()
    wanted = basename(wanted).casefold()
    return name == wanted or (written in globs and _can_glob_match(name, wanted))


def _matches_wrapper(pattern: tuple[str, ...], exact: bool, command: SimpleCommand) -> bool:
    """Match a pattern that names a wrapper: what follows in it are options of the wrapper, or the wrapped command."""
    rest = pattern[1:]
    if all(word.startswith("-") for word in rest):
        return True
    return any(matches_widely(rest[at:], exact, command) for at in range(len(rest)))


def _matches_arguments(pattern: tuple[str, ...], exact: bool, command: SimpleCommand) -> bool:
    program = basename(pattern[0])
    wanted_flags = [word for word in pattern[1:] if _is_flag(word)]
    wanted_operands = [word for word in pattern[1:] if not _is_flag(word)]
    flags, operands = _split_options(command.argv[1:])
    globs = frozenset(command.globs)
    if not all(_has_flag(flag, flags, program) for flag in wanted_flags):
        return False
    if not exact:
        return _are_leading_operands(wanted_operands, operands, globs)
    if len(operands) != len(wanted_operands) or not all(_has_flag(flag, wanted_flags, program) for flag in flags):
        return False
    return all(_is_word(want, word, globs) for want, (word, _) in zip(wanted_operands, operands, strict=True))


def _is_flag(word: str) -> bool:
    return word.startswith("-") and word != "-"


def _split_options(words: tuple[str, ...]) -> tuple[list[str], list[tuple[str, bool]]]:
    """Return the options, and the operands with whether they may be the value of the option before them."""
    flags, operands = list[str](), list[tuple[str, bool]]()
    after_flag = only_operands = False
    for word in words:
        if not only_operands and _is_flag(word):
            flags.append(word)
            only_operands = word == "--"
            after_flag = not only_operands
        else:
            operands.append((word, after_flag))
            after_flag = False
    return flags, operands


def _are_leading_operands(wanted: list[str], operands: list[tuple[str, bool]], globs: Collection[str]) -> bool:
    """Return whether these words are the first operands, where values of options may stand in between."""
    reached = {0}
    for word, may_be_value in operands:
        if len(wanted) in reached:
            return True
        further = {at + 1 for at in reached if _is_word(wanted[at], word, globs)}
        reached = further | reached if may_be_value else further
    return len(wanted) in reached


def _is_word(wanted: str, word: str, globs: Collection[str]) -> bool:
    return wanted in (ANY_WORD, word) or (word in globs and _can_glob_match(word, wanted))


def _can_glob_match(glob: str, word: str) -> bool:
    return "[" in glob or fnmatchcase(word, glob)


def _has_flag(wanted: str, flags: Sequence[str], program: str) -> bool:
    if wanted in flags:
        return True
    if wanted.startswith("--"):
        return _has_long_option(wanted[2:], flags) or any(
            wanted[2:].partition("=")[0] in names and _has_letter(letter, flags)
            for letter, names in _EQUIVALENT_OPTIONS.items()
        )
    if program in TABLES.one_dash_programs:
        return any(flag.lstrip("-").partition("=")[0] == wanted[1:] for flag in flags)
    return all(_has_letter(letter, flags) or _has_equivalent_option(letter, flags) for letter in wanted[1:])


def _has_long_option(wanted: str, flags: Sequence[str]) -> bool:
    name, equals, value = wanted.partition("=")
    for flag in flags:
        given, given_equals, given_value = flag[2:].partition("=") if flag.startswith("--") else ("", "", "")
        if given and name.startswith(given) and (not equals or not given_equals or value == given_value):
            return True
    return False


def _has_letter(letter: str, flags: Sequence[str]) -> bool:
    return any(letter in flag[1:] for flag in flags if not flag.startswith("--"))


def _has_equivalent_option(letter: str, flags: Sequence[str]) -> bool:
    names = _EQUIVALENT_OPTIONS.get(letter, ())
    return any(_has_letter(name, flags) if len(name) == 1 else _has_long_option(name, flags) for name in names)


#: `exec=rm`, `alias.p=push`, `!rm -rf x`, `rm;ls`: what may stand around a word inside a word.
_WORD_BREAKS = re.compile(r"[\s=:,;!|&()'\"`$^{}<>\\]+")


def normalize_program_name(word: str) -> str:
    """Return the program name of a command word: its base name, case-folded."""
    return fold_text(basename(word))


def find_inner_words(command: SimpleCommand) -> frozenset[str]:
    """Return every piece of its words except the program, and of the values set for it, by program names. `git-push` is
    `git push`, and what a program takes for another name of one of its commands begins with that program.
    """
    words = [*command.argv[1:], *(value for _, value in command.assignments)]
    pieces = {piece for word in words for piece in _WORD_BREAKS.split(word)}
    # A short option may have its value right behind it.
    pieces |= {piece[2:] for piece in pieces if piece.startswith("-") and not piece.startswith("--")}
    program = normalize_program_name(command.argv[0])
    own = program.split("-") if "-" in program or any(piece.startswith("alias.") for piece in pieces) else []
    return frozenset((*own, *map(normalize_program_name, pieces))) - {""}
