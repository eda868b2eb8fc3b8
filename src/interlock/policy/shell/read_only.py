"""Which commands only read, and only inside the workspace: proved from the table, word by word.

Only commands with literal words are analysed. A word that is not understood makes the result False.
"""

import re
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from .command import SimpleCommand, make_word_set
from .programs import READ_ONLY_PROGRAMS, TABLES, UNLIMITED, ReadOnlyProgram

#: Whether a path stays in the workspace, whichever of the folders it starts from. A word with wildcards is asked as it
#: is written, so the answer has to hold for everything that it matches.
InsideCheck: TypeAlias = Callable[[str, tuple[str, ...]], bool]

#: They change when and how long a command runs, not what it does.
_HARMLESS_WRAPPERS = frozenset(("time", "timeout", "nice", "command"))
_NUMBER = re.compile(r"-\d+", re.ASCII)
#: `5p`, `1,20p`, `/text/p`, `$=`, several of them with `;`.
_ADDRESS = r"(?:\d+|\$|/[^/\\\n]*/)"
_PRINT_COMMAND = rf"(?:{_ADDRESS}(?:,(?:\+\d+|{_ADDRESS}))?)?[p=]"
_SED_SCRIPT = re.compile(rf"{_PRINT_COMMAND}(?:; ?{_PRINT_COMMAND})*(?:; ?\d+q)?|\d+q", re.ASCII)
_FIND_PREDICATES = {word: kind for kind, words in TABLES.find_predicates.items() for word in words}
_FILE_TESTS = make_word_set("-a -b -c -d -e -f -g -h -k -L -N -O -G -p -r -s -S -u -w -x")
_FILE_COMPARISONS = frozenset(("-nt", "-ot", "-ef"))


class _ParsedWords(NamedTuple):
    operands: list[str]
    #: Values of options that are paths.
    paths: list[str]
    #: The options: single letters, or `--name`.
    options: set[str]


def is_read_only(command: SimpleCommand, is_inside: InsideCheck) -> bool:
    """Return True if the command provably only reads what `is_inside` says is in the workspace."""
    if command.assignments or not _HARMLESS_WRAPPERS.issuperset(command.wrappers):
        return False
    if not all(map(_is_safe_glob, command.globs)):
        return False
    paths = _find_read_paths(command)
    if paths is None or not is_inside(".", command.bases):
        return False
    return all(is_inside(path, command.bases) for path in (*paths, *command.globs) if path != "-")


def _is_safe_glob(word: str) -> bool:
    """Return True if it cannot become an option, and does not climb behind a folder that may be a link."""
    return word[0] not in "-*?[" and "/.." not in word


def _find_read_paths(command: SimpleCommand) -> list[str] | None:
    """Return every path that the command reads; None when it may do something else."""
    name, words = command.argv[0], command.argv[1:]
    if name in _SPECIAL_PROGRAMS:
        return _SPECIAL_PROGRAMS[name](words)
    table = READ_ONLY_PROGRAMS.get(name)
    # A wildcard may become several words, and one too many may be a file to write.
    if table is None or (command.globs and table.max_operands < UNLIMITED):
        return None
    return _find_paths_by_table(words, table)


def _find_paths_by_table(words: tuple[str, ...], table: ReadOnlyProgram) -> list[str] | None:
    read = _parse_options(words, table)
    if read is None or not _are_operands_allowed(read.operands, table):
        return None
    if table.operands == "paths":
        return [*read.operands, *read.paths]
    if table.operands == "pattern":
        given = not read.options.isdisjoint(table.gives_pattern)
        return [*read.operands[not given :], *read.paths]
    return read.paths


def _are_operands_allowed(operands: list[str], table: ReadOnlyProgram) -> bool:
    if len(operands) > table.max_operands:
        return False
    match table.operands:
        case "format":
            return all(word.startswith("+") for word in operands)
        case "names":
            return not any("/" in word for word in operands)
        case "none":
            return not operands
        case "paths" | "pattern" | "text":
            return True


