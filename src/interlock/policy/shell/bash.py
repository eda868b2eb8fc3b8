"""Shell scripts as the commands they would execute: simple commands of literal words, or a reason why that is
unknown.

Two readers must agree. `bash_reader` proves a script token by token and stops at what it does not know. `bash_tree`
asks another parser about the same bytes: an error, a construct that is not on its list or a program at another place
makes the script opaque.

Of an opaque script everything that looks like a command is listed, wide and without any proof: a rule that refuses
must find it, a rule that allows is not asked.
"""

import re
from collections.abc import Sequence
from itertools import dropwhile

from . import bash_reader
from .bash_reader import MAX_FOLDERS, MAX_NESTING
from .command import Redirect, Script, SimpleCommand
from .wrappers import RESERVED_WORDS, NestedParser, unwrap_command

try:
    from . import bash_tree
except ImportError:
    bash_tree = None

MAX_SCRIPT_BYTES = 64 * 1024
#: For all scripts inside a script together: `eval eval eval ...` repeats its text at every layer.
_MAX_NESTED_BYTES = 4 * MAX_SCRIPT_BYTES
#: For all texts that are looked at with the parser though they are not proved. It may need the square of their length.
_MAX_UNPROVED_BYTES = 4 * 1024
_TOO_LONG = f"it is longer than {MAX_SCRIPT_BYTES} bytes"
_TOO_DEEP = f"it is nested more than {MAX_NESTING} deep"
_CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")
_SEPARATORS = re.compile(r"[;&|\n(){}`]|\$\(")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=", re.ASCII)
_WILDCARD = re.compile(r"[*?\[]")
_QUOTES = str.maketrans("", "", "'\"\\")


def parse_script(text: str) -> Script:
    """Parse a script as bash would run it."""
    if len(text) > MAX_SCRIPT_BYTES:
        return Script(commands=_guess_commands(text, ("",)), opaque=_TOO_LONG)
    return _ScriptParser().parse(text, ("",), nesting=0)


def parse_argv(words: Sequence[str]) -> Script:
    """Parse a list of words that is executed without a shell."""
    if not words or not words[0]:
        return Script(opaque="it names no program")
    command = SimpleCommand(argv=tuple(words))
    if any("\0" in word for word in words):
        return Script(commands=(command,), opaque="a word has a character that no program can be given")
    if sum(map(len, words)) > MAX_SCRIPT_BYTES:
        return Script(commands=(command,), opaque=_TOO_LONG)
    return unwrap_command(command, _ScriptParser().nested_parser(0))


class _ScriptParser:
    """A script with those inside it: each text is read once, and all of them together are bounded."""

    def __init__(self) -> None:
        self._parsed: dict[tuple[str, tuple[str, ...]], Script] = {}
        self._left_bytes = _MAX_NESTED_BYTES
        self._left_unproved_bytes = _MAX_UNPROVED_BYTES

    def nested_parser(self, nesting: int) -> NestedParser:
        return lambda text, bases: self.parse(text, bases, nesting + 1)

    def parse(self, text: str, bases: tuple[str, ...], nesting: int) -> Script:
        key = (text, bases)
        if key not in self._parsed:
            self._left_bytes -= len(text)
            # What is read now is not finished: the same text inside itself has no meaning.
            self._parsed[key] = Script(opaque=_TOO_DEEP)
            self._parsed[key] = self._parse(text, bases, nesting)
        return self._parsed[key]

    def _parse(self, text: str, bases: tuple[str, ...], nesting: int) -> Script:
        source = text.encode("utf-8", "replace")
        if len(source) > MAX_SCRIPT_BYTES:
            return Script(commands=_guess_commands(text, bases), opaque=_TOO_LONG)
        if nesting > MAX_NESTING or self._left_bytes < 0:
            return Script(commands=_guess_commands(text, bases), opaque=_TOO_DEEP)
        if bash_tree is None:
            return Script(commands=_guess_commands(text, bases), opaque="no parser is installed")
        nested = self.nested_parser(nesting)
        script, starts = bash_reader.parse_script_bytes(source, bases, nested)
        reason = _find_invalid_character(text, source) or script.opaque
        if reason:
            self._left_unproved_bytes -= len(source)
            if self._left_unproved_bytes < 0:
                return Script(commands=_guess_commands(text, bases), opaque=reason)
        root = bash_tree.parse(source)
        reason = reason or bash_tree.find_disagreement(root, starts)
        if not reason:
            return script
        listed = _collect_seen(*bash_tree.collect_seen(root, source), bases, nested)
        commands = (*listed.commands, *_guess_commands(text, bases)) if root.has_error else listed.commands
        return Script(commands=commands, redirects=listed.redirects, opaque=reason)


def _find_invalid_character(text: str, source: bytes) -> str:
    if _CONTROL.search(source):
        return "it has a control character"
    return "" if text.isascii() or source.decode() == text else "it has a character that is not Unicode"


def _collect_seen(
    seen: list[tuple[str, ...]], opened: list[tuple[str, bool]], bases: tuple[str, ...], nested: NestedParser
) -> Script:
    """Return what was seen in a tree, each command with the one inside it, in every folder it may run in."""
    folders = [words[-1] for words in seen if "cd" in words[:-1]]
    bases = tuple(dict.fromkeys((*bases, *folders)))[:MAX_FOLDERS]
    commands = list[SimpleCommand]()
    redirects = [Redirect(path=path, writes=writes, bases=bases) for path, writes in opened]
    for words in dict.fromkeys(filter(None, seen)):
        globs = tuple([word for word in words if _WILDCARD.search(word)])
        inner = unwrap_command(SimpleCommand(argv=words, bases=bases, globs=globs), nested)
        commands += inner.commands
        redirects += inner.redirects
    return Script(commands=tuple(commands), redirects=tuple(dict.fromkeys(redirects)))


def _guess_commands(text: str, bases: tuple[str, ...]) -> tuple[SimpleCommand, ...]:
    """Guess the commands of an unparsable text by splitting it at everything that might be an operator."""
    parts = dict.fromkeys(part.strip() for part in _SEPARATORS.split(text))
    found = list[SimpleCommand]()
    for part in parts:
        words = tuple(dropwhile(_is_program_prefix, part.translate(_QUOTES).split()))
        if words:
            found += unwrap_command(SimpleCommand(argv=words, bases=bases), lambda _text, _bases: Script()).commands
    return tuple(found)


def _is_program_prefix(word: str) -> bool:
    return word in RESERVED_WORDS or _ASSIGNMENT.match(word) is not None
