"""An MCP server with one tool: `pay` adds a line to a file, and hangs before or after that if it is told to."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server

SCHEMA = {"type": "object", "properties": {"hangs": {"enum": ["", "before", "after"]}}, "required": ["hangs"]}


async def main(folder: Path) -> None:
    async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
        tool = types.Tool(name="pay", description="Pay.", input_schema=SCHEMA)
        return types.ListToolsResult(tools=[tool], ttl_ms=0, cache_scope="private")

    async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        hangs = (params.arguments or {})["hangs"]
        if hangs != "before":
            with (folder / "payments").open("a") as file:
                file.write("paid\n")
        if hangs:
            (folder / "hangs").touch()
            await asyncio.Event().wait()
        return types.CallToolResult(content=[types.TextContent(text="paid")])

    server: Server[Any] = Server("paying", version="1", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
