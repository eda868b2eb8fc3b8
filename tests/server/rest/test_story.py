"""The life of a run over HTTP: begun, paused, listed, decided, resumed by itself, ended."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from interlock.agent.agent import Agent
from interlock.domain.payload import ApprovalBinding, Payload, canonical_payload, hash_payload
from interlock.models.scripted import ScriptedModel
from interlock.server.core.runs.served_agent import ServedAgent
from tests.server.server_process import LOOKUP, NOTE, REFUND, RENAME, Running, running_server, task


async def types_of(server: Running, run_id: str) -> list[str]:
    client = await server.client("operator")
    found = (await client.get(f"/v1/runs/{run_id}/events")).json()["events"]
    assert [event["seq"] for event in found] == sorted(event["seq"] for event in found)
    return [event["type"] for event in found]


@pytest.mark.requirement("R124", "R125", "R127", "R138", "R140", "R141", "R142", "R166")
async def test_a_run_that_needs_nobody_begins_running_and_completes(server: Running) -> None:
    client = await server.client("agent")
    begun = await client.post("/v1/runs", json={"agent": "shop", "task": LOOKUP})
    assert begun.status_code == 201
    run_id = begun.json()["run_id"]
    assert begun.headers["location"] == f"/v1/runs/{run_id}"
    assert (await client.get(f"/v1/runs/{run_id}/state?at=0")).json()["status"] == "RUNNING"

    await server.status(run_id, "COMPLETED")

    shown = (await client.get(f"/v1/runs/{run_id}")).json()
    assert (shown["status"], shown["message"], shown["agent"]) == ("COMPLETED", "All done.", "shop")
    assert shown["created_at"] <= shown["updated_at"]
    assert await types_of(server, run_id) == ["LLM_CALL", "TOOL_CALL", "LLM_CALL", "COMPLETED"]


@pytest.mark.requirement("R129", "R131", "R137", "R143", "R144", "R146", "R147", "R148", "R149", "R150", "R152", "R162")
async def test_an_approved_run_resumes_by_itself_and_completes(server: Running) -> None:
    run_id = await server.begin(NOTE)
    await server.status(run_id, "PAUSED_APPROVAL")
    operator = await server.client("operator")

    (listed,) = (await operator.get("/v1/approvals")).json()["approvals"]
    assert (listed["agent"], listed["tool"], listed["capability"], listed["status"], listed["run_id"]) == (
        "shop",
        "note",
        "note",
        "PENDING",
        run_id,
    )
    assert listed["payload_hash"].startswith("sha256:")
    assert listed["created_at"]
    paused = (await operator.get(f"/v1/runs/{run_id}/calls")).json()["calls"]
    assert [call["state"] for call in paused] == ["waiting"]

    decided = await operator.post(
        f"/v1/approvals/{listed['action_id']}/approve",
        json={"payload_hash": listed["payload_hash"], "reason": "Fine.", "scope": "run"},
    )
    assert (decided.status_code, decided.json()["approval"]["decided_by"]) == (200, "key:operator")

    await server.status(run_id, "COMPLETED")
    action = (await operator.get(f"/v1/runs/{run_id}/approvals/{listed['action_id']}")).json()
    assert (action["status"], action["answer"]["scope"], action["answer"]["reason"]) == ("EXECUTED", "run", "Fine.")
    assert (await operator.get("/v1/approvals")).json()["approvals"] == []


@pytest.mark.requirement("R153", "R163", "R164")
async def test_the_events_of_a_resumed_run_are_in_their_order_and_name_the_action(server: Running) -> None:
    run_id = await server.begin(NOTE)
    asked = await server.asked(run_id)
    operator = await server.client("operator")
    wish = {"payload_hash": asked["payload_hash"]}
    await operator.post(f"/v1/approvals/{asked['action_id']}/approve", json=wish)
    await server.status(run_id, "COMPLETED")

    events = (await operator.get(f"/v1/runs/{run_id}/events")).json()["events"]
    types = ["LLM_CALL", "APPROVAL_REQUIRED", "APPROVAL_GRANTED", "TOOL_CALL", "LLM_CALL", "COMPLETED"]
    assert [event["type"] for event in events] == types
    assert [event["data"]["action_id"] for event in events[1:4]] == [asked["action_id"]] * 3
    # And back: the action names its events.
    action = (await operator.get(f"/v1/runs/{run_id}/approvals/{asked['action_id']}")).json()
    named = (action["created_seq"], action["answered_seq"], action["executed_seq"])
    assert named == tuple(event["seq"] for event in events[1:4])


@pytest.mark.requirement("R133", "R151", "R136")
async def test_a_rejected_run_fails_and_stays_so(server: Running) -> None:
    run_id = await server.begin(NOTE)
    asked = await server.asked(run_id)
    operator = await server.client("operator")

    rejected = await operator.post(f"/v1/approvals/{asked['action_id']}/reject", json={"reason": "Not nice."})

    assert (rejected.status_code, rejected.json()["approval"]["status"]) == (200, "REJECTED")
    await server.status(run_id, "FAILED")
    assert await types_of(server, run_id) == ["LLM_CALL", "APPROVAL_REQUIRED", "APPROVAL_REJECTED", "ERROR"]
    late = await operator.post(f"/v1/runs/{run_id}/cancel", json={"reason": "too late"})
    assert (late.status_code, late.json()["error"]["details"]) == (
        409,
        {"current": "FAILED", "attempted": "cancel"},
    )


@pytest.mark.requirement("R160", "R161")
async def test_an_answer_to_another_payload_is_refused_with_both_hashes(server: Running) -> None:
    first, second = await server.begin(NOTE), await server.begin(REFUND)
    asked, other = await server.asked(first), await server.asked(second)
    operator = await server.client("operator")

    wrong = await operator.post(
        f"/v1/approvals/{asked['action_id']}/approve", json={"payload_hash": other["payload_hash"]}
    )

    error = wrong.json()["error"]
    assert (wrong.status_code, error["code"]) == (409, "payload_hash_mismatch")
    assert error["details"] == {"expected": asked["payload_hash"], "actual": other["payload_hash"]}
    assert await server.status(first, "PAUSED_APPROVAL")


@pytest.mark.requirement("R135", "R150")
async def test_a_second_decision_is_a_conflict_unless_it_is_the_same(server: Running) -> None:
    run_id = await server.begin(NOTE)
    asked = await server.asked(run_id)
    operator, admin = await server.client("operator"), await server.client("admin")
    yes = {"payload_hash": asked["payload_hash"]}
    place = f"/v1/approvals/{asked['action_id']}"

    assert (await operator.post(f"{place}/approve", json=yes)).status_code == 200
    assert (await operator.post(f"{place}/approve", json=yes)).status_code == 200
    other = await admin.post(f"{place}/reject", json={"reason": "No."})

    details = other.json()["error"]["details"]
    assert (other.status_code, details["attempted"]) == (409, {"status": "REJECTED", "by": "key:admin"})
    assert details["decided"]["by"] == "key:operator"


async def test_of_twenty_answers_at_once_one_decides(server: Running) -> None:
    run_id = await server.begin(NOTE)
    asked = await server.asked(run_id)
    operator, admin = await server.client("operator"), await server.client("admin")
    place, yes = f"/v1/approvals/{asked['action_id']}", {"payload_hash": asked["payload_hash"]}

    answers = await asyncio.gather(
        *(operator.post(f"{place}/approve", json=yes) for _ in range(10)),
        *(admin.post(f"{place}/reject", json={"reason": "No."}) for _ in range(10)),
    )

    codes = [answer.status_code for answer in answers]
    assert sorted(set(codes[:10])) + sorted(set(codes[10:])) in ([200, 409], [409, 200])
    await server.status(run_id, "COMPLETED", "FAILED")
    kinds = await types_of(server, run_id)
    assert kinds.count("APPROVAL_GRANTED") + kinds.count("APPROVAL_REJECTED") == 1


@pytest.mark.requirement("R150", "R159")
async def test_edited_arguments_are_what_runs(server: Running) -> None:
    run_id = await server.begin(NOTE)
    asked = await server.asked(run_id)
    operator = await server.client("operator")
    place = f"/v1/approvals/{asked['action_id']}/approve"

    wrong = await operator.post(place, json={"payload_hash": asked["payload_hash"], "arguments": {"order": 1}})
    edited = {"order": "7", "text": "on time"}
    done = await operator.post(place, json={"payload_hash": asked["payload_hash"], "arguments": edited})

    assert (wrong.status_code, wrong.json()["error"]["details"]["fields"][0]["field"]) == (422, "arguments")
    assert done.status_code == 200
    await server.status(run_id, "COMPLETED")
    call = (await operator.get(f"/v1/runs/{run_id}/calls/c0")).json()
    assert call["model_view"]["arguments"] == {"order": "7", "text": "late"}
    assert call["execution"]["invocations"][0]["arguments"] == edited
    assert "on time" in call["model_view"]["result"]
    assert call["person_view"]["approvals"][0]["answer"]["arguments"] == edited


async def test_a_value_that_was_asked_for_is_given_and_used(server: Running) -> None:
    run_id = await server.begin(RENAME)
    asked = await server.asked(run_id)
    operator = await server.client("operator")
    assert [each["kind"] for each in (await operator.get("/v1/approvals")).json()["approvals"]] == ["input"]
    assert (await operator.get("/v1/approvals?kind=approval")).json()["approvals"] == []

    wrong = await operator.post(
        f"/v1/approvals/{asked['action_id']}/approve", json={"payload_hash": asked["payload_hash"]}
    )
    given = await operator.post(f"/v1/approvals/{asked['action_id']}/answer", json={"value": "Grace"})

    assert (wrong.status_code, wrong.json()["error"]["details"]) == (
        409,
        {"expected": "input", "actual": "approval"},
    )
    assert given.status_code == 200
    await server.status(run_id, "COMPLETED")
    call = (await operator.get(f"/v1/runs/{run_id}/calls/c0")).json()
    assert call["execution"]["invocations"][0]["arguments"] == {"name": "Grace"}


async def test_a_value_may_be_refused(server: Running) -> None:
    asked = await server.asked(await server.begin(RENAME))
    operator = await server.client("operator")
    refused = await operator.post(f"/v1/approvals/{asked['action_id']}/reject", json={"reason": "I do not know."})
    assert (refused.status_code, refused.json()["approval"]["status"]) == (200, "REJECTED")
    await server.status(asked["run_id"], "FAILED")


@pytest.mark.requirement("R128", "R141")
async def test_a_cancelled_run_is_failed_and_says_who_did_it(server: Running) -> None:
    run_id = await server.begin(NOTE)
    await server.asked(run_id)
    operator = await server.client("operator")

    once = await operator.post(f"/v1/runs/{run_id}/cancel", json={"reason": "Not needed."})
    again = await operator.post(f"/v1/runs/{run_id}/cancel")

    assert [once.status_code, again.status_code] == [200, 200]
    assert (once.json()["status"], once.json()["cancelled"]) == ("FAILED", True)
    last = (await operator.get(f"/v1/runs/{run_id}/events?view=log")).json()["events"][-1]
    assert (last["event"]["fact"]["by"], last["event"]["fact"]["message"]) == ("key:operator", "Not needed.")


@pytest.mark.requirement("R125")
async def test_an_agent_is_invoked_at_its_own_address(server: Running) -> None:
    client = await server.client("agent")
    begun = await client.post("/v1/agents/shop/invoke", json={"task": LOOKUP, "on_behalf_of": "sam"})
    shown = begun.json()
    assert (begun.status_code, shown["requester"], shown["created_by"]) == (201, "user:sam", "key:agent")
    assert (await client.post("/v1/agents/nobody/invoke", json={"task": "x"})).status_code in (403, 404)


async def test_the_same_wish_with_the_same_key_is_the_same_run(server: Running) -> None:
    client = await server.client("agent")
    wish, key = {"agent": "shop", "task": LOOKUP}, {"Idempotency-Key": "order-7"}

    answers = await asyncio.gather(*(client.post("/v1/runs", json=wish, headers=key) for _ in range(20)))
    other = await client.post("/v1/runs", json=wish | {"task": NOTE}, headers=key)
    odd = await client.post("/v1/runs", json=wish, headers={"Idempotency-Key": "x" * 201})

    assert len({answer.json()["run_id"] for answer in answers}) == 1
    assert sorted(answer.status_code for answer in answers) == [200] * 19 + [201]
    assert (other.status_code, other.json()["error"]["details"].keys()) == (409, {"existing", "attempted"})
    assert (odd.status_code, odd.json()["error"]["details"]["fields"][0]["field"]) == (422, "Idempotency-Key")
    assert len((await client.get("/v1/runs")).json()["runs"]) == 1


@pytest.mark.requirement("R165", "R126", "R168")
async def test_runs_are_listed_by_status_agent_person_and_words_page_by_page(server: Running) -> None:
    waiting = await server.begin(NOTE, on_behalf_of="sam")
    done = [await server.begin(task(f"Number {word}."), by="agent") for word in ("one", "two", "three")]
    elsewhere = await server.begin(LOOKUP, agent="other")
    for run_id in (*done, elsewhere):
        await server.status(run_id, "COMPLETED")
    await server.status(waiting, "PAUSED_APPROVAL")
    client = await server.client("operator_all")

    async def listed(query: str) -> list[str]:
        return [run["run_id"] for run in (await client.get(f"/v1/runs?{query}")).json()["runs"]]

    assert await listed("") == [elsewhere, *reversed(done), waiting]
    assert await listed("status=PAUSED_APPROVAL") == [waiting]
    assert await listed("status=PAUSED_APPROVAL&status=COMPLETED&agent=shop") == [*reversed(done), waiting]
    assert await listed("agent=other") == [elsewhere]
    assert await listed("requester=user:sam") == [waiting]
    assert await listed("q=number%20three") == [done[2]]
    first = (await client.get("/v1/runs?limit=2")).json()
    assert [run["run_id"] for run in first["runs"]] == [elsewhere, done[2]]
    assert await listed(f"limit=2&cursor={first['next_cursor']}") == [done[1], done[0]]
    overview = (await client.get("/v1/activity?limit=5")).json()
    assert overview["runs"] | {"COMPLETED": 4, "PAUSED_APPROVAL": 1} == overview["runs"]
    assert overview["pending_approvals"]["approval"] == 1
    assert [event["type"] for event in overview["recent"]].count("APPROVAL_REQUIRED") <= 1


async def test_the_state_of_a_run_can_be_seen_as_of_every_event(server: Running) -> None:
    run_id = await server.begin(NOTE)
    asked = await server.asked(run_id)
    client = await server.client("operator")
    await client.post(f"/v1/approvals/{asked['action_id']}/approve", json={"payload_hash": asked["payload_hash"]})
    await server.status(run_id, "COMPLETED")
    last = (await client.get(f"/v1/runs/{run_id}")).json()["last_seq"]

    states = [(await client.get(f"/v1/runs/{run_id}/state?at={at}")).json() for at in range(last + 1)]

    assert [state["at_seq"] for state in states] == list(range(last + 1))
    words = list(dict.fromkeys(state["status"] for state in states))
    assert words == ["RUNNING", "PAUSED_APPROVAL", "COMPLETED"]
    assert states[asked["created_seq"] - 1]["approvals"] == []
    assert states[asked["created_seq"]]["approvals"][0]["status"] == "PENDING"
    assert states[last]["approvals"][0]["status"] == "EXECUTED"
    beyond = await client.get(f"/v1/runs/{run_id}/state?at={last + 1}")
    assert (beyond.status_code, beyond.json()["error"]["details"]["fields"][0]["field"]) == (422, "at")


async def test_somebody_may_not_decide_what_was_done_for_them(server: Running) -> None:
    olga = await server.person("olga")
    run_id = (await olga.post("/v1/runs", json={"agent": "shop", "task": REFUND})).json()["run_id"]
    asked = await server.asked(run_id)

    shown = (await olga.get(f"/v1/approvals/{asked['action_id']}")).json()
    refused = await olga.post(
        f"/v1/approvals/{asked['action_id']}/approve", json={"payload_hash": asked["payload_hash"]}
    )

    assert (shown["can_decide"], "another person has to decide" in shown["denied_reason"]) == (False, True)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "four_eyes")
    journal = (await (await server.client("auditor_all")).get("/v1/audit/log")).json()["entries"]
    refusals = [(each["by"], each["action"]) for each in journal if each["outcome"] == "refused"]
    assert refusals == [("user:olga", "decision.four_eyes")]


@pytest.mark.requirement("R145", "R158", "R159", "R167")
async def test_the_hash_is_over_what_is_shown_and_what_runs_has_the_same(server: Running) -> None:
    run_id = await server.begin(NOTE)
    asked = await server.asked(run_id)
    bound = msgspec.convert(asked["binding"], ApprovalBinding)
    payload = Payload(run_id, asked["call_id"], asked["tool"], asked["arguments"], bound)
    assert hash_payload(canonical_payload(payload)) == asked["payload_hash"]

    operator = await server.client("operator")
    wish = {"payload_hash": asked["payload_hash"]}
    await operator.post(f"/v1/approvals/{asked['action_id']}/approve", json=wish)
    await server.status(run_id, "COMPLETED")

    call = (await operator.get(f"/v1/runs/{run_id}/calls/c0")).json()
    assert call["execution"]["invocations"][0]["started"]["payload_hash"] == asked["payload_hash"]
    action = (await operator.get(f"/v1/runs/{run_id}/approvals/{asked['action_id']}")).json()
    assert (action["payload_hash"], action["call_id"], action["run_id"]) == (asked["payload_hash"], "c0", run_id)


@pytest.mark.requirement("R142", "R165", "R166", "R167", "R169")
async def test_paths_without_version_are_aliases(server: Running) -> None:
    """The same handler answers: one routing table, marked as an alias in OpenAPI."""
    run_id = await server.begin(NOTE)
    asked = await server.asked(run_id)
    admin = await server.client("admin")
    paths = (await admin.get("/openapi.json")).json()["paths"]
    aliases = {path: found["get"]["x-interlock-alias-of"] for path, found in paths.items() if path.startswith("/runs")}
    assert aliases == {
        "/runs": "/v1/runs",
        "/runs/{run_id}": "/v1/runs/{run_id}",
        "/runs/{run_id}/events": "/v1/runs/{run_id}/events",
        "/runs/{run_id}/actions/{action_id}": "/v1/runs/{run_id}/approvals/{action_id}",
        "/runs/{run_id}/audit/export": "/v1/runs/{run_id}/audit/export",
    }
    for alias, path in aliases.items():
        both = [await admin.get(each.format(run_id=run_id, action_id=asked["action_id"])) for each in (alias, path)]
        assert [answer.status_code for answer in both] == [200, 200]
        assert both[0].headers.get("content-type") == both[1].headers.get("content-type")
        assert "export" in path or both[0].json() == both[1].json()
    assert all(path.startswith(("/v1/", "/runs", "/health/", "/hooks/")) for path in paths)


@pytest.mark.requirement("R126", "R139")
async def test_the_description_has_exactly_the_words_for_statuses_and_events(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        told = (await (await server.client()).get("/openapi.json")).json()
    filters = {each["name"]: each["schema"] for each in told["paths"]["/v1/runs"]["get"]["parameters"]}
    (listed, _) = filters["status"]["anyOf"]
    assert set(listed["items"]["enum"]) == {"RUNNING", "PAUSED_APPROVAL", "PAUSED_CONSENT", "COMPLETED", "FAILED"}
    events = told["components"]["schemas"]["EventResponse"]["properties"]["type"]["enum"]
    assert set(events) == {
        "TOOL_CALL",
        "LLM_CALL",
        "APPROVAL_REQUIRED",
        "CONSENT_REQUIRED",
        "APPROVAL_GRANTED",
        "APPROVAL_REJECTED",
        "ERROR",
        "COMPLETED",
    }


@pytest.mark.requirement("R128", "R141")
async def test_a_run_whose_model_gives_no_answer_fails_with_an_error(tmp_path: Path) -> None:
    broken = Agent(provider=ScriptedModel([]), name="shop")
    async with running_server(tmp_path, [ServedAgent(agent=broken)]) as server:
        run_id = await server.begin("Do it.")
        await server.status(run_id, "FAILED")
        assert (await types_of(server, run_id))[-1] == "ERROR"
