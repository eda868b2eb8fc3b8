"""What auditors take and check over HTTP, artifacts, and runs that other systems begin."""

import asyncio
import json
from pathlib import Path
from time import time_ns
from typing import Any

import msgspec
import pytest

from interlock.audit import standalone_verifier
from interlock.server.core.audit_sinks.destination import FileDestination
from interlock.server.core.settings import ServerSettings
from interlock.server.core.triggers.webhook_signature import build_signed_headers
from interlock.server.core.triggers.webhooks import Webhook
from tests.server.server_process import LOOKUP, NOTE, REPORT, Running, running_server


async def a_decided_run(server: Running) -> tuple[str, int]:
    """Its id, and how many events it has."""
    run_id = await server.begin(NOTE)
    asked = await server.asked(run_id)
    operator = await server.client("operator")
    await operator.post(f"/v1/approvals/{asked['action_id']}/approve", json={"payload_hash": asked["payload_hash"]})
    await server.status(run_id, "COMPLETED")
    return run_id, (await operator.get(f"/v1/runs/{run_id}")).json()["last_seq"] + 1


@pytest.mark.requirement("R169", "R170", "R171", "R173")
async def test_an_export_has_every_event_in_every_schema_and_format(server: Running) -> None:
    run_id, count = await a_decided_run(server)
    auditor = await server.client("auditor")
    place = f"/v1/runs/{run_id}/audit/export"
    seqs = list(range(count))

    default = await auditor.get(place)
    assert [line["event"]["seq"] for line in default.json()[:-1]] == seqs
    assert default.json()[-1].keys() == {"checkpoint", "signature"}
    assert default.headers["content-type"] == "application/json"
    assert default.headers["content-disposition"].startswith("attachment; filename=")
    ndjson = (await auditor.get(f"{place}?format=ndjson")).text.splitlines()
    assert [json.loads(line)["event"]["seq"] for line in ndjson[:-1]] == seqs
    hec = (await auditor.get(f"{place}?schema=splunk_hec")).text.splitlines()
    envelopes = [json.loads(line) for line in hec]
    assert [envelope["event"]["seq"] for envelope in envelopes] == seqs
    assert all(envelope.keys() >= {"time", "source", "sourcetype", "event", "fields"} for envelope in envelopes)
    for schema in ("ecs", "ocsf"):
        assert len((await auditor.get(f"{place}?schema={schema}&format=json")).json()) == count
    assert len((await auditor.get(f"{place}?schema=cef")).text.splitlines()) == count
    for wrong in ("schema=none", "format=xml", "schemas=ecs"):
        assert (await auditor.get(f"{place}?{wrong}")).status_code == 422
    journal = (await (await server.client("auditor_all")).get("/v1/audit/log")).json()["entries"]
    taken = [entry for entry in journal if entry["action"] == "audit.exported"]
    assert len(taken) == 6
    assert {(entry["by"], entry["target"]) for entry in taken} == {("key:auditor", run_id)}


async def test_an_export_verifies_elsewhere_with_the_published_key_and_a_changed_one_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running_server(tmp_path) as server:
        run_id, count = await a_decided_run(server)
        auditor = await server.client("auditor_all")
        exported = (await auditor.get(f"/v1/runs/{run_id}/audit/export?format=ndjson")).content
        (key,) = (await auditor.get("/v1/audit/keys")).json()["keys"]
        proof = (await auditor.get(f"/v1/runs/{run_id}/audit/verify")).json()
        everything = (await auditor.get("/v1/audit/verify")).json()
        checkpoints = (await auditor.get("/v1/audit/checkpoints")).json()["checkpoints"]
    good, bad = tmp_path / "good.ndjson", tmp_path / "bad.ndjson"
    await asyncio.to_thread(good.write_bytes, exported)
    await asyncio.to_thread(bad.write_bytes, exported.replace(b"late", b"late!"))

    assert standalone_verifier.main([str(good), "--key", key["public"]]) == 0
    assert standalone_verifier.main([str(bad), "--key", key["public"]]) == 1
    assert (proof["ok"], proof["complete"], proof["count"], proof["signed_count"]) == (True, True, count, count)
    signed = checkpoints[-1]["checkpoint"]
    assert (proof["signed_at"], proof["signed_by"], proof["checkpoint"]) == (signed["at"], key["key"], signed["number"])
    assert (everything["ok"], everything["finished"], everything["runs"]) == (True, True, 1)
    assert checkpoints[-1]["checkpoint"]["runs"][run_id]["count"] == count
    capsys.readouterr()


