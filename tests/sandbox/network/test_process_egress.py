"""A tool in its own process reaches the hosts that egress rules name, and no other."""

from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from interlock import RulePolicy, ToolDeclarationError, ToolRuntime, tool
from interlock.domain.egress import EgressRule
from tests.sandbox.network.process_egress_tools import connect, fetch
from tests.support import call

HOST = "127.0.0.7"


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def port() -> Generator[int]:
    with ThreadingHTTPServer((HOST, 0), _Page) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield server.server_port
        server.shutdown()


async def observe(tool_name: str, rules: list[EgressRule], **arguments: Any) -> Any:
    policy = RulePolicy(default="allow", egress=rules)
    async with ToolRuntime(tools=[fetch, connect], policy=policy) as runtime:
        return (await runtime.execute([call("c1", tool_name, **arguments)])).observations[0]


async def test_a_named_host_is_reached_and_recorded(port: int) -> None:
    rules = [EgressRule(verdict="allow", hosts=HOST, ports=port)]

    observation = await observe("fetch", rules, url=f"http://{HOST}:{port}/")

    assert observation.content.text == "hello"
    assert [(effect.kind, effect.target) for effect in observation.side_effects] == [("sent", f"{HOST}:{port}")]


async def test_another_host_is_refused(port: int) -> None:
    rules = [EgressRule(verdict="allow", hosts="example.com", ports=port)]

    observation = await observe("fetch", rules, url=f"http://{HOST}:{port}/")

    assert observation.content.text == "refused 403"
    assert not observation.side_effects


async def test_there_is_no_way_past_the_proxy(port: int) -> None:
    rules = [EgressRule(verdict="allow", hosts=HOST, ports=port)]

    assert (await observe("connect", rules, host=HOST, port=port)).content.text.startswith("failed")


def test_only_a_process_has_its_own_network() -> None:
    with pytest.raises(ToolDeclarationError, match="isolation"):
        tool(lambda: None, name="look", egress=True)
