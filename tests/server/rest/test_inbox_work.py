"""Work in the inbox over REST: assignments, comments, saved views, and many decisions at once."""

from typing import Any

from tests.each import each
from tests.server.server_process import NOTE, Running


async def test_assignees_are_in_lists_and_details(server: Running) -> None:
    asked = await server.asked(await server.begin(NOTE))
    await server.person("olga")
    client, path = await server.client("operator_all"), f"/v1/approvals/{asked['action_id']}"

    given = await client.put(f"{path}/assignee", json={"account": "olga"})

    assert given.status_code == 200
    assert given.json() | {"assigned_at": ""} == {
        "action_id": asked["action_id"],
        "assignee": "user:olga",
        "assigned_by": "key:operator-all",
        "assigned_at": "",
    }
    for query, expected in (("assigned=olga", ["user:olga"]), ("assigned=none", []), ("", ["user:olga"])):
        rows = (await client.get(f"/v1/approvals?{query}")).json()["approvals"]
        assert [row["assignee"] for row in rows] == expected
    assert (await client.get(path)).json()["assignee"] == "user:olga"
    mine = await (await server.person("olga")).get("/v1/approvals?assigned=me")
    assert [row["action_id"] for row in mine.json()["approvals"]] == [asked["action_id"]]


async def test_comments_are_for_people_only(server: Running) -> None:
    asked = await server.asked(await server.begin(NOTE))
    client, path = await server.client("operator_all"), f"/v1/approvals/{asked['action_id']}/comments"

    added = await client.post(path, json={"text": "Ask Mia."})

    assert added.status_code == 201
    assert (await client.get(path)).json() == {"comments": [added.json()]}
    agent, run_path = await server.client("agent"), f"/v1/runs/{asked['run_id']}"
    assert (await agent.get(path)).status_code == 403
    for seen in (f"/approvals/{asked['action_id']}", "/approvals", "/events", "/state"):
        answer = await agent.get(f"{run_path}{seen}")
        assert answer.status_code == 200
        assert "Ask Mia" not in answer.text
    journal = (await (await server.client("admin_all")).get("/v1/audit/log?limit=1000")).json()["entries"]
    assert [(row["by"], row["target"]) for row in journal if row["action"] == "questions.comment"] == [
        ("key:operator-all", asked["action_id"])
    ]


async def test_views_are_saved_for_oneself(server: Running) -> None:
    olga, alex = await server.person("olga"), await server.person("alex")

    saved = await olga.put("/v1/me/inbox-views/Large%20ones", json={"query": "?q=amount%3E%3D500&evil=1"})

    assert saved.json() == {"name": "Large ones", "query": "?q=amount%3E%3D500"}
    assert (await olga.get("/v1/me/inbox-views")).json() == {"views": [saved.json()]}
    assert (await alex.get("/v1/me/inbox-views")).json() == {"views": []}
    assert (await alex.delete("/v1/me/inbox-views/Large%20ones")).status_code == 404
    assert (await olga.delete("/v1/me/inbox-views/Large%20ones")).status_code == 204


async def test_one_request_decides_many(server: Running) -> None:
    asked = [await server.asked(await server.begin(f"{NOTE}\nTask {number}")) for number in range(3)]
    client = await server.client("operator_all")
    shown = [{"action_id": row["action_id"], "payload_hash": row["payload_hash"]} for row in asked]
    shown[1]["payload_hash"] = "sha256:0"

    answer = await client.post("/v1/approvals/decisions", json={"approved": True, "approvals": shown})

    assert [(row["outcome"], row["code"]) for row in answer.json()["results"]] == [
        ("recorded", ""),
        ("skipped", "payload_hash_mismatch"),
        ("recorded", ""),
    ]
    await server.status(asked[0]["run_id"], "COMPLETED")
    rest = {
        "approved": False,
        "reason": "No.",
        "approvals": [shown[0], {**shown[1], "payload_hash": asked[1]["payload_hash"]}],
    }
    results = (await client.post("/v1/approvals/decisions", json=rest)).json()["results"]
    assert [(row["outcome"], row["code"]) for row in results] == [("skipped", "already_decided"), ("recorded", "")]
    assert "approved by key:operator-all at 2" in results[0]["message"]


@each(
    "body, field",
    [
        ({"approved": True, "approvals": []}, "approvals"),
        ({"approved": True, "approvals": [{"action_id": "a", "payload_hash": "b"}] * 101}, "approvals"),
        ({"approved": True, "approvals": [{"action_id": "a"}]}, "payload_hash"),
        ({"approved": True, "approvals": [{"action_id": "a", "payload_hash": ""}]}, "payload_hash"),
        ({"approved": False, "reason": " ", "approvals": [{"action_id": "a", "payload_hash": "b"}]}, "reason"),
    ],
)
async def test_wrong_decisions_name_their_field(server: Running, body: dict[str, Any], field: str) -> None:
    answer = await (await server.client("operator_all")).post("/v1/approvals/decisions", json=body)

    assert answer.status_code == 422
    assert field in str(answer.json()["error"])
