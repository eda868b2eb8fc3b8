"""Claude Agent SDK: hooks put the gate in front of every tool that the Claude Code CLI executes.

    gate = Gate("state", policy=load_policy("policy.yaml"), risk={"Read": "read"})
    options = interlocked(ClaudeAgentOptions(...), gate)
    async for message in query(prompt="Refund order 7.", options=options): ...

A call that a person has to approve is deferred: the last message has `deferred_tool_use`. To continue, query again with
`resume=session_id`. The run in the log is `cc:SESSION`.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, SdkMcpTool, create_sdk_mcp_server
from mcp import Client

from ..domain.call import ToolIntent
from ..domain.errors import ConfigurationError
from ..domain.json import encode_sorted
from ..domain.tool import JsonObject, ToolContext, ToolDefinition
from ..gate.gate import Gate, Settled
from ..registry.json_schema import tool_from_schema

_FRAMEWORK = "claude-agent-sdk"
#: The name of the server with Interlock's own tools.
_OWN = "interlock"
#: A person may take long.
_TIMEOUT_SECONDS = 24 * 3600.0
_ASK_AGAIN = "Not executed: another call of this turn waits for approval. Ask again when it has its result."


def interlocked(options: ClaudeAgentOptions, gate: Gate) -> ClaudeAgentOptions:
    """Return the options with the gate in front of every tool.

    Raises:
        ConfigurationError: The options decide about tools in another way, too.
    """
    hooks = dict(options.hooks or {})
    if hooks.get("PreToolUse"):
        raise ConfigurationError("A `PreToolUse` hook beside the gate could change what it decided about. Remove it.")
    if options.can_use_tool is not None or options.permission_prompt_tool_name is not None:
        raise ConfigurationError("The gate asks: remove `can_use_tool` and `permission_prompt_tool_name`.")
    governor = _Governor(gate, options.mcp_servers if isinstance(options.mcp_servers, dict) else {})
    for event, hook in (
        ("PreToolUse", governor.before),
        ("PostToolUse", governor.after),
        ("PostToolUseFailure", governor.failed),
        ("UserPromptSubmit", governor.prompted),
        ("Stop", governor.stopped),
    ):
        matcher = HookMatcher(hooks=[hook], timeout=_TIMEOUT_SECONDS, on_failure="block")
        hooks[event] = [*hooks.get(event, ()), matcher]
    return replace(options, hooks=hooks)


class _Governor:
    """The hooks. The CLI executes a tool between `before` and `after`; the call of the gate lasts as long."""

    def __init__(self, gate: Gate, servers: Mapping[str, Any]) -> None:
        self._gate = gate
        self._servers = servers
        #: The program's own tools by the names of the CLI: their names in the gate.
        self._names: dict[str, str] | None = None
        self._running: dict[str, tuple[asyncio.Task[Settled], asyncio.Future[Any]]] = {}
        #: The call that is deferred, by session. The CLI keeps only one.
        self._deferred: dict[str, str] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def before(self, data: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
        """Decide about a call."""
        name = await self._declare(data["tool_name"])
        intent = ToolIntent(call_id=data["tool_use_id"], tool_name=name, arguments=data["tool_input"])
        if data.get("agent_id"):  # the CLI cannot defer the call of a sub-agent: it waits for its answer
            return await self._decide(data, intent, "inline")
        session = data["session_id"]
        async with self._locks[session]:
            if self._deferred.get(session, intent.call_id) != intent.call_id:
                return _answer("deny", permissionDecisionReason=_ASK_AGAIN)
            self._deferred.pop(session, None)
            return await self._decide(data, intent, "pause")

    async def _decide(self, data: Any, intent: ToolIntent, waits: Any) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        permitted: asyncio.Future[JsonObject] = loop.create_future()
        outcome: asyncio.Future[Any] = loop.create_future()

        async def execute(arguments: JsonObject) -> Any:
            permitted.set_result(arguments)
            return await outcome

        run_id, agent = _run_id(data), data.get("agent_type") or ""
        call = self._gate.call(run_id, intent, execute, waits=waits, agent=agent, framework=_FRAMEWORK)
        task = asyncio.create_task(call)
        await asyncio.wait([task, permitted], return_when=asyncio.FIRST_COMPLETED)
        if permitted.done():
            self._running[intent.call_id] = task, outcome
            changed = permitted.result() != data["tool_input"]
            return _answer("allow", **({"updatedInput": permitted.result()} if changed else {}))
        settled = await task
        if settled.question is None:
            return _answer("deny", permissionDecisionReason=settled.text)
        self._deferred[data["session_id"]] = intent.call_id
        return _answer("defer", permissionDecisionReason=settled.question.prompt)

    async def after(self, data: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
        """Record what a call returned. The model reads it as it was recorded."""
        running = self._running.pop(data["tool_use_id"], None)
        if running is None:
            return {}
        task, outcome = running
        value = data.get("tool_response")
        outcome.set_result(value)
        shown = (await task).result
        if shown == value:
            return {}
        return {"hookSpecificOutput": {"hookEventName": "PostToolUse", "updatedToolOutput": shown}}

    async def failed(self, data: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
        """Record that a call failed."""
        running = self._running.pop(data["tool_use_id"], None)
        if running is not None:
            task, outcome = running
            outcome.set_exception(RuntimeError(str(data.get("error"))))
            await task
        return {}

    async def prompted(self, data: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
        """Begin a turn."""
        self._deferred.pop(data["session_id"], None)
        return {}

    async def stopped(self, data: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
        """Let other processes continue the run."""
        await self._gate.release(_run_id(data))
        return {}

    async def _declare(self, name: str) -> str:
        """Declare a tool, and return its name in the gate."""
        if self._names is None:
            self._names = {}
            for server, config in self._servers.items():
                if isinstance(config, dict) and config.get("type") == "sdk":
                    for tool in await _list_tools(config["instance"]):
                        if tool.name in self._names.values():
                            raise ConfigurationError(f"Two servers have a tool {tool.name!r}. Rename one.")
                        self._names[f"mcp__{server}__{tool.name}"] = tool.name
                        self._gate.declare(tool.name, tool.description or "", tool.input_schema, source=_FRAMEWORK)
        if name not in self._names:  # of the CLI, which checks the arguments, or of another server
            self._gate.declare(name, "", {"type": "object"}, source=_FRAMEWORK)
        return self._names.get(name, name)


def _answer(decision: str, **fields: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": decision, **fields}}


def _run_id(data: Any) -> str:
    return f"cc:{data['session_id']}"


async def _list_tools(server: Any) -> list[Any]:
    async with Client(server) as client:
        return list((await client.list_tools()).tools)
