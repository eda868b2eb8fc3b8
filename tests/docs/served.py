"""A server for the pages: real HTTP on loopback, with the agents of `interlock serve --demo`, and keys."""

import asyncio
import json
import re
import shlex
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from string import Template
from typing import Any, NamedTuple, cast

import httpx2
import pytest
from msgspec.structs import replace

from interlock.server.core.audit_sinks.destination import WebhookDestination
from interlock.server.core.identity.api_keys import NewApiKey
from interlock.server.core.identity.principal import Principal, Role
from interlock.server.core.runs.agent_loading import load_agents
from interlock.server.core.runs.approval_service import Approval
from interlock.server.core.runs.demo_agents import demo_agents
from interlock.server.core.runs.run_service import NewRun
from interlock.server.core.settings import read_settings
from tests.patience import HANG_SECONDS
from tests.server.server_process import Running, running_server

from .pages import ROOT

SHOP = ROOT / "examples" / "server"
SECRET = "a secret of the docs".replace(" ", "-")
_CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_REQUEST = re.compile(r"^\$ api (.+)", re.DOTALL)
#: What later requests call by a name, and what answers call it.
_NAMED = {"RUN": "run_id", "ACTION": "action_id", "HASH": "payload_hash"}


class Exchange(NamedTuple):
    """A request of a page, as it is typed, and the answer that the page shows."""

    typed: str
    shown: str


@asynccontextmanager
async def demo_server(folder: Path) -> AsyncGenerator[Running]:
    async with running_server(folder, agents=demo_agents()) as server:
        yield server


@asynccontextmanager
async def shop_server(folder: Path, monkeypatch: pytest.MonkeyPatch, receiver: str = "9") -> AsyncGenerator[Running]:
    """The one of `examples/server`, which sends its events to that port."""
    monkeypatch.setattr(sys, "path", [str(SHOP), *sys.path])
    monkeypatch.setenv("SHOP_HOOK_SECRET", SECRET)
    monkeypatch.setenv("SHOP_AUDIT_SECRET", SECRET)
    settings = read_settings(SHOP / "serve.toml")
    (forward,) = settings.forward
    assert isinstance(forward, WebhookDestination)
    forward = replace(forward, url=f"http://127.0.0.1:{receiver}/")
    agents = load_agents(settings.agents, ())
    async with running_server(folder, agents, replace(settings, forward=(forward,))) as server:
        yield server


async def key(server: Running, name: str, *roles: Role, agents: Sequence[str] | None = None) -> str:
    owned = None if agents is None else frozenset(agents)
    made = await server.service.api_keys.create(name, roles=roles, agents=owned, by="test")
    assert isinstance(made, NewApiKey)
    return made.secret


async def begun(server: Running, agent: str) -> str:
    """A run of the server itself."""
    who = Principal(name="system:test", kind="system", roles=frozenset((Role.OPERATOR,)))
    return (await server.service.run_service.create(who, NewRun(agent=agent, task="Go.")))[0].run_id


async def approve(server: Running, action_id: str) -> None:
    who = Principal(name="user:olga", kind="person", roles=frozenset((Role.OPERATOR,)))
    question = (await server.service.run_queries.get_question(who, action_id)).action.question
    await server.service.approval_service.approve(who, action_id, Approval(payload_hash=question.payload_hash))


@asynccontextmanager
async def started(name: str, *words: str) -> AsyncGenerator[Process]:
    """An example as a process, which is ended with everything that it has."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", str(SHOP / name), *words, stdout=PIPE, stderr=None
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def line_of(process: Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(HANG_SECONDS):
        line = (await process.stdout.readline()).decode()
    assert line, "the example ended"
    return line.rstrip("\n")


def exchanges(page: str) -> Iterator[Exchange]:
    """What is typed goes on over lines until its quotes are closed."""
    for block in _CONSOLE.findall(page):
        for part in re.split(r"\n(?=\$ )", block.strip()):
            lines = part.splitlines()
            if not lines[0].startswith("$ api "):
                continue
            count = next(at for at in range(1, len(lines) + 1) if _is_whole("\n".join(lines[:at])))
            yield Exchange("\n".join(lines[:count]), "\n".join(lines[count:]))


def _is_whole(typed: str) -> bool:
    try:
        return bool(shlex.split(typed))
    except ValueError:
        return False


class Terminal:
    """Types what a page shows, with what it has learned from the answers before."""

    def __init__(self, server: Running, secret: str) -> None:
        headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
        self._server = server
        self._client = httpx2.AsyncClient(base_url=server.base, headers=headers, timeout=HANG_SECONDS)
        self._names = {"URL": server.base}

    async def __aenter__(self) -> "Terminal":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def type(self, exchange: Exchange) -> str:
        """What it answers, once that fits what the page shows: a run takes its time."""
        changed = asyncio.Event()
        end = self._server.service.hub.subscribe(lambda _: changed.set())
        answer = ""
        try:
            async with asyncio.timeout(HANG_SECONDS):
                while not fits(answer := await self._answer(exchange.typed), exchange.shown):
                    if "GET" not in self._last:
                        return answer
                    await changed.wait()
                    changed.clear()
        except TimeoutError:
            pass
        finally:
            end()
            self._learn(answer)
        return answer

    async def _answer(self, typed: str) -> str:
        found = _REQUEST.fullmatch(typed)
        assert found is not None
        words = shlex.split(_substituted(found[1], self._names))
        data = words[words.index("-d") + 1] if "-d" in words else None
        method = words[words.index("-X") + 1] if "-X" in words else "GET" if data is None else "POST"
        (url,) = [word for word in words if word.startswith(self._server.base)]
        self._last = method
        return (await self._client.request(method, url, content=data)).text

    def _learn(self, answer: str) -> None:
        for name, field in _NAMED.items():
            if found := re.search(rf'"{field}":"([^"]+)"', answer):
                self._names[name] = found[1]


def _substituted(text: str, names: dict[str, str]) -> str:
    """As a shell does: everywhere but between single quotes."""
    parts = text.split("'")
    return "'".join(Template(part).substitute(names) if at % 2 == 0 else part for at, part in enumerate(parts))


def fits(answer: str, shown: str) -> bool:
    """Is what is shown part of the answer? `...` stands for anything."""
    if shown.startswith("{"):
        try:
            return _is_part(json.loads(shown), json.loads(answer))
        except ValueError:
            return False
    lines = [".*".join(map(re.escape, line.split("..."))) for line in shown.splitlines()]
    return re.search(r"\n".join(".*" if line == ".*" else line + ".*" for line in lines), answer, re.DOTALL) is not None


def _is_part(shown: Any, found: Any) -> bool:
    if isinstance(shown, dict):
        parts = cast(dict[str, Any], shown)
        return isinstance(found, dict) and all(
            name in found and _is_part(part, found[name]) for name, part in parts.items()
        )
    if isinstance(shown, list):
        items, others = cast(list[Any], shown), cast(list[Any], found)
        return isinstance(found, list) and len(items) == len(others) and all(map(_is_part, items, others))
    if isinstance(shown, str) and shown.endswith("..."):
        return isinstance(found, str) and found.startswith(shown[:-3])
    return bool(shown == found)
