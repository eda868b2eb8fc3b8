"""Tools of somebody else, beside the local ones: an MCP server's tool that really talks to a server on loopback."""

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from interlock import FileArtifacts, LocalTools, NormalizedOutput, Rule, RulePolicy, ToolDefinition, ToolRuntime, tool
from interlock.domain.event import ApprovalRequested, InvocationStarted
from tests.patience import HANG_SECONDS
from tests.support import call, facts

from .runs import OPEN, Person, message_of, soon, text_of

pytestmark = pytest.mark.requirement("R231")
TOKEN = "tok-3a1f9c77d2e84b60"
ALLOW = RulePolicy([Rule(id="ours", verdict="allow", server="tickets", host="127.0.0.1")])


class TicketServer(ThreadingHTTPServer):
    """Answers by path: what was found, what went wrong, or nothing until it is let go."""

    daemon_threads = True

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.let_go = threading.Event()
        super().__init__(("127.0.0.1", 0), _Answer)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, TicketServer)
        server.seen.append(self.path)
        if self.path == "/hang":
            server.let_go.wait(HANG_SECONDS)
        status = 500 if self.path == "/broken" else 401 if "Authorization" not in self.headers else 200
        body = {"ticket": 7, "title": "It fails", "asked_with": self.headers.get("Authorization", ""), "pad": "x" * 99}
        if self.path == "/refused":
            body = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "no such ticket"}}
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps([body] * (2_000 if self.path == "/long" else 1)).encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Quietly."""


@pytest.fixture
def server() -> Iterator[TicketServer]:
    with TicketServer() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.let_go.set()
        running.shutdown()
        thread.join(HANG_SECONDS)


def shaped(answer: list[dict[str, Any]]) -> NormalizedOutput:
    """The protocol's own errors are failures of the call."""
    error = answer[0].get("error")
    if error is not None:
        return NormalizedOutput(ok=False, code="mcp_error", summary=error["message"], retryable=False, facts=error)
    return NormalizedOutput(summary=f"{len(answer)} tickets", side_effects=())


def find_ticket(**options: Any) -> ToolDefinition:
    def handler(url: str) -> Any:
        """Find a ticket.

        Args:
            url: Where it is.
        """
        parts = urlsplit(url)
        with closing(HTTPConnection(parts.hostname or "", parts.port, timeout=HANG_SECONDS)) as connection:
            connection.request("GET", parts.path, headers={"Authorization": f"Bearer {TOKEN}"})
            response = connection.getresponse()
            body = response.read()
        if response.status != HTTPStatus.OK:
            raise RuntimeError(f"the server said {response.status} {response.reason}")
        return json.loads(body)

    given: dict[str, Any] = {"risk": "network", "origin": "mcp", "source": "tickets", "resources": {"url": "host"}}
    return tool(handler, name="find_ticket", normalize=shaped, **given, **options)


def runtime_with(root: Path, **options: Any) -> ToolRuntime:
    tools = [LocalTools(root), options.pop("tool", find_ticket())]
    return ToolRuntime(tools=tools, secrets={"TICKETS_TOKEN": TOKEN}, **options)


async def test_without_a_rule_the_network_is_a_question_that_names_the_server_the_host_and_the_risk(
    root: Path, server: TicketServer
) -> None:
    async with runtime_with(root, interaction=OPEN) as runtime:
        result = await runtime.execute([call("c1", "find_ticket", url=f"{server.url}/7")])
        recorded = [fact for fact in await facts(runtime) if isinstance(fact, ApprovalRequested)]

    [question] = result.questions
    assert ("network" in question.risk, server.seen) == (True, [])
    assert (question.bound.tool_origin, question.bound.tool_source) == ("mcp", "tickets")
    assert recorded[0].question.bound == question.bound
    assert question.arguments == {"url": f"{server.url}/7"}


async def test_an_allowed_call_has_the_shape_of_every_other_and_no_reader_sees_the_credential(
    root: Path, tmp_path: Path, server: TicketServer
) -> None:
    artifacts = FileArtifacts(tmp_path / "artifacts")
    async with runtime_with(root, policy=ALLOW, artifacts=artifacts) as runtime:
        calls = [call(f"c{path}", "find_ticket", url=f"{server.url}/{path}") for path in ("7", "long")]
        result = await soon(runtime.execute([*calls, call("cread", "read_file", path="notes.txt")]))
        log = (await runtime.export()).decode()
    found, cut, read = result.observations
    stored = b"".join(path.read_bytes() for path in (tmp_path / "artifacts").rglob("*") if path.is_file())

    assert (found.ok, found.summary, found.tool, cut.truncated) == (True, "1 tickets", "find_ticket", True)
    assert "It fails" in text_of(found)
    assert type(found) is type(read)
    told = [message_of(result, observation.call_id) for observation in result.observations]
    assert '"type":"tool.observation"' in told[0]
    assert "untrusted" in told[0]
    assert not [text for text in (*told, log, stored.decode()) if TOKEN in text]
    assert sorted(server.seen) == ["/7", "/long"]


