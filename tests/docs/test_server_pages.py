"""What the pages about the server say is so: their requests are made, their code runs, their files are read."""

import asyncio
import inspect
import re
import struct
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, get_args

import httpx2
import pytest

from interlock.domain.state.lifecycle import RUN_STATUS, ActionState
from interlock.history.run_view import RunEventType
from interlock.server.core.audit_sinks.destination import Destination
from interlock.server.core.identity.permissions import FourEyes
from interlock.server.core.identity.principal import Role
from interlock.server.core.runs.agent_loading import ENTRY_POINT_GROUP
from interlock.server.core.settings import ServerSettings, read_settings
from tests.patience import HANG_SECONDS

from .pages import ROOT, compiled, python_blocks, section, table_rows, text_of, toml_blocks
from .pictures import PICTURES
from .served import SECRET, Terminal, approve, begun, demo_server, exchanges, fits, key, line_of, shop_server, started

REST = text_of("docs/rest.md")
SERVER = text_of("docs/server.md")
SETTINGS = text_of("docs/settings.md")
CONSENT = text_of("docs/consent.md")
NOTICES = text_of("docs/notices.md")
AUDIT = text_of("docs/audit.md")
CONSOLE = text_of("docs/console.md")


async def test_the_requests_of_the_page_are_answered_as_it_shows(tmp_path: Path) -> None:
    async with demo_server(tmp_path) as server, Terminal(server, await key(server, "tour", Role.OPERATOR)) as terminal:
        told = [(exchange, await terminal.type(exchange)) for exchange in exchanges(REST)]
    assert len(told) > 15
    assert [(exchange.typed, answer) for exchange, answer in told if not fits(answer, exchange.shown)] == []


async def test_the_python_of_the_page_runs_against_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    namespace: dict[str, Any] = {"__name__": "page"}
    async with demo_server(tmp_path) as server, asyncio.timeout(HANG_SECONDS):
        monkeypatch.setenv("INTERLOCK_URL", server.base)
        monkeypatch.setenv("INTERLOCK_KEY", await key(server, "tour", Role.OPERATOR))
        for line, code in python_blocks(REST):
            running = eval(compiled(code, "docs/rest.md", line), namespace)  # noqa: S307 - it is our own page
            if inspect.isawaitable(running):
                await running
    assert namespace["names"][-1] == "end"


async def test_the_page_of_the_client_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its blocks, in order; those that block do so in a thread."""
    page: dict[str, Any] = {"__name__": "page"}
    async with demo_server(tmp_path) as server, asyncio.timeout(HANG_SECONDS):
        monkeypatch.setenv("INTERLOCK_URL", server.base)
        monkeypatch.setenv("INTERLOCK_KEY", await key(server, "tour", Role.OPERATOR))
        for line, code in python_blocks(text_of("docs/client.md")):
            running = await asyncio.to_thread(eval, compiled(code, "docs/client.md", line), page)
            if inspect.isawaitable(running):
                await running
    assert "".join(page["texts"]).strip()


async def test_the_signature_of_the_page_opens_a_webhook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = [block for block in python_blocks(SERVER) if "def signed_headers" in block.code]
    page: dict[str, Any] = {}
    exec(compiled(block.code, "docs/server.md", block.line), page)  # noqa: S102 - it is our own page
    body = b'{"parcel": 7}'
    async with (
        shop_server(tmp_path, monkeypatch) as server,
        httpx2.AsyncClient(base_url=server.base, timeout=HANG_SECONDS) as client,
    ):
        headers = page["signed_headers"](SECRET, "parcel-7", body)
        taken = [await client.post("/hooks/parcel-lost", content=body, headers=headers) for _ in range(2)]
        forged = await client.post("/hooks/parcel-lost", content=body + b" ", headers=headers)
    assert [answer.status_code for answer in (*taken, forged)] == [202, 202, 401]
    assert len({answer.json()["run_id"] for answer in taken}) == 1


async def test_the_examples_work_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client begins a run and follows it, a person approves, and a receiver gets every event."""
    monkeypatch.setenv("SHOP_AUDIT_SECRET", SECRET)
    async with started("receiver.py", "0") as receiver:
        port = (await line_of(receiver)).rpartition(" ")[2]
        async with shop_server(tmp_path, monkeypatch, receiver=port) as server:
            monkeypatch.setenv("INTERLOCK_URL", server.base)
            monkeypatch.setenv("INTERLOCK_KEY", await key(server, "bot", Role.AGENT, agents=("support",)))
            async with started("client.py", "support", "Settle A-1042.") as client:
                run_id = (await line_of(client)).split()[0]
                while not (asked := await line_of(client)).startswith("APPROVAL_REQUIRED"):
                    assert asked in {"LLM_CALL", "TOOL_CALL"}
                await approve(server, asked.rpartition("/")[2])
                while not (last := await line_of(client)).startswith("COMPLETED - "):
                    assert last in {"APPROVAL_GRANTED", "TOOL_CALL", "LLM_CALL", "COMPLETED"}
            got = [await line_of(receiver)]
            while not got[-1].endswith("run.completed"):
                got.append(await line_of(receiver))
    assert last == "COMPLETED - The order A-1042 is settled."
    assert [line.split()[:2] for line in got] == [[run_id, str(seq)] for seq in range(len(got))]


