"""Programs that run code of the project which their words do not name.

For the well-known ones, the files that decide what runs are listed, so that an approval can be bound to them like to a
file that is named. Whatever they import, source or start in turn is not: `can_run_unnamed_code` says so.
"""

import re
from collections.abc import Iterator
from posixpath import basename, dirname, join
from typing import NamedTuple

from .command import SimpleCommand, make_word_set


class _Runner(NamedTuple):
    #: In the folder that it runs in, whether they exist or not: a new one may take the place of another.
    files: tuple[str, ...]
    #: Options whose value is another folder to run in.
    folder_options: tuple[str, ...] = ()
    #: Only with one of these words.
    verbs: frozenset[str] = frozenset()


_PACKAGE = ("package.json",)
_PYTEST = ("pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg", "conftest.py")
_COMPOSE = (
    *("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml"),
    *("compose.override.yaml", "compose.override.yml"),
    *("docker-compose.override.yaml", "docker-compose.override.yml"),
)
_GRADLE = ("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts")

#: By the name of the program.
RUNNERS: dict[str, _Runner] = {
    **dict.fromkeys(("make", "gmake"), _Runner(("GNUmakefile", "makefile", "Makefile"), ("-C", "--directory"))),
    "just": _Runner(("justfile", "Justfile", ".justfile"), ("-d", "--working-directory")),
    **dict.fromkeys(("npm", "npx"), _Runner(_PACKAGE, ("--prefix",))),
    "pnpm": _Runner(_PACKAGE, ("-C", "--dir")),
    **dict.fromkeys(("yarn", "bun", "bunx"), _Runner(_PACKAGE, ("--cwd",))),
    **dict.fromkeys(("pytest", "py.test"), _Runner(_PYTEST, ("--rootdir",))),
    "tox": _Runner(("tox.ini", "setup.cfg", "pyproject.toml", "tox.toml")),
    "nox": _Runner(("noxfile.py",)),
    "cargo": _Runner(("Cargo.toml", "build.rs", ".cargo/config.toml"), ("-C",)),
    **dict.fromkeys(("docker", "podman"), _Runner(_COMPOSE, ("--project-directory",), frozenset(("compose",)))),
    **dict.fromkeys(("docker-compose", "podman-compose"), _Runner(_COMPOSE, ("--project-directory",))),
    "pre-commit": _Runner((".pre-commit-config.yaml",)),
    "rake": _Runner(("rakefile", "Rakefile", "rakefile.rb", "Rakefile.rb")),
    **dict.fromkeys(("gradle", "gradlew"), _Runner(_GRADLE, ("-p", "--project-dir"))),
    **dict.fromkeys(("mvn", "mvnw"), _Runner(("pom.xml",))),
    "ant": _Runner(("build.xml",)),
    "task": _Runner(("Taskfile.yml", "taskfile.yml", "Taskfile.yaml", "taskfile.yaml"), ("-d", "--dir")),
}
#: They start another program, which may be one of the above: `uv run pytest`, `python -m tox`.
_STARTERS = make_word_set("uv uvx poetry pdm pipenv hatch rye bundle npx bunx pnpm yarn npm bun coverage")
_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*")
_SYSTEM_FOLDERS = frozenset(("", "/bin", "/usr/bin", "/sbin", "/usr/sbin"))
#: They do what their words say and start nothing else.
_SELF_CONTAINED_PROGRAMS = make_word_set(
    "[ : b2sum base32 base64 basename cat cd chgrp chmod chown cksum cmp comm cp curl cut date dd df diff dirname du "
    "echo egrep expr factor false fgrep file fold grep head hostname id join kill link ln ls md5sum mkdir mkfifo "
    "mktemp mv nl nproc od paste pgrep ping pkill printf ps pwd readlink realpath rg rm rmdir seq sha1sum sha256sum "
    "sha512sum shred sleep sort stat sum sync tac tail tee test touch tr tree true truncate type umask uname uniq "
    "unlink uptime wait wc wget which whoami yes"
)


def find_decisive_files(command: SimpleCommand) -> tuple[str, ...]:
    """Return the files that decide what a well-known runner does, relative to the folders it may run in."""
    found = dict[str, None]()
    for runner in _find_runners(command):
        for base in command.bases:
            for folder in ("", *_find_option_values(command.argv, runner.folder_options)):
                found.update((join(base, folder, file), None) for file in runner.files)
    return tuple(found)


def can_run_unnamed_code(command: SimpleCommand) -> bool:
    """Return whether the command may run code that none of its words names. True where unknown."""
    program = command.argv[0]
    is_plain = basename(program) in _SELF_CONTAINED_PROGRAMS and dirname(program) in _SYSTEM_FOLDERS
    return not is_plain or bool(command.assignments)


def _find_runners(command: SimpleCommand) -> Iterator[_Runner]:
    program, *words = command.argv
    name = basename(program)
    starts = name in _STARTERS or (_PYTHON.fullmatch(name) is not None and "-m" in words)
    # Which word is the program depends on options that are not known here: every one of them may be.
    for started in (name, *(basename(word).replace("_", "-") for word in words if starts)):
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
