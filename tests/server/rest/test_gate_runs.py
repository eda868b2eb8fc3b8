"""Runs of another framework's agent in the log of a server: shown with their framework, and answered like any other."""

import asyncio
from pathlib import Path
from urllib.parse import quote

import pytest

from interlock import Gate
from interlock.gate.sessions import Sessions
from tests.gate.support import SCHEMA, Desk, intent
from tests.patience import HANG_SECONDS
from tests.server.server_process import Running

pytestmark = pytest.mark.asyncio


async def test_a_run_of_a_framework_is_shown_and_answered(server: Running, tmp_path: Path) -> None:
    service, desk = server.service, Desk(tmp_path)
    async with Gate(log=service.log, artifacts=service.artifacts) as gate:
        gate.declare("pay", "Pay somebody.", SCHEMA)
        await gate.call("lg:t1", intent("pay", "c1"), desk.pay, framework="langgraph", agent="clerk")
        client = await server.client("admin_all")
        run = (await client.get("/v1/runs/lg:t1")).json()
        (asked,) = (await client.get("/v1/runs/lg:t1/approvals")).json()["approvals"]
        answered = await client.post(
            f"/v1/approvals/{asked['action_id']}/approve", json={"payload_hash": asked["payload_hash"]}
        )
        settled = await gate.call("lg:t1", intent("pay", "c1"), desk.pay, framework="langgraph", agent="clerk")

    assert (run["framework"], run["state"]) == ("langgraph", "paused_approval")
    assert (answered.status_code, settled.result, desk.paid) == (200, {"paid": 5}, [5])


async def test_a_session_of_a_client_is_listed_and_its_answer_qualified(server: Running, tmp_path: Path) -> None:
    service, desk = server.service, Desk(tmp_path)
    async with Gate(log=service.log, artifacts=service.artifacts) as gate:
        gate.declare("pay", "Pay somebody.", SCHEMA)
        sessions = Sessions(gate)
        session = await sessions.open(requester="user:ada", client="codex", framework="mcp")
        await sessions.call(session, intent("pay", "c1"), desk.pay)
        await gate.call("lg:t2", intent("pay", "c1"), desk.pay, framework="langgraph", agent="clerk")
        client, path = await server.client("admin_all"), f"/v1/runs/{quote(session.run_id, safe='')}"
        (asked,) = (await client.get(f"{path}/approvals")).json()["approvals"]
        body = {"payload_hash": asked["payload_hash"]}
        await client.post(f"/v1/approvals/{asked['action_id']}/approve", json=body)
        listed = {
            kind: [run["run_id"] for run in (await client.get("/v1/runs", params={"kind": kind})).json()["runs"]]
            for kind in ("session", "agent")
        }
        run = (await client.get(path)).json()
        async with asyncio.timeout(HANG_SECONDS):
            while not asked.get("answer"):  # the gate has the run, and records it
                (asked,) = (await client.get(f"{path}/approvals")).json()["approvals"]

    assert (listed["session"], session.run_id in listed["agent"], "lg:t2" in listed["agent"]) == (
        [session.run_id],
        False,
        True,
    )
    assert (run["kind"], run["agent"], run["framework"], run["requester"]) == ("session", "codex", "mcp", "user:ada")
    assert (asked["approver"], asked["answer"]["channel"], asked["answer"]["assurance"]) == ("person", "rest", "proved")
