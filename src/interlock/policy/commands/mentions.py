"""Programs start other programs: what stands in the words of a command that may be another command."""

import re
from os.path import basename

from ..patterns import folded
from .command import SimpleCommand

#: `exec=rm`, `alias.p=push`, `!rm -rf x`, `rm;ls`: what may stand around a word inside a word.
_BREAKS = re.compile(r"[\s=:,;!|&()'\"`$^{}<>\\]+")


def program_name(word: str) -> str:
    return folded(basename(word))


def words_within(command: SimpleCommand) -> frozenset[str]:
    """Every piece of its words but the program, and of the values that are set for it, by the names that programs have.
    `git-push` is `git push`, and what a program takes for another name of one of its own commands begins with that
    program."""
    words = [*command.argv[1:], *(value for _, value in command.assignments)]
    pieces = {piece for word in words for piece in _BREAKS.split(word)}
    # A short option may have its value right behind it.
    pieces |= {piece[2:] for piece in pieces if piece.startswith("-") and not piece.startswith("--")}
    program = program_name(command.argv[0])
    own = program.split("-") if "-" in program or any(piece.startswith("alias.") for piece in pieces) else []
    return frozenset((*own, *map(program_name, pieces))) - {""}
