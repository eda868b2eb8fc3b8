"""The model that the agents talk to: aimock, behind a proxy that records every request.

The proxy is also the `HTTPS_PROXY` of the agents. What they want to reach beyond this machine is refused and listed in
`Model.strangers`, so that a test can say: none.
"""

import http.client
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec

from tests.models.aimock.server import Aimock, running_aimock
from tests.patience import HANG_SECONDS

#: What Claude Code says for a user who resumes a call that was deferred.
_RESUMED = "Continue from where you left off."
_ANY_RESULT = {"hasToolResult": True}
_OWN_HEADERS = {"accept-encoding", "connection", "content-encoding", "content-length", "host", "transfer-encoding"}


@dataclass
class Model:
    """Teach it one tool call per keyword; it says what it saw of the result."""

    url: str
    aimock: Aimock
    #: Bodies of requests, as the agents sent them.
    requests: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    #: What the agents wanted of the rest of the world.
    strangers: list[str] = field(default_factory=list[str])
    #: Tools that Codex knows by a name within a namespace, which aimock cannot send.
    namespaces: dict[str, str] = field(default_factory=dict[str, str])

    def teach(
        self,
        keyword: str,
        tool: str,
        arguments: object,
        *,
        sees: tuple[str, ...] = (),
        offered: str = "",
        is_deferred: bool = False,
    ) -> None:
        """Answer a prompt with this keyword with a call of the tool, and its result with the text that was seen in it.

        The answer is `MODEL SAW <text>` for the first of `sees` that the result contains, else `MODEL SAW RESULT`.

        Args:
            keyword: A text of the prompt.
            tool: The tool to call.
            arguments: Its arguments.
            sees: Texts that results may contain.
            offered: A tool that is in the request when this one can be called. Default: the tool itself.
            is_deferred: Claude Code may resume the call in a later process, with a prompt of its own that all calls
                share: then all tests with this model need the same `sees`.
        """
        call = {"name": tool, "arguments": msgspec.json.encode(arguments).decode()}
        asked = {"userMessage": keyword}
        results = [
            {"match": {**prompt, **shown}, "response": {"content": f"MODEL SAW {text}"}}
            for prompt in (asked, *([{"userMessage": _RESUMED}] if is_deferred else ()))
            for text, shown in (*((text, {"toolResultContains": text}) for text in sees), ("RESULT", _ANY_RESULT))
        ]
        self.aimock.teach(
            *results,
            # Agents also ask for titles and summaries, and then offer no tools.
            {"match": {**asked, "toolName": offered or tool}, "response": {"toolCalls": [call]}},
            {"match": asked, "response": {"content": "MODEL HAS NO SUCH TOOL"}},
        )

    def sent(self, keyword: str) -> list[dict[str, Any]]:
        """Return the bodies of the requests so far that hold this text."""
        return [body for body in self.requests if keyword in msgspec.json.encode(body).decode()]


class _Proxy(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, model: Model, *given: Any) -> None:
        self.model = model
        super().__init__(*given)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def do_CONNECT(self) -> None:
        self._refuse(self.path)

    def do_POST(self) -> None:
        if self.path.startswith("http"):
            return self._refuse(self.path)
        content = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.headers.get_content_type() == "application/json" and content:
            body: dict[str, Any] = msgspec.json.decode(content)
            self.model.requests.append(body)
            content = _with_plain_results(body)
        self._relay(content)

    do_GET = do_PUT = do_DELETE = do_HEAD = do_POST

    def _refuse(self, target: str) -> None:
        self.model.strangers.append(target)
        self.close_connection = True
        self.send_response(403)
        self.send_header("content-length", "0")
        self.end_headers()

    def _relay(self, content: bytes) -> None:
        upstream = urlsplit(self.model.aimock.url)
        assert upstream.hostname
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _OWN_HEADERS}
        connection = http.client.HTTPConnection(upstream.hostname, upstream.port, timeout=HANG_SECONDS)
        try:
            connection.request(self.command, self.path, content, {**headers, "content-length": str(len(content))})
            response = connection.getresponse()
            body = self._with_namespaces(response.read())
        finally:
            connection.close()
        self.send_response(response.status)
        for name, value in response.getheaders():
            if name.lower() not in _OWN_HEADERS:
                self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _with_namespaces(self, body: bytes) -> bytes:
        for tool, namespace in self.model.namespaces.items():
            plain = f'"name":"{tool}"'
            body = body.replace(plain.encode(), f'{plain},"namespace":"{namespace}"'.encode())
        return body


def _with_plain_results(body: dict[str, Any]) -> bytes:
    """Return a request with each result of a tool as one text: aimock does not look into the parts that Codex sends."""
    for item in cast("list[dict[str, Any]]", body.get("input") or []):
        if isinstance(item.get("output"), list):
            parts = cast("list[dict[str, str]]", item["output"])
            item["output"] = "".join(part.get("text", "") for part in parts)
    return msgspec.json.encode(body)


@contextmanager
def running_model(folder: Path) -> Generator[Model]:
    """Start aimock and the proxy. Skip the test where aimock cannot be installed."""
    with running_aimock(folder) as aimock:
        model = Model("", aimock)
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Proxy, model))
        server.daemon_threads = False
        model.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield model
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
