"""`interlock run` with a model behind a server: real HTTP, on this host."""

import json
import sys
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest

from interlock.cli.exit_codes import ExitCode

from .conftest import Run

ANSWER: tuple[dict[str, Any], ...] = (
    {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hello "}}]},
    {"choices": [{"index": 0, "delta": {"content": "there."}}]},
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    {"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}},
)


class _Model(BaseHTTPRequestHandler):
    asked: ClassVar[list[tuple[str, dict[str, Any]]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.asked.append((self.headers["authorization"], json.loads(body)))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        common = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        for chunk in ANSWER:
            self.wfile.write(f"data: {json.dumps({**common, **chunk})}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""


@pytest.fixture
def address() -> Generator[str]:
    _Model.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), _Model) as server:
        serving = Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
        serving.join()


def test_a_model_of_ones_own_is_asked_and_never_gets_the_key_of_another(
    cli: Run, project: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-you")

    ended = cli("run", "Say hello.", "--base-url", address, "--model", "m")

    assert ended.exit_code == ExitCode.OK, ended.output
    assert "Hello there.\n" in ended.output
    assert "12 tokens in, 3 out" in ended.output
    [(authorization, body)] = _Model.asked
    assert authorization == "Bearer none"
    assert (body["model"], body["messages"][-1]) == ("m", {"role": "user", "content": "Say hello."})
    assert {tool["function"]["name"] for tool in body["tools"]} >= {"read_file", "edit_file", "bash"}


def test_with_prices_a_run_says_what_it_costs_and_a_budget_of_cost_ends_it(
    cli: Run, project: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("config", "set", "price_input", "1000")
    half = cli("run", "Say hello.", "--base-url", address, "--model", "m")
    cli("config", "set", "price_output", "2000")

    ended = cli("run", "Say hello.", "--base-url", address, "--model", "m", "--max-cost", "1")

    assert (half.exit_code, "price_output is not set" in half.stderr) == (ExitCode.USAGE, True)
    assert "cost 0.0180" in ended.output
    assert "Without prices" not in ended.stderr


def test_a_budget_of_cost_without_prices_is_told_to_be_weak(cli: Run, project: Path, address: str) -> None:
    ended = cli("run", "Say hello.", "--base-url", address, "--model", "m", "--max-cost", "1")

    assert "Without prices, a budget of cost counts only what the provider itself says" in ended.stderr


def test_a_model_that_cannot_be_reached_leaves_a_run_and_for_programs_its_id(cli: Run, project: Path) -> None:
    words = ("--base-url", "http://127.0.0.1:9/v1", "--model", "m")

    ended = cli("run", "Say hello.", *words, "--json")

    told = json.loads(ended.stdout)
    assert (ended.exit_code, told["state"], told["exit_code"]) == (ExitCode.FAILED, "stopped", ExitCode.FAILED)
    assert "could not be reached" in told["message"]
    assert f"  interlock runs resume {told['run_id'][4:12]}\n" in ended.stderr


def test_a_key_that_is_too_short_is_refused(cli: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERLOCK_API_KEY", "abc")

    ended = cli("run", "Say hello.", "--base-url", "http://127.0.0.1:9/v1", "--model", "m")

    assert (ended.exit_code, ended.stdout) == (ExitCode.USAGE, "")
    assert "The key in INTERLOCK_API_KEY has 3 characters, and needs at least 6." in ended.stderr


def test_the_key_in_our_own_variable_is_for_whatever_is_set_and_is_not_kept(
    cli: Run, home: Path, project: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERLOCK_API_KEY", "sk-of-my-own-server")
    monkeypatch.setenv("INTERLOCK_BASE_URL", address)

    ended = cli("run", "My key is sk-of-my-own-server.", "--model", "m")

    assert ended.exit_code == ExitCode.OK, ended.output
    assert _Model.asked[0][0] == "Bearer sk-of-my-own-server"
    kept = [path for path in home.rglob("*") if path.is_file()]
    assert kept
    assert not any(b"sk-of-my-own-server" in path.read_bytes() for path in kept)


def test_a_provider_whose_package_is_missing_is_told_with_what_to_install(
    cli: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("interlock.models.openai_chat", "interlock.models.connection"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "httpx2", None)

    said = cli("run", "Hello.", "--model", "m", "--base-url", "http://127.0.0.1:9/v1")

    assert said.exit_code == ExitCode.USAGE
    assert "pip install 'interlock[openai]'" in " ".join(said.output.split())
