"""What the pages about the server say is so: their requests are made, their code runs, their files are read."""

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest

from interlock.service.principal import Role

from .pages import compiled, python_blocks, text_of
from .served import Terminal, demo_server, exchanges, fits, key

REST = text_of("docs/rest.md")


async def test_the_requests_of_the_page_are_answered_as_it_shows(tmp_path: Path) -> None:
    async with demo_server(tmp_path) as server, Terminal(server, await key(server, "tour", Role.OPERATOR)) as terminal:
        told = [(exchange, await terminal.type(exchange)) for exchange in exchanges(REST)]
    assert len(told) > 15
    assert [(exchange.typed, answer) for exchange, answer in told if not fits(answer, exchange.shown)] == []


async def test_the_python_of_the_page_runs_against_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    namespace: dict[str, Any] = {"__name__": "page"}
    async with demo_server(tmp_path) as server, asyncio.timeout(20):
        monkeypatch.setenv("INTERLOCK_URL", server.base)
        monkeypatch.setenv("INTERLOCK_KEY", await key(server, "tour", Role.OPERATOR))
        for line, code in python_blocks(REST):
            running = eval(compiled(code, "docs/rest.md", line), namespace)  # noqa: S307 - it is our own page
            if inspect.isawaitable(running):
                await running
    assert namespace["told"][-1] == "end"
