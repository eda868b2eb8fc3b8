"""An MCP server that offers what the conformance suite asks for, at both protocol eras.

`python -m tests.mcp.conformance.fixture_server --http PORT` serves it alone: its tools and prompts have the names that
the suite knows, which begin with `test_`. Without an option it serves standard input and output, for a gateway that
knows it as `test`: there the gateway adds the beginning.
"""

import asyncio
import base64
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import mcp_types as types
import uvicorn
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

Context: TypeAlias = ServerRequestContext[Any, Any]
Result: TypeAlias = types.CallToolResult | types.InputRequiredResult
Work: TypeAlias = Callable[[Context, types.CallToolRequestParams], Awaitable[Result]]

PNG = base64.b64encode(bytes.fromhex("89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489")).decode()
WAV = base64.b64encode(
    b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x40\x1f\0\0\x40\x1f\0\0\1\0\x08\0data\0\0\0\0"
).decode()
STATIC, BINARY, WATCHED = "test://static-text", "test://static-binary", "test://watched-resource"
TEMPLATE_START, TEMPLATE_END = "test://template/", "/data"
PROMPTS = {
    "simple_prompt": (),
    "prompt_with_arguments": ("arg1", "arg2"),
    "prompt_with_embedded_resource": ("resourceUri",),
    "prompt_with_image": (),
    "input_required_result_prompt": (),
}

bus = InMemorySubscriptionBus()
more_tools: list[str] = []


def say(*texts: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text) for text in texts])


def form(message: str, properties: dict[str, Any], *required: str) -> types.ElicitRequest:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def sample(text: str) -> types.CreateMessageRequest:
    message = types.SamplingMessage(role="user", content=types.TextContent(text=text))
    return types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[message], max_tokens=100))


def is_modern(ctx: Context) -> bool:
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def ask(requests: dict[str, Any], state: Any = None) -> types.InputRequiredResult:
    return types.InputRequiredResult(
        input_requests=requests, request_state=None if state is None else json.dumps(state)
    )


def content_of(response: Any) -> dict[str, Any]:
    """Return what a form was filled in with; empty when it was not."""
    return dict(getattr(response, "content", None) or {}) if getattr(response, "action", "") == "accept" else {}


async def simple_text(ctx: Context, params: types.CallToolRequestParams) -> Result:
    return say("This is a simple text response for testing.")


async def image_content(ctx: Context, params: types.CallToolRequestParams) -> Result:
    return types.CallToolResult(content=[types.ImageContent(data=PNG, mime_type="image/png")])


async def audio_content(ctx: Context, params: types.CallToolRequestParams) -> Result:
    return types.CallToolResult(content=[types.AudioContent(data=WAV, mime_type="audio/wav")])


def resource(uri: str, mime_type: str, text: str) -> types.EmbeddedResource:
    return types.EmbeddedResource(resource=types.TextResourceContents(uri=uri, mime_type=mime_type, text=text))


async def embedded_resource(ctx: Context, params: types.CallToolRequestParams) -> Result:
    return types.CallToolResult(content=[resource("test://embedded-resource", "text/plain", "An embedded resource.")])


async def multiple_content_types(ctx: Context, params: types.CallToolRequestParams) -> Result:
    return types.CallToolResult(
        content=[
            types.TextContent(text="Multiple content types test:"),
            types.ImageContent(data=PNG, mime_type="image/png"),
            resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
        ]
    )


async def tool_with_logging(ctx: Context, params: types.CallToolRequestParams) -> Result:
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        note = types.LoggingMessageNotificationParams(level="info", data=text)
        if not is_modern(ctx) or types.LOG_LEVEL_META_KEY in (ctx.meta or {}):
            await ctx.session.send_notification(types.LoggingMessageNotification(params=note), ctx.request_id)
    return say("Tool with logging executed successfully")


async def error_handling(ctx: Context, params: types.CallToolRequestParams) -> Result:
    text = types.TextContent(text="This tool intentionally returns an error for testing")
    return types.CallToolResult(content=[text], is_error=True)


async def tool_with_progress(ctx: Context, params: types.CallToolRequestParams) -> Result:
    for done in (0, 50, 100):
        await ctx.session.report_progress(done, 100, f"Completed step {done} of 100")
    return say("Tool with progress executed successfully")


