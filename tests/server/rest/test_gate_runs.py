"""Runs of another framework's agent in the log of a server: shown with their framework, and answered like any other."""

from pathlib import Path

import pytest

from interlock import Gate
from tests.gate.support import SCHEMA, Desk, intent
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
