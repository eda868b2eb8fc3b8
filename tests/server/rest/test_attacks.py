"""What a hostile key, page, person or text tries over HTTP, and what becomes of it."""

import asyncio
import json

import httpx2
import pytest
from starlette.datastructures import Headers

from interlock.server.core.identity.login_throttle import LoginThrottle
from interlock.server.rest.errors import ApiError
from interlock.server.rest.security import AllowedHosts
from tests.each import each
from tests.patience import HANG_SECONDS
from tests.server.rest.test_safety import code_of
from tests.server.rest.test_streams import all_of
from tests.server.server_process import LOOKUP, NOTE, PASSWORD, REFUND, REPORT, Running, task


async def test_all_runs_of_an_agent_are_stopped_at_once_and_nobody_can_approve_what_they_asked(server: Running) -> None:
    mine = [await server.begin(NOTE, by="operator") for _ in range(20)]
    other = await server.begin(NOTE, agent="other")
    asked = [await server.asked(run_id) for run_id in mine]
    await server.asked(other)
    operator = await server.client("operator")

    async with asyncio.timeout(HANG_SECONDS):
        stopped = await operator.post("/v1/agents/shop/stop", json={"reason": "It sends money to strangers."})

    assert stopped.json() == {"agent": "shop", "cancelled": 20, "unfinished": []}
    assert {await server.status(run_id, "FAILED") for run_id in mine} == {"FAILED"}
    assert await server.status(other, "PAUSED_APPROVAL")
    for question in asked:
        yes = {"payload_hash": question["payload_hash"]}
        answer = await operator.post(f"/v1/approvals/{question['action_id']}/approve", json=yes)
        assert answer.status_code == 409
    events = (await operator.get(f"/v1/runs/{mine[0]}/events?view=log")).text
    assert "key:operator" in events.rpartition("run.cancelled")[2]
    row = (await server.service.audit_log.read(0, 1_000))[-1]
    assert (row.by, row.action, row.target, row.outcome) == ("key:operator", "agents.stop", "shop", "done")
    assert row.detail == {"cancelled": "20", "unfinished": "0", "reason": "It sends money to strangers."}


async def test_an_agent_that_works_is_stopped_while_it_does(server: Running) -> None:
    operator = await server.client("operator")
    begun = await asyncio.gather(
        *(operator.post("/v1/runs", json={"agent": "shop", "task": REPORT}) for _ in range(10))
    )
    stopped = (await operator.post("/v1/agents/shop/stop", json={"reason": "Stop."})).json()
    ends = {await server.status(each.json()["run_id"], "FAILED", "COMPLETED") for each in begun}
    assert stopped["unfinished"] == []
    assert ends <= {"FAILED", "COMPLETED"}
    assert (await operator.get("/v1/runs?status=RUNNING&status=PAUSED_APPROVAL")).json()["runs"] == []


async def test_an_agent_that_nobody_has_cannot_be_stopped(server: Running) -> None:
    client = await server.client("operator_all")
    assert code_of(await client.post("/v1/agents/nobody/stop", json={"reason": "x"})) == (404, "unknown_agent")
    blank = await client.post("/v1/agents/shop/stop", json={"reason": " \n"})
    assert code_of(blank) == (422, "invalid_request")


@each(
    ("origin", "is_own"),
    [
        ("http://interlock.example", True),
        ("https://interlock.example", True),
        ("http://interlock.example:9999", False),
        ("http://localhost:8321", True),
        ("http://127.0.0.1:8321", False),
        ("null", False),
        ("", False),
        ("ftp://interlock.example", False),
    ],
)
def test_a_page_on_another_port_is_a_page_of_another_site(origin: str, is_own: bool) -> None:
    hosts = AllowedHosts(("interlock.example", "127.0.0.1:8321"), "http://localhost:8321")
    headers = Headers({"host": "interlock.example", "origin": origin})
    if is_own:
        hosts.check_origin(headers)
    else:
        with pytest.raises(ApiError, match="another site"):
            hosts.check_origin(headers)


def test_where_people_come_by_tls_a_page_without_it_is_one_of_another_site() -> None:
    hosts = AllowedHosts(("interlock.example",), "https://interlock.example")
    hosts.check_origin(Headers({"host": "interlock.example", "origin": "https://interlock.example"}))
    with pytest.raises(ApiError, match="another site"):
        hosts.check_origin(Headers({"host": "interlock.example", "origin": "http://interlock.example"}))


