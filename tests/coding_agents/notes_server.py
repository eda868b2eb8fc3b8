"""A small MCP server with one tool that changes something: `notes_server.py FILE` appends each note to the file.

It needs nothing but Python's standard library, so that it starts in a moment.
"""

import json
import sys
from pathlib import Path
from typing import Any

_TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
_TOOLS: list[dict[str, Any]] = [
    {"name": "add", "description": "Append a note.", "inputSchema": _TEXT, "annotations": {"readOnlyHint": False}},
    {
        "name": "list",
        "description": "List the notes.",
        "inputSchema": {"type": "object", "properties": {}},
        "annotations": {"readOnlyHint": True},
    },
]


def _call(notes: Path, name: str, arguments: dict[str, Any]) -> str:
    if name == "add":
        with notes.open("a") as file:
            file.write(f"{arguments['text']}\n")
        return "the note was added"
    return notes.read_text() if notes.exists() else "no notes"


def _answer(notes: Path, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            server = {"name": "notes", "version": "1.0"}
            version = params["protocolVersion"]
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
        case "tools/list":
            return {"tools": _TOOLS}
        case "tools/call":
            text = _call(notes, params["name"], params.get("arguments") or {})
            return {"content": [{"type": "text", "text": text}]}
        case "ping":
            return {}
        case _:
            return None


def main(notes: Path) -> None:
    """Answer requests from standard input until it ends."""
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        result = _answer(notes, message["method"], message.get("params") or {})
        outcome = {"result": result} if result is not None else {"error": {"code": -32601, "message": "unknown method"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