def _parse_options(words: tuple[str, ...], table: ReadOnlyProgram) -> _ParsedWords | None:
    """Split the words into operands and options; None when an option is not in the table."""
    read = _ParsedWords([], [], set())
    waiting = list(reversed(words))
    while waiting:
        word = waiting.pop()
        if word == "--":
            read.operands.extend(reversed(waiting))
            return read
        if not word.startswith("-") or word == "-":
            read.operands.append(word)
        elif word.startswith("--"):
            if not _parse_long_option(word, waiting, table, read):
                return None
        elif not (table.numbers and _NUMBER.fullmatch(word)) and not _parse_short_options(word, waiting, table, read):
            return None
    return read


def _parse_long_option(word: str, waiting: list[str], table: ReadOnlyProgram, read: _ParsedWords) -> bool:
    name, equals, value = word.partition("=")
    read.options.add(name)
    if not equals and name in table.long:
        return True
    is_path = f"{name}=@" in table.long
    if not (is_path or f"{name}=" in table.long) or not (equals or waiting):
        return False
    _add_value(value if equals else waiting.pop(), is_path, read)
    return True


def _parse_short_options(word: str, waiting: list[str], table: ReadOnlyProgram, read: _ParsedWords) -> bool:
    for number, letter in enumerate(word[1:], start=2):
        read.options.add(letter)
        if letter in table.text or letter in table.path:
            value = word[number:] or (waiting.pop() if waiting else None)
            if value is None:
                return False
            _add_value(value, letter in table.path, read)
            return True
        if letter not in table.flags:
            return False
    return True


def _add_value(value: str, is_path: bool, read: _ParsedWords) -> None:
    """Add a value. One that could lead out counts as a path: another version of the program may not take it for a
    value.
    """
    if is_path or value.startswith(("/", "~")) or ".." in value:
        read.paths.append(value)


def _find_test_paths(words: tuple[str, ...]) -> list[str] | None:
    paths = [words[at + 1] for at, word in enumerate(words[:-1]) if word in _FILE_TESTS]
    for at, word in enumerate(words):
        if word in _FILE_COMPARISONS:
            paths += [*words[max(at - 1, 0) : at], *words[at + 1 : at + 2]]
    return [path for path in paths if path != "]"]


def _find_find_paths(words: tuple[str, ...]) -> list[str] | None:
    waiting = list(reversed(words))
    paths = list[str]()
    while waiting and waiting[-1] == "-P":
        waiting.pop()
    while waiting and not (waiting[-1].startswith("-") or waiting[-1] in _FIND_PREDICATES):
        paths.append(waiting.pop())
    while waiting:
        kind = _FIND_PREDICATES.get(waiting.pop())
        if kind is None or (kind != "none" and not waiting):
            return None
        value = waiting.pop() if kind != "none" else ""
        paths += [value] if kind == "path" else []
    return paths


def _find_sed_paths(words: tuple[str, ...]) -> list[str] | None:
    """Return the paths read by sed, only for `-n` with a script that prints: other commands may write or execute."""
    read = _parse_options(words, _SED)
    if read is None or read.options.isdisjoint(("n", "--quiet", "--silent")) or not read.operands:
        return None
    script, *paths = read.operands
    return paths if len(script) <= _MAX_SED_CHARS and _SED_SCRIPT.fullmatch(script) else None


_MAX_SED_CHARS = 1_000
_SED = ReadOnlyProgram(flags="nErsuz", long=frozenset(("--quiet", "--silent", "--regexp-extended", "--null-data")))

_SPECIAL_PROGRAMS: dict[str, Callable[[tuple[str, ...]], list[str] | None]] = {
    "echo": lambda words: [],
    "printf": lambda words: None if words[:1] and words[0].startswith("-") else [],
    "test": _find_test_paths,
    "[": _find_test_paths,
    "find": _find_find_paths,
    "sed": _find_sed_paths,
}