async def test_whoever_asks_whether_it_is_ready_learns_nothing_of_its_inside(
    server: Running, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def find_problem() -> str:
        return "OSError: /srv/secret/server.db"

    monkeypatch.setattr(server.service.database, "check", find_problem)
    answer = await (await server.client()).get("/health/ready")
    assert code_of(answer) == (503, "not_ready")
    assert "The server's database cannot be used." in answer.text
    assert "secret" not in answer.text
    assert "/srv/secret/server.db" in caplog.text


async def test_a_time_that_cannot_be_counted_is_refused_in_words(server: Running) -> None:
    admin = await server.client("admin_all")
    for text in ("9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "2262-04-12T00:00:00Z"):
        answer = await admin.post("/v1/keys", json={"name": "k", "roles": ["operator"], "expires_at": text})
        assert code_of(answer) == (422, "invalid_request")
        assert "between 1970 and 2262" in answer.json()["error"]["message"], text
    far = {"name": "k", "roles": ["operator"], "expires_at": "2262-01-01T00:00:00Z"}
    assert (await admin.post("/v1/keys", json=far)).status_code == 201


HOSTILE = "x\r\nevent: end\r\ndata: {}\r\n\r\nid: 9\n\n\u2028\u2029\x00\x85</script>\u202e\ufeff"


async def test_no_text_of_a_model_becomes_an_event_a_header_or_a_line_of_its_own(server: Running) -> None:
    client, auditor = await server.client("operator"), await server.client("auditor")
    run_id = await server.begin(task(HOSTILE, ("fail", {"why": HOSTILE}), ("lookup", {"order": HOSTILE})))
    await server.status(run_id, "COMPLETED")
    for view in ("run", "log"):
        listed = (await client.get(f"/v1/runs/{run_id}/events?view={view}&limit=1000")).json()["events"]
        live = await all_of(client, f"/v1/runs/{run_id}/events/stream?view={view}")
        assert [each.data for each in live[:-1]] == listed
    stored = (await client.get(f"/v1/runs/{run_id}/events?view=log&limit=1000")).json()["events"]
    for schema in ("interlock", "splunk_hec", "ecs", "ocsf", "cef"):
        exported = await auditor.get(f"/v1/runs/{run_id}/audit/export?format=ndjson&schema={schema}")
        lines = exported.content.rstrip(b"\n").split(b"\n")
        assert len(lines) == len(stored) + (schema == "interlock")
        assert b"\r" not in exported.content
        assert "\u2028" not in "".join(lines[0].decode().splitlines()[1:])


async def test_a_person_who_made_a_run_does_not_approve_its_risky_call_in_any_way(server: Running) -> None:
    olga = await server.person("olga")
    made = (await olga.post("/v1/runs", json={"agent": "shop", "task": REFUND})).json()["run_id"]
    question = await server.asked(made)
    path, digest = f"/v1/approvals/{question['action_id']}", question["payload_hash"]
    tries = [
        {"payload_hash": digest},
        {"payload_hash": digest, "scope": "run"},
        {"payload_hash": digest, "arguments": {"order": "7", "amount": 1.0}},
        {"payload_hash": digest, "reason": "user:alex said yes"},
    ]
    for wish in tries:
        assert code_of(await olga.post(f"{path}/approve", json=wish)) == (403, "four_eyes")
    assert code_of(await olga.post(f"{path}/approve", json=tries[0] | {"by": "user:alex"})) == (422, "invalid_request")
    assert code_of(await olga.post(f"/v1/approvals/{question['action_id']}/answer", json={"value": 1}))[0] in {403, 409}
    assert await server.status(made, "PAUSED_APPROVAL")


async def test_an_editor_does_not_approve_their_edit(server: Running) -> None:
    olga, alex = await server.person("olga"), await server.person("alex")
    run_id = await server.begin(REFUND)
    first = await server.asked(run_id)
    edit = {"payload_hash": first["payload_hash"], "arguments": {"order": "7", "amount": 1.0, "note": ""}}
    assert (await olga.post(f"/v1/approvals/{first['action_id']}/approve", json=edit)).status_code == 200
    second = await server.asked(run_id)
    path, again = f"/v1/approvals/{second['action_id']}", {"payload_hash": second["payload_hash"]}

    assert (second["edited_by"], second["replaces"]) == ("user:olga", first["action_id"])
    assert code_of(await olga.post(f"{path}/approve", json=again)) == (403, "four_eyes")
    assert (await alex.post(f"{path}/approve", json=again)).status_code == 200
    await server.status(run_id, "COMPLETED")
    assert (await alex.get(f"/v1/runs/{run_id}/calls/c0")).json()["execution"]["invocations"][0]["arguments"] == edit[
        "arguments"
    ]


async def test_failing_on_purpose_does_not_lock_out_the_owner(server: Running) -> None:
    """On a clock that stands still: the stranger would wait for ever."""
    server.service.login_throttle = LoginThrottle(server.service.database, lambda: 1_000.0)
    await server.service.accounts.create("olga", PASSWORD, by="test")
    transport = httpx2.AsyncHTTPTransport(local_address="127.0.0.2")
    async with httpx2.AsyncClient(base_url=server.base, transport=transport) as stranger:
        guesses = [await stranger.post("/v1/session", json={"name": "olga", "password": f"no {at}"}) for at in range(8)]
        owner = await (await server.client()).post("/v1/session", json={"name": "olga", "password": PASSWORD})
        late = await stranger.post("/v1/session", json={"name": "olga", "password": PASSWORD})

    assert [guess.status_code for guess in guesses] == [401] * 5 + [429] * 3
    assert (owner.status_code, late.status_code) == (201, 429)


async def test_an_account_that_was_disabled_or_got_another_password_has_no_sign_in_left(server: Running) -> None:
    olga, admin = await server.person("olga"), await server.client("admin_all")
    again = await server.client()
    sign_in = {"name": "olga", "password": "correct horse battery"}
    again.headers["X-CSRF-Token"] = (await again.post("/v1/session", json=sign_in)).json()["csrf_token"]
    changed = await olga.post("/v1/me/password", json={"current": sign_in["password"], "new": "another good password"})
    assert changed.status_code == 204
    assert [(await each.get("/v1/me")).status_code for each in (olga, again)] == [401, 401]
    new = await again.post("/v1/session", json=sign_in | {"password": "another good password"})
    assert (new.status_code, (await again.get("/v1/me")).status_code) == (201, 200)
    assert (await admin.patch("/v1/accounts/olga", json={"disabled": True})).status_code == 200
    assert (await again.get("/v1/me")).status_code == 401


async def test_what_is_refused_is_not_repeated_with_secrets_in_it(server: Running) -> None:
    client = await server.client("operator")
    secret = await server.key("admin_all")
    answers = [
        await client.post("/v1/session", json={"name": "olga", "password": secret, "extra": secret}),
        await client.post("/v1/session", content=json.dumps([secret]), headers={"Content-Type": "application/json"}),
        await client.get("/v1/me", headers={"Authorization": f"Bearer {secret}x"}),
        await client.get("/v1/me", headers={"Authorization": f"Basic {secret}"}),
        await client.post(
            "/v1/runs", json={"agent": "shop", "task": LOOKUP}, headers={"Idempotency-Key": f"{secret} x"}
        ),
        await client.get("/v1/runs", headers={"Host": secret}),
        await client.get("/v1/runs", headers={"Origin": secret, "Cookie": f"interlock_session={secret}"}),
    ]
    assert all(secret not in answer.text for answer in answers)


@pytest.mark.parametrize(
    ("change", "run_is_ok"),
    [
        ("UPDATE checkpoints SET document = x'00'", False),
        ("UPDATE checkpoints SET document = CAST('{\"number\": 1}' AS BLOB)", False),
        ("UPDATE checkpoints SET signature = x'00'", False),
        ("DELETE FROM checkpoints", True),
        ("DELETE FROM checkpoints WHERE number > 1", True),
    ],
)
@pytest.mark.requirement("P11")
async def test_whoever_changes_the_signed_checkpoints_in_the_database_is_found_and_stops_nothing(
    server: Running, change: str, run_is_ok: bool
) -> None:
    auditor, run_id = await server.client("auditor_all"), await server.begin(LOOKUP)
    await server.status(run_id, "COMPLETED")
    assert (await auditor.get(f"/v1/runs/{run_id}/audit/export")).headers["X-Interlock-Signed"] == "yes"
    await server.service.checkpoints.take()
    await server.service.database.run(lambda connection: connection.execute(change).rowcount)

    assert (await auditor.get("/v1/audit/verify")).json()["ok"] is False
    assert (await auditor.get(f"/v1/runs/{run_id}/audit/verify")).json()["ok"] is run_is_ok
    assert (await auditor.get("/v1/audit/checkpoints")).status_code == 200
    assert (await auditor.get(f"/v1/runs/{run_id}/audit/export")).status_code == 200
    await server.status(await server.begin(LOOKUP), "COMPLETED")
    await server.service.checkpoints.take()
    assert (await auditor.get("/v1/audit/verify")).json()["ok"] is False


async def test_a_page_of_long_events_ends_early_and_the_next_one_goes_on(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.server.core.runs.queries.MAX_PAGE_BYTES", 1_000)
    monkeypatch.setattr("interlock.server.core.runs.queries._READ_PAGE_SIZE", 2)
    client, run_id = await server.client("operator"), await server.begin(REPORT)
    await server.status(run_id, "COMPLETED")
    found, at, pages = list[int](), -1, 0
    while (page := (await client.get(f"/v1/runs/{run_id}/events?view=log&limit=1000&after_seq={at}")).json())["events"]:
        found += [event["seq"] for event in page["events"]]
        at, pages = page["next_after_seq"], pages + 1
    assert found == list(range(page["last_seq"] + 1))
    assert pages > 2
