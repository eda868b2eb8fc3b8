"""A server on loopback that speaks just enough of Anthropic's messages API for the Claude Code CLI."""

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

#: The blocks of the model's next message, from the messages that it is shown.
Respond = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]


class _Handler(BaseHTTPRequestHandler):
    respond: Respond
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._send_json({})

    do_GET = do_HEAD

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        if not self.path.split("?")[0].endswith("/messages"):
            return self._send_json({"input_tokens": 1})
        # A request without tools is one of the CLI's own, such as for a title.
        blocks = type(self).respond(body["messages"]) if body.get("tools") else [{"type": "text", "text": "ok"}]
        stop = "tool_use" if blocks[-1]["type"] == "tool_use" else "end_turn"
        message = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": blocks,
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
        if body.get("stream"):
            self._send_events(message)
        else:
            self._send_json(message)

    def _send_json(self, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _send_events(self, message: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self._emit("message_start", message={**message, "content": [], "stop_reason": None})
        for index, block in enumerate(message["content"]):
            empty: dict[str, Any]
            if block["type"] == "text":
                empty: dict[str, Any] = {"text": ""}
                delta = {"type": "text_delta", "text": block["text"]}
            else:
                empty = {"input": {}}
                delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            self._emit("content_block_start", index=index, content_block=block | empty)
            self._emit("content_block_delta", index=index, delta=delta)
            self._emit("content_block_stop", index=index)
        stop = {"stop_reason": message["stop_reason"], "stop_sequence": None}
        self._emit("message_delta", delta=stop, usage={"output_tokens": 1})
        self._emit("message_stop")
        self.close_connection = True

    def _emit(self, kind: str, **data: Any) -> None:
        self.wfile.write(f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n".encode())


@contextmanager
def serve(respond: Respond) -> Generator[str]:
    """Serve the model, and yield the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"respond": staticmethod(respond)}))
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
