"""Facts about a command, from tables, for the person who is asked and for what an approval is bound to.

Risks: no entry does not mean no risk. Decisive files: what a well-known runner does is decided by files that its words
do not name, so an approval can be bound to them like to a file that is named. Whatever these import, source or start in
turn is not: `can_run_unnamed_code` says so.
"""

import re
from collections.abc import Iterator
from itertools import product, takewhile
from posixpath import basename, dirname, join

from .command import SimpleCommand, make_word_set
from .command_match import matches_widely
from .programs import READ_ONLY_PROGRAMS, TABLES, Runner, by_program

RUNS_ANY_CODE = "runs any code"
USES_NETWORK = "uses the network"
_OTHER_USER = "runs as another user"
_COVERAGE = "may write a coverage directory"
#: By an option, also behind `--`, where it is meant for what the program starts.
_OPTION_RISKS = {"--coverage": _COVERAGE, "--cov": _COVERAGE}
_PROGRAM_RISKS = {program: each.risks for each in TABLES.program_risks for program in each.programs}
_COMMAND_RISKS: dict[str, list[tuple[tuple[str, ...], tuple[str, ...]]]] = {}
for _commands, _risks in TABLES.command_risks.items():
    for _words in product(*(word.split("|") for word in _commands.split())):
        _COMMAND_RISKS.setdefault(_words[0], []).append((_words, _risks))

_COMMAND_KINDS: dict[str, list[tuple[str, ...]]] = {}
for _commands in TABLES.command_kinds:
    for _words in product(*(word.split("|") for word in _commands.split())):
        _COMMAND_KINDS.setdefault(_words[0], []).append(_words)

RUNNERS = by_program(TABLES.runners)
#: Runners whose plain words are no files.
_SCRIPT_RUNNERS = make_word_set(
    "npm pnpm yarn bun make gmake just task rake cargo gradle gradlew mvn mvnw ant go hatch pdm poe inv invoke composer"
    " mix turbo nx"
)
_TARGET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9:_-]*")
_SCRIPT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9:._-]*")
#: So many words are looked at for folders.
_MAX_OPERANDS = 20
#: `-m`, or the last of several options in one word; the module may follow at once.
_MODULE_OPTION = re.compile(r"-[A-Za-z]*?m(.*)")
_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*")
_SYSTEM_FOLDERS = frozenset(("", "/bin", "/usr/bin", "/sbin", "/usr/sbin"))


def describe_risks(command: SimpleCommand) -> tuple[str, ...]:
    """Return concrete risks of this command, most general first, each once."""
    program = basename(command.argv[0])
    risks = [_OTHER_USER for wrapper in command.wrappers if _PROGRAM_RISKS.get(basename(wrapper)) == (_OTHER_USER,)]
    risks += _PROGRAM_RISKS.get(program, ())
    for words, said in _COMMAND_RISKS.get(program, ()):
        if matches_widely(words, False, command):
            risks += said
    if program not in READ_ONLY_PROGRAMS:
        options = (word.partition("=")[0] for word in command.argv)
        risks += [_OPTION_RISKS[option] for option in options if option in _OPTION_RISKS]
    return tuple(dict.fromkeys(risks))


def find_command_kind(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return the leading words of all commands of the same kind: `pytest` of `pytest -q x`; empty where only exactly
    the same command is of its kind. What runs other programs or any code has no kind, but `python -m pytest` has.
    """
    for words in _COMMAND_KINDS.get(argv[0], ()):
        found = argv[: len(words)]
        if len(found) == len(words) and all(
            want == word or (want == "*" and _SCRIPT_NAME.fullmatch(word))
            for want, word in zip(words, found, strict=True)
        ):
            return found
    return ()


def find_uncontained_risk(command: SimpleCommand, has_egress: bool = False) -> str:
    """Return the first risk of this command that a sandbox without a network does not remove; empty: none is known.
    `has_egress`: a proxy decides which hosts it reaches.
    """
    risks = (risk for risk in describe_risks(command) if not (has_egress and risk == USES_NETWORK))
    return next((risk for risk in risks if risk == USES_NETWORK or risk in TABLES.losses), "")


def find_decisive_files(command: SimpleCommand) -> tuple[str, ...]:
    """Return the files that decide what a well-known runner does, relative to the folders it may run in."""
    found = dict[str, None]()
    for runner in _find_runners(command):
        folders = tuple(_find_option_values(command.argv, runner.folder_options))
        # Files that are named are bound anyway, but from the folder on that the command starts in.
        named = tuple(_find_option_values(command.argv, runner.file_options))
        decisive = [
            *runner.files,
            *(join(folder, file) for folder in folders for file in (*runner.files, *named)),
            *(join(folder, file) for folder in _find_operand_folders(command) for file in runner.operand_files),
        ]
        found.update((join(base, file), None) for base in command.bases for file in decisive)
    return tuple(found)


def _find_operand_folders(command: SimpleCommand) -> Iterator[str]:
    """Yield the folders of the operands that look like paths, with those above them: `a/b`, `a` of `a/b/test_x.py`."""
    for word in command.argv[1 : _MAX_OPERANDS + 1]:
        path = word.partition("::")[0].rstrip("/")
        folder = dirname(path) if path.endswith(".py") else path
        while not word.startswith("-") and folder not in ("", "/", ".", ".."):
            yield folder
            folder = dirname(folder)


def find_script_names(command: SimpleCommand) -> frozenset[str]:
    """Return the words of a runner that name a script, a target or a subcommand and no file: `test` of `npm test`.

    Only those before its first option, which may take the next word.
    """
    if basename(command.argv[0]) not in _SCRIPT_RUNNERS:
        return frozenset()
    words = takewhile(lambda word: not word.startswith("-"), command.argv[1:])
    return frozenset(name for word in words if _TARGET_NAME.fullmatch(word) for name in (word, *word.split(":")))


def can_run_unnamed_code(command: SimpleCommand) -> bool:
    """Return whether the command may run code that none of its words names. True where unknown."""
    program = command.argv[0]
    is_plain = basename(program) in TABLES.self_contained and dirname(program) in _SYSTEM_FOLDERS
    return not is_plain or bool(command.assignments)


def _find_runners(command: SimpleCommand) -> Iterator[Runner]:
    program, *words = command.argv
    name = basename(program)
    modules = (
        [found[1] for word in words if (found := _MODULE_OPTION.fullmatch(word))] if _PYTHON.fullmatch(name) else []
    )
    # Which word is the program depends on options that are not known here: every one of them may be.
    named = (*words, *modules) if modules or name in TABLES.starters else ()
    for started in (name, *(basename(word).replace("_", "-") for word in named)):
        runner = RUNNERS.get(started)
        if runner is not None and (not runner.verbs or not runner.verbs.isdisjoint(words)):
            yield runner


def _find_option_values(words: tuple[str, ...], options: tuple[str, ...]) -> Iterator[str]:
    """Yield the values of these options: `-C x`, `-Cx`, `--dir x`, `--dir=x`."""
    for at, word in enumerate(words):
        for option in options:
            if word == option:
                yield from words[at + 1 : at + 2]
            elif option.startswith("--") and word.startswith(f"{option}="):
                yield word.removeprefix(f"{option}=")
            elif not option.startswith("--") and word.startswith(option):
                yield word.removeprefix(option)
