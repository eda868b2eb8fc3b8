"""Definitions of MCP servers as tools of the runtime.

A definition is untrusted: it is limited in size, depth and number of properties, its schemas are compiled without
fetching anything, and what people and models read of it has no characters that act on them. Its version is the digest
of the whole definition, so an approval is bound to every field of it.
"""

import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec
from mcp_types import Tool, ToolAnnotations

from ...domain import json
from ...domain.errors import ToolDeclarationError
from ...domain.rendering import neutralize
from ...domain.tool import CallContext, JsonObject, Risk, SandboxScope, ToolDefinition
from ...registry.decorator import ToolOptions
from ...registry.interface import Toolbox
from ...registry.json_schema import SchemaHandler, compile_schema, tool_from_schema
from ...rendering.text import shorten
from .servers_file import ServerConfig

MAX_TOOL_NAME_CHARS = 48
_MAX_DEFINITION_BYTES = 256 * 1024
_MAX_PROPERTIES = 2_000
_MAX_DESCRIPTION_CHARS = 8_000
_MAX_TITLE_CHARS = 200
#: Keywords of a schema whose texts are for readers, and those whose values are compared with arguments.
_READ_TEXTS = frozenset({"title", "description", "$comment"})
_COMPARED = frozenset({"const", "enum", "default", "examples", "required"})
_FOLDED = re.compile(r"[^a-z0-9_]")


class ForeignTool(msgspec.Struct, frozen=True):
    """A tool as its server defines it, once it was checked."""

    #: Its name here.
    name: str
    raw: Tool
    #: The digest of the whole definition.
    digest: str
    #: Why it cannot be used; empty: it can.
    problem: str = ""

    @property
    def document(self) -> JsonObject:
        """The definition as JSON, as the server sent it, without unknown fields."""
        return to_document(self.raw)


def to_document(raw: Tool) -> JsonObject:
    """Return a definition as JSON."""
    return raw.model_dump(by_alias=True, mode="json", exclude_none=True)


def compute_digest(document: JsonObject) -> str:
    """Return the digest of a whole definition."""
    return "sha256:" + sha256(json.encode_sorted(document)).hexdigest()


def name_tool(server: str, upstream_name: str) -> str:
    """Return the name of a tool here: lower case, letters, digits and underscores, with the server before it."""
    return f"{server}_{_FOLDED.sub('_', upstream_name.lower())}"


def read_tool(server: str, raw: Tool) -> ForeignTool:
    """Check a definition. What is wrong with it is its `problem`."""
    name = name_tool(server, raw.name)
    try:
        json.check_value(document := to_document(raw))
        digest = compute_digest(document)
    except (ValueError, TypeError, RecursionError) as error:
        digest = "sha256:" + sha256(repr(raw.name).encode()).hexdigest()
        return ForeignTool(name, raw, digest, f"its definition is not usable: {error}")
    return ForeignTool(name, raw, digest, _find_problem(name, raw, document))


def _find_problem(name: str, raw: Tool, document: JsonObject) -> str:
    if len(name) > MAX_TOOL_NAME_CHARS:
        return f"its name here, {name[:100]!r}, has more than {MAX_TOOL_NAME_CHARS} characters"
    size_bytes = len(json.encode(document))
    if size_bytes > _MAX_DEFINITION_BYTES:
        return f"its definition has {size_bytes:,} bytes; the limit is {_MAX_DEFINITION_BYTES:,}"
    schemas = [raw.input_schema, *([] if raw.output_schema is None else [raw.output_schema])]
    count = sum(1 for schema in schemas for _ in _properties(schema))
    if count > _MAX_PROPERTIES:
        return f"its schemas have {count:,} properties; the limit is {_MAX_PROPERTIES:,}"
    return ""


def _properties(schema: Any) -> Iterator[str]:
    """Yield the names of all properties in a schema. It was checked to be of bounded depth."""
    if isinstance(schema, list):
        for item in cast(list[Any], schema):
            yield from _properties(item)
    elif isinstance(schema, dict):
        for key, value in cast(JsonObject, schema).items():
            if key == "properties" and isinstance(value, dict):
                yield from cast(JsonObject, value)
            yield from _properties(value)


class OutputCheck:
    """The schema of a tool's structured output."""

    def __init__(self, schema: JsonObject) -> None:
        self._validator = compile_schema(schema)

    def find_problem(self, value: Any) -> str:
        """Return why a value does not fit; empty when it does."""
        if self._validator.is_valid(value):
            return ""
        error = next(iter(self._validator.iter_errors(value)), None)
        path = "/".join(map(str, error.instance_path)) if error is not None else ""
        return shorten(f"{path or 'the value'}: {error.message if error is not None else 'does not fit'}", 300)


