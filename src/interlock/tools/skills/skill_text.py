"""`SKILL.md` as text: front matter between two lines of `---`, then instructions in Markdown.

The front matter is read by the events of a YAML parser, so nothing is ever constructed, an alias is never followed and
every bound holds while it is read. Values stay the text that was written: `name: 1.0` is no number. A reader of our own
would be longer: skills in the wild use quotes, folded blocks and nested metadata.
"""

import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import msgspec
import yaml

from ...domain.errors import ConfigurationError

MAX_FRONT_MATTER_CHARS = 16_384
MAX_NAME_CHARS = 64
MAX_DESCRIPTION_CHARS = 1_024
_MAX_EVENTS = 2_000
_MAX_DEPTH = 16
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_FENCE = "---"
_YAML: Any = yaml
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class SkillText(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed `SKILL.md`."""

    name: str
    description: str
    instructions: str
    #: Of the whole file.
    sha256: str


def parse_skill(content: bytes, path: str) -> SkillText:
    """Parse a `SKILL.md`. Raise `ConfigurationError` with the path, and the line where there is one."""
    front, instructions = _split_front_matter(_decode(content, path), path)
    keys = _FrontMatterReader(path).read(front)
    return SkillText(
        name=_read_name(keys, path),
        description=_read_description(keys, path),
        instructions=instructions.strip("\n"),
        sha256=sha256(content).hexdigest(),
    )


def make_skill_error(path: str, reason: str, line: int = 0) -> ConfigurationError:
    """Build the error for a skill that cannot be loaded."""
    where = f", line {line}" if line else ""
    return ConfigurationError(f"The skill {path!r} cannot be loaded{where}: {reason}")


def _decode(content: bytes, path: str) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise make_skill_error(path, "it is not UTF-8.", content.count(b"\n", 0, error.start) + 1) from None
    if "\0" in text:
        raise make_skill_error(
            path, "it holds a NUL character, which no text does.", text.count("\n", 0, text.index("\0")) + 1
        )
    return text.replace("\r\n", "\n")


def _split_front_matter(text: str, path: str) -> tuple[str, str]:
    """Split off the front matter, with the line before it so that line numbers match the file."""
    lines = text.split("\n")
    if lines[0].rstrip() != _FENCE:
        raise make_skill_error(path, "it has to begin with '---', then name and description, then '---' again.", 1)
    end = next((number for number, line in enumerate(lines) if number and line.rstrip() == _FENCE), 0)
    if not end:
        raise make_skill_error(path, "the front matter has no end: a line of '---' is missing.")
    front = "\n".join(lines[:end]) + "\n"
    if len(front) > MAX_FRONT_MATTER_CHARS:
        raise make_skill_error(path, f"the front matter has more than {MAX_FRONT_MATTER_CHARS:,} characters.")
    return front, "\n".join(lines[end + 1 :])


def _read_name(keys: dict[str, str | None], path: str) -> str:
    name = _read_text(keys, "name", path)
    if len(name) > MAX_NAME_CHARS or not _NAME.fullmatch(name):
        raise make_skill_error(
            path, f"its name has to be 1 to {MAX_NAME_CHARS} small letters, digits and single hyphens between them."
        )
    return name


def _read_description(keys: dict[str, str | None], path: str) -> str:
    description = _read_text(keys, "description", path)
    if len(description) > MAX_DESCRIPTION_CHARS:
        raise make_skill_error(
            path, f"its description has {len(description):,} characters; {MAX_DESCRIPTION_CHARS:,} are the most."
        )
    return description


def _read_text(keys: dict[str, str | None], key: str, path: str) -> str:
    if key not in keys:
        raise make_skill_error(path, f"the front matter has no {key!r}.")
    text = keys[key]
    if text is None or not text.strip():
        raise make_skill_error(path, f"{key!r} has to be a text.")
    return text.strip()


class _FrontMatterReader:
    """The keys of the outermost mapping, with their texts. What is in other values is looked at and left."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._events: Iterator[Any] = iter(())
        self._seen = 0

    def read(self, front: str) -> dict[str, str | None]:
        try:
            self._events = _YAML.parse(front, Loader=_LOADER)
            return self._read_document()
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            reason = getattr(error, "problem", None) or "a character in it has no place there"
            raise self._make_error(
                f"this is not YAML ({reason}). A text with ': ' or ' #' in it needs quotes.", mark
            ) from None
        except (ValueError, OverflowError):  # escapes that name no character, in the parser that is not in C
            raise self._make_error("this is not YAML (an escape names no character).") from None

    def _read_document(self) -> dict[str, str | None]:
        self._next_event()  # of the stream
        self._next_event()  # of the document
        start = self._next_event()
        if not isinstance(start, yaml.MappingStartEvent):
            raise self._make_error("the front matter has to be lines of 'key: value'.", start.start_mark)
        keys: dict[str, str | None] = {}
        while not isinstance(event := self._next_event(), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                raise self._make_error("a key has to be a word.", event.start_mark)
            if event.value in keys:
                raise self._make_error("this key is there twice.", event.start_mark)
            keys[event.value] = self._read_value()
        self._next_event()  # the end of the document
        if not isinstance(event := self._next_event(), yaml.StreamEndEvent):
            raise self._make_error("the front matter ends here, and something follows.", event.start_mark)
        return keys

    def _read_value(self) -> str | None:
        """Read a value; None for a list or a mapping."""
        event = self._next_event()
        if isinstance(event, yaml.ScalarEvent):
            return event.value
        depth = 1
        while depth:
            inner = self._next_event()
            depth += isinstance(inner, yaml.CollectionStartEvent) - isinstance(inner, yaml.CollectionEndEvent)
            if depth > _MAX_DEPTH:
                raise self._make_error("the front matter is nested too deep.", inner.start_mark)
        return None

    def _next_event(self) -> Any:
        event = next(self._events)
        self._seen += 1
        if self._seen > _MAX_EVENTS:
            raise self._make_error("the front matter holds too much.", event.start_mark)
        if getattr(event, "anchor", None) is not None or getattr(event, "tag", None) is not None:
            raise self._make_error("anchors, aliases and tags are not read here.", event.start_mark)
        return event

    def _make_error(self, reason: str, mark: Any = None) -> ConfigurationError:
        return make_skill_error(self._path, reason, mark.line + 1 if mark else 0)
