"""Undo over HTTP: the preview, the undo of exactly that, and what is refused."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from interlock.domain.event import ApprovalGranted
from interlock.server.core.runs import undo_service
from interlock.undo import UndoReport, undo_calls
from tests.runs.support import facts_of
from tests.server.changing import SECRET, ChangingServer, changing_server
from tests.server.server_process import task

pytestmark = pytest.mark.asyncio(loop_scope="module")
EDIT = {"old_string": "first", "new_string": "second"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ChangingServer]:
    async with changing_server(tmp_path_factory.mktemp("undo")) as made:
        yield made


@pytest.mark.requirement("P28")
async def test_what_was_previewed_is_undone(scene: ChangingServer) -> None:
    run_id = await scene.change("a1", "a2")
    client = await scene.server.client("operator")

    shown = (await client.get(f"/v1/runs/{run_id}/undo")).json()
    assert [(change["path"], change["kind"]) for change in shown["changes"]] == [("a1", "deleted"), ("a2", "deleted")]
    assert (shown["calls"], shown["summary"], shown["skipped"]) == (["c0", "c1", "c2"], "2 files can be put back", [])
    assert "-second a1" in shown["diff"]
    assert len(scene.files("a")) == 2

    done = await client.post(f"/v1/runs/{run_id}/undo", json={"digest": shown["digest"]})

    assert (done.status_code, done.json()["summary"], scene.files("a")) == (200, "2 files put back", {})
    log, undo_run_id = scene.server.service.log, done.json()["undo_run_id"]
    assert [fact.answer.by for fact in await facts_of(ApprovalGranted, log, undo_run_id)] == ["key:operator"]
    entries = (await (await scene.server.client("admin_all")).get("/v1/audit/log?limit=1000")).json()["entries"]
    assert [(each["by"], each["detail"]["undo_run"]) for each in entries if each["action"] == "runs.undo"] == [
        ("key:operator", undo_run_id)
    ]


@pytest.mark.requirement("P28")
async def test_an_undo_of_what_changed_since_is_refused(scene: ChangingServer) -> None:
    run_id = await scene.change("b1", "b2")
    client = await scene.server.client("operator")
    shown = (await client.get(f"/v1/runs/{run_id}/undo")).json()
    (scene.workspace / "b2").write_text("mine\n")

    refused = await client.post(f"/v1/runs/{run_id}/undo", json={"digest": shown["digest"]})

    error = refused.json()["error"]
    assert (refused.status_code, error["code"]) == (409, "undo_changed")
    assert error["details"]["preview"] == (await client.get(f"/v1/runs/{run_id}/undo")).json()
    assert error["details"]["preview"]["skipped"] == [
        {"path": "b2", "reason": "it was changed since by another program"}
    ]
    assert scene.files("b") == {"b1": "second b1\n", "b2": "mine\n"}
    seen = {"digest": error["details"]["preview"]["digest"]}
    assert (await client.post(f"/v1/runs/{run_id}/undo", json=seen)).status_code == 200
    assert scene.files("b") == {"b2": "mine\n"}


async def test_a_change_in_the_last_moment_is_left_alone(
    scene: ChangingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = await scene.change("l1", "l2")
    client = await scene.server.client("operator")
    digest = (await client.get(f"/v1/runs/{run_id}/undo")).json()["digest"]

    async def undo_late(*arguments: Any, **options: Any) -> UndoReport:
        (scene.workspace / "l2").write_text("mine\n")
        return await undo_calls(*arguments, **options)

    monkeypatch.setattr(undo_service, "undo_calls", undo_late)
    refused = await client.post(f"/v1/runs/{run_id}/undo", json={"digest": digest})

    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "undo_changed")
    assert scene.files("l") == {"l1": "second l1\n", "l2": "mine\n"}


async def test_one_call_or_what_followed_an_event_is_undone(scene: ChangingServer) -> None:
    run_id = await scene.change("c1", "c2")
    client = await scene.server.client("operator")
    path = f"/v1/runs/{run_id}/undo"

    one = (await client.get(path, params={"call": "c1"})).json()
    last = (await client.get(f"/v1/runs/{run_id}/calls/c1")).json()["observed_seq"]
    rest = (await client.get(path, params={"after": last})).json()
    assert (one["calls"], rest["calls"]) == (["c1"], ["c2"])

    other = await client.post(path, json={"digest": one["digest"], "call": "c2"})
    done = await client.post(path, json={"digest": rest["digest"], "after": last})

    assert (other.status_code, other.json()["error"]["code"]) == (409, "undo_changed")
    assert (done.status_code, scene.files("c")) == (200, {"c1": "first c1\n", "c2": "first c2\n"})


async def test_an_undo_is_undone_by_its_id(scene: ChangingServer) -> None:
    run_id = await scene.change("d1")
    client = await scene.server.client("operator")
    undone = run_id
    for content in ({}, {"d1": "second d1\n"}):
        digest = (await client.get(f"/v1/runs/{undone}/undo")).json()["digest"]
        undone = (await client.post(f"/v1/runs/{undone}/undo", json={"digest": digest})).json()["undo_run_id"]
        assert scene.files("d") == content

    # Who may see the run may see its undo, and nobody else.
    who = {name: await scene.server.client(name) for name in ("operator", "auditor", "agent", "agent_other")}
    seen = [(await each.get(f"/v1/runs/{undone}")).status_code for each in who.values()]
    exports = [(await each.get(f"/v1/runs/{undone}/audit/export")).status_code for each in who.values()]
    assert (seen, exports) == ([200, 200, 200, 404], [403, 200, 403, 404])
    again = (await client.get(f"/v1/runs/{run_id}/undo")).json()
    assert (len(again["undo_run_ids"]), again["change_count"]) == (2, 1)


async def test_a_child_run_is_undone_with_its_parent_or_alone(scene: ChangingServer) -> None:
    help_task = task("Write.", *(("write_file", {"path": name, "content": "new\n"}) for name in ("m1", "m2")))
    run_id = await scene.server.begin(task("Ask.", ("ask_helper", {"task": help_task})), agent="boss")
    await scene.server.ended(run_id)
    client = await scene.server.client("operator_all")
    (child,) = (await client.get("/v1/runs", params={"parent": run_id})).json()["runs"]

    alone = (await client.get(f"/v1/runs/{child['run_id']}/undo", params={"call": "c0"})).json()
    body = {"digest": alone["digest"], "call": "c0"}
    assert (await client.post(f"/v1/runs/{child['run_id']}/undo", json=body)).status_code == 200
    assert scene.files("m") == {"m2": "new\n"}

    rest = (await client.get(f"/v1/runs/{run_id}/undo")).json()
    assert [change["path"] for change in rest["changes"]] == ["m2"]
    assert (await client.post(f"/v1/runs/{run_id}/undo", json={"digest": rest["digest"]})).status_code == 200
    assert scene.files("m") == {}


async def test_the_same_undo_twice_is_done_once(scene: ChangingServer) -> None:
    run_id = await scene.change("e1")
    client = await scene.server.client("operator")
    body = {"digest": (await client.get(f"/v1/runs/{run_id}/undo")).json()["digest"]}
    assert (await client.post(f"/v1/runs/{run_id}/undo", json=body)).status_code == 200

    again = (await client.post(f"/v1/runs/{run_id}/undo", json=body)).json()["error"]
    nothing = {"digest": again["details"]["preview"]["digest"]}
    third = await client.post(f"/v1/runs/{run_id}/undo", json=nothing)

    assert (again["code"], third.json()["error"]["code"]) == ("undo_changed", "nothing_to_undo")


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("call=nowhere", 404, "unknown_call"),
        ("after=9999", 409, "nothing_to_undo"),
        ("after=x", 422, "invalid_request"),
    ],
)
async def test_a_selection_of_nothing_is_refused(scene: ChangingServer, query: str, status: int, code: str) -> None:
    run_id = await scene.change(f"f-{code}")

    refused = await (await scene.server.client("operator")).get(f"/v1/runs/{run_id}/undo?{query}")

    assert (refused.status_code, refused.json()["error"]["code"]) == (status, code)


async def test_a_run_without_kept_changes_is_refused(scene: ChangingServer) -> None:
    run_id = await scene.change("g1", agent="other")

    refused = await (await scene.server.client("operator_all")).get(f"/v1/runs/{run_id}/undo")

    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "no_changes_kept")


async def test_a_run_that_is_not_over_is_refused(scene: ChangingServer) -> None:
    run_id = await scene.server.begin(task("Look.", ("list_dir", {})))
    await scene.server.asked(run_id)

    refused = await (await scene.server.client("operator")).get(f"/v1/runs/{run_id}/undo")

    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "run_active")


async def test_secrets_of_the_agent_are_not_shown(scene: ChangingServer) -> None:
    (scene.workspace / "k2").write_text(f"first {SECRET}\n")
    run_id = await scene.server.begin(
        task("Edit.", ("read_file", {"path": "k2"}), ("edit_file", EDIT | {"path": "k2"})), agent="shop"
    )
    await scene.server.ended(run_id)

    shown = (await (await scene.server.client("operator")).get(f"/v1/runs/{run_id}/undo")).text

    assert "second" in shown
    assert SECRET not in shown


async def test_a_person_needs_the_token_of_their_session(scene: ChangingServer) -> None:
    run_id = await scene.change("h1")
    olga = await scene.server.person("olga")
    digest = (await olga.get(f"/v1/runs/{run_id}/undo")).json()["digest"]
    token = olga.headers.pop("X-CSRF-Token")

    forged = await olga.post(f"/v1/runs/{run_id}/undo", json={"digest": digest})
    sent = await olga.post(f"/v1/runs/{run_id}/undo", json={"digest": digest}, headers={"X-CSRF-Token": token})

    assert (forged.status_code, forged.json()["error"]["code"], sent.status_code) == (403, "csrf", 200)
    row = await scene.server.service.index.get_run(sent.json()["undo_run_id"])
    assert row is not None
    assert (row.requester, row.status) == ("user:olga", "COMPLETED")


async def test_four_eyes_hold_for_an_undo(tmp_path: Path) -> None:
    async with changing_server(tmp_path, four_eyes="all") as scene:
        run_id = await scene.change("i1", on_behalf_of="olga")
        olga = await scene.server.person("olga")
        shown = (await olga.get(f"/v1/runs/{run_id}/undo")).json()

        refused = await olga.post(f"/v1/runs/{run_id}/undo", json={"digest": shown["digest"]})
        alex = await scene.server.person("alex")
        done = await alex.post(f"/v1/runs/{run_id}/undo", json={"digest": shown["digest"]})

        assert "The run acts for user:olga" in shown["denied_reason"]
        assert (refused.status_code, refused.json()["error"]["code"], done.status_code) == (403, "four_eyes", 200)
        own = (await alex.get(f"/v1/runs/{done.json()['undo_run_id']}/undo")).json()
        assert "The run acts for user:alex" in own["denied_reason"]


async def test_a_workspace_that_is_gone_is_refused(tmp_path: Path) -> None:
    async with changing_server(tmp_path) as scene:
        run_id = await scene.change("j1")
        scene.workspace.rename(tmp_path / "elsewhere")

        refused = await (await scene.server.client("operator")).get(f"/v1/runs/{run_id}/undo")

        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "workspace_gone")
