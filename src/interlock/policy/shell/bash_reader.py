"""The part of bash that can be proved: simple commands of literal words, joined and grouped.

Theory of operation. The reader goes through the bytes once, token by token, with the rules by which bash itself finds
tokens, and stops at the first thing that it does not know; there is no recovery and no guess. So a script that is read
to its end consists of nothing but words, operators, comments and quoted here-documents, each found where bash finds it.

Folders: a `cd` may fail, so what follows may run in the old folder or in the new one, unless `&&` joins them. Every
statement is read with the folders that it may start in, and says in which ones it may end.
"""

import re
from posixpath import join, normpath
from typing import NamedTuple

from .bash_words import Word, scan_word
from .command import Redirect, Script, SimpleCommand
from .programs import TABLES
from .wrappers import RESERVED_WORDS, NestedParser, unwrap_command

MAX_COMMANDS = 200
MAX_WORDS = 2_000
MAX_NESTING = 8
MAX_FOLDERS = 8

_GAP = re.compile(rb"(?:[ \t]+(?:\\\n)*)*")
_OPERATOR = re.compile(rb"&&|\|\||;;&|;;|;&|\|&|&>>|&>|<<<|<<-|<<|<>|<&|>&|>>|>\||[<>]\(|[|;&()<>]")
_SEPARATORS = (b";", b"&")
_WRITING = (b">", b">>", b">|", b"&>", b"&>>")
_REDIRECTS = (*_WRITING, b"<", b"<&", b">&", b"<<", b"<<-", b"<<<")
_PLAIN_TARGET = re.compile(rb"[A-Za-z_./][A-Za-z0-9_./-]*")
#: `2>&1`, `>&3-`, `>&-`; with anything behind the dash bash sees another word there.
_DUPLICATE = re.compile(rb"\d+-?|-")
_ASSIGNMENT = re.compile(rb"([A-Za-z_][A-Za-z0-9_]*)=")
_ODD_ASSIGNMENT = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*(?:\+=|\[)")
#: They run a builtin in this very shell: behind them, `cd` changes its folder.
_SAME_SHELL_WRAPPERS = frozenset(("command", "builtin", "time"))
_RESERVED_BYTES = frozenset([word.encode() for word in RESERVED_WORDS])


class _EndFolders(NamedTuple):
    """The folders that a statement may leave the shell in: when it succeeded, and however it ended."""

    success: tuple[str, ...]
    ended: tuple[str, ...]


class ParsedScript(NamedTuple):
    """A parsed script, and where its programs start."""

    script: Script
    #: Where the programs of the commands stand, in bytes.
    starts: frozenset[int]


def parse_script_bytes(source: bytes, bases: tuple[str, ...], nested: NestedParser) -> ParsedScript:
    """Read a script that starts in one of these folders. `nested` reads what a shell inside it is given."""
    reader = _BashReader(source, nested)
    reader.parse(bases)
    script = Script(commands=tuple(reader.commands), redirects=tuple(reader.redirects), opaque=reader.reason)
    return ParsedScript(script, frozenset(reader.starts))


class _BashReader:
    def __init__(self, source: bytes, nested: NestedParser) -> None:
        self.commands: list[SimpleCommand] = []
        self.redirects: list[Redirect] = []
        self.starts: list[int] = []
        self.reason = ""
        self._source = source
        self._nested = nested
        self._nesting = 0
        self._words = 0
        self._documents: list[tuple[bytes, bool]] = []
        # The current token: an operator, or a word with its raw bytes; neither at a newline and at the end.
        self._at: int = 0
        self._end: int = 0
        self._operator = b""
        self._word: Word | None = None
        self._raw = b""
        self._newline = False
        self._descriptor = b""

    def parse(self, bases: tuple[str, ...]) -> None:
        self._advance()
        self._parse_statements(bases, b"")

    # Tokens

    def _refuse(self, reason: str) -> None:
        """Keep the first reason, and go to the end: nothing behind it can be trusted."""
        self.reason = self.reason or reason
        self._at = self._end = len(self._source)
        self._operator, self._word, self._raw, self._newline = b"", None, b"", False

    def _advance(self) -> None:
        self._operator, self._word, self._raw, self._newline = b"", None, b"", False
        source = self._source
        gap = _GAP.match(source, self._end)
        self._at = gap.end() if gap else self._end
        if source[self._at : self._at + 1] == b"#":
            line_end = source.find(b"\n", self._at)
            self._at = line_end if line_end >= 0 else len(source)
        if self._at >= len(source):
            self._end = self._at
            if self._documents:
                self._refuse("a here-document has no end")
        elif source[self._at] == ord("\n"):
            self._newline = True
            self._end = self._at + 1
            self._skip_documents()
        elif operator := _OPERATOR.match(source, self._at):
            self._operator, self._end = operator.group(), operator.end()
        else:
            self._advance_word()

    def _advance_word(self) -> None:
        word = scan_word(self._source, self._at)
        if word.reason:
            return self._refuse(word.reason)
        self._word, self._end, self._raw = word, word.end, self._source[self._at : word.end]
        if self._source[word.end : word.end + 1] in (b"<", b">"):
            if self._raw.isdigit():
                self._descriptor = self._raw
                return self._advance()
            if self._raw.endswith(b"}"):
                return self._refuse("a redirect names a variable")
        return None

    def _skip_documents(self) -> None:
        for delimiter, strips_tabs in self._documents:
            while True:
                if self._end >= len(self._source):
                    return self._refuse("a here-document has no end")
                newline = self._source.find(b"\n", self._end)
                line = self._source[self._end : newline if newline >= 0 else len(self._source)]
                self._end = newline + 1 if newline >= 0 else len(self._source)
                if (line.lstrip(b"\t") if strips_tabs else line) == delimiter:
                    break
        self._documents.clear()
        return None

    def _skip_newlines(self) -> None:
        while self._newline:
            self._advance()

    def _is_at_end(self) -> bool:
        return not (self._operator or self._word or self._newline)

    # Grammar

    def _parse_statements(self, bases: tuple[str, ...], closing: bytes) -> _EndFolders:
        now = _EndFolders(bases, bases)
        while True:
            self._skip_newlines()
            if self._is_at_end():
                if closing:
                    self._refuse("a group is not closed")
                return now
            if closing and closing in (self._operator, self._raw):
                return now
            now = self._parse_chain(now.ended)
            if self._operator in _SEPARATORS:
                self._advance()
            elif not (self._newline or self._is_at_end() or (closing and closing == self._operator)):
                self._refuse("its words and operators do not make a script")

    def _parse_chain(self, bases: tuple[str, ...]) -> _EndFolders:
        left = self._parse_pipeline(bases)
        while self._operator in (b"&&", b"||"):
            both = self._operator == b"&&"
            self._advance()
            self._skip_newlines()
            right = self._parse_pipeline(left.success if both else left.ended)
            success = right.success if both else _union(left.success, right.success)
            left = self._check_folder_count(_EndFolders(success, _union(left.ended, right.ended)))
        return left

    def _check_folder_count(self, after: _EndFolders) -> _EndFolders:
        """Refuse too many folders: every `cd` may double them."""
        if len(after.ended) > MAX_FOLDERS:
            self._refuse("it changes the folder too often")
        return after

    def _parse_pipeline(self, bases: tuple[str, ...]) -> _EndFolders:
        negated = self._raw == b"!"
        if negated and self._source[self._end : self._end + 1] == b"(":
            self._refuse("it has an extended wildcard")
        elif negated:
            self._advance()
        after, piped = self._parse_element(bases), False
        while self._operator in (b"|", b"|&"):
            self._advance()
            self._skip_newlines()
            self._parse_element(bases)
            piped = True
        if piped:
            return _EndFolders(bases, bases)
        return _EndFolders(after.ended, after.ended) if negated else after

    def _parse_element(self, bases: tuple[str, ...]) -> _EndFolders:
        if self._operator == b"(":
            self._parse_group(bases, b")")
            return _EndFolders(bases, bases)
        if self._raw == b"{":
            return self._parse_group(bases, b"}")
        return self._parse_simple_command(bases)

    def _parse_group(self, bases: tuple[str, ...], closing: bytes) -> _EndFolders:
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            self._refuse(f"it is nested more than {MAX_NESTING} deep")
        if self._source[self._end : self._end + 1] == b"(":
            self._refuse("it has arithmetic")
        self._advance()
        after = self._parse_statements(bases, closing)
        self._nesting -= 1
        self._advance()
        while self._operator in _REDIRECTS:
            if self._parse_redirect(bases):
                self._refuse("text is fed to a group")
        return after

    def _parse_simple_command(self, bases: tuple[str, ...]) -> _EndFolders:
        words, assignments = list[Word](), list[tuple[str, str]]()
        start, has_input_text, opened = self._at, False, len(self.redirects)
        while True:
            if self._operator in _REDIRECTS:
                has_input_text = self._parse_redirect(bases) or has_input_text
            elif self._word is None:
                break
            elif not words and (name := _ASSIGNMENT.match(self._raw)):
                assignments.append((name[1].decode(), self._word.text.partition("=")[2]))
                self._advance()
            else:
                start = start if words else self._at
                self._add_word(words, self._word)
        if words:
            return self._finish_command(words, assignments, bases, start, has_input_text)
        if assignments:
            self._refuse("it sets a variable")
        elif len(self.redirects) == opened and not has_input_text:
            self._refuse("its words and operators do not make a script")
        return _EndFolders(bases, bases)

    def _add_word(self, words: list[Word], word: Word) -> None:
        if not words:
            if self._raw in _RESERVED_BYTES:
                return self._refuse(f"it has control flow or another compound command: {word.text}")
            if word.glob or word.text[:1] in ("", "%") or _ODD_ASSIGNMENT.match(self._raw):
                return self._refuse("its program is not a plain name")
        words.append(word)
        return self._advance()

    def _finish_command(
        self,
        words: list[Word],
        assignments: list[tuple[str, str]],
        bases: tuple[str, ...],
        start: int,
        has_input_text: bool,
    ) -> _EndFolders:
        command = SimpleCommand(
            argv=tuple([word.text for word in words]),
            assignments=tuple(assignments),
            bases=bases,
            globs=tuple([word.text for word in words if word.glob]),
        )
        self.starts.append(start)
        self._words += len(words)
        inner = unwrap_command(command, self._nested)
        self.commands += inner.commands
        self.redirects += inner.redirects
        if inner.opaque:
            self._refuse(inner.opaque)
        elif len(self.commands) > MAX_COMMANDS:
            self._refuse(f"it has more than {MAX_COMMANDS} commands")
        elif self._words > MAX_WORDS:
            self._refuse(f"it has more than {MAX_WORDS} words")
        elif has_input_text and not all(
            found.argv[0] in TABLES.text_readers or found.hidden for found in inner.commands
        ):
            self._refuse("text is fed to a program that may run it")
        folder_changes = [found for found in inner.commands if not found.hidden and _can_change_folder(found)]
        return self._change_folder(folder_changes[0]) if folder_changes else _EndFolders(bases, bases)

    def _change_folder(self, command: SimpleCommand) -> _EndFolders:
        words = command.argv
        operands = words[2:] if words[1:2] == ("--",) else words[1:]
        if len(operands) != 1 or operands[0][:1] in ("", "-") or command.globs or command.assignments:
            self._refuse("it changes to a folder that is not named")
            return _EndFolders(command.bases, command.bases)
        new_folders = tuple([join(base, operands[0]) for base in command.bases])
        # A link followed by `..`: the shell goes back by name, programs go up from where the link leads.
        reached = _union(new_folders, tuple([normpath(folder) for folder in new_folders]))
        ended = _union(command.bases, reached)
        # Another shell may run the wrapper as a program, which succeeds and moves nothing.
        return self._check_folder_count(_EndFolders(ended if command.wrappers else reached, ended))

    def _parse_redirect(self, bases: tuple[str, ...]) -> bool:
        """Read one redirect; True when it feeds text to the command."""
        operator, descriptor, self._descriptor = self._operator, self._descriptor, b""
        self._advance()
        if self._word is None:
            self._refuse("a redirect has no literal target")
            return False
        raw, target = self._raw, self._word.text
        if operator in (b"<<", b"<<-"):
            return self._parse_here_document(raw, target, strips_tabs=operator == b"<<-")
        if operator == b"<<<":
            self._advance()
            return True
        if self._word.glob or not target:
            self._refuse("a redirect has no literal target")
        elif target.startswith(("/dev/tcp/", "/dev/udp/")):
            self._refuse("a redirect opens a network connection")
        elif operator not in (b"<&", b">&"):
            self._add_redirect(target, operator in _WRITING, bases)
        elif not _DUPLICATE.fullmatch(raw):
            # Bash expands this target twice, the second time without its quotes.
            if operator == b"<&" or descriptor not in (b"", b"1") or not _PLAIN_TARGET.fullmatch(raw):
                self._refuse("a redirect has no literal target")
            self._add_redirect(target, True, bases)
        self._advance()
        return False

    def _add_redirect(self, path: str, writes: bool, bases: tuple[str, ...]) -> None:
        if path != "/dev/null":
            self.redirects.append(Redirect(path=path, writes=writes, bases=bases))

    def _parse_here_document(self, raw: bytes, delimiter: str, strips_tabs: bool) -> bool:
        is_quoted = any(mark in raw for mark in (b"'", b'"', b"\\"))
        if not is_quoted or b"$" in raw or not delimiter or "\n" in delimiter:
            self._refuse("a here-document is expanded by the shell")
            return False
        self._documents.append((delimiter.encode(), strips_tabs))
        self._advance()
        return True


def _can_change_folder(command: SimpleCommand) -> bool:
    return command.argv[0] == "cd" and _SAME_SHELL_WRAPPERS.issuperset(command.wrappers)


def _union(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return first if first == second else tuple(dict.fromkeys((*first, *second)))
