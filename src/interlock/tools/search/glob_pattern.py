"""A model's glob pattern: the folder that it begins in, the names to look for, and the paths that it means.

ripgrep has globs of its own, but they bring back what `.gitignore` leaves out. So it only gets the last names of a
pattern, as a file type, which narrows and never widens; the rest of the path is matched here.

`*` and `?` stay within a name, `[ab]` and `{a,b}` are alternatives, `**` is any number of folders. A pattern without a
slash means that name in every folder.
"""

import os
import re
from collections.abc import Callable, Sequence
from fnmatch import translate
from typing import NamedTuple

from ...domain.errors import PreconditionError
from ...sandbox.workspace.refusals import PathRefusedError
from ..files.file_content import make_precondition_error

MAX_PATTERN_CHARS = 1_000
_MAX_ALTERNATIVES = 64
_ANY_FOLDERS = "**"
_SPECIAL = frozenset("*?[]{}\\")
#: An escaped character, a class, or any other: braces in the first two mean themselves.
_TOKEN = re.compile(r"\\.|\[[!^]?\]?[^\]/]*\]|.", re.DOTALL)
#: What `fnmatch` makes of a class.
_TRANSLATED = re.compile(r"\(\?s:(.+)\)\\[Zz]", re.DOTALL)
_FOLDER = "(?:[^/]++/)"


class GlobPattern(NamedTuple):
    """A parsed glob pattern."""

    #: Where all paths that it can mean begin; empty when that is not known. Absolute when the pattern is.
    folder: str
    #: Globs of which the last name of a path fits one; none: it may be anything.
    names: tuple[str, ...]
    #: How many names a path from the folder on can have.
    depth: int | None
    #: Of a path from the folder on. None: the names say it all.
    matches: Callable[[bytes], bool] | None


def parse_pattern(text: str) -> GlobPattern:
    """Parse a pattern. Raise `PathRefusedError` when it leads up, `PreconditionError` when it is invalid."""
    if "\0" in text:
        raise _make_pattern_error("it holds a NUL character")
    anywhere = "/" not in text
    alternatives = [_split_components(pattern, anywhere) for pattern in _expand_braces(text)]
    if any(".." in each for each in alternatives):
        raise PathRefusedError("The pattern leads upwards by `..`. Begin it at a folder.", "outside")
    shared = _count_literal_names(alternatives)
    rests = [each[shared:] for each in alternatives]
    folder = "/".join(alternatives[0][:shared])
    lasts = tuple(dict.fromkeys(each[-1] for each in rests))
    # A type of ripgrep is written with a colon before its glob, and no other.
    by_name = not any(":" in name for name in lasts)
    return GlobPattern(
        folder="/" + folder if text.startswith("/") else folder,
        names=lasts if by_name and "*" not in lasts else (),
        depth=None if any(_ANY_FOLDERS in each for each in rests) else max(map(len, rests)),
        matches=None if by_name and all(each[:-1] == [_ANY_FOLDERS] for each in rests) else _compile_matcher(rests),
    )


def _make_pattern_error(why: str) -> PreconditionError:
    return make_precondition_error(f"The glob pattern cannot be used: {why}")


def _split_components(pattern: str, anywhere: bool) -> list[str]:
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    if anywhere:
        names.insert(0, _ANY_FOLDERS)
    if pattern.endswith("/"):
        names.append(_ANY_FOLDERS)
    if names and names[-1] == _ANY_FOLDERS:
        names.append("*")
    once = [name for name, before in zip(names, ["", *names], strict=False) if name != _ANY_FOLDERS or before != name]
    return once or ["*"]


def _count_literal_names(alternatives: Sequence[list[str]]) -> int:
    """Count the leading names, without the last one, that are literal and the same in all alternatives."""
    count = 0
    for names in zip(*(each[:-1] for each in alternatives), strict=False):
        if len(set(names)) > 1 or not _SPECIAL.isdisjoint(names[0]):
            break
        count += 1
    return count


def _expand_braces(text: str) -> list[str]:
    """Expand braces to all patterns without them."""
    done: list[str] = []
    waiting = [text]
    while waiting:
        pattern = waiting.pop()
        choices = _expand_first_braces(pattern)
        if choices is None:
            done.append(pattern)
        else:
            waiting += choices
        if len(done) + len(waiting) > _MAX_ALTERNATIVES:
            raise _make_pattern_error(f"its braces stand for more than {_MAX_ALTERNATIVES} patterns")
    return done


def _expand_first_braces(pattern: str) -> list[str] | None:
    """Replace the first braces by each alternative in them. Return None if there are none."""
    depth = start = 0
    cuts: list[int] = []
    for token in _TOKEN.finditer(pattern):
        at, mark = token.start(), token.group()
        if mark == "{":
            depth += 1
            start = at if depth == 1 else start
        elif mark == "," and depth == 1:
            cuts.append(at)
        elif mark == "}" and depth:
            depth -= 1
            if depth == 0:
                edges = [start, *cuts, at]
                pieces = [pattern[edges[n] + 1 : edges[n + 1]] for n in range(len(edges) - 1)]
                return [pattern[:start] + piece + pattern[at + 1 :] for piece in pieces]
    if depth:
        raise _make_pattern_error("a `{` is not closed; `[{]` means the character")
    return None


def _compile_matcher(alternatives: Sequence[Sequence[str]]) -> Callable[[bytes], bool]:
    fits = re.compile("|".join(map(_path_regex, alternatives))).fullmatch

    def matches(path: bytes) -> bool:
        return fits(os.fsdecode(path)) is not None

    return matches


def _path_regex(components: Sequence[str]) -> str:
    """Build the regex of a path. Names between two `**` match at their first place, without backtracking: a later one
    would leave less for the rest. So no pattern takes long. The same holds for `*` in a name.
    """
    first, *others = _split_at(components, _ANY_FOLDERS)
    if not others:
        return "/".join(map(_name_regex, first))
    *between, last = ["/".join(map(_name_regex, names)) for names in others]
    start = "".join(_name_regex(name) + "/" for name in first)
    return start + "".join(f"(?>{_FOLDER}*?{names}/)" for names in between) + f"{_FOLDER}*{last}"


def _name_regex(glob: str) -> str:
    first, *others = _split_at(_TOKEN.findall(glob), "*")
    start = "".join(map(_letter_regex, first))
    if not others:
        return start
    *between, last = ["".join(map(_letter_regex, letters)) for letters in others]
    return start + "".join(f"(?>[^/]*?{letters})" for letters in between) + f"[^/]*{last}"


def _letter_regex(letter: str) -> str:
    if letter == "?":
        return "[^/]"
    if len(letter) > 1 and letter.startswith("["):
        # Python knows what is special in a class.
        found = _TRANSLATED.fullmatch(translate(letter.replace("[^", "[!", 1)))
        return f"(?!/){found[1]}" if found else re.escape(letter)
    return re.escape(letter[-1])


def _split_at(parts: Sequence[str], mark: str) -> list[list[str]]:
    """Split a list at the marks."""
    groups: list[list[str]] = [[]]
    for part in parts:
        if part == mark:
            groups.append([])
        else:
            groups[-1].append(part)
    return groups
