"""Keeping a rule with an approval, over HTTP: which rule, by whom, for whom else, and what the journal says."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from interlock import PolicyFiles, RulePolicy, tool
from interlock.policy.interface import PolicyEngine
from interlock.server.core.runs.served_agent import ServedAgent
from tests.server.server_process import NOTE, Running, demo_agent, running_server

pytestmark = pytest.mark.requirement("P22")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text("version: 1\n")
    return path


def is_unchanged(file: Path) -> bool:
    return file.read_text() == "version: 1\n"


def served(name: str, policy: PolicyEngine, tools: Sequence[Any] = ()) -> ServedAgent:
    agent = demo_agent(name)
    return ServedAgent(agent=replace(agent, policy=policy, tools=tuple(tools) or agent.tools))


def alone(file: Path) -> list[ServedAgent]:
    return [served("shop", PolicyFiles(user=file)), served("other", RulePolicy())]


def shared(file: Path) -> list[ServedAgent]:
    return [served("shop", PolicyFiles(user=file)), served("other", PolicyFiles(user=file))]


async def keep(server: Running, asked: dict[str, Any], by: str = "operator", **wish: Any) -> Any:
    body = {"payload_hash": asked["payload_hash"], "scope": "rule", **wish}
    return await (await server.client(by)).post(f"/v1/approvals/{asked['action_id']}/approve", json=body)


async def journal(server: Running, action: str) -> list[dict[str, Any]]:
    entries = (await (await server.client("auditor_all")).get("/v1/audit/log")).json()["entries"]
    return [entry for entry in entries if entry["action"] == action]


@pytest.mark.parametrize(
    "rule",
    [
        "{decision: allow}",
        "{decision: allow, tools: '*'}",
        "{decision: allow, tools: note}",
        "{decision: allow, tools: note, arguments: {order: '7'}}",
        "{decision: deny, tools: note}",
        "{decision: allow, tools: note, arguments: {order: '7', text: {glob: '*'}}}",
        "not a rule",
    ],
)
async def test_rule_not_suggested_is_refused(tmp_path: Path, file: Path, rule: str) -> None:
    async with running_server(tmp_path, alone(file)) as server:
        asked = await server.asked(await server.begin(NOTE))
        refused = await keep(server, asked, rule=rule)
        after = await server.asked(asked["run_id"])
        noted = await journal(server, "policy.keep")

    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "rule_not_suggested")
    assert refused.json()["error"]["details"]["suggested_rule"] == asked["suggested_rule"]
    assert (after["action_id"], after["answer"]) == (asked["action_id"], None)
    assert is_unchanged(file)
    assert [(entry["by"], entry["outcome"]) for entry in noted] == [("key:operator", "refused")]


@pytest.mark.parametrize("narrowed", [{}, {"agent": "shop", "expires": "2999-01-01T00:00:00Z"}])
async def test_kept_rule_is_in_file_and_journal(tmp_path: Path, file: Path, narrowed: dict[str, str]) -> None:
    async with running_server(tmp_path, alone(file)) as server:
        policy: Any = server.service.runners.by_agent["shop"].app.parts.policy
        before = policy.digest
        asked = await server.asked(await server.begin(NOTE))
        rule = json.dumps(json.loads(asked["suggested_rule"]) | narrowed) if narrowed else ""
        kept = await keep(server, asked, rule=rule)
        await server.status(asked["run_id"], "COMPLETED")
        (row,) = await journal(server, "policy.rule_kept")
        again = await server.status(await server.begin(NOTE), "COMPLETED")

    target: dict[str, Any] = {"file": str(file), "shared_with": [], "hidden_agents": 0, "denied_reason": ""}
    assert (kept.status_code, kept.json()["rule_target"]) == (200, target)
    assert (row["by"], row["target"], row["outcome"]) == ("key:operator", asked["action_id"], "done")
    assert (row["detail"]["before"], row["detail"]["after"]) == (before, policy.digest)
    assert (row["detail"]["rule"], row["detail"]["agent"]) == (rule or asked["suggested_rule"], "shop")
    assert before != policy.digest
    assert again == "COMPLETED"


async def test_shared_file_needs_all_of_its_agents(tmp_path: Path, file: Path) -> None:
    async with running_server(tmp_path, shared(file)) as server:
        asked = await server.asked(await server.begin(NOTE))
        address = f"/v1/approvals/{asked['action_id']}"
        owner = (await (await server.client("operator")).get(address)).json()["rule_target"]
        everyone = (await (await server.client("operator_all")).get(address)).json()["rule_target"]
        refused = await keep(server, asked)
        once = await server.asked(asked["run_id"])
        kept = await keep(server, asked, "operator_all")
        await server.status(asked["run_id"], "COMPLETED")
        (row,) = await journal(server, "policy.rule_kept")

    assert (owner["shared_with"], owner["hidden_agents"]) == ([], 1)
    assert "another agent" in owner["denied_reason"]
    assert (everyone["shared_with"], everyone["denied_reason"]) == (["other"], "")
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "rule_not_permitted")
    assert "other," not in refused.text
    assert once["answer"] is None
    assert (kept.status_code, kept.json()["rule_target"]["shared_with"]) == (200, ["other"])
    assert row["detail"]["shared_with"] == "other"


async def test_rule_needs_four_eyes_of_its_riskiest_call(tmp_path: Path, file: Path) -> None:
    """Writing a note is not high risk for `shop`, and the tool of that name sends it elsewhere for `other`."""

    @tool(risk="network")
    def note(order: str, text: str) -> str:
        """Send a note."""
        return "sent"

    agents = [served("shop", PolicyFiles(user=file)), served("other", PolicyFiles(user=file), [note])]
    async with running_server(tmp_path, agents) as server:
        asked = await server.asked(await server.begin(NOTE, by="operator_all"))
        refused = await keep(server, asked, "operator_all")
        body = {"payload_hash": asked["payload_hash"]}
        client = await server.client("operator_all")
        once = await client.post(f"/v1/approvals/{asked['action_id']}/approve", json=body)

    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "four_eyes")
    assert once.status_code == 200
    assert is_unchanged(file)


async def test_policy_that_keeps_nothing_decides_nothing(tmp_path: Path) -> None:
    agents = [served("shop", RulePolicy()), served("other", RulePolicy())]
    async with running_server(tmp_path, agents) as server:
        asked = await server.asked(await server.begin(NOTE))
        refused = await keep(server, asked)
        after = await server.asked(asked["run_id"])

    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "rule_not_kept")
    assert after["answer"] is None


async def test_rule_is_not_kept_without_its_row(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_server(tmp_path, alone(file)) as server:
        asked = await server.asked(await server.begin(NOTE))

        async def full(*_: Any, **__: Any) -> None:
            raise OSError("the disk is full")

        monkeypatch.setattr(server.service.audit_log, "add", full)
        await keep(server, asked)
        await server.status(asked["run_id"], "COMPLETED")

    assert is_unchanged(file)


async def test_another_rule_after_the_answer_is_a_conflict(tmp_path: Path, file: Path) -> None:
    async with running_server(tmp_path, alone(file)) as server:
        asked = await server.asked(await server.begin(NOTE))
        narrower = json.dumps(json.loads(asked["suggested_rule"]) | {"agent": "shop"})
        await keep(server, asked)
        same, other = await keep(server, asked), await keep(server, asked, rule=narrower)

    assert (same.status_code, other.status_code) == (200, 409)
    assert other.json()["error"]["code"] == "already_decided"