async def test_a_run_whose_log_was_changed_is_found_and_not_shown_as_if_nothing_was(server: Running) -> None:
    run_id, count = await a_decided_run(server)
    client, read = await server.client("admin_all"), server.service.log.read

    async def altered(*args: Any) -> Any:
        return [
            msgspec.structs.replace(entry, body=entry.body.replace(b'"late"', b'"soon"')) for entry in await read(*args)
        ]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server.service.log, "read", altered)
        proof = (await client.get(f"/v1/runs/{run_id}/audit/verify")).json()
        everything = (await client.get("/v1/audit/verify")).json()
        state = await client.get(f"/v1/runs/{run_id}/state?at={count - 2}")

    assert (proof["ok"], proof["flaw"]["problem"]) == (False, "edited")
    assert (everything["ok"], [flaw["run_id"] for flaw in everything["flaws"]]) == (False, [run_id])
    assert (state.status_code, state.json()["error"]["code"]) == (409, "log_damaged")


@pytest.mark.requirement("R172", "R173")
async def test_a_run_is_forwarded_whole_to_a_destination_and_the_journal_says_by_whom(tmp_path: Path) -> None:
    path = tmp_path / "events.ndjson"
    settings = ServerSettings(forward=(FileDestination(name="siem", path=str(path)),))
    async with running_server(tmp_path, settings=settings) as server:
        run_id, count = await a_decided_run(server)
        auditor = await server.client("auditor_all")

        sent = (await auditor.post(f"/v1/runs/{run_id}/audit/forward", json={"destination": "siem"})).json()
        (status,) = (await auditor.get("/v1/audit/forwarders")).json()["forwarders"]
        journal = (await auditor.get("/v1/audit/log")).json()["entries"]

    assert (sent["sent"], sent["total"], sent["problem"]) == (count, count, "")
    assert (status["name"], status["last_error"]) == ("siem", "")
    assert journal[-1]["action"] == "audit.forwarded"
    lines = (await asyncio.to_thread(path.read_text)).splitlines()
    assert {json.loads(line)["event"]["seq"] for line in lines} == set(range(count))


async def test_an_artifact_is_a_download_in_any_range_and_only_of_its_own_run(server: Running) -> None:
    run_id, without = await server.begin(REPORT), await server.begin(LOOKUP)
    await server.status(run_id, "COMPLETED")
    await server.status(without, "COMPLETED")
    client = await server.client("agent")
    found = (await client.get(f"/v1/runs/{run_id}/artifacts")).json()["artifacts"]
    (kept,) = [each for each in found if each["call_id"] == "c0"]
    place = f"/v1/runs/{run_id}/artifacts/{kept['artifact_id']}"

    whole = await client.get(place)
    size = kept["size_bytes"]
    assert (whole.status_code, len(whole.content), b"line 19999" in whole.content) == (200, size, True)
    assert whole.headers["content-disposition"].startswith("attachment")
    assert whole.headers["content-security-policy"].startswith("sandbox")
    assert whole.headers["x-content-type-options"] == "nosniff"
    parts = {
        "bytes=0-9": (0, 10),
        "bytes=5-": (5, size),
        "bytes=-7": (size - 7, size),
        f"bytes={size - 1}-{size + 99}": (size - 1, size),
    }
    for asked, (start, end) in parts.items():
        part = await client.get(place, headers={"Range": asked})
        assert (part.status_code, part.content) == (206, whole.content[start:end])
        assert part.headers["content-range"] == f"bytes {start}-{end - 1}/{size}"
    outside = await client.get(place, headers={"Range": f"bytes={size}-"})
    assert (outside.status_code, outside.headers["content-range"]) == (416, f"bytes */{size}")
    assert len((await client.get(place, headers={"Range": "bytes=0-1,5-6"})).content) == size
    elsewhere = await client.get(f"/v1/runs/{without}/artifacts/{kept['artifact_id']}")
    assert (elsewhere.status_code, elsewhere.json()["error"]["code"]) == (404, "unknown_artifact")


