"""Programs that a command starts though it is not one of the known wrappers: named in a variable, in the value of an
option, or in the text of a small language.

What is found here is added to what a command may run, so that rules that refuse or ask find it. Nothing is allowed by
it. A spelling that is not in these tables is still asked about when it contains a rule's words: see `is_mentioned_in`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice, pairwise
from posixpath import basename
from typing import TypeAlias

from .command import SimpleCommand
from .programs import TABLES, by_program

_MAX_TEXTS = 16
_MAX_TEXT_CHARS = 8_000
_MAX_CODE_CHARS = 2_000

_VARIABLE_PATTERNS = re.compile(
    r"GIT_CONFIG_VALUE_\d+|CARGO_TARGET_\w+_(?:RUNNER|LINKER)|\w*(?:_|MAN)(?:PAGER|EDITOR|SHELL)", re.ASCII
)

_VALUED_OPTIONS = by_program(TABLES.started_options)
_RUNNER_PREFIXES = by_program(TABLES.started_operands)
#: Settings that name a program: of `git -c` and `git config`, and of ssh's `-o`.
_GIT_SETTING = re.compile(
    r"(?i:core\.(?:pager|editor|sshcommand|fsmonitor|askpass|gitproxy|alternaterefscommand|hookspath)|sequence\.editor"
    r"|pager\..+|diff\.external|(?:diff|difftool|mergetool|merge|browser|man|guitool|trailer)\..+\."
    r"(?:command|cmd|textconv|driver|path)|filter\..+\.(?:clean|smudge|process)|credential\.(?:.+\.)?helper"
    r"|gpg\.(?:.+\.)?program|interactive\.difffilter|remote\..+\.(?:uploadpack|receivepack)|sendemail\..+cmd"
    r"|uploadpack\.packobjectshook|submodule\..+\.update|instaweb\.httpd|web\.browser)"
)
_GIT_ALIAS = re.compile(r"(?i:alias\..+)")
_SSH_SETTING = re.compile(r"(?i:(?:proxy|local|remote|knownhosts)command|(?:proxyuse|)askpass)")
_SSH_PROGRAMS = frozenset(("ssh", "scp", "sftp"))
_SETTING = re.compile(r"(?P<name>[\w.\-/:*]+)(?:=|\s+)(?P<value>.*)", re.DOTALL)
#: What stands before a command in a value: `exec=`, `!`, `|`, `:silent !`, `r !`.
_COMMAND_LEAD = re.compile(r"(?::?\s*(?:silent!?|r|w|read|write|%)?\s*)?[!|]+\s*|exec=|:+", re.ASCII)

#: A text in double quotes, without its quotes.
_TEXT = r'"([^"\\]*(?:\\.[^"\\]*)*)"'
#: A small language, and what in its text is handed to a shell. Compiled when first used.
_CODE: Mapping[str, str] = {
    "awk gawk mawk nawk": rf"system\s*\(\s*{_TEXT}|\|&?\s*{_TEXT}|{_TEXT}(?=\s*\|)",
    "sed gsed": r"(?:^|[;{\n\d$/!])\s{0,8}e\s+([^;\n}]+)",
    "vim vi nvim view ex gvim vimdiff rvim": r"""!\s*([^|\n]+)|system\s*\(\s*["']([^"']*)["']""",
    "less more most man": r"^\+\+?\s*[!|:]+\s*(.+)",
    "emacs emacsclient": r'(?:shell-command|call-process|start-process)\S*\s+"((?:[^"\\]|\\.)*)"',
    "sqlite3": r"\.(?:shell|system)\s+(.+)",
    "psql mysql mariadb": r"\\!\s*(.+)",
    "lftp ftp": r"!\s*(.+)",
    "gdb lldb": r"^(?:!|shell\s|platform shell\s|make\s)\s*(.+)",
    "fzf sk": r"(?:execute|become|reload|preview)(?:-\w+)?[(\[{~:](.+?)[)\]}~]?$",
    "socat": r"(?i:(?:EXEC|SYSTEM|SHELL):(?:\"|')?([^,\"']+))",
    "python python3 python2": r"""(?:system|popen|run|call|check_\w+|Popen)\s*\(\s*f?["']([^"']*)["']""",
    "perl ruby php lua luajit node deno bun": (
        r"""(?:system|exec|popen|execute|passthru|shell_exec|execSync|spawn)\s*\(?\s*["']([^"']*)["']"""
    ),
    "pdflatex latex xelatex lualatex tex": r"\\write18\s*\{([^}]*)\}",
    "expect": r"(?:spawn|exec|system)\s+([^;\n]+)",
}
_SED = frozenset(("sed", "gsed"))
_SUBSTITUTION = re.compile(r"(?:^|[;{\n\d$/])s(\W)")
_RUNS_RESULT = re.compile(r"\w{0,8}e", re.ASCII)
_CODE_BY_PROGRAM = by_program(_CODE)

_TextFinder: TypeAlias = Callable[[SimpleCommand], Iterable[str]]


def find_started_texts(command: SimpleCommand) -> tuple[str, ...]:
    """Return texts that the command may hand to a shell or start as a program, besides what it is itself."""
    found = dict[str, None]()
    for find in _FINDERS:
        for text in find(command):
            stripped = (
                _COMMAND_LEAD.sub("", text.strip(), count=1) if _COMMAND_LEAD.match(text.strip()) else text.strip()
            )
            if stripped and len(stripped) <= _MAX_TEXT_CHARS:
                found[stripped] = None
            if len(found) >= _MAX_TEXTS:
                return tuple(found)
    return tuple(found)


def is_program_variable(name: str) -> bool:
    """Return True if programs start the value of this variable."""
    return name in TABLES.started_variables or _VARIABLE_PATTERNS.fullmatch(name) is not None


def _find_in_variables(command: SimpleCommand) -> Iterator[str]:
    """Set for this command alone, or by it: `PAGER=x git log`, `make SHELL=x`, `export PAGER=x`."""
    words = (word.partition("=") for word in command.argv)
    for name, value in (*command.assignments, *((name, value) for name, _, value in words)):
        if is_program_variable(name.removesuffix("+")):
            yield value


def _find_in_options(command: SimpleCommand) -> Iterator[str]:
    options = _VALUED_OPTIONS.get(basename(command.argv[0]))
    if options is None:
        return
    words = command.argv
    for at, word in enumerate(words[1:], start=1):
        following = words[at + 1] if at + 1 < len(words) else ""
        name, equals, value = word.lstrip("-").partition("=")
        if word.startswith("-") and name in options:
            yield value if equals else following
        elif word.startswith("-") and not word.startswith("--"):
            places = (place for place in range(1, min(len(word), 6)) if word[place] in options)
            yield from (word[place + 1 :].lstrip("=") for place in places)


def _find_in_settings(command: SimpleCommand) -> Iterator[str]:
    program, words = basename(command.argv[0]), command.argv[1:]
    if program == "git":
        pairs = [*words, *(f"{name}={value}" for name, value in pairwise(words))]
    elif program in _SSH_PROGRAMS:
        pairs = [word.removeprefix("-o").strip() for word in words]
    else:
        return
    for pair in pairs:
        setting = _SETTING.fullmatch(pair)
        if setting is None:
            continue
        name, value = setting["name"], setting["value"]
        if (_GIT_SETTING if program == "git" else _SSH_SETTING).fullmatch(name):
            yield value
        elif program == "git" and _GIT_ALIAS.fullmatch(name):
            yield value if value.startswith("!") else f"git {value}"


def _find_in_operands(command: SimpleCommand) -> Iterator[str]:
    words = command.argv[1:]
    for start in _RUNNER_PREFIXES.get(basename(command.argv[0]), ()):
        lead = tuple(start.split())
        plain = tuple(word for word in words if not word.startswith("-") or word in lead)
        if words[: len(lead)] == lead and len(words) > len(lead):
            yield " ".join(words[len(lead) :])
        elif plain[: len(lead)] == lead and len(plain) > len(lead):
            yield " ".join(plain[len(lead) :])


def _find_in_code(command: SimpleCommand) -> Iterator[str]:
    pattern = _CODE_BY_PROGRAM.get(basename(command.argv[0]))
    if pattern is None:
        return
    for word in command.argv[1:]:
        if len(word) <= _MAX_CODE_CHARS:
            for match in re.finditer(pattern, word):
                yield from (part for part in match.groups() if part and len(part) > 1)


def _find_in_substitution(command: SimpleCommand) -> Iterator[str]:
    """Find commands run by sed: `s/x/rm y/e` executes its result."""
    if basename(command.argv[0]) not in _SED:
        return
    for word in command.argv[1:]:
        starts = _SUBSTITUTION.finditer(word) if len(word) <= _MAX_CODE_CHARS else ()
        for start in islice(starts, _MAX_TEXTS):
            _, *parts = word[start.end() :].split(start[1], 2)
            if len(parts) > 1 and _RUNS_RESULT.match(parts[1]):
                yield parts[0]


_FINDERS: tuple[_TextFinder, ...] = (
    _find_in_variables,
    _find_in_options,
    _find_in_settings,
    _find_in_operands,
    _find_in_code,
    _find_in_substitution,
)
