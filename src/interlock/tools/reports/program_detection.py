"""Which program a command runs, from its words: `uv run python -m pytest -q` runs pytest.

Only words are looked at, nothing is run or read. A command that is not known for sure is not recognised, which costs
a report and nothing else.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

#: How many programs may stand before the one meant: `timeout 60 uv run coverage run -m pytest` has three.
_MAX_WRAPPERS = 6
_MAX_WORDS = 1_000
_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_TEST_SCRIPT = re.compile(r"test(?:[:_-].*)?|typecheck|type-check|tsc")
_TEST_TARGET = re.compile(r"tests?(?:[:_-].*)?|check|lint|typecheck|verify")
_HELP_OPTIONS = frozenset(("--help", "--version"))
#: Words with which a program only prints or creates something, and tests nothing.
_INFORMATIONAL_OPTIONS: Mapping[str, re.Pattern[str]] = {
    program: re.compile(words)
    for program, words in {
        "pytest": "-[qvxsl]*[hV]+|--co|--collect-?only|--fixtures(?:-per-test)?|--funcargs|--markers"
        "|--setup-(?:plan|only)|--cache-show(?:=.*)?",
        "unittest": "-h",
        "jest": "-[hv]|--listTests|--showConfig|--init|--clearCache",
        "vitest": "-[hv]|--clearCache",
        "node": "-[hvc]|--check",
        "tsc": "-[hv?]|--?(?:init|version|help|all|showConfig|listFilesOnly|clean|dry)",
        "mypy": "-[hV]",
        "ruff": "-[hV]|--show-files|--show-settings|--add-noqa(?:=.*)?",
        "go": "--?(?:c|n|h|help|list)(?:=.*)?",
        "cargo": "-[hV]|--no-run|--list|--build-plan",
        "make": "-[bBdeikLmprRsSw]*[nqthv].*|--just-print|--dry-run|--recon|--question|--touch",
        "npm": "-h|--listTests|--collect-only",
    }.items()
}
#: The same as a subcommand.
_INFORMATIONAL_SUBCOMMANDS = frozenset(
    (("vitest", "list"), ("vitest", "init"), ("nextest", "list"), ("nextest", "show-config"))
)

#: Programs that a word names whole. `unittest` is one only after `python -m`, but no program has that name.
_DIRECT_PROGRAMS: Mapping[str, str] = {
    "pytest": "pytest",
    "py.test": "pytest",
    "unittest": "unittest",
    "jest": "jest",
    "vitest": "vitest",
    "tsc": "tsc",
    "mypy": "mypy",
}
_MODULES = frozenset(("pytest", "unittest", "mypy", "ruff", "coverage"))
#: Programs that run the command in their words, with the subcommand that makes them do so.
_RUNNERS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("env", "timeout", "time", "nice", "nohup", "command", "stdbuf", "npx", "bunx"), ()),
    **dict.fromkeys(("uv", "poetry", "pdm", "hatch", "rye", "pipenv", "coverage"), ("run",)),
    **dict.fromkeys(("npm", "pnpm", "yarn"), ("exec", "x")),
}
#: `yarn jest` runs the project's script of that name, or else its program.
_SCRIPT_OR_PROGRAM_RUNNERS = frozenset(("yarn", "pnpm"))
_SUBCOMMANDS: Mapping[str, frozenset[str]] = {
    "go": frozenset(("test",)),
    "cargo": frozenset(("test", "t", "nextest", "build", "b", "check", "c", "clippy")),
    "ruff": frozenset(("check",)),
}
#: Options whose value is the next word.
_VALUED_OPTIONS: Mapping[str, frozenset[str]] = {
    name: frozenset(options.split())
    for name, options in {
        "env": "-u --unset -C --chdir",
        "timeout": "-s --signal -k --kill-after",
        "nice": "-n --adjustment",
        "stdbuf": "-i -o -e",
        "uv": "--with --with-requirements --with-editable --python -p --extra --group --only-group --no-group"
        " --package --project --directory --env-file --index --index-url",
        "poetry": "-C --directory -P --project",
        "pdm": "-p --project",
        "npx": "-p --package -w --workspace --prefix",
        "npm": "--prefix -C -w --workspace",
        "pnpm": "--dir -C --filter -F",
        "yarn": "--cwd",
        "go": "-C",
        "cargo": "--color --config -Z -C --manifest-path",
        "ruff": "--config",
        "make": "-C -f --directory --file --makefile -I -o -W",
        "python": "-X -W",
        "coverage": "--source --rcfile --include --omit --data-file --context",
    }.items()
}


def detect_program(argv: Sequence[str]) -> str | None:
    """Return the program that the words of a simple command run, as `read_report` knows it."""
    words = list(argv[:_MAX_WORDS])
    if not _HELP_OPTIONS.isdisjoint(words):
        return None
    for _ in range(_MAX_WRAPPERS):
        while words and _ASSIGNMENT.fullmatch(words[0]):
            words = words[1:]
        if not words:
            return None
        name = words[0].rpartition("/")[2]
        if (program := _match_program(name, words[1:])) is not None:
            return None if _is_informational(program, words) else program
        words = _find_inner_command(name, words[1:])
    return None


def _is_informational(program: str, words: list[str]) -> bool:
    """Return True if the program only prints information. Words after `-args` and values of options do not count."""
    if program == "go" and "-args" in words:
        words = words[: words.index("-args")]
    valued = _VALUED_OPTIONS.get(program, frozenset[str]())
    asked = (
        _INFORMATIONAL_OPTIONS[program].fullmatch(word) for before, word in pairwise(words) if before not in valued
    )
    return any(asked) or any(
        pair in _INFORMATIONAL_SUBCOMMANDS for pair in pairwise(word.rpartition("/")[2] for word in words)
    )


def _match_program(name: str, words: list[str]) -> str | None:
    if name in _DIRECT_PROGRAMS:
        return _DIRECT_PROGRAMS[name]
    if name == "node":
        return "node" if "--test" in words else None
    if name in ("make", "gmake"):
        return "make" if any(_TEST_TARGET.fullmatch(word) for word in _list_operands("make", words)) else None
    operands = _list_operands(name, words)
    if name in _SUBCOMMANDS:
        operands = [word for word in operands if not word.startswith("+")]
        return name if operands and operands[0] in _SUBCOMMANDS[name] else None
    return "npm" if name in ("npm", "pnpm", "yarn") and _is_test_script(name, operands) else None


def _is_test_script(name: str, operands: list[str]) -> bool:
    match operands:
        case ["run" | "run-script", script, *_]:
            return _TEST_SCRIPT.fullmatch(script) is not None
        case ["test" | "t" | "tst", *_]:
            return True
        case [script, *_]:
            is_script = script not in _DIRECT_PROGRAMS and _TEST_SCRIPT.fullmatch(script) is not None
            return name in _SCRIPT_OR_PROGRAM_RUNNERS and is_script
        case _:
            return False


def _find_inner_command(name: str, words: list[str]) -> list[str]:
    """Return the words of the command that this one runs; none if it is unknown."""
    if _PYTHON.fullmatch(name):
        return _find_module_command("python", words)
    if name not in _RUNNERS:
        return []
    words = _skip_options(name, words)
    if subcommands := _RUNNERS[name]:
        if not words or words[0] not in subcommands:
            return words if name in _SCRIPT_OR_PROGRAM_RUNNERS else []
        words = words[1:] if name == "coverage" else _skip_options(name, words[1:])
    if name == "coverage":
        return _find_module_command(name, words)
    return words[1:] if name == "timeout" else words


def _find_module_command(name: str, words: list[str]) -> list[str]:
    """Return the module that `-m` names, with its words. Only options may precede it."""
    while len(words) > 1 and words[0].startswith("-") and words[0] != "-c":
        if words[0] == "-m":
            return words[1:] if words[1] in _MODULES else []
        words = words[2 if words[0] in _VALUED_OPTIONS[name] else 1 :]
    return []


def _skip_options(name: str, words: list[str]) -> list[str]:
    at = 0
    while at < len(words) and words[at].startswith("-"):
        if words[at] == "--":
            return words[at + 1 :]
        at += 2 if words[at] in _VALUED_OPTIONS.get(name, frozenset()) else 1
    return words[at:]


def _list_operands(name: str, words: list[str]) -> list[str]:
    operands: list[str] = []
    while words := _skip_options(name, words):
        operands.append(words[0])
        words = words[1:]
    return operands