@pytest.mark.requirement("R125")
async def test_a_signed_webhook_begins_one_run_however_often_it_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_SECRET", "a-long-enough-secret-for-a-webhook")
    hook = Webhook(name="orders", agent="shop", task="Look: {{payload}}", secret_env="HOOK_SECRET")
    async with running_server(tmp_path, settings=ServerSettings(webhooks=(hook,))) as server:
        client, body = await server.client(), b'{"order": 7}'
        now = time_ns() // 1_000_000_000
        headers = build_signed_headers("a-long-enough-secret-for-a-webhook", now, "delivery-1", body)

        answers = [await client.post("/hooks/orders", content=body, headers=headers) for _ in range(3)]
        forged = await client.post("/hooks/orders", content=b'{"order": 8}', headers=headers)

        assert [answer.status_code for answer in answers] == [202] * 3
        assert len({answer.json()["run_id"] for answer in answers}) == 1
        assert forged.status_code == 401
        runs = (await (await server.client("operator")).get("/v1/runs")).json()["runs"]
        assert [run["created_by"] for run in runs] == ["webhook:orders"]


async def test_people_and_keys_are_made_changed_and_taken_away(server: Running) -> None:
    admin, client = await server.client("admin_all"), await server.client()
    made = await admin.post("/v1/accounts", json={"name": "grace", "password": "a very long password"})
    assert (made.status_code, made.json()["roles"]) == (201, [])
    again = await admin.post("/v1/accounts", json={"name": "grace", "password": "a very long password"})
    assert again.status_code == 409
    weak = await admin.post("/v1/accounts", json={"name": "ada", "password": "short"})
    assert (weak.status_code, weak.json()["error"]["details"]["fields"][0]["field"]) == (422, "password")
    changed = await admin.patch("/v1/accounts/grace", json={"roles": ["auditor"], "agents": ["shop"]})
    assert (changed.json()["roles"], changed.json()["agents"]) == (["auditor"], ["shop"])

    signed = await client.post("/v1/session", json={"name": "grace", "password": "a very long password"})
    client.headers["X-CSRF-Token"] = signed.json()["csrf_token"]
    assert (await client.get("/v1/me")).json()["name"] == "user:grace"
    new = await client.post("/v1/me/password", json={"current": "a very long password", "new": "another long one"})
    assert new.status_code == 204
    assert (await client.get("/v1/me")).status_code == 401
    await admin.patch("/v1/accounts/grace", json={"disabled": True})
    gone = await client.post("/v1/session", json={"name": "grace", "password": "another long one"})
    assert gone.status_code == 401

    key = await admin.post("/v1/keys", json={"name": "bot", "roles": ["agent"], "agents": ["shop"]})
    assert (key.status_code, key.json()["secret"].startswith("ik_")) == (201, True)
    both = await admin.post("/v1/keys", json={"name": "bot2", "roles": ["agent", "admin"], "agents": ["shop"]})
    assert (both.status_code, both.json()["error"]["details"]["fields"][0]["field"]) == (422, "roles")
    listed = (await admin.get("/v1/keys")).text
    assert key.json()["secret"] not in listed
