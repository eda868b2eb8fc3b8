"""Checkers of edited files: the known ones, and commands that a setting names."""

import shlex
from collections.abc import Sequence
from os.path import basename
from typing import Literal, TypeAlias

import msgspec

from ...domain.errors import ConfigurationError
from ...rendering.text import describe_unknown

#: `off`, `auto`, or names of checkers and commands with `{file}` in them.
DiagnosticsSetting: TypeAlias = Literal["off", "auto"] | Sequence[str]

OFF, AUTO = "off", "auto"
FILE, CONFIG = "{file}", "{config}"


class Checker(msgspec.Struct, frozen=True, kw_only=True):
    """A program that reports problems of files, one in each line that starts with the path."""

    name: str
    #: Names of files that it can check.
    files: tuple[str, ...]
    #: The file and the configuration take the places of `{file}` and `{config}`.
    argv: tuple[str, ...]
    #: Files that configure it, in the folder of the file or above.
    configs: tuple[str, ...] = ()
    #: How its table begins in `pyproject.toml`.
    table: str = ""
    #: How it exits when it found problems.
    problem_codes: frozenset[int] = frozenset({1})


_CHECKERS = (
    Checker(
        name="ruff",
        files=("*.py", "*.pyi"),
        argv=(
            *("ruff", "check", "--quiet", "--no-fix", "--no-cache", "--force-exclude", "--output-format=concise"),
            FILE,
        ),
        configs=("ruff.toml", ".ruff.toml"),
        table="[tool.ruff",
    ),
    Checker(
        name="pyright",
        files=("*.py", "*.pyi"),
        argv=("pyright", FILE),
        configs=("pyrightconfig.json",),
        table="[tool.pyright",
    ),
    Checker(
        name="tsc",
        files=("*.ts", "*.tsx", "*.mts", "*.cts"),
        argv=("tsc", "--noEmit", "--pretty", "false", "--project", CONFIG),
        configs=("tsconfig.json",),
        problem_codes=frozenset({1, 2}),
    ),
)
CHECKERS = {checker.name: checker for checker in _CHECKERS}


def parse_checkers(setting: DiagnosticsSetting) -> tuple[Checker, ...]:
    """Return the checkers of a setting; none for `off`, all known ones for `auto`. Raise `ConfigurationError`."""
    names = (setting,) if isinstance(setting, str) else tuple(setting)
    match names:
        case () | ("off",):
            return ()
        case ("auto",):
            return _CHECKERS
        case _:
            return tuple(map(_parse_checker, names))


def _parse_checker(text: object) -> Checker:
    """Return a checker by name, or one that is a command: `*.js *.ts: eslint --format unix {file}`."""
    if not isinstance(text, str):
        raise ConfigurationError(f"diagnostics must be a list of texts, not of {type(text).__name__}.")
    if FILE not in text:
        if text not in CHECKERS:
            problem = describe_unknown("checker", text, (*CHECKERS, OFF, AUTO))
            raise ConfigurationError(f"{problem} A command needs {FILE} in it.")
        return CHECKERS[text]
    patterns, _, command = text.rpartition(": ")
    try:
        argv = tuple(shlex.split(command))
    except ValueError as error:
        raise ConfigurationError(f"diagnostics: the command {command[:200]!r} cannot be read: {error}.") from None
    if FILE not in command or argv[0] == FILE:
        raise ConfigurationError(f"diagnostics: {text[:200]!r} names no command: write `*.js: eslint {FILE}`.")
    return Checker(name=basename(argv[0]), files=tuple(patterns.split()) or ("*",), argv=argv)
