"""The model that the agents talk to: a server on loopback that says what the test says.

It is also the `HTTPS_PROXY` of the agents. What they want to reach beyond this machine is refused and listed in
`Model.strangers`, so that a test can say: none.
"""

import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec

from tests.coding_agents.wire import WIRES, Answer, Call, Request, Text, Wire, render

#: Agents also ask for titles and summaries, and then offer no tools.
_NO_TOOLS = Text("a title")
_DONE = Text("MODEL IS DONE")


@dataclass
class Model:
    """Answer the agents: in a `Chat` as the test says, else what was taught for a prompt."""

    url: str = ""
    #: Bodies of requests, as the agents sent them.
    requests: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    #: What the agents wanted of the rest of the world.
    strangers: list[str] = field(default_factory=list[str])
    #: By a text of a prompt: what to call.
    calls: dict[str, Call] = field(default_factory=dict[str, Call])
    chat: "Chat | None" = None

    def teach(self, keyword: str, call: Call) -> None:
        """Answer a prompt with this keyword with a call, and its result with `MODEL SAW` and the result."""
        self.calls[keyword] = call

    def answer(self, request: Request) -> Answer:
        """Return what the model says."""
        if not request.has_tools:
            return _NO_TOOLS
        if self.chat is not None:
            return self.chat.answer(request)
        if request.results:
            return Text(f"MODEL SAW {' '.join(request.results.values())}")
        found = [call for keyword, call in self.calls.items() if keyword in request.prompt]
        return with_id(found[-1]) if found else _DONE


def with_id(call: Call) -> Call:
    """Return a call with an id that no other call has: one process may continue the conversation of another."""
    return replace(call, id=f"call_{uuid4().hex}")


class Chat:
    """One conversation with an agent that runs in another thread: the test speaks for the model.

    It may go on in the next process of the agent, where that resumes a session.
    """

    def __init__(self) -> None:
        self._arrived: Queue[Request | None] = Queue()
        self._answers: Queue[Answer] = Queue()
        self._is_asked = False
        self._is_over = False

    def answer(self, request: Request) -> Answer:
        """Hand a request to the test, and wait for its answer. Called by the server."""
        if self._is_over:
            return _DONE
        self._arrived.put(request)
        return self._answers.get()

    def call(self, call: Call, meanwhile: Callable[[], None] = lambda: None) -> str | None:
        """Make a call, and return its result as the agent says it. None: the agent ended without one.

        Args:
            call: The call.
            meanwhile: Done after the call was made, before the result is waited for.
        """
        if not self._is_asked and self._arrived.get() is None:
            raise AssertionError("the agent ended without a request")
        self._is_asked = False
        self._answers.put(with_id(call))
        meanwhile()
        return self.result()

    def result(self) -> str | None:
        """Return the result of the last call, here or in an earlier process of an agent that deferred it."""
        request = self._arrived.get()
        if request is None:
            return None
        self._is_asked = True
        assert len(request.results) == 1, f"not one result: {request.prompt[-1000:]}"
        return next(iter(request.results.values()))

    def follow(self, agent: "Future[Any]") -> None:
        """Notice when the agent ends."""
        agent.add_done_callback(lambda _: self._arrived.put(None))

    def end(self) -> None:
        """Say that this was all, now and from now on."""
        self._is_over = True
        if self._is_asked or not self._arrived.empty():
            self._answers.put(_DONE)


class _Handler(BaseHTTPRequestHandler):
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
        path = urlsplit(self.path).path
        wire = next((wire for end, wire in WIRES.items() if path.endswith(end)), None)
        if wire is None:
            return self._send(404, "application/json", b'{"error": {"message": "not here"}}')
        self._converse(wire, msgspec.json.decode(content))

    do_GET = do_PUT = do_DELETE = do_HEAD = do_POST

    def _converse(self, wire: Wire, body: dict[str, Any]) -> None:
        self.model.requests.append(body)
        stream = render(wire, self.model.answer(wire.read(body)))
        self._send(200, "text/event-stream", stream)

    def _refuse(self, target: str) -> None:
        self.model.strangers.append(target)
        self.close_connection = True
        self._send(403, "text/plain", b"")

    def _send(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def running_model() -> Generator[Model]:
    """Start a model."""
    model = Model()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, model))
    model.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield model
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
