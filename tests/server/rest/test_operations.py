"""Switches, triggers and dead letters over HTTP."""

from pathlib import Path

from interlock.server.core.audit_sinks.destination import FileDestination
from interlock.server.core.audit_sinks.positions import DeadLetter, ForwardPosition, ForwardPositionStore
from interlock.server.core.settings import ServerSettings
from interlock.server.core.triggers.due_times import Schedule
from tests.server.server_process import LOOKUP, NOTE, Running, running_server

NIGHTLY = Schedule(name="nightly", agent="shop", task="Close the books.", cron="0 3 * * *")
REASON = {"reason": "Incident 7."}


async def test_switched_off_agent_answers_409(server: Running) -> None:
    operator, agent = await server.client("operator"), await server.client("agent")
    waiting = await server.asked(await server.begin(NOTE))
    off = await operator.post("/v1/agents/shop/switch-off", json=REASON)
    refused = await agent.post("/v1/agents/shop/invoke", json={"task": "Do it."})
    (listed,) = (await operator.get("/v1/agents")).json()["agents"]
    on = await operator.post("/v1/agents/shop/switch-on", json={"reason": "Over."})
    taken = await agent.post("/v1/agents/shop/invoke", json={"task": "Do it."})

    assert off.json() == {"agent": "shop", "is_on": False, "changed": True, "cancelled": 1, "unfinished": []}
    assert (await operator.get(f"/v1/runs/{waiting['run_id']}")).json()["status"] == "FAILED"
    assert refused.status_code == 409
    assert refused.json()["error"] == {
        "code": "agent_switched_off",
        "message": "Agent shop was switched off by key:operator: Incident 7. Nothing was started.",
        "details": {"agent": "shop", "by": "key:operator", "reason": "Incident 7.", "all_agents": False},
    }
    assert listed["switched_off"].keys() == {"by", "reason", "at", "all_agents"}
    assert on.json() == {"agent": "shop", "is_on": True, "changed": True, "cancelled": 0, "unfinished": []}
    assert taken.status_code == 201


async def test_schedule_is_paused_and_resumed(tmp_path: Path) -> None:
    async with running_server(tmp_path, settings=ServerSettings(schedules=(NIGHTLY,))) as server:
        operator = await server.client("operator")
        paused = await operator.post("/v1/schedules/nightly/pause", json=REASON)
        (row,) = (await operator.get("/v1/schedules")).json()["schedules"]
        resumed = await operator.post("/v1/schedules/nightly/resume", json=REASON)
        (after,) = (await operator.get("/v1/schedules")).json()["schedules"]
        other = (await (await server.client("agent_other")).get("/v1/schedules")).status_code

    assert paused.json() == {"name": "nightly", "paused": True, "changed": True}
    assert (row["paused"]["by"], row["paused"]["reason"], row["next_due_at"]) == ("key:operator", "Incident 7.", None)
    assert resumed.json() == {"name": "nightly", "paused": False, "changed": True}
    assert after["paused"] is None
    assert after["next_due_at"].endswith("T03:00:00.000000Z")
    assert other == 403


async def test_dead_letters_are_listed_and_sent_again(tmp_path: Path) -> None:
    events = tmp_path / "sink" / "events.ndjson"
    settings = ServerSettings(forward=(FileDestination(name="siem", path=str(events)),))
    async with running_server(tmp_path / "state", settings=settings) as server:
        admin, auditor = await server.client("admin_all"), await server.client("auditor_all")
        run_id = await server.begin(LOOKUP)
        await server.status(run_id, "COMPLETED")
        store = ForwardPositionStore(server.service.database, "siem")
        letters = [DeadLetter(position=at, run_id=run_id, seq=at - 1, problem="400: no", at=at) for at in (1, 2)]
        await store.save(ForwardPosition(), letters)
        path = "/v1/audit/forwarders/siem/dead-letters"
        listed = (await auditor.get(path)).json()
        # The folder of the file is missing: the receiver cannot take anything now.
        down = (await admin.post(f"{path}/retry")).json()
        events.parent.mkdir()
        one = (await admin.post(f"{path}/2/retry")).json()
        again = (await admin.post(f"{path}/2/retry")).status_code
        rest = (await admin.post(f"{path}/retry")).json()
        journal = [each for each in await server.service.audit_log.read() if each.action.startswith("audit.dead")]

    assert [(each["position"], each["run_id"], each["problem"]) for each in listed["dead_letters"]] == [
        (1, run_id, "400: no"),
        (2, run_id, "400: no"),
    ]
    assert (down["sent"], down["left"], bool(down["problem"])) == (0, 2, True)
    assert one == {"destination": "siem", "sent": 1, "left": 1, "problem": ""}
    assert again == 404
    assert rest == {"destination": "siem", "sent": 1, "left": 0, "problem": ""}
    assert [each.outcome for each in journal] == ["failed", "done", "done"]


async def test_wrong_passkeys_are_slowed_down(tmp_path: Path) -> None:
    async with running_server(tmp_path, public_url="http://localhost:8321") as server:
        client = await server.client("")
        options = await client.post("/v1/session/passkey/options", json={})
        answers = [await client.post("/v1/session/passkey", json={"credential": {"id": "x"}}) for _ in range(6)]

    assert options.json()["rpId"] == "localhost"
    assert options.json()["userVerification"] == "required"
    assert [answer.status_code for answer in answers] == [401] * 5 + [429]
    assert answers[-1].json()["error"]["code"] == "too_many_attempts"