async def test_the_log_of_a_call_that_nobody_was_asked_about_names_the_server(root: Path, server: TicketServer) -> None:
    async with runtime_with(root, policy=ALLOW) as runtime:
        await soon(runtime.execute([call("c1", "find_ticket", url=f"{server.url}/broken")]))
        log = (await runtime.export()).decode()

    assert '"tickets"' in log


async def test_the_identity_of_the_server_is_a_thing_that_rules_can_name(root: Path, server: TicketServer) -> None:
    rules = [Rule(id="net", verdict="allow", risk="network"), Rule(id="not-theirs", verdict="deny", server="tick*")]
    async with runtime_with(root, policy=RulePolicy(rules)) as runtime:
        [refused] = (await runtime.execute([call("c1", "find_ticket", url=f"{server.url}/7")])).observations

    assert refused.failure is not None
    assert (refused.code, refused.failure.details["rule_ids"]) == ("policy_denied", ["not-theirs"])
    assert server.seen == []


@pytest.mark.parametrize("host", ["http://127.0.0.2:1/7", "http://localhost:1/7", "https://example.com/7"])
async def test_a_host_that_no_rule_allows_is_not_reached(root: Path, server: TicketServer, host: str) -> None:
    async with runtime_with(root, policy=ALLOW) as runtime:
        [refused] = (await runtime.execute([call("c1", "find_ticket", url=host)])).observations
        started = [fact for fact in await facts(runtime) if isinstance(fact, InvocationStarted)]

    assert (refused.code, started, server.seen) == ("approval_unavailable", [], [])


async def test_a_server_that_does_not_answer_is_a_timeout_with_unknown_effects(
    root: Path, server: TicketServer
) -> None:
    slow = find_ticket(timeout_seconds=3)
    async with runtime_with(root, policy=ALLOW, tool=slow) as runtime:
        result = await soon(runtime.execute([call("c1", "find_ticket", url=f"{server.url}/hang")]))
        [started] = [fact for fact in await facts(runtime) if isinstance(fact, InvocationStarted)]
        server.let_go.set()
    [late] = result.observations

    assert late.failure is not None
    assert (late.code, late.failure.retryable, late.side_effects) == ("timed_out", False, "unknown")
    assert started.timeout_seconds == 3
    assert server.seen == ["/hang"]


@pytest.mark.parametrize(
    ("path", "code", "words"),
    [("/broken", "tool_failed", "the server said 500"), ("/refused", "mcp_error", "no such ticket")],
)
async def test_failures_of_the_server_and_of_the_protocol_are_told_apart(
    root: Path, server: TicketServer, path: str, code: str, words: str
) -> None:
    async with runtime_with(root, policy=ALLOW) as runtime:
        [failed] = (await soon(runtime.execute([call("c1", "find_ticket", url=server.url + path)]))).observations

    assert failed.failure is not None
    assert (failed.code, failed.failure.phase, words in failed.summary) == (code, "execute", True)


async def test_a_server_that_is_not_there_is_a_failure_of_the_tool(root: Path, server: TicketServer) -> None:
    closed = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    url = f"http://127.0.0.1:{closed.server_port}"
    closed.server_close()
    async with runtime_with(root, policy=ALLOW) as runtime:
        [failed] = (await soon(runtime.execute([call("c1", "find_ticket", url=url)]))).observations

    assert failed.failure is not None
    assert (failed.code, failed.failure.details["error_type"]) == ("tool_failed", ConnectionRefusedError.__name__)


async def test_the_credential_of_the_harness_is_out_of_reach_for_commands_and_so_is_the_server(
    root: Path, server: TicketServer, confined: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TICKETS_TOKEN", TOKEN)
    script = f"env | grep -c TICKETS; exec 3<>/dev/tcp/127.0.0.1/{server.server_port} && echo reached; true"
    async with runtime_with(root, mode="trusted") as runtime:
        [done] = (await soon(runtime.execute([call("c1", "bash", command=script)]))).observations

    assert "reached" not in text_of(done)
    assert (done.ok, server.seen) == (True, [])


async def test_an_approval_of_a_tool_is_none_for_the_same_tool_of_another_server(
    root: Path, server: TicketServer
) -> None:
    person, other = Person(), find_ticket()
    options = partial(runtime_with, root, interaction=person)
    async with options() as runtime:
        url = f"{server.url}/7"
        await soon(runtime.execute([call("c1", "find_ticket", url=url)]))
        runtime.registry.unregister("find_ticket")
        runtime.registry.register(tool(other.handler, name="find_ticket", risk="network", origin="mcp", source="evil"))
        await soon(runtime.execute([call("c2", "find_ticket", url=url)]))

    first, second = person.asked
    assert (first.bound.tool_source, second.bound.tool_source) == ("tickets", "evil")
    assert first.payload_hash != second.payload_hash
