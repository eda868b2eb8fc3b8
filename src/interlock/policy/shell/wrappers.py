"""Programs that run another program, and builtins of the shell that run their arguments.

`unwrap_command` finds the program that really runs. An option that is not in the table makes the command opaque; then
every place where the inner program may start is listed, so that a rule that refuses it still finds it.
"""

import re
from collections.abc import Callable, Sequence
from itertools import takewhile
from posixpath import basename
from typing import TypeAlias

import msgspec

from .command import Redirect, Script, SimpleCommand, make_word_set
from .hidden_programs import find_started_texts
from .programs import TABLES, Wrapper, by_program

#: Words that are no programs where a command starts.
RESERVED_WORDS = make_word_set(
    "! { } [[ ]] if then else elif fi for while until do done case esac select function coproc in"
)

#: Why they are never read any further.
_BUILTIN_REASONS = {name: reason for reason, names in TABLES.builtin_reasons.items() for name in names}
_ARITHMETIC_TESTS = frozenset(("-eq", "-ne", "-lt", "-le", "-gt", "-ge"))
_VARIABLE_TESTS = frozenset(("-v", "-R"))
_INTEGER = re.compile(r"[+-]?\d{1,18}", re.ASCII)


def explain_builtin(command: SimpleCommand) -> str:
    """Return why this command must not be taken literally; empty when it may."""
    name, operands = command.argv[0], command.argv[1:]
    if name in RESERVED_WORDS:
        return "it has control flow or another compound command"
    if name in _BUILTIN_REASONS:
        return _BUILTIN_REASONS[name]
    if name == "printf" and operands[:1] and operands[0].startswith("-v"):
        return "printf -v evaluates a name"
    if name in ("test", "[") and not _is_plain_test(operands):
        return "a test evaluates one of its words"
    return ""


def _is_plain_test(operands: tuple[str, ...]) -> bool:
    if not _VARIABLE_TESTS.isdisjoint(operands):
        return False
    compared = [at for at, word in enumerate(operands) if word in _ARITHMETIC_TESTS]
    return all(
        _INTEGER.fullmatch(word)
        for at in compared
        for word in (*operands[max(at - 1, 0) : at], *operands[at + 1 : at + 2])
    )


#: Reads a script that runs inside another one, in the given folders.
NestedParser: TypeAlias = Callable[[str, tuple[str, ...]], Script]

_MAX_LAYERS = 16
_MAX_GUESSES = 32
_MAX_GUESSED_WORDS = 8_000
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=", re.ASCII)
_NUMBER = re.compile(r"-\d+")
#: A word with one of these may be a script; an option may stand before it, as in `-S"rm x"`.
_SCRIPT = re.compile(r"[ \t\n;|&]")
_OPTION = re.compile(r"^(?:--[\w-]*=|-\w)")
#: And so may the name of a setting: `-oProxyCommand=rm x`, `core.pager=rm x`.
_SETTING = re.compile(r"^(?:--?)?[A-Za-z][\w.-]*=")


_WRAPPERS = by_program(TABLES.wrappers)
#: Their `-c` is read again with the rules of bash, which hold for them in everything that is read at all.
_BASH_COMPATIBLE_SHELLS = frozenset(("bash", "sh", "dash"))
_SHELL_FLAGS = frozenset("ceul")
_FIND_EXEC_OPTIONS = frozenset(("-exec", "-execdir", "-ok", "-okdir"))


def unwrap_command(command: SimpleCommand, nested: NestedParser) -> Script:
    """Return what this command really runs. `opaque` says why that is unknown; then the commands are guesses."""
    for _ in range(_MAX_LAYERS):
        wrapper = _WRAPPERS.get(basename(command.argv[0]))
        if wrapper is None or (command.argv[0] == "command" and command.argv[1:2] in (("-v",), ("-V",))):
            break
        inner = _find_inner_command(command, wrapper)
        if inner is None:
            break
        command = inner
    return _add_hidden(_resolve_unwrapped(command, nested), command, nested)