async def sampling(ctx: Context, params: types.CallToolRequestParams) -> Result:
    request = sample((params.arguments or {})["prompt"])
    if is_modern(ctx):
        answer: Any = (params.input_responses or {}).get("answer")
        if answer is None:
            return ask({"answer": request})
    else:
        related = ServerMessageMetadata(related_request_id=ctx.request_id)
        answer = await ctx.session.send_request(request, types.CreateMessageResult, metadata=related)
    return say(f"LLM response: {answer.content.text}")


async def elicit(ctx: Context, params: types.CallToolRequestParams, request: types.ElicitRequest) -> Result:
    if is_modern(ctx):
        answer: Any = (params.input_responses or {}).get("answer")
        if answer is None:
            return ask({"answer": request})
    else:
        related = ServerMessageMetadata(related_request_id=ctx.request_id)
        answer = await ctx.session.send_request(request, types.ElicitResult, metadata=related)
    return say(f"Elicitation completed: action={answer.action}, content={json.dumps(answer.content or {})}")


async def elicitation(ctx: Context, params: types.CallToolRequestParams) -> Result:
    fields = {"username": {"type": "string"}, "email": {"type": "string"}}
    return await elicit(ctx, params, form((params.arguments or {})["message"], fields, *fields))


async def elicitation_sep1034_defaults(ctx: Context, params: types.CallToolRequestParams) -> Result:
    fields: dict[str, Any] = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    return await elicit(ctx, params, form("Please look at the defaults.", fields))


