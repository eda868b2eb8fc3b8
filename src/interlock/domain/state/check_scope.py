"""The scope of a test or check command, read from its words: the goal, and what narrows it.

`uv run pytest -q tests/test_shop.py -k total` has the goal `pytest`, names one file and has one filter. Nothing is run,
and a word that is not understood narrows: two commands are then taken for different, which costs a second run at most.
"""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from ... import lazy_module, lazy_pattern

if TYPE_CHECKING:
    import shlex
else:
    shlex = lazy_module("shlex")

_MAX_CHARS = 2_000
_MAX_WORDS = 64
_MAX_WORD_CHARS = 200
#: Programs that do many things: the next word says which.
_WITH_SUBCOMMAND = frozenset(("npm", "make", "cargo", "go", "ruff"))
#: The words by which a program is called where they are others than its name.
_PROGRAM_ALIASES: Mapping[str, frozenset[str]] = {
    "npm": frozenset(("npm", "pnpm", "yarn")),
    "make": frozenset(("make", "gmake")),
    "pytest": frozenset(("pytest", "py.test")),
}
#: Arguments that mean everything.
_EVERYTHING = frozenset((".", "..."))
#: Options whose next word is a value that narrows nothing.
_VALUE_OPTIONS = lazy_pattern(
    "-[poncjrCW]|--tb|--color|--durations|--maxfail|--timeout|--cov(?:-report|-config)?|--junitxml|--rootdir|--config"
    "|--config-file|--numprocesses|--dist|--directory|--prefix|--project|--manifest-path"
)
#: Options that leave tests out: by a value, and without one.
_FILTER_OPTIONS = lazy_pattern(
    "-[kmtg]|--?run|--?skip|--grep|--testNamePattern|--deselect|--ignore(?:-glob)?|--(?:extend-)?exclude|--select"
    "|--filter|--test|--package|--bin|--example"
)
_FILTER_FLAGS = lazy_pattern(
    "--lf|--last-failed|--sw|--stepwise|--nf|--lib|--bins|--doc|--changed|--onlyChanged|--onlyFailures|--exit-zero|-short"
)
#: Options that stop at the first failure: what is counted then is not all.
_FAIL_FAST_OPTIONS = lazy_pattern(
    r"-[a-zA-Z]{0,8}x[a-zA-Z]{0,8}|--exitfirst|--maxfail(?:=.*)?|--bail(?:=.*)?|--?failfast|--fail-fast"
)
_SHELL_OPERATORS = frozenset("();<>|&")


class CheckScope(msgspec.Struct, frozen=True, omit_defaults=True):
    """The scope of a check: its goal, its folder, and what it leaves out."""

    goal: str
    #: A digest of all of the command; empty where there is none.
    command: str = ""
    #: The folder it ran in; empty: unknown.
    folder: str = ""
    paths: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()
    #: True when it stops at the first failure.
    stops: bool = False

    def has_same_goal(self, other: "CheckScope") -> bool:
        """Return True if both check the same thing in the same folder, as far as it is known."""
        return self.goal == other.goal and (self.folder == other.folder or not self.folder or not other.folder)

    def is_as_wide_as(self, other: "CheckScope", *, counts_as_many: bool) -> bool:
        """Return True if this scope leaves nothing out that the other covers. `counts_as_many`: it is known to have
        counted at least as many tests.
        """
        if not set(self.filters) <= set(other.filters):
            return False
        if not self.paths:
            return True
        if not other.paths:
            return counts_as_many
        return all(any(_is_within(path, wider) for wider in self.paths) for path in other.paths)


def read_scope(program: str, command: str, folder: str) -> CheckScope:
    """Read from a command what a check covers: goal, folder, paths and filters."""
    digest = sha256(command.encode(errors="surrogatepass")).hexdigest()[:16]
    words = _split_words(command)
    if words is None:
        return CheckScope(program, digest, folder, paths=(digest,))
    arguments = _find_arguments(program, words)
    operands: list[str] = []
    filters: list[str] = []
    for kind, word in _classify_words(arguments):
        (filters if kind == "filter" else operands).append(word)
    goal = program
    if program in _WITH_SUBCOMMAND and operands:
        named = 2 if operands[0] == "run" else 1
        goal, operands = " ".join((program, *operands[:named])), operands[named:]
    paths = tuple(
        path for path in map(_normalize_path, operands) if path and path not in _EVERYTHING and not path.isdecimal()
    )
    return CheckScope(goal, digest, folder, paths, tuple(filters), any(map(_FAIL_FAST_OPTIONS.fullmatch, arguments)))


def _split_words(command: str) -> list[str] | None:
    """Split a command into words. Return None when it is too long or cannot be parsed."""
    if len(command) > _MAX_CHARS:
        return None
    lexer = shlex.shlex(command.replace("\n", " ; "), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        words = list(lexer)
    except ValueError:
        return None
    return words if len(words) <= _MAX_WORDS else None


def _find_arguments(program: str, words: Sequence[str]) -> list[str]:
    """Return the words after the program, up to the end of its simple command; all words where it is not named."""
    names = _PROGRAM_ALIASES.get(program, frozenset((program,)))
    at = next((at for at, word in enumerate(words) if word.rpartition("/")[2] in names), -1)
    arguments: list[str] = []
    for word in words[at + 1 :]:
        if word and _SHELL_OPERATORS.issuperset(word):
            # `2>&1` is split into three words.
            return arguments[:-1] if word[0] in "<>" and arguments and arguments[-1].isdecimal() else arguments
        arguments.append(word[:_MAX_WORD_CHARS])
    return arguments


def _classify_words(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    words = iter(arguments)
    for word in words:
        name, joined, value = word.partition("=")
        if not word.startswith("-"):
            yield "operand", word
        elif _FILTER_FLAGS.fullmatch(name):
            yield "filter", name
        elif _FILTER_OPTIONS.fullmatch(name):
            yield "filter", f"{name} {value if joined else next(words, '')}"
        elif not joined and _VALUE_OPTIONS.fullmatch(name):
            next(words, "")


def _normalize_path(path: str) -> str:
    """Normalize a path: `./tests/` and `tests` are the same, and so are `./...` and `.`."""
    while path.startswith("./"):
        path = path[2:]
    return path.rstrip("/")


def _is_within(path: str, wider: str) -> bool:
    """Return True if a path is within another: `tests/test_a.py::test_x[1]` is within `tests/test_a.py` and `tests`."""
    if path == wider:
        return True
    if wider.endswith("/..."):
        wider = wider[:-4]
    return path.startswith(wider) and path[len(wider) :].startswith(("/", "::", "["))