def _resolve_unwrapped(command: SimpleCommand, nested: NestedParser) -> Script:
    """Return what a command runs that has no wrapper, or one that cannot be read."""
    name = basename(command.argv[0])
    if name in TABLES.opaque_runners:
        return _guess_inner_commands(command, f"what {name} runs is not followed", nested)
    if name in TABLES.shells:
        return _unwrap_shell(command, name, nested)
    if name == "find":
        return _unwrap_find(command, nested)
    wrapper = _WRAPPERS.get(name)
    if wrapper is None or (name == "command" and command.argv[1:2] in (("-v",), ("-V",))):
        return _check_builtin(command, nested)
    if _find_inner_command(command, wrapper) is None:
        return _guess_inner_commands(command, f"what {name} runs is not known from its arguments", nested)
    return _guess_inner_commands(command, "it has too many wrappers", nested)


def _add_hidden(script: Script, command: SimpleCommand, nested: NestedParser) -> Script:
    """Add what the command starts by a variable, an option or a small language: for rules that refuse or ask."""
    texts = find_started_texts(command)
    if not texts:
        return script
    inner = (found for text in texts for found in _add_wrapper(command, nested(text, command.bases)))
    hidden = (msgspec.structs.replace(found, hidden=True) for found in inner)
    return msgspec.structs.replace(script, commands=(*script.commands, *hidden))


def _find_inner_command(command: SimpleCommand, wrapper: Wrapper) -> SimpleCommand | None:
    at = _skip_options(command.argv, wrapper)
    if at is None:
        return None
    words, assignments = list(command.argv[at:]), list(command.assignments)
    while wrapper.sets and words and _ASSIGNMENT.match(words[0]):
        name, _, value = words.pop(0).partition("=")
        assignments.append((name, value))
    del words[: wrapper.operands]
    if not words or words[0].startswith("-") or words[0] in command.globs:
        return None
    return _make_inner_command(command, words, tuple(assignments))


def _skip_options(words: Sequence[str], wrapper: Wrapper) -> int | None:
    """Return where the words after the options begin; None when an option is not known."""
    at = 1
    while at < len(words) and words[at].startswith("-"):
        word = words[at]
        at += 1
        if word == "--":
            return at
        if word.startswith("--"):
            name, equals, _ = word.partition("=")
            if name + equals not in wrapper.long:
                return None
        elif not (wrapper.numbers and _NUMBER.fullmatch(word)):
            taken = _count_option_values(word, wrapper.flags, wrapper.valued)
            if taken is None:
                return None
            at += taken
    return at


def _count_option_values(word: str, flags: str, valued: str) -> int | None:
    """Return how many further words the options of `-abc` take; None when one of them is not known."""
    for number, letter in enumerate(word[1:], start=2):
        if letter in valued:
            return int(number == len(word))
        if letter not in flags:
            return None
    return 0 if len(word) > 1 else None


def _make_inner_command(
    command: SimpleCommand, words: Sequence[str], assignments: tuple[tuple[str, str], ...] | None = None
) -> SimpleCommand:
    kept = frozenset(words) if command.globs else frozenset[str]()
    return SimpleCommand(
        argv=tuple(words),
        wrappers=(*command.wrappers, command.argv[0]),
        assignments=command.assignments if assignments is None else assignments,
        bases=command.bases,
        globs=tuple([word for word in command.globs if word in kept]) if command.globs else (),
    )


