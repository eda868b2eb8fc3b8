"""`Tool(pattern)`, as users of other tools know it: one text for a tool and what a call of it is about.

`bash(npm test)` is that command and no other, `bash(npm run lint:*)` every command that begins with these words,
`Read(secrets/**)` is a path, `web_fetch(domain:example.com)` a host. `path:`, `command:` and `host:` say for any tool
what the pattern is.
"""

import re
import shlex
from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

from ...domain.errors import ConfigurationError
from ...domain.rendering import truncate
from ...domain.tool import ToolOrigin
from ..engine.rule import CommandPattern

PatternKind: TypeAlias = Literal["path", "command", "host"]


class ToolFamily(msgspec.Struct, frozen=True):
    """The tools behind a well-known name, and what their patterns match."""

    tools: tuple[str, ...]
    kind: PatternKind | None


_READERS = ("read_file", "grep", "glob", "list_dir")
#: By lower-case name. The first tool of each is the one that an example is about.
TOOL_FAMILIES: Mapping[str, ToolFamily] = {
    "bash": ToolFamily(("bash",), "command"),
    "read": ToolFamily(_READERS, "path"),
    "edit": ToolFamily(("edit_file", "write_file"), "path"),
    "write": ToolFamily(("write_file",), "path"),
    "webfetch": ToolFamily(("web_fetch",), None),
    "web_fetch": ToolFamily(("web_fetch",), None),
    **{name: ToolFamily((name,), "path") for name in (*_READERS, "edit_file", "write_file")},
}
_PREFIXES: Mapping[str, PatternKind] = {"path": "path", "command": "command", "host": "host", "domain": "host"}
_SHAPE = re.compile(r"([A-Za-z0-9_\-*?!\[\]]+)(?:\((.*)\))?", re.DOTALL)
_PREFIX = re.compile(r"\s*(path|command|host|domain):(.*)", re.DOTALL)
_MCP = re.compile(r"mcp__(.+?)(?:__(.+))?")
_OPERATORS = frozenset({"&&", "||", "|", "|&", ";", "&", ">", ">>", "<", "<<", "<<<"})


class Shorthand(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions of a shorthand text."""

    tools: tuple[str, ...]
    origin: ToolOrigin | None = None
    server: str | None = None
    path: str | None = None
    command: CommandPattern | None = None
    host: str | None = None


class ShorthandParts(msgspec.Struct, frozen=True):
    """A parsed shorthand: the name, the kind of the pattern, and the pattern as written."""

    name: str
    kind: PatternKind | None = None
    pattern: str = ""

    @property
    def family(self) -> ToolFamily | None:
        """Tool family that the name stands for, or None."""
        return TOOL_FAMILIES.get(self.name.lower())


def parse_shorthand(text: str) -> Shorthand:
    """Parse a shorthand. Raise `ConfigurationError` with what to write instead."""
    parts = split_shorthand(text)
    named = _resolve_tool_name(parts.name)
    if parts.kind is None:
        return named
    pattern = parse_command_pattern(parts.pattern) if parts.kind == "command" else parts.pattern
    return msgspec.structs.replace(named, **{parts.kind: pattern})


def split_shorthand(text: str) -> ShorthandParts:
    """Split `Tool(pattern)` into its parts. Raise `ConfigurationError` if it is malformed."""
    found = _SHAPE.fullmatch(text.strip())
    if found is None:
        raise ConfigurationError(f"{_quote(text)} is neither a tool nor Tool(pattern)")
    name, pattern = found[1], found[2]
    if pattern is None or pattern.strip() in ("*", ":*"):
        return ShorthandParts(name)
    if not pattern.strip():
        raise ConfigurationError(f"{_quote(text)}: the parentheses are empty; write {name} for all its calls")
    family = ShorthandParts(name).family
    prefixed = _PREFIX.fullmatch(pattern)
    # `bash(host:*)` is every command that begins with the program `host`.
    if prefixed and not (family is not None and family.kind == "command" and prefixed[2] == "*"):
        if not prefixed[2].strip():
            raise ConfigurationError(f"{_quote(text)}: there is nothing after the colon")
        return ShorthandParts(name, _PREFIXES[prefixed[1]], prefixed[2].strip())
    if family is not None and family.kind is not None:
        return ShorthandParts(name, family.kind, pattern.strip())
    inside = f"{name}(domain:{pattern.strip()})" if family is not None else f"{name}(path:{pattern.strip()})"
    raise ConfigurationError(
        f"{_quote(text)}: it is not known what the pattern is about; write for example {_quote(inside)}, "
        "with path:, command: or host: before it"
    )


def expand_tool_name(name: str) -> tuple[str, ...]:
    """Return the tools behind a name: those of a family, or the name itself, which may be a glob."""
    family = TOOL_FAMILIES.get(name.lower())
    return family.tools if family is not None else (name,)


def parse_command_pattern(text: str) -> CommandPattern:
    """Return a whole command, or the first words of one when the text ends in `:*` or ` *`."""
    for end in (":*", " *"):
        if text.endswith(end):
            return CommandPattern(split_command_words(text.removesuffix(end)))
    return CommandPattern(split_command_words(text), exact=True)


def split_command_words(text: str) -> tuple[str, ...]:
    """Return the words of one plain command. A word `*` is any word."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise ConfigurationError(f"{_quote(text)} is no command: {error}") from None
    if not words or not words[0]:
        raise ConfigurationError(f"{_quote(text)}: a command has at least one word")
    if any(word in _OPERATORS or word.endswith(";") for word in words):
        raise ConfigurationError(f"{_quote(text)}: a rule is about one command at a time; write one rule for each")
    if any("*" in word for word in words) and ("'" in text or '"' in text or "\\" in text):
        raise ConfigurationError(f"{_quote(text)}: `*` is any word, in quotes too; leave the words after it out")
    if any("*" in word and word != "*" for word in words):
        raise ConfigurationError(f"{_quote(text)}: `*` is one whole word, never a part of one")
    return words


def _resolve_tool_name(name: str) -> Shorthand:
    found = _MCP.fullmatch(name)
    if found is None:
        return Shorthand(tools=expand_tool_name(name))
    server, tool = found[1], found[2]
    # Some give the tools of a server their names as they are, some put the server before them.
    return Shorthand(tools=(tool, name) if tool and tool != "*" else ("*",), origin="mcp", server=server)


def _quote(text: str) -> str:
    return repr(truncate(text, 80))
