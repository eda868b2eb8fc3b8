"""`GET /v1/budgets`: what was used of the budgets of the agents that one sees."""

import pytest

from interlock.domain.event import CallObserved
from tests.runs.support import facts_of
from tests.server.server_process import Call, Running

pytestmark = pytest.mark.asyncio

REPORT: Call = ("report", {"lines": 1})


async def test_budgets_are_listed_with_their_use(server: Running) -> None:
    await server.ended(await server.begin("Report.", *[REPORT] * 4))
    await server.ended(await server.begin("Report.", *[REPORT] * 4, agent="other"))
    client, all_agents = await server.client("operator"), await server.client("auditor_all")

    (budget,) = (await client.get("/v1/budgets")).json()["budgets"]

    assert budget.pop("resets_at") > budget.pop("began_at")
    assert budget == {
        "id": "reports-a-day",
        "about": "at most 5 calls a day per agent, requester, tools report",
        "agents": ["shop"],
        "subject": {"agent": "shop", "requester": ""},
        "used": 4.0,
        "limit": 5.0,
        "unit": "calls",
        "window": "day",
        "then": "deny",
    }
    listed = (await all_agents.get("/v1/budgets")).json()["budgets"]
    assert {row["subject"]["agent"]: row["used"] for row in listed} == {"shop": 4.0, "other": 4.0}


async def test_runs_of_the_server_share_the_budget(server: Running) -> None:
    run_id = await server.begin("Report.", *[REPORT] * 4)
    await server.ended(run_id)
    again = await server.begin("Report.", *[REPORT] * 2)
    await server.ended(again)

    observed = await facts_of(CallObserved, server.service.log, again)
    assert sorted(fact.observation.code for fact in observed) == ["budget_exceeded", "ok"]