async def test_an_export_is_verified_as_the_page_says(tmp_path: Path) -> None:
    async with demo_server(tmp_path) as server:
        auditor = {"Authorization": f"Bearer {await key(server, 'audrey', Role.AUDITOR)}"}
        run_id = await begun(server, "refunds")
        async with httpx2.AsyncClient(base_url=server.base, headers=auditor, timeout=HANG_SECONDS) as client:
            async with asyncio.timeout(HANG_SECONDS):
                exported = None
                # The order is in the log once the model has named it.
                while exported is None or b"A-1042" not in exported.content:
                    exported = await client.get(f"/v1/runs/{run_id}/audit/export", params={"format": "ndjson"})
            (public,) = [each["public"] for each in (await client.get("/v1/audit/keys")).json()["keys"]]
    export = tmp_path / "export.ndjson"
    verifier = str(ROOT / "src/interlock/audit/standalone_verifier.py")
    said: list[tuple[int, str]] = []
    for content in (exported.content, exported.content.replace(b"A-1042", b"A-1043", 1)):
        export.write_bytes(content)
        command = [sys.executable, "-I", verifier, str(export), "--key", public]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
        said.append((done.returncode, done.stdout))
    assert said[0][0] == 0
    assert re.fullmatch(r"OK: run_\w+: all \d+ events, signed at \S+ as checkpoint \d+ by key \w+; .*\n", said[0][1])
    assert said[1][0] == 1
    assert "breaks the chain" in said[1][1]


def test_every_table_of_the_settings_is_on_its_page() -> None:
    documented = {name.partition(".")[0] for name in re.findall(r"^\*\*`\[+([\w.]+)\]+`", SETTINGS, re.MULTILINE)}

    assert documented == set(ServerSettings.__struct_fields__)


@pytest.mark.parametrize("text", [block for page in (SERVER, CONSENT, NOTICES) for block in toml_blocks(page)])
def test_the_settings_of_the_pages_can_be_read(text: str, tmp_path: Path) -> None:
    if "entry-points" in text:
        assert tomllib.loads(text)["project"]["entry-points"] == {ENTRY_POINT_GROUP: {"support": "shop_agents:support"}}
        return
    (tmp_path / "serve.toml").write_text(text, "utf-8")
    assert read_settings(tmp_path / "serve.toml") != ServerSettings()


def test_the_lists_of_the_pages_are_complete() -> None:
    assert names(SERVER, "Roles and permissions", "role") == sorted(Role)
    assert names(SERVER, "Four eyes", "`four_eyes`") == sorted(get_args(FourEyes))
    assert names(REST, "Status values and events", "status of a run") == sorted(set(RUN_STATUS.values()))
    assert names(REST, "Status values and events", "status of an action") == sorted(state.name for state in ActionState)
    assert [
        word for word in get_args(RunEventType) if f"`{word}`" not in section(REST, "Status values and events")
    ] == []
    assert names(AUDIT, "Forwarding", "kind") == sorted(
        str(kind.__struct_config__.tag) for kind in get_args(Destination)
    )


def test_the_page_of_the_console_has_the_keys_of_the_inbox() -> None:
    script = text_of("src/interlock/server/console/static/inbox.js").partition("const KEYS = {")[2].partition("};")[0]
    handled = sorted(key.strip('"') for key in re.findall(r'^  ("?.+?"?): ?', script, re.MULTILINE))
    rows = [row for row in table_rows(section(CONSOLE, "Keys")) if row[0] == "inbox"]
    assert sorted(key for row in rows for key in re.findall(r"`(.)`", row[1])) == handled


def test_the_pictures_of_the_console_are_there_and_small() -> None:
    shown = set(re.findall(r"!\[[^\]]+\]\(images/(console-[a-z]+)\.png\)", CONSOLE))
    assert shown == set(PICTURES)
    for name in PICTURES:
        picture = (ROOT / "docs/images" / f"{name}.png").read_bytes()
        width, height = struct.unpack(">II", picture[16:24])
        assert (width, height) in {(1280, 800), (390, 844)}
        assert len(picture) <= 150 * 1024


def names(page: str, heading: str, first: str) -> list[str]:
    """The words in the first column of one of the tables under a heading."""
    (table,) = [part for part in section(page, heading).strip().split("\n\n") if part.startswith(f"| {first} |")]
    return sorted(word for row in table_rows(table) for word in re.findall(r'`"?(\w+)"?`', row[0]))