async def elicitation_sep1330_enums(ctx: Context, params: types.CallToolRequestParams) -> Result:
    titled = [{"const": f"value{number}", "title": f"Option {number}"} for number in (1, 2, 3)]
    names, values = ["option1", "option2", "option3"], ["opt1", "opt2", "opt3"]
    fields: dict[str, Any] = {
        "untitledSingle": {"type": "string", "enum": names},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {"type": "string", "enum": values, "enumNames": ["Option One", "Option Two", "Option Three"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": names}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    return await elicit(ctx, params, form("Please choose.", fields))


async def missing_capability(ctx: Context, params: types.CallToolRequestParams) -> Result:
    """Need the client's model, which not every client has."""
    capabilities = ctx.session.client_capabilities
    if capabilities is None or capabilities.sampling is None:
        required: Any = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "This needs sampling.", required)
    if "answer" not in (params.input_responses or {}):
        return ask({"answer": sample("Say something.")})
    return say("done")


async def input_required_result_elicitation(ctx: Context, params: types.CallToolRequestParams) -> Result:
    name = content_of((params.input_responses or {}).get("user_name")).get("name")
    if not isinstance(name, str):
        return ask({"user_name": form("What is your name?", {"name": {"type": "string"}}, "name")})
    return say(f"Hello, {name}!")


async def input_required_result_sampling(ctx: Context, params: types.CallToolRequestParams) -> Result:
    answer: Any = (params.input_responses or {}).get("capital_question")
    if not isinstance(answer, types.CreateMessageResult | types.CreateMessageResultWithTools):
        return ask({"capital_question": sample("What is the capital of France?")})
    return say(f"The model says: {getattr(answer.content, 'text', '')}")


async def input_required_result_list_roots(ctx: Context, params: types.CallToolRequestParams) -> Result:
    answer = (params.input_responses or {}).get("client_roots")
    if not isinstance(answer, types.ListRootsResult):
        return ask({"client_roots": types.ListRootsRequest()})
    return say("Roots: " + ", ".join(str(root.uri) for root in answer.roots))


async def input_required_result_request_state(ctx: Context, params: types.CallToolRequestParams) -> Result:
    if params.request_state is None or "confirm" not in (params.input_responses or {}):
        return ask({"confirm": form("Please confirm", {"ok": {"type": "boolean"}}, "ok")}, "waiting")
    return say("state-ok")


async def input_required_result_multiple_inputs(ctx: Context, params: types.CallToolRequestParams) -> Result:
    asked = {
        "user_name": form("What is your name?", {"name": {"type": "string"}}, "name"),
        "greeting": sample("Generate a greeting"),
        "client_roots": types.ListRootsRequest(),
    }
    if params.request_state is None or not asked.keys() <= (params.input_responses or {}).keys():
        return ask(asked, "waiting")
    return say("All inputs received.")


async def input_required_result_multi_round(ctx: Context, params: types.CallToolRequestParams) -> Result:
    state = None if params.request_state is None else json.loads(params.request_state)
    given = params.input_responses or {}
    if state is None or (state["round"] == 1 and "step1" not in given):
        return ask({"step1": form("Step 1: What is your name?", {"name": {"type": "string"}}, "name")}, {"round": 1})
    if state["round"] == 1 or "step2" not in given:
        question = form("Step 2: What is your favorite color?", {"color": {"type": "string"}}, "color")
        name = state.get("name") or content_of(given.get("step1")).get("name")
        return ask({"step2": question}, {"round": 2, "name": name})
    return say(f"{state['name']} likes {content_of(given['step2']).get('color')}.")


async def input_required_result_capabilities(ctx: Context, params: types.CallToolRequestParams) -> Result:
    capabilities = ctx.session.client_capabilities or types.ClientCapabilities()
    requests: dict[str, Any] = {}
    if capabilities.elicitation is not None:
        requests["form"] = form("Please confirm", {"ok": {"type": "boolean"}}, "ok")
    if capabilities.sampling is not None:
        requests["sample"] = sample("Say something.")
    if not requests or params.input_responses:
        return say("Nothing to ask.")
    return ask(requests)


async def trigger_tool_change(ctx: Context, params: types.CallToolRequestParams) -> Result:
    more_tools.append(f"more_{len(more_tools)}")
    await bus.publish(ToolsListChanged())
    if not is_modern(ctx):
        await ctx.session.send_tool_list_changed()
    return say("There is one more tool.")


async def trigger_prompt_change(ctx: Context, params: types.CallToolRequestParams) -> Result:
    await bus.publish(PromptsListChanged())
    return say("The prompts changed.")


TOOLS: dict[str, tuple[Work, tuple[str, ...]]] = {
    work.__name__: (work, fields)
    for work, fields in (
        (simple_text, ()),
        (image_content, ()),
        (audio_content, ()),
        (embedded_resource, ()),
        (multiple_content_types, ()),
        (tool_with_logging, ()),
        (error_handling, ()),
        (tool_with_progress, ()),
        (sampling, ("prompt",)),
        (elicitation, ("message",)),
        (elicitation_sep1034_defaults, ()),
        (elicitation_sep1330_enums, ()),
        (missing_capability, ()),
        (input_required_result_elicitation, ()),
        (input_required_result_sampling, ()),
        (input_required_result_list_roots, ()),
        (input_required_result_request_state, ()),
        (input_required_result_multiple_inputs, ()),
        (input_required_result_multi_round, ()),
        (input_required_result_capabilities, ()),
        (trigger_tool_change, ()),
        (trigger_prompt_change, ()),
    )
}
TOOLS["logging_tool"] = (tool_with_logging, ())
TOOLS["streaming_elicitation"] = (input_required_result_elicitation, ())
TOOLS["input_required_result_tampered_state"] = (input_required_result_request_state, ())


def make_server(prefix: str) -> Server[Any]:  # noqa: C901, PLR0915 - one function for each method
    """Return the server. Names begin with the prefix."""

    async def list_tools(ctx: Context, params: Any) -> types.ListToolsResult:
        tools = [
            types.Tool(
                name=prefix + name,
                description=f"Tests {name.replace('_', ' ')}.",
                input_schema={
                    "type": "object",
                    "properties": {field: {"type": "string"} for field in fields},
                    "required": list(fields),
                },
                annotations=types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
            )
            for name, (_, fields) in [*TOOLS.items(), *((more, TOOLS["simple_text"]) for more in more_tools)]
        ]
        return types.ListToolsResult(tools=tools, ttl_ms=0, cache_scope="private")

    async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> Result:
        found = TOOLS.get(params.name.removeprefix(prefix))
        if found is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}")
        return await found[0](ctx, params)

    async def list_resources(ctx: Context, params: Any) -> types.ListResourcesResult:
        found = [
            types.Resource(uri=STATIC, name="Static text", description="A text", mime_type="text/plain"),
            types.Resource(uri=BINARY, name="Static binary", description="An image", mime_type="image/png"),
            types.Resource(uri=WATCHED, name="Watched", description="It changes", mime_type="text/plain"),
        ]
        return types.ListResourcesResult(resources=found, ttl_ms=0, cache_scope="private")

    async def list_templates(ctx: Context, params: Any) -> types.ListResourceTemplatesResult:
        uri = f"{TEMPLATE_START}{{id}}{TEMPLATE_END}"
        found = [types.ResourceTemplate(uri_template=uri, name="Data", mime_type="application/json")]
        return types.ListResourceTemplatesResult(resource_templates=found, ttl_ms=0, cache_scope="private")

    async def read_resource(ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        uri = str(params.uri)
        contents: Any
        if uri == STATIC:
            contents = types.TextResourceContents(
                uri=uri, mime_type="text/plain", text="This is the content of the static text resource."
            )
        elif uri == BINARY:
            contents = types.BlobResourceContents(uri=uri, mime_type="image/png", blob=PNG)
        elif uri == WATCHED:
            contents = types.TextResourceContents(uri=uri, mime_type="text/plain", text="Watched resource content")
        elif uri.startswith(TEMPLATE_START) and uri.endswith(TEMPLATE_END):
            found = uri.removeprefix(TEMPLATE_START).removesuffix(TEMPLATE_END)
            text = json.dumps({"id": found, "templateTest": True, "data": f"Data for ID: {found}"})
            contents = types.TextResourceContents(uri=uri, mime_type="application/json", text=text)
        else:
            raise MCPError(types.INVALID_PARAMS, "Resource not found", {"uri": uri})
        return types.ReadResourceResult(contents=[contents], ttl_ms=0, cache_scope="private")

    async def list_prompts(ctx: Context, params: Any) -> types.ListPromptsResult:
        found = [
            types.Prompt(
                name=prefix + name,
                description=f"Tests {name}",
                arguments=[types.PromptArgument(name=argument, required=True) for argument in arguments],
            )
            for name, arguments in PROMPTS.items()
        ]
        return types.ListPromptsResult(prompts=found, ttl_ms=0, cache_scope="private")

    async def get_prompt(
        ctx: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | types.InputRequiredResult:
        values = params.arguments or {}
        blocks: list[Any]
        match params.name.removeprefix(prefix):
            case "simple_prompt":
                blocks = [types.TextContent(text="This is a simple prompt for testing.")]
            case "prompt_with_arguments":
                text = f"Prompt with arguments: arg1='{values['arg1']}', arg2='{values['arg2']}'"
                blocks = [types.TextContent(text=text)]
            case "prompt_with_embedded_resource":
                block = resource(values["resourceUri"], "text/plain", "Embedded resource content for testing.")
                blocks = [block, types.TextContent(text="Please process the embedded resource above.")]
            case "prompt_with_image":
                image = types.ImageContent(data=PNG, mime_type="image/png")
                blocks = [image, types.TextContent(text="Please analyze the image above.")]
            case "input_required_result_prompt":
                found = content_of((params.input_responses or {}).get("user_context")).get("context")
                if found is None:
                    question = form("Which context?", {"context": {"type": "string"}}, "context")
                    return ask({"user_context": question})
                blocks = [types.TextContent(text=f"Use the context {found}.")]
            case _:
                raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {params.name}")
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=block) for block in blocks])

    async def complete(ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        return types.CompleteResult(completion=types.Completion(values=["paris", "park", "party"], total=3))

    async def accept(ctx: Context, params: Any) -> types.EmptyResult:
        return types.EmptyResult()

    server: Server[Any] = Server(
        "fixture",
        version="1",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_completion=complete,
        on_subscribe_resource=accept,
        on_unsubscribe_resource=accept,
        on_subscriptions_listen=ListenHandler(bus),
    )
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, accept)
    security = RequestStateSecurity(keys=[os.urandom(32)], ttl=600)
    server.middleware.append(RequestStateBoundary(security, default_audience="fixture"))
    return server


async def serve_stdio() -> None:
    server = make_server("")
    options = server.create_initialization_options(NotificationOptions(tools_changed=True))
    async with stdio_server() as (read, write):
        await server.run(read, write, options)


if __name__ == "__main__":
    if "--http" in sys.argv:
        port = int(sys.argv[sys.argv.index("--http") + 1])
        uvicorn.run(make_server("test_").streamable_http_app(), port=port, log_level="error")
    else:
        asyncio.run(serve_stdio())
