r"""Text that can be shown to a person without any trick, and can be read back exactly.

What stands for itself is printable ASCII without the backslash, letters and signs that leave ink, single spaces between
other characters, and a few combining marks on a letter. Everything else is written out:

    \\                 a backslash, so every other backslash announces something that is not there literally
    \n \t \r           line feed, tab, carriage return
    \u{202e}           any other invisible character, or one that moves, covers or joins other text
    \u{20}             a space at the very beginning or end
    [400 spaces]       four or more spaces in a row; the same words as literal text begin with `\u{5b}`
"""

from functools import lru_cache
from itertools import chain
from typing import Literal, TypeAlias
from unicodedata import bidirectional, category, combining, east_asian_width, is_normalized, name

from .. import lazy_pattern
from ..domain.rendering import neutralize
from .text import pluralize

#: Four spaces in a row can hide what follows them.
MIN_FOLDED_SPACES = 4
MAX_MARKS_ON_A_LETTER = 3
LONG_TEXT_CHARS = 10_000

#: No unit of `pieces` is wider than the widest of these: `[9999999 spaces]`.
MAX_PIECE_CELLS = 16
_MAX_SPACES_IN_A_PIECE = 9_999_999
_MAX_NAMED = 5
_MAX_WORD_CHARS = 40

_Kind: TypeAlias = Literal["seen", "mark", "hidden"]

_SHORT_ESCAPES = {"\\": r"\\", "\n": r"\n", "\t": r"\t", "\r": r"\r"}
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs", "Me"})
_MARK_CATEGORIES = frozenset({"Mn", "Mc"})
#: The combining class of what is drawn over its letter.
_OVERLAY = 1
#: Assigned, of a harmless category, and blank or without width: fillers, joiners, vowels that join
#: a Korean consonant, variation selectors, skin tones, tags.
_BLANK = frozenset(
    chain(
        (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, 0xFFFC, 0x16FE4, 0x1D159),
        range(0x1161, 0x1200),
        range(0x180B, 0x1810),
        range(0xD7B0, 0xD800),
        range(0xFE00, 0xFE10),
        range(0x13440, 0x13456),
        range(0x1F3FB, 0x1F400),
        range(0x1DA00, 0x1DA10),
        range(0xE0000, 0xE1000),
    )
)
_PIECE = lazy_pattern(r"(?P<plain>[!-Z\]-~]+)|(?P<spaces> +)|(?P<bracket>\[)|(?P<other>(?:[^ -~]|\\)+)")
_SPACES_MARK = lazy_pattern(r"\[[0-9]{1,7} spaces\]")
_WORD = lazy_pattern(r"\w+")
#: Colours, and erasing the rest of a line: ordinary formatting of an output.
_FORMATTING = lazy_pattern(r"\x1b\[[0-9;:]*[mK]")
_LINE_END = lazy_pattern(r"\r\n|[\r\n]")
_TAB_CELLS = 8

#: Alphabets whose letters pass for those of another.
_ALPHABETS = frozenset(
    {"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU", "GEORGIAN", "FULLWIDTH", "MATHEMATICAL"}
)
#: Letters that look like Latin ones.
_LOOKALIKES = frozenset(
    "АВЕЅІЈКМНОРСТХҮԌԚԜаеорсухѕіјһԁԛԝҽӏԍ"  # Cyrillic
    "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧανορυικ"  # Greek
    "ՕօոսցհՏԼ"  # Armenian
)


def escape_invisible(text: str, min_spaces: int = MIN_FOLDED_SPACES) -> str:
    """Return the text for display on one line. Different texts are displayed differently.

    So many spaces in a row are counted instead of written.
    """
    return "".join(visible_pieces(text, min_spaces=min_spaces))


def visible_pieces(text: str, indent: int = 0, min_spaces: int = MIN_FOLDED_SPACES) -> list[str]:
    """Return the escaped text in units that stay together. Up to `indent` leading spaces are kept: there is a
    margin.
    """
    shown: list[str] = []
    leading = len(text) - len(text.lstrip(" "))
    start = leading if leading <= indent and leading < len(text) else 0
    shown.extend(text[:start])
    for match in _PIECE.finditer(text, start):
        match match.lastgroup:
            case "plain":
                shown.extend(match[0])
            case "spaces":
                at_edge = match.start() == 0 or match.end() == len(text)
                shown.extend(_fold_spaces(len(match[0]), at_edge, min_spaces))
            case "bracket":
                shown.append(escape_character("[") if _SPACES_MARK.match(text, match.start()) else "[")
            case _:
                _append_characters(shown, match[0], text[match.start() - 1] if match.start() else "")
    return shown


def is_visible(character: str) -> bool:
    """Return True if a character shows itself and nothing else: it hides, moves and joins no other text."""
    return character == "\\" or _classify_character(character) != "hidden"


def escape_character(character: str) -> str:
    """Format a character as a visible escape."""
    return f"\\u{{{ord(character):x}}}"


