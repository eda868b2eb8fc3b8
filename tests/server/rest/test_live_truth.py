"""What the API shows is what happens: calls while they run, questions of a cancelled run, who was first."""

import asyncio
import re
import threading
from pathlib import Path

import pytest

from interlock import RulePolicy, tool
from interlock.agent.agent import Agent
from interlock.domain.tool import Risk
from interlock.models.scripted import ScriptedModel, ScriptedTurn, tool_call
from tests.patience import HANG_SECONDS
from tests.server.rest.test_streams import listening
from tests.server.server_process import NOTE, Running, running_server


@pytest.mark.requirement("R150")
async def test_a_conflict_says_who_answered_what_and_when(server: Running) -> None:
    asked = await server.asked(await server.begin(NOTE))
    operator, admin = await server.client("operator"), await server.client("admin")
    path = f"/v1/approvals/{asked['action_id']}"
    yes = {"payload_hash": asked["payload_hash"], "reason": "Known customer."}
    first = (await operator.post(f"{path}/approve", json=yes)).json()["approval"]

    second = (await admin.post(f"{path}/reject", json={"reason": "No."})).json()["error"]

    decided = second["details"]["decided"]
    assert (decided["by"], decided["reason"]) == ("key:operator", "Known customer.")
    assert decided["status"] in ("APPROVED", "EXECUTED")
    assert decided["at"] == first["decided_at"]
    assert "key:operator" in second["message"]
    assert decided["at"] in second["message"]


async def test_a_cancelled_run_leaves_its_question_void(server: Running) -> None:
    """M7: nobody can answer it any more, and no list says that somebody should."""
    asked = await server.asked(await server.begin(NOTE))
    run_id, client = asked["run_id"], await server.client("operator")

    await client.post(f"/v1/runs/{run_id}/cancel", json={"reason": "Not needed."})
    await server.status(run_id, "FAILED")

    (action,) = (await client.get(f"/v1/runs/{run_id}/approvals")).json()["approvals"]
    assert action["status"] == "VOID"
    assert [row["status"] for row in (await client.get("/v1/approvals?status=VOID")).json()["approvals"]] == ["VOID"]
    assert (await client.get("/v1/approvals")).json()["approvals"] == []
    late = await client.post(
        f"/v1/approvals/{action['action_id']}/approve", json={"payload_hash": action["payload_hash"]}
    )
    assert late.status_code == 409


@pytest.mark.parametrize("risk", ["write", "read"])
async def test_a_running_call_is_shown_as_running(tmp_path: Path, risk: str) -> None:
    """P24: while its handler has not returned, in the stream, in the state, and on the page."""
    is_over = threading.Event()

    @tool(risk=Risk(risk))
    def peek() -> str:
        """Look, and take long."""
        is_over.wait(HANG_SECONDS)
        return "seen"

    turns = [ScriptedTurn(calls=(tool_call("peek", call_id="c0"),)), ScriptedTurn(text="Done.")]
    agent = Agent(
        provider=ScriptedModel(turns, by_position=True),
        name="shop",
        tools=[peek],
        policy=RulePolicy([], default="allow"),
    )
    async with running_server(tmp_path, [agent], console=True) as server:
        run_id, client = await server.begin("Look."), await server.client("operator")
        try:
            async with asyncio.timeout(HANG_SECONDS), listening(client, f"/v1/runs/{run_id}/events/stream") as events:
                started = await anext(event async for event in events if event.event == "TOOL_CALL")
            (call,) = (await client.get(f"/v1/runs/{run_id}/calls")).json()["calls"]
            ran = (await client.get(f"/v1/runs/{run_id}/calls/c0")).json()["execution"]["invocations"]
            page = (await (await server.person("olga")).get(f"/console/runs/{run_id}?view=events")).text
        finally:
            is_over.set()
        await server.status(run_id, "COMPLETED")
    assert started.data["data"]["tool"] == "peek"
    assert (call["state"], call["observed_seq"]) == ("running", -1)
    assert [each["ended"] for each in ran] == [None]
    assert re.search(r'<td>peek</td>\s*<td><span class="chip active">Running</span>', page)