def build_definition(
    tool: ForeignTool, config: ServerConfig, handler: SchemaHandler, toolbox: Toolbox
) -> ToolDefinition:
    """Make a tool of the runtime. Raise `ToolDeclarationError` when its schema cannot be used."""
    raw = tool.raw
    risk, read_only, idempotent = _choose_risk(config, raw.annotations)
    options: ToolOptions = {
        "risk": risk,
        "read_only": read_only,
        "idempotent": idempotent,
        "version": tool.digest,
        "timeout_seconds": config.timeout_seconds,
        "origin": "mcp",
        "source": config.name,
        "concurrency": "safe",  # the server orders its calls
    }
    if config.consent is not None:
        options["consent"] = config.consent
    definition = tool_from_schema(tool.name, _describe(tool, config), raw.input_schema, handler, **options)
    shown = cast(JsonObject, _clean_schema(definition.spec.parameters_schema))
    spec = msgspec.structs.replace(definition.spec, parameters_schema=shown)
    scope = _find_scope(config)

    def describe_scope(arguments: JsonObject, situation: CallContext) -> SandboxScope:
        return scope

    return msgspec.structs.replace(
        definition,
        spec=spec,
        source_name=raw.name,
        label=clean_text(_find_title(tool), _MAX_TITLE_CHARS),
        toolbox=toolbox,
        reach=describe_scope,
    )


def _find_scope(config: ServerConfig) -> SandboxScope:
    """Return what the server can access: its calls run there, and not in this process."""
    if config.url:
        return SandboxScope(sandbox="remote", profile=urlsplit(config.url).hostname or "")
    if config.sandbox is None or not config.command:
        return SandboxScope(sandbox="none", profile="mcp server")
    profile = "workspace-write" if config.sandbox.write else "read-only"
    return SandboxScope(sandbox="mcp server", profile=f"{profile}+hosts" if config.sandbox.network else profile)


def build_quarantined(tool: ForeignTool, config: ServerConfig, reason: str, toolbox: Toolbox) -> ToolDefinition:
    """Make the place holder of a tool that may not be called. Nothing of its new definition is offered."""

    async def refuse(arguments: JsonObject, context: object) -> None:
        raise ToolDeclarationError(reason)

    definition = tool_from_schema(
        tool.name, "In quarantine.", {}, refuse, version=tool.digest, origin="mcp", source=config.name, risk="write"
    )
    return msgspec.structs.replace(definition, source_name=tool.raw.name, toolbox=toolbox, quarantine=reason)


def _choose_risk(config: ServerConfig, hints: ToolAnnotations | None) -> tuple[list[Risk], bool, bool]:
    """Return risks, and whether it only reads, and whether it may run again."""
    if config.trust == "none" or hints is None:
        return [Risk.WRITE, Risk.NETWORK], False, False
    read_only = hints.read_only_hint is True
    risk = [Risk.READ if read_only else Risk.WRITE]
    if config.has_network and hints.open_world_hint is not False:
        risk.append(Risk.NETWORK)
    return risk, read_only, read_only or hints.idempotent_hint is True


def _describe(tool: ForeignTool, config: ServerConfig) -> str:
    raw = tool.raw
    lines = [clean_text(_find_title(tool), _MAX_TITLE_CHARS), clean_text(raw.description or "", _MAX_DESCRIPTION_CHARS)]
    if config.is_local and config.sandbox is None:
        lines.append("[The server of this tool runs without a sandbox.]")
    return "\n".join(dict.fromkeys(filter(None, lines)))


def _find_title(tool: ForeignTool) -> str:
    raw = tool.raw
    return raw.title or (raw.annotations.title if raw.annotations is not None else None) or ""


def _clean_schema(schema: Any) -> Any:
    """Return a schema whose texts for readers are clean. Names and values that are compared stay as they are."""
    if isinstance(schema, list):
        return [_clean_schema(item) for item in cast(list[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    return {
        key: clean_text(value, _MAX_DESCRIPTION_CHARS)
        if key in _READ_TEXTS and isinstance(value, str)
        else value
        if key in _COMPARED
        else _clean_schema(value)
        for key, value in cast(JsonObject, schema).items()
    }


def clean_text(text: str, max_chars: int) -> str:
    """Return a text without characters that act on a terminal, are not seen, or change the direction of reading."""
    return shorten(neutralize(text[: 4 * max_chars]), max_chars).strip()