def _unwrap_shell(command: SimpleCommand, name: str, nested: NestedParser) -> Script:
    words, at = command.argv, 1
    runs_text = False
    while at < len(words) and words[at].startswith(("-", "+")) and words[at] not in ("-", "--"):
        option = words[at]
        at += 1
        if option == "-o" and words[at : at + 1] == ("pipefail",):
            at += 1
        elif option[0] == "-" and option[1:] and set(option[1:]) <= _SHELL_FLAGS:
            runs_text = runs_text or "c" in option
        else:
            return _guess_inner_commands(command, f"{name} has options that are not read", nested)
    if not runs_text:
        # A file that is run as a script is a command like any other.
        reads = at >= len(words) or words[at].startswith("-")
        return Script(commands=(command,), opaque=f"{name} runs what it reads" if reads else "")
    return _unwrap_script(command, name, words[at:], nested)


def _unwrap_script(command: SimpleCommand, name: str, words: Sequence[str], nested: NestedParser) -> Script:
    if not words or words[0].startswith("-") or words[0] in command.globs:
        return _guess_inner_commands(command, f"{name} has no literal script", nested)
    inner = nested(words[0], command.bases)
    opaque = inner.opaque
    if name not in _BASH_COMPATIBLE_SHELLS:
        opaque = opaque or f"the words of {name} may mean something else than those of bash"
    elif name != "bash" and "$'" in words[0]:
        opaque = opaque or f"{name} may read a quoted escape in another way than bash"
    return Script(commands=_add_wrapper(command, inner), redirects=inner.redirects, opaque=opaque)


def _add_wrapper(command: SimpleCommand, inner: Script) -> tuple[SimpleCommand, ...]:
    return tuple(
        [
            msgspec.structs.replace(
                found,
                wrappers=(*command.wrappers, command.argv[0], *found.wrappers),
                assignments=(*command.assignments, *found.assignments),
            )
            for found in inner.commands
        ]
    )


def _unwrap_find(command: SimpleCommand, nested: NestedParser) -> Script:
    words = command.argv
    starts = [at for at, word in enumerate(words) if word in _FIND_EXEC_OPTIONS]
    if not starts:
        return Script(commands=(command,))
    found, redirects = [command], list[Redirect]()
    for at, until in zip(starts, (*starts[1:], len(words)), strict=True):
        part = tuple(takewhile(lambda word: word != ";", words[at + 1 : until]))
        if part:
            inner = _guess_inner_commands(_make_inner_command(command, part), "", nested)
            found += inner.commands
            redirects += inner.redirects
    reason = "what find runs gets names from the file system"
    return Script(commands=tuple(found), redirects=tuple(redirects), opaque=reason)


def _check_builtin(command: SimpleCommand, nested: NestedParser) -> Script:
    name = command.argv[0]
    if _ASSIGNMENT.match(name):
        return Script(commands=(command,), opaque="it sets a variable")
    reason = explain_builtin(command)
    if not reason:
        return Script(commands=(command,))
    if name == "eval":
        inner = nested(" ".join(command.argv[1:]), command.bases)
        return Script(commands=(command, *_add_wrapper(command, inner)), redirects=inner.redirects, opaque=reason)
    return _guess_inner_commands(command, reason, nested)


def _guess_inner_commands(command: SimpleCommand, reason: str, nested: NestedParser) -> Script:
    """Return the command, and what each of its words might start: as a program, or as a script if it has blanks."""
    found, redirects = [command], list[Redirect]()
    places = [at for at, word in enumerate(command.argv) if at and (not word.startswith("-") or _SCRIPT.search(word))]
    # Those at the start carry nearly all words each.
    first = min(max(_MAX_GUESSED_WORDS // len(command.argv), _MAX_GUESSES // 8), _MAX_GUESSES // 2)
    for at in (*places[:first], *places[first:][-_MAX_GUESSES // 2 :]):
        word = command.argv[at]
        if not _SCRIPT.search(word):
            found.append(_make_inner_command(command, command.argv[at:]))
            continue
        for text in dict.fromkeys((_OPTION.sub("", word), _SETTING.sub("", word))):
            inner = nested(text, command.bases)
            found += _add_wrapper(command, inner)
            redirects += inner.redirects
    return Script(commands=tuple(found), redirects=tuple(redirects), opaque=reason)
