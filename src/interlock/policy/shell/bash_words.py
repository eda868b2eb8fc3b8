"""One word of bash, read exactly as bash reads it, or a reason why it is not literal.

A word ends at an unquoted blank, newline or operator character. Quotes and backslashes are resolved. Whatever bash
would replace (a variable, a substitution, braces, a tilde) is a reason. Wildcards stay as they are and are marked.
"""

import re
from typing import NamedTuple

#: Unquoted, these end a word.
WORD_END_BYTES = frozenset(b" \t\n|&;()<>")

_PLAIN = re.compile(rb"[A-Za-z0-9_./:@%+,=^\]\x80-\xff-]+")
_PIECE = re.compile(
    rb"""
      (?P<plain>  [^\s|&;()<>'"\\$`*?\[{}~!]+ )
    | (?P<escape> \\[^\n] )
    | (?P<single> '[^']*' )
    | (?P<ansi>   \$'[^'\\]*(?:\\.[^'\\]*)*' )
    | (?P<double> "[^"\\$`]*(?:\\.[^"\\$`]*)*" )
    | (?P<glob>   [*?\[] )
    | (?P<brace>  [{}] )
    | (?P<tilde>  ~ )
    | (?P<bang>   ! )
    """,
    re.VERBOSE | re.DOTALL,
)
_DOUBLE_ESCAPE = re.compile(rb'\\(["\\$`\n])')
_ANSI_ESCAPE = re.compile(rb"\\(?:x([0-9A-Fa-f]{1,2})|([0-7]{1,3})|(.))", re.DOTALL)
_ANSI_LETTERS = {b"n": b"\n", b"t": b"\t", b"\\": b"\\", b"'": b"'", b'"': b'"', b"?": b"?"}
#: An exclamation mark that an interactive shell would take for its history.
_HISTORY = re.compile(rb"![^\s=(\"]")
_QUOTED = frozenset(("escape", "single", "double", "ansi"))
#: Quoted, they mean something else inside a bracket than they do unquoted.
_BRACKET_CHARACTERS = re.compile(rb"[\[\]!^-]")
#: `[[:alpha:]]`, `[[=a=]]`, `[[.a.]]`: what they match depends on the locale.
_CLASS = re.compile(rb"\[[:=.]")
_EXPANSION = "it has an expansion or a substitution"
_REFUSAL_REASONS = {
    ord("$"): _EXPANSION,
    ord("`"): _EXPANSION,
    ord('"'): "it has an expansion in double quotes, or a quote that is not closed",
    ord("'"): "it has a quote that is not closed",
    ord("\\"): "it has a line continuation inside a word",
}


class Word(NamedTuple):
    """One word of a script, or the reason why it is not literal."""

    text: str
    end: int
    #: It has a wildcard that bash compares with the names of files.
    glob: bool = False
    #: Why it is not literal; then `text` and `end` say nothing.
    reason: str = ""


def scan_word(source: bytes, start: int) -> Word:
    """Return the word that starts here, which must be the start of a token."""
    plain = _PLAIN.match(source, start)
    if plain and (plain.end() == len(source) or source[plain.end()] in WORD_END_BYTES):
        return Word(_decode(plain.group()), plain.end())
    return _scan_pieces(source, start)


def _scan_pieces(source: bytes, start: int) -> Word:
    end, texts, kinds = start, list[bytes](), set[str]()
    has_bracket = quotes_bracket = False
    while piece := _PIECE.match(source, end):
        kind, raw = str(piece.lastgroup), piece.group()
        text = _unquote(kind, raw)
        if text is None or not _is_ordinary_character(kind, source, end, start):
            return Word("", start, reason=_refusal_reason(kind))
        kinds.add(kind)
        has_bracket = has_bracket or (kind == "glob" and raw == b"[")
        quotes_bracket = quotes_bracket or (kind in _QUOTED and _BRACKET_CHARACTERS.search(text) is not None)
        texts.append(text)
        end = piece.end()
    if end < len(source) and source[end] not in WORD_END_BYTES:
        return Word("", start, reason=_REFUSAL_REASONS.get(source[end], "it has a character that is not read"))
    if "brace" in kinds and _has_brace_expansion(source[start:end]):
        return Word("", start, reason="it has a brace expansion")
    text = b"".join(texts)
    if has_bracket and (quotes_bracket or _CLASS.search(text, text.find(b"[") + 1)):
        return Word("", start, reason="it has a wildcard with a class of characters or with quotes")
    return Word(_decode(text), end, glob="glob" in kinds and source[start:end] != b"[")


def _decode(text: bytes) -> str:
    """Decode a part of the script. A place that the other parser gives may lie inside a character."""
    return text.decode("utf-8", "replace")


def _unquote(kind: str, raw: bytes) -> bytes | None:
    match kind:
        case "escape":
            return raw[1:]
        case "single":
            return raw[1:-1]
        case "double":
            if _HISTORY.search(raw[1:-1]):
                return None
            return _DOUBLE_ESCAPE.sub(lambda found: found[1].strip(b"\n"), raw[1:-1])
        case "ansi":
            return _unescape_ansi(raw[2:-1])
        case _:
            return raw


def _unescape_ansi(raw: bytes) -> bytes | None:
    """Unescape only what yields plain ASCII: other escapes differ between locales and versions, or cut the word."""
    values = [_ansi_escape(*found) for found in _ANSI_ESCAPE.findall(raw)]
    if None in values:
        return None
    known = iter(value for value in values if value is not None)
    return _ANSI_ESCAPE.sub(lambda _: next(known), raw)


def _ansi_escape(hexadecimal: bytes, octal: bytes, letter: bytes) -> bytes | None:
    if letter:
        return _ANSI_LETTERS.get(letter)
    code = int(hexadecimal, 16) if hexadecimal else int(octal, 8)
    return bytes([code]) if ord(" ") <= code <= ord("~") else None


def _is_ordinary_character(kind: str, source: bytes, at: int, start: int) -> bool:
    """Return whether a tilde or an exclamation mark is an ordinary character at this place."""
    if kind == "tilde":
        return at > start and source[at - 1] not in b"=:"
    if kind == "bang":
        return (
            source[at - 1 : at] == b"[" or not _HISTORY.match(source[at : at + 2]) or source[at + 1] in WORD_END_BYTES
        )
    return True


def _refusal_reason(kind: str) -> str:
    match kind:
        case "tilde":
            return "it names a home folder with a tilde"
        case "ansi":
            return "it has a quoted escape that is not plain ASCII"
        case _:
            return "it has an exclamation mark that may stand for the history"


def _has_brace_expansion(raw: bytes) -> bool:
    return b"{" in raw and (b"," in raw or b".." in raw)
