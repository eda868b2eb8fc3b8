"""Claude Agent SDK: hooks put the gate in front of every tool that the Claude Code CLI executes.

    gate = Gate("state", policy=load_policy("policy.yaml"), risk={"Read": "read"})
    options = await interlocked(ClaudeAgentOptions(...), gate)
    async with ClaudeSDKClient(options) as client: ...

A call that a person has to approve is deferred: the last message has `deferred_tool_use`. To continue, connect a client
with `resume=session_id`, and read its messages without a prompt. The run in the log is `cc:SESSION`.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, SdkMcpTool, create_sdk_mcp_server
from claude_agent_sdk.types import McpSdkServerConfig
from mcp import Client

from ..domain.call import ToolIntent
from ..domain.errors import ConfigurationError
from ..domain.json import encode_sorted
from ..domain.tool import JsonObject, ToolContext, ToolDefinition
from ..gate.gate import Gate, Settled, Waits
from ..gate.named_run import join_run_id
from ..registry.json_schema import tool_from_schema

_FRAMEWORK = "claude-agent-sdk"
_ANY = {"type": "object"}
#: A person may take long.
_TIMEOUT_SECONDS = 24 * 3600.0
_WAITS = "A call waits for approval. Resume the session when it is answered."
_ASK_AGAIN = "Not executed: another call of this turn waits for approval. Ask again when it has its result."


class _Call(NamedTuple):
    run_id: str
    intent: ToolIntent
    waits: Waits
    agent: str

    async def settle(self, gate: Gate, execute: Any = None) -> Settled:
        run_id, intent, waits, agent = self
        return await gate.call(run_id, intent, execute, waits=waits, agent=agent, framework=_FRAMEWORK)


class _Running(NamedTuple):
    call: _Call
    task: asyncio.Task[Settled]
    outcome: asyncio.Future[Any]


#: Calls of Interlock's own tools that were permitted and that the CLI makes next, by tool and arguments.
_Permitted = defaultdict[tuple[str, bytes], list[_Call]]
#: By the server that has these tools.
_PERMITTED: WeakKeyDictionary[Any, _Permitted] = WeakKeyDictionary()


async def interlocked(options: ClaudeAgentOptions, gate: Gate) -> ClaudeAgentOptions:
    """Return the options with the gate in front of every tool.

    Raises:
        ConfigurationError: The options decide about tools in another way, too.
    """
    hooks = dict(options.hooks or {})
    if hooks.get("PreToolUse"):
        raise ConfigurationError("A `PreToolUse` hook beside the gate could change what it decided about. Remove it.")
    if options.can_use_tool is not None or options.permission_prompt_tool_name is not None:
        raise ConfigurationError("The gate asks: remove `can_use_tool` and `permission_prompt_tool_name`.")
    governor = _Governor(gate)
    await governor.declare(options.mcp_servers if isinstance(options.mcp_servers, dict) else {})
    for event, hook in (
        ("PreToolUse", governor.before),
        ("PostToolUse", governor.after),
        ("PostToolUseFailure", governor.after),
        ("UserPromptSubmit", governor.prompted),
        ("Stop", governor.stopped),
    ):
        matcher = HookMatcher(hooks=[hook], timeout=_TIMEOUT_SECONDS, on_failure="block")
        hooks[event] = [*hooks.get(event, ()), matcher]
    return replace(options, hooks=hooks)


class _Governor:
    """The hooks. The CLI executes a tool between `before` and `after`; the call of the gate lasts as long."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        #: The program's own tools by the names of the CLI: their names in the gate.
        self._names: dict[str, str] = {}
        #: Of Interlock's own tools, by the names of the CLI.
        self._own: dict[str, _Permitted] = {}
        self._running: dict[str, _Running] = {}
        #: The call that is deferred, by run. The CLI keeps only one.
        self._deferred: dict[str, str] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def declare(self, servers: Mapping[str, Any]) -> None:
        """Declare the tools of servers that run in this process."""
        for server, config in servers.items():
            if config.get("type") != "sdk":
                continue
            own = _PERMITTED.get(config["instance"])
            for tool in await _list_tools(config["instance"]):
                if tool.name in self._names.values():
                    raise ConfigurationError(f"Two servers have a tool {tool.name!r}. Rename one.")
                name = f"mcp__{server}__{tool.name}"
                self._names[name] = tool.name
                if own is not None:
                    self._own[name] = own
                else:
                    self._gate.declare(tool.name, tool.description or "", tool.input_schema, source=_FRAMEWORK)

    async def before(self, data: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
        """Decide about a call."""
        name = self._names.get(data["tool_name"], data["tool_name"])
        if data["tool_name"] not in self._names:  # a tool of the CLI, which checks the arguments, or of another server
            self._gate.declare(name, "", _ANY, source=_FRAMEWORK)
        intent = ToolIntent(call_id=data["tool_use_id"], tool_name=name, arguments=data["tool_input"])
        run_id, agent = _find_run_id(data), data.get("agent_type") or ""
        own = self._own.get(data["tool_name"])
        if data.get("agent_id"):  # the CLI does not defer the call of a sub-agent: it waits for its answer
            return await self._decide(_Call(run_id, intent, "inline", agent), own)
        async with self._locks[run_id]:
            if self._deferred.get(run_id, intent.call_id) != intent.call_id:
                return _answer("deny", permissionDecisionReason=_ASK_AGAIN)
            self._deferred.pop(run_id, None)
            return await self._decide(_Call(run_id, intent, "pause", agent), own)

    async def _decide(self, call: _Call, own: _Permitted | None) -> dict[str, Any]:
        if own is not None:
            judged = await self._gate.judge(call.run_id, call.intent, agent=call.agent, framework=_FRAMEWORK)
            settled = Settled(judged.observation, judged.question)
            if judged.verdict == "allow" or (judged.verdict == "ask" and call.waits == "inline"):
                own[_key(call.intent.tool_name, call.intent.arguments)].append(call)
                return _answer("allow")
        else:
            loop = asyncio.get_running_loop()
            permitted: asyncio.Future[JsonObject] = loop.create_future()
            outcome: asyncio.Future[Any] = loop.create_future()

            async def execute(arguments: JsonObject) -> Any:
                permitted.set_result(arguments)
                return await outcome

            task = asyncio.create_task(call.settle(self._gate, execute))
            await asyncio.wait([task, permitted], return_when=asyncio.FIRST_COMPLETED)
            if permitted.done():
                self._running[call.intent.call_id] = _Running(call, task, outcome)
                edited = permitted.result() != call.intent.arguments
                return _answer("allow", **({"updatedInput": permitted.result()} if edited else {}))
            settled = await task
        if settled.question is None:
            return _answer("deny", permissionDecisionReason=settled.text)
        self._deferred[call.run_id] = call.intent.call_id
        return _answer("defer", permissionDecisionReason=settled.question.prompt)

    async def after(self, data: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
        """Record the outcome of a call. The model reads it as it was recorded."""
        running = self._running.pop(data["tool_use_id"], None)
        if running is None:
            return {}
        if data["hook_event_name"] == "PostToolUseFailure":
            running.outcome.set_exception(RuntimeError(str(data.get("error"))))
            await running.task
            return {}
        value = data.get("tool_response")
        running.outcome.set_result(value)
        shown = (await running.task).result
        if shown == value:
            return {}
        if isinstance(value, list) and not isinstance(shown, list):
            shown = [{"type": "text", "text": str(shown)}]
        return {"hookSpecificOutput": {"hookEventName": "PostToolUse", "updatedToolOutput": shown}}

    async def prompted(self, data: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
        """Refuse a prompt while a call waits for approval: the CLI would drop the call."""
        run_id = _find_run_id(data)
        if run_id in self._deferred and await self._gate.questions(run_id):
            return {"decision": "block", "reason": _WAITS}
        self._deferred.pop(run_id, None)
        return {}

    async def stopped(self, data: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
        """Let other processes continue the run."""
        run_id = _find_run_id(data)
        for call_id, running in list(self._running.items()):
            if running.call.run_id == run_id and running.call.waits == "pause":  # permitted, and then not executed
                del self._running[call_id]
                running.outcome.set_exception(RuntimeError("The CLI reported no outcome: its own rules may deny it."))
                await running.task
        await self._gate.release(run_id)
        return {}


def interlock_tools(gate: Gate, *tools: Any) -> McpSdkServerConfig:
    """Return a server with Interlock's own tools, such as `LocalTools(".")`, for `mcp_servers`."""
    permitted: _Permitted = defaultdict(list)

    def convert(definition: ToolDefinition) -> SdkMcpTool[Any]:
        async def handler(arguments: JsonObject) -> dict[str, Any]:
            calls = permitted[_key(definition.name, arguments)]
            if not calls:
                raise ConfigurationError("The call was not permitted. Use the options that `interlocked` returns.")
            settled = await calls.pop(0).settle(gate)
            return {"content": [{"type": "text", "text": str(settled.result)}], "is_error": not settled.ok}

        spec = definition.spec
        return SdkMcpTool(definition.name, spec.description, spec.parameters_schema, handler)

    server = create_sdk_mcp_server("interlock", tools=[convert(definition) for definition in gate.tools(*tools)])
    _PERMITTED[server["instance"]] = permitted
    return server


async def tools(given: list[SdkMcpTool[Any]], **options: Any) -> list[ToolDefinition]:
    """Return tools of the SDK for Interlock's own `Agent`. The options are those of `tool`, such as `risk="read"`."""
    handlers = {tool.name: tool.handler for tool in given}

    async def handle(arguments: JsonObject, context: ToolContext) -> str:
        result = await handlers[context.tool_name](arguments)
        text = "\n".join(str(block.get("text", block)) for block in result.get("content", ()))
        if result.get("is_error"):
            raise RuntimeError(text)
        return text

    listed = await _list_tools(create_sdk_mcp_server("tools", tools=given)["instance"])
    return [
        tool_from_schema(tool.name, tool.description or "", tool.input_schema, handle, **options) for tool in listed
    ]


async def _list_tools(server: Any) -> list[Any]:
    async with Client(server) as client:
        return list((await client.list_tools()).tools)


def _answer(decision: str, **fields: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": decision, **fields}}


def _find_run_id(data: Any) -> str:
    return join_run_id("cc", data["session_id"])


def _key(name: str, arguments: JsonObject) -> tuple[str, bytes]:
    return name, encode_sorted(arguments)
