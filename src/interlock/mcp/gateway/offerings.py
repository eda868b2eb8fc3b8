"""Resources, prompts and completion of the servers behind the gateway.

Reading a resource, getting a prompt and completing an argument are governed calls of tools that clients do not see:
`fs-read-resource`, `fs-get-prompt` and `fs-complete` for the server `fs`. So rules for the server apply, and what comes
back is redacted, cut and recorded like any other output. Lists are relayed as they are, within limits.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import mcp_types as types
from mcp import Client, MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from ...domain.errors import CallFailedError
from ...domain.observation import Observation
from ...domain.tool import JsonObject, NormalizedOutput, ToolContext, ToolDefinition
from ...registry.json_schema import tool_from_schema
from ...rendering.text import shorten
from ..client.connection import MAX_ROUNDS, InvalidResultError, UpstreamRpcError
from ..client.results import to_call_result, to_output, to_upstream_error
from ..client.server import McpServer

_MAX_PAGES = 100
_MAX_ITEMS = 1_000
_MAX_MESSAGE_CHARS = 1_000
_MAX_OUTPUT_CHARS = 1_000_000
_TIMEOUT_SECONDS = 300.0
_ROLES_META = "dev.interlock/prompt"
_READ, _PROMPT, _COMPLETE = "read-resource", "get-prompt", "complete"
_TEXT = {"type": "string", "maxLength": 10_000}
_SCHEMAS: Mapping[str, JsonObject] = {
    _READ: {"type": "object", "properties": {"uri": _TEXT}, "required": ["uri"]},
    _PROMPT: {
        "type": "object",
        "properties": {"name": _TEXT, "arguments": {"type": "object", "additionalProperties": {"type": "string"}}},
        "required": ["name"],
    },
    _COMPLETE: {
        "type": "object",
        "properties": {"ref": {"type": "object"}, "argument": {"type": "object"}, "context": {"type": "object"}},
        "required": ["ref", "argument"],
    },
}
#: An expression of a URI template.
_EXPRESSION = re.compile(r"\{[^{}]*\}")
_MAX_TEMPLATE_CHARS = 2_000

_ResultT = TypeVar("_ResultT", types.ReadResourceResult, types.GetPromptResult)
_PageT = TypeVar("_PageT", types.ListResourcesResult, types.ListResourceTemplatesResult, types.ListPromptsResult)


class Offerings:
    """What servers offer beside their tools."""

    def __init__(self, servers: Mapping[str, McpServer]) -> None:
        self._servers = servers
        #: The server of each resource that was listed.
        self._owners: dict[str, str] = {}
        self._templates: dict[tuple[str, ...], str] = {}
        self._subscriptions: dict[tuple[str, object], asyncio.Task[None]] = {}
        #: Tools that clients do not see.
        self.tools: list[ToolDefinition] = [
            self._define(server, operation) for server in servers.values() for operation in _SCHEMAS
        ]
        self.tool_names = frozenset(tool.name for tool in self.tools)

    async def list_resources(self) -> list[types.Resource]:
        """List the resources of all servers. Of several with one address, that of the first server counts."""
        found: dict[str, types.Resource] = {}
        async for server, client in self._clients("resources"):
            async for page in _pages(client.session.list_resources):
                for resource in page.resources[: _MAX_ITEMS - len(found)]:
                    if found.setdefault(str(resource.uri), resource) is resource:
                        self._owners[str(resource.uri)] = server
        return list(found.values())

    async def list_templates(self) -> list[types.ResourceTemplate]:
        """List the templates of resources of all servers."""
        found: dict[str, types.ResourceTemplate] = {}
        owners: dict[tuple[str, ...], str] = {}
        async for server, client in self._clients("resources"):
            async for page in _pages(client.session.list_resource_templates):
                for template in page.resource_templates[: _MAX_ITEMS - len(found)]:
                    if found.setdefault(template.uri_template, template) is template:
                        owners[_split_template(template.uri_template)] = server
        self._templates = owners
        return list(found.values())

    async def list_prompts(self) -> list[types.Prompt]:
        """List the prompts of all servers, each with the name of its server before its own."""
        found: list[types.Prompt] = []
        async for server, client in self._clients("prompts"):
            async for page in _pages(client.session.list_prompts):
                prompts = page.prompts[: _MAX_ITEMS - len(found)]
                found += [prompt.model_copy(update={"name": f"{server}_{prompt.name}"}) for prompt in prompts]
        return found

    async def find_resource_owner(self, uri: str) -> str:
        """Return the server of a resource. Raise `MCPError` when there is none."""
        for attempt in range(2):
            if uri in self._owners:
                return self._owners[uri]
            for literals, server in self._templates.items():
                if _is_described(uri, literals):
                    return server
            if not attempt:
                await self.list_resources()
                await self.list_templates()
        candidates = [server async for server, _ in self._clients("resources")]
        if len(candidates) == 1:
            return candidates[0]
        raise MCPError(types.INVALID_PARAMS, f"Resource not found: {shorten(uri, 200)}", {"uri": shorten(uri, 2_000)})

    def find_prompt_owner(self, name: str) -> tuple[str, str]:
        """Return the server of a prompt, and its name there. Raise `MCPError` when there is none."""
        for server in sorted(self._servers, key=len, reverse=True):
            if name.startswith(f"{server}_"):
                return server, name.removeprefix(f"{server}_")
        raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {shorten(name, 200)}")

    async def find_completion_owner(self, ref: types.PromptReference | types.ResourceTemplateReference) -> str:
        """Return the server that completes an argument."""
        if isinstance(ref, types.PromptReference):
            return self.find_prompt_owner(ref.name)[0]
        literals = _split_template(ref.uri)
        if literals not in self._templates:
            await self.list_templates()
        return self._templates.get(literals) or await self.find_resource_owner(ref.uri)

    async def subscribe(self, uri: str, subscriber: object, notify: Callable[[str], Awaitable[None]]) -> None:
        """Notify a client when a resource changes. Servers of older protocol versions are not asked for that."""
        client = self._servers[await self.find_resource_owner(uri)].client
        if client is None or client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            raise MCPError(types.METHOD_NOT_FOUND, "The server of this resource does not report changes here.")
        if len(self._subscriptions) >= _MAX_ITEMS:
            raise MCPError(types.INTERNAL_ERROR, f"There are {_MAX_ITEMS:,} subscriptions, and no more are taken.")
        self.unsubscribe(uri, subscriber)
        self._subscriptions[uri, subscriber] = asyncio.create_task(_watch(client, uri, notify))

    def unsubscribe(self, uri: str, subscriber: object) -> None:
        """Notify the client no more."""
        watching = self._subscriptions.pop((uri, subscriber), None)
        if watching is not None:
            watching.cancel()

    def close(self) -> None:
        """End all subscriptions."""
        for uri, subscriber in list(self._subscriptions):
            self.unsubscribe(uri, subscriber)

    async def _clients(self, capability: str) -> AsyncGenerator[tuple[str, Client]]:
        for name, server in self._servers.items():
            client = server.client
            if client is not None and getattr(client.server_capabilities, capability) is not None:
                yield name, client

    def _define(self, server: McpServer, operation: str) -> ToolDefinition:
        work = {_READ: _read_resource, _PROMPT: _get_prompt, _COMPLETE: _complete}[operation]

        async def call(arguments: JsonObject, context: ToolContext) -> NormalizedOutput:
            client = server.client
            if client is None:
                raise CallFailedError("upstream_error", f"The MCP server {server.name} is not connected.")
            try:
                result = await work(server, client, arguments)
            except (MCPError, UpstreamRpcError) as error:
                message = f"The MCP server {server.name} answered with error {error.code}: {error}"
                details = {"rpc_code": error.code, "rpc_message": str(error), "rpc_data": error.data}
                raise CallFailedError("upstream_error", shorten(message, _MAX_MESSAGE_CHARS), details=details) from None
            except InvalidResultError as error:
                raise CallFailedError("upstream_invalid_output", f"The MCP server {server.name}: {error}.") from None
            except ValidationError as error:
                message = f"The answer of the MCP server {server.name} has {error.error_count()} invalid fields."
                raise CallFailedError("upstream_invalid_output", message) from None
            return to_output(result, definition)

        definition = tool_from_schema(
            f"{server.name}-{operation}",
            f"{operation.replace('-', ' ').capitalize()} of the MCP server {server.name}.",
            _SCHEMAS[operation],
            call,
            risk="read",
            origin="mcp",
            source=server.name,
            concurrency="safe",
            timeout_seconds=_TIMEOUT_SECONDS,
            max_output_chars=_MAX_OUTPUT_CHARS,
        )
        return definition


def read_tool_name(server: str) -> str:
    """Return the tool that reads the resources of a server."""
    return f"{server}-{_READ}"


def prompt_tool_name(server: str) -> str:
    """Return the tool that gets the prompts of a server."""
    return f"{server}-{_PROMPT}"


def completion_tool_name(server: str) -> str:
    """Return the tool that completes arguments for a server."""
    return f"{server}-{_COMPLETE}"


async def _read_resource(server: McpServer, client: Client, arguments: JsonObject) -> types.CallToolResult:
    result = await _ask_until_done(
        server, client, lambda given: client.session.read_resource(arguments["uri"], allow_input_required=True, **given)
    )
    return types.CallToolResult(content=[types.EmbeddedResource(resource=item) for item in result.contents])


async def _get_prompt(server: McpServer, client: Client, arguments: JsonObject) -> types.CallToolResult:
    name, values = arguments["name"], arguments.get("arguments")
    result = await _ask_until_done(
        server, client, lambda given: client.session.get_prompt(name, values, allow_input_required=True, **given)
    )
    about = {"description": result.description, "roles": [message.role for message in result.messages]}
    content = [message.content for message in result.messages]
    return types.CallToolResult(content=content, _meta={_ROLES_META: about})


async def _ask_until_done(
    server: McpServer, client: Client, send: Callable[[dict[str, Any]], Awaitable[_ResultT | types.InputRequiredResult]]
) -> _ResultT:
    """Send a request again with what the server wants to know, until it has its result."""
    given: dict[str, Any] = {}
    for _ in range(MAX_ROUNDS):
        result = await send(given)
        if not isinstance(result, types.InputRequiredResult):
            return result
        given = await server.answer(client, result)
    raise CallFailedError("upstream_error", f"The MCP server {server.name} asks for input again and again.")


async def _complete(server: McpServer, client: Client, arguments: JsonObject) -> types.CallToolResult:
    params = types.CompleteRequestParams.model_validate(arguments)
    context = None if params.context is None else params.context.arguments
    argument = {"name": params.argument.name, "value": params.argument.value}
    result = await client.complete(params.ref, argument, context)
    completion = result.completion.model_dump(by_alias=True, mode="json", exclude_none=True)
    return types.CallToolResult(content=[], structured_content=completion)


async def _watch(client: Client, uri: str, notify: Callable[[str], Awaitable[None]]) -> None:
    with suppress(Exception):  # the server or the client is gone, and with it the subscription
        async with client.listen(resource_subscriptions=[uri]) as changes:
            async for _ in changes:
                await notify(uri)


def to_resource_result(observation: Observation, read_artifact: Callable[[str], bytes]) -> types.ReadResourceResult:
    """Return what was read, as a client gets it. Raise `MCPError` when it was not."""
    result = _require(observation, read_artifact)
    contents = [block.resource for block in result.content if isinstance(block, types.EmbeddedResource)]
    return types.ReadResourceResult(contents=contents, ttl_ms=0, cache_scope="private")


def to_prompt_result(observation: Observation, read_artifact: Callable[[str], bytes]) -> types.GetPromptResult:
    """Return a prompt, as a client gets it. Raise `MCPError` when there is none."""
    result = _require(observation, read_artifact)
    about: dict[str, Any] = (result.meta or {}).get(_ROLES_META) or {}
    roles: list[Any] = [*about.get("roles", ()), *("user" for _ in result.content)]
    messages = [
        types.PromptMessage(role=role, content=block) for role, block in zip(roles, result.content, strict=False)
    ]
    return types.GetPromptResult(description=about.get("description"), messages=messages)


def to_completion_result(observation: Observation, read_artifact: Callable[[str], bytes]) -> types.CompleteResult:
    """Return a completion, as a client gets it. Raise `MCPError` when there is none."""
    found = _require(observation, read_artifact).structured_content
    return types.CompleteResult(completion=types.Completion.model_validate(found))


def _require(observation: Observation, read_artifact: Callable[[str], bytes]) -> types.CallToolResult:
    error = to_upstream_error(observation)
    if error is not None:
        raise MCPError.from_error_data(error)
    if observation.failure is not None:
        raise MCPError(types.INVALID_PARAMS, f"{observation.failure.code}: {observation.failure.message}")
    return to_call_result(observation, read_artifact)


async def _pages(list_page: Callable[..., Awaitable[_PageT]]) -> AsyncGenerator[_PageT]:
    """Yield the pages of a list. A server that fails has no more."""
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        try:
            page = await list_page(params=types.PaginatedRequestParams(cursor=cursor))
        except (MCPError, ValidationError):
            return
        yield page
        cursor = page.next_cursor
        if cursor is None:
            return


def _split_template(template: str) -> tuple[str, ...]:
    """Return the parts of a URI template between its expressions."""
    return tuple(_EXPRESSION.split(template[:_MAX_TEMPLATE_CHARS]))


def _is_described(uri: str, literals: tuple[str, ...]) -> bool:
    """Return True if the address fits a template: in place of each expression there is a text without slashes."""
    first, *rest = literals
    if not rest or not uri.startswith(first):
        return uri == first and not rest
    position = len(first)
    for number, literal in enumerate(rest, 1):
        is_last = number == len(rest)
        found = len(uri) - len(literal) if is_last and uri.endswith(literal) else uri.find(literal, position + 1)
        if found <= position or "/" in uri[position:found] or (is_last and found + len(literal) != len(uri)):
            return False
        position = found + len(literal)
    return True
