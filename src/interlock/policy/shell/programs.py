"""The known programs, from `programs.json`. A key with several words is about each of these programs.

What is not in a table is unknown, and an unknown program or option is never taken for a harmless one.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

import msgspec

#: What the words are that are no options: files and folders, plain text, a pattern and then files, a format that
#: starts with `+`, names of programs.
OperandKind: TypeAlias = Literal["paths", "text", "pattern", "format", "names", "none"]

UNLIMITED = 100_000

_T = TypeVar("_T")


class ReadOnlyProgram(msgspec.Struct, frozen=True):
    """A program that only reads, with every option that keeps it so.

    What is missing is not read-only: an option that writes, runs something, follows links, takes names from a file, or
    that was not reviewed. Long options count in full spelling only, since programs take any abbreviation.
    """

    #: Short options without a value, with a value of plain text, with a value that is a path.
    flags: str = ""
    text: str = ""
    path: str = ""
    #: Long options: `--all`, `--color=` with plain text, `--file=@` with a path. A value may be left out only when
    #: the option stands there without `=` as well.
    long: frozenset[str] = frozenset()
    operands: OperandKind = "paths"
    max_operands: int = UNLIMITED
    #: `-5` is a count.
    numbers: bool = False
    #: Options that give the pattern, or make it needless, so that every operand is a path.
    gives_pattern: frozenset[str] = frozenset()


class Wrapper(msgspec.Struct, frozen=True):
    """A program that runs the program named in its words."""

    #: Short options without and with a value, in one string each.
    flags: str = ""
    valued: str = ""
    #: Long options in full; with `=` when they take a value.
    long: frozenset[str] = frozenset()
    #: Words between the options and the program.
    operands: int = 0
    #: `NAME=value` may stand before the program.
    sets: bool = False
    #: `-5` is an option.
    numbers: bool = False


class Runner(msgspec.Struct, frozen=True):
    """A program that runs code of the project which its words do not name."""

    #: In the folder that it runs in, whether they exist or not: a new one may take the place of another.
    files: tuple[str, ...]
    #: Options whose value is another folder to run in.
    folder_options: tuple[str, ...] = ()
    #: Options whose value is a file to use, from the folder on that it runs in.
    file_options: tuple[str, ...] = ()
    #: In the folders of its operands and those above them.
    operand_files: tuple[str, ...] = ()
    #: Only with one of these words.
    verbs: frozenset[str] = frozenset()


class ProgramRisk(msgspec.Struct, frozen=True):
    """The risks of programs, whatever their words."""

    programs: tuple[str, ...]
    risks: tuple[str, ...]


class _Tables(msgspec.Struct, frozen=True):
    read_only: dict[str, ReadOnlyProgram]
    #: By what follows a predicate of find: nothing, a word, a path.
    find_predicates: dict[Literal["none", "word", "path"], frozenset[str]]
    wrappers: dict[str, Wrapper]
    #: They run a program in a way that is not followed, or whose words come from elsewhere.
    opaque_runners: frozenset[str]
    shells: frozenset[str]
    #: Why builtins of the shell are never read any further.
    builtin_reasons: dict[str, tuple[str, ...]]
    #: Programs that read text from their standard input and never run it.
    text_readers: frozenset[str]
    #: Variables whose value a program starts, or hands to a shell.
    started_variables: frozenset[str]
    #: Options whose value is started, by program. Letters are short options; a glued value is one, too.
    started_options: dict[str, frozenset[str]]
    #: The words that follow these are a program with its words.
    started_operands: dict[str, tuple[str, ...]]
    runners: dict[str, Runner]
    #: They start another program, which may be a runner: `uv run pytest`, `python -m tox`.
    starters: frozenset[str]
    #: They do what their words say and start nothing else.
    self_contained: frozenset[str]
    program_risks: tuple[ProgramRisk, ...]
    #: By the leading words, as a rule would name them; `|` stands between alternatives of one word.
    command_risks: dict[str, tuple[str, ...]]
    #: The risks of commands that destroy what nothing brings back, by their texts in `command_risks`.
    losses: frozenset[str]
    #: Programs whose plain words are hosts.
    network_programs: frozenset[str]
    #: Their words may start with the host of a registry: `docker pull host/image`, `go get host/module`.
    registry_programs: frozenset[str]
    #: Long options whose value is not a host.
    non_host_options: dict[str, frozenset[str]]
    #: They spell long options with one dash.
    one_dash_programs: frozenset[str]
    #: Programs that run what their words say, change what other programs do, or send anything anywhere: the first
    #: words of such a command say too little about the rest.
    general_programs: frozenset[str]
    #: Commands of one kind whatever follows these words, as a person would allow them; `|` stands between alternatives
    #: of one word, and `*` is a name that stays.
    command_kinds: tuple[str, ...]


def by_program(table: Mapping[str, _T]) -> dict[str, _T]:
    """Return a table with one key for each program."""
    return {program: entry for programs, entry in table.items() for program in programs.split()}


TABLES = msgspec.json.decode(Path(__file__).with_name("programs.json").read_bytes(), type=_Tables)
READ_ONLY_PROGRAMS = by_program(TABLES.read_only)
