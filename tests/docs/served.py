"""A server for the pages: real HTTP on loopback, with the agents of `interlock serve --demo`, and keys."""

import asyncio
import json
import re
import shlex
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from string import Template
from typing import Any, NamedTuple, cast

import httpx2

from interlock.service.api_keys import NewKey
from interlock.service.demo_agents import demo_agents
from interlock.service.principal import Role
from tests.api.server import Running, running_server

_SECONDS = 20
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


async def key(server: Running, name: str, *roles: Role) -> str:
    made = await server.service.keys.create(name, roles=roles, by="test")
    assert isinstance(made, NewKey)
    return made.secret


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
        self._client = httpx2.AsyncClient(base_url=server.base, headers=headers)
        self._names = {"URL": server.base}

    async def __aenter__(self) -> "Terminal":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def type(self, exchange: Exchange) -> str:
        """What it answers, once that fits what the page shows: a run takes its time."""
        changed = asyncio.Event()
        end = self._server.service.hub.on_change(lambda _: changed.set())
        answer = ""
        try:
            async with asyncio.timeout(_SECONDS):
                while not fits(answer := await self._answer(exchange.typed), exchange.shown):
                    if "GET" not in self._last:
                        return answer
                    await changed.wait()
                    changed.clear()
        except TimeoutError:
            return answer
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