def output_lines(text: str) -> list[str]:
    """Return the lines of a program's output for a terminal.

    Colours are left out. Everything else that is invisible is escaped, and a carriage return begins a new line: what a
    terminal would have overwritten is not hidden.
    """
    plain = _LINE_END.split(_FORMATTING.sub("", text))
    return [_escape_unprintable(neutralize(line.expandtabs(_TAB_CELLS)).rstrip(" ")) for line in plain]


def find_text_warnings(text: str) -> tuple[str, ...]:
    """Return warnings about a text that may look different from what it is."""
    found = (
        _warn_hidden(text),
        *(
            ()
            if text.isascii()
            else (
                _warn_mixed_alphabets(text),
                _warn_lookalikes(text),
                _warn_right_to_left(text),
                _warn_not_normalized(text),
            )
        ),
        f"is very long: {len(text):,} characters" if len(text) > LONG_TEXT_CHARS else "",
    )
    return tuple(warning for warning in found if warning)


def _escape_unprintable(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(each if each.isprintable() else escape_character(each) for each in line)


def _append_characters(shown: list[str], characters: str, letter: str) -> None:
    marks = 0
    for character in characters:
        kind = _classify_character(character)
        if kind == "mark" and marks < MAX_MARKS_ON_A_LETTER and _mark_fits(character, letter):
            shown[-1] += character
            marks += 1
        elif kind == "seen":
            shown.append(character)
            letter, marks = character, 0
        else:
            shown.append(_SHORT_ESCAPES.get(character) or escape_character(character))
            letter = ""


def _mark_fits(mark: str, letter: str) -> bool:
    """Return True if every terminal shows the mark. Not on a wide letter; a mark of one script only on a letter of that
    script.
    """
    if not letter.isalpha() or east_asian_width(letter) in "WF":
        return False
    return combining(mark) != 0 or _alphabet(mark) == _alphabet(letter)


def _fold_spaces(count: int, at_edge: bool, min_spaces: int) -> list[str]:
    if count < min_spaces:
        return [escape_character(" ") if at_edge else " "] * count
    whole, rest = divmod(count, _MAX_SPACES_IN_A_PIECE)
    folded = [f"[{_MAX_SPACES_IN_A_PIECE} spaces]"] * whole
    if rest >= MIN_FOLDED_SPACES:
        return [*folded, f"[{rest} spaces]"]
    return [*folded, *[escape_character(" ")] * rest]


@lru_cache(maxsize=16_384)
def _classify_character(character: str) -> _Kind:
    code, kind = ord(character), category(character)
    if character == " ":
        return "seen"
    if character == "\\" or kind in _HIDDEN_CATEGORIES or code in _BLANK or combining(character) == _OVERLAY:
        return "hidden"
    return "mark" if kind in _MARK_CATEGORIES else "seen"


def _warn_hidden(text: str) -> str:
    if text.isascii() and text.isprintable():
        return ""
    hidden = [
        character for character in text if character not in "\\\n\t" and _classify_character(character) == "hidden"
    ]
    if not hidden:
        return ""
    which = _join_words([f"U+{ord(character):04X}" for character in dict.fromkeys(hidden)])
    return f"holds {pluralize(len(hidden), 'invisible character')}: {which}"


def _warn_mixed_alphabets(text: str) -> str:
    mixed = [word for word in _non_ascii_words(text) if len(_alphabets(word)) > 1]
    return f"mixes alphabets inside a word: {_join_words(mixed)}" if mixed else ""


def _warn_lookalikes(text: str) -> str:
    alike = [word for word in _non_ascii_words(text) if all(c in _LOOKALIKES or not c.isalpha() for c in word)]
    return f"has words that look Latin and are not: {_join_words(alike)}" if alike else ""


def _warn_right_to_left(text: str) -> str:
    found = any(bidirectional(character) in {"R", "AL"} for character in text if not character.isascii())
    return "has right-to-left letters, so a terminal may show parts of it in another order" if found else ""


def _warn_not_normalized(text: str) -> str:
    normal = is_normalized("NFC", text)
    return "" if normal else "is not in its normal form (NFC): other text may look the same"


def _non_ascii_words(text: str) -> list[str]:
    return list(dict.fromkeys(word for word in _WORD.findall(text) if not word.isascii()))


def _alphabets(word: str) -> frozenset[str]:
    return frozenset(_alphabet(character) for character in set(word) if character.isalpha()) & _ALPHABETS


@lru_cache(maxsize=16_384)
def _alphabet(character: str) -> str:
    return name(character, "").partition(" ")[0]


def _join_words(words: list[str]) -> str:
    named = ", ".join(escape_invisible(word[:_MAX_WORD_CHARS]) for word in words[:_MAX_NAMED])
    return named if len(words) <= _MAX_NAMED else f"{named} and {len(words) - _MAX_NAMED:,} more"
