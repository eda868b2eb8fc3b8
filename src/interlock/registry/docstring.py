"""Parses docstrings of tools: description and parameters, in Google, NumPy or Sphinx style.

A docstring is read in one pass as a list of sections. The description is every line outside the sections that
are known by name, so a note after the parameters is still shown to the model and the `Returns` section is not.
"""

import re
from collections.abc import Iterable, Iterator
from enum import Enum, auto
from inspect import cleandoc
from itertools import pairwise
from typing import NamedTuple


class Docstring(NamedTuple):
    """The description and the parameters of a docstring."""

    description: str
    parameters: dict[str, str]


class _Style(Enum):
    PROSE = auto()
    GOOGLE = auto()
    NUMPY = auto()
    SPHINX = auto()


class _Section(NamedTuple):
    style: _Style
    #: The header in small letters, or the Sphinx field with its first line.
    title: str
    lines: list[str]


_PARAMETERS = {"args", "arguments", "params", "parameters", "keyword args", "keyword arguments"}
_IGNORED = {"return", "returns", "yield", "yields", "raise", "raises", "warns", "attributes", "see also"}
_KNOWN = _PARAMETERS | _IGNORED

_UNDERLINE = re.compile(r"-{3,}\s*")
_SPHINX_FIELD = re.compile(r":[a-z]+(\s[^:]*)?:(\s|$)")
_SPHINX_PARAMETER = re.compile(r":(?:param|parameter|arg|argument|key|keyword)\s+(?:[^:]*\s)?\*{0,2}(\w+):\s*(.*)")
#: `name: text`, `name (type, optional): text`
_GOOGLE_PARAMETER = re.compile(r"\*{0,2}(\w+)\s*(?:\(.*?\))?:(?:\s+(.*))?")
#: `name`, `name : type`, `name, other : type`
_NUMPY_PARAMETER = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?")


def parse_docstring(text: str | None) -> Docstring:
    """Parse a docstring. Never fails: what is not understood is description."""
    prose: list[str] = []
    parameters: dict[str, str] = {}
    for section in _sections(cleandoc(text or "").splitlines()):
        if section.style is _Style.PROSE:
            prose.extend(section.lines)
        elif section.style is _Style.SPHINX:
            parameters.update(_sphinx_parameter(section))
        elif section.title in _PARAMETERS:
            entries = _google_entries if section.style is _Style.GOOGLE else _numpy_entries
            parameters.update(entries(section.lines))
    description = re.sub(r"\n{3,}", "\n\n", "\n".join(prose)).strip()
    return Docstring(description, parameters)


def _sections(lines: list[str]) -> Iterator[_Section]:
    section = _Section(_Style.PROSE, "", [])
    skip_underline = False
    for line, following in pairwise([*lines, ""]):
        if skip_underline:
            skip_underline = False
            continue
        opened = _open_section(line, following)
        if opened is None and _ends_section(section, line):
            opened = _Section(_Style.PROSE, "", [line])
        if opened is None:
            section.lines.append(line)
            continue
        yield section
        section = opened
        skip_underline = opened.style is _Style.NUMPY
    yield section


def _open_section(line: str, following: str) -> _Section | None:
    """Return the section that a line opens, or None."""
    word = line.strip().lower()
    if word and _UNDERLINE.fullmatch(following):
        return _Section(_Style.NUMPY, word, []) if word in _KNOWN else _Section(_Style.PROSE, "", [line])
    if word.endswith(":") and word[:-1] in _KNOWN and line[:1].strip():
        return _Section(_Style.GOOGLE, word[:-1], [])
    if _SPHINX_FIELD.match(line):
        return _Section(_Style.SPHINX, line, [])
    return None


def _ends_section(section: _Section, line: str) -> bool:
    """Return True if a line ends the section. Google and Sphinx are indented; NumPy continues to the next header."""
    return section.style in (_Style.GOOGLE, _Style.SPHINX) and bool(line[:1].strip())


def _sphinx_parameter(section: _Section) -> dict[str, str]:
    field = _SPHINX_PARAMETER.match(section.title)
    return {field[1]: _join_lines([field[2], *section.lines])} if field else {}


def _google_entries(lines: list[str]) -> dict[str, str]:
    indent = min((_indent(line) for line in lines if line.strip()), default=0)
    entries: dict[str, list[str]] = {}
    current: list[str] = []
    for line in lines:
        entry = _GOOGLE_PARAMETER.match(line.strip()) if _indent(line) == indent else None
        if entry:
            current = entries[entry[1]] = [entry[2] or ""]
        else:
            current.append(line)
    return {name: _join_lines(text) for name, text in entries.items()}


def _numpy_entries(lines: list[str]) -> dict[str, str]:
    entries: dict[str, list[str]] = {}
    current: list[str] = []
    for line in lines:
        entry = _NUMPY_PARAMETER.fullmatch(line) if line[:1].strip() else None
        if entry:
            current = []
            entries.update((name.strip(" *"), current) for name in entry[1].split(","))
        else:
            current.append(line)
    return {name: _join_lines(text) for name, text in entries.items()}


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _join_lines(lines: Iterable[str]) -> str:
    return " ".join(filter(None, (line.strip() for line in lines)))
