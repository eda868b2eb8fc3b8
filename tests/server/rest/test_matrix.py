"""Every cell of the table of who may do what, over HTTP; and that no address is missing in it."""

from typing import Any

import httpx2

from interlock.server.core.identity.permissions import PERMISSIONS
from interlock.server.rest.app import API_ROUTES
from tests.server.rest.matrix import MATRIX, WHO, Row
from tests.server.server_process import REPORT, Running, task

#: Open to everybody, or proving themselves in another way: a password, a signature, a state that was handed out.
OPEN = {
    ("GET", "/health/live"),
    ("GET", "/health/ready"),
    ("POST", "/v1/notices/slack/{name}/interactions"),
    ("POST", "/hooks/{name}"),
    ("POST", "/v1/session"),
    ("POST", "/v1/session/passkey/options"),
    ("POST", "/v1/session/passkey"),
    ("GET", "/session/start"),
    ("GET", "/session/callback"),
    ("GET", "/consents/callback"),
}
_BOTH = task("Report and note.", ("report", {"lines": 20_000}), ("note", {"order": "7", "text": "late"}))


async def things_of(server: Running, agent: str, by: str, person: str) -> dict[str, str]:
    """A run that is over, with an artifact, and the question of another one that waits."""
    client = await server.client("admin_all")
    done = await server.begin(REPORT, agent=agent, by=by, on_behalf_of=person)
    await server.status(done, "COMPLETED")
    waiting = await server.asked(await server.begin(_BOTH, agent=agent, by=by, on_behalf_of=person))
    artifacts = (await client.get(f"/v1/runs/{waiting['run_id']}/artifacts")).json()["artifacts"]
    return {
        "agent": agent,
        "server_id": f"{agent}:fs",
        "done": done,
        "run_id": waiting["run_id"],
        "action_id": waiting["action_id"],
        "call_id": waiting["call_id"],
        "artifact_id": artifacts[0]["artifact_id"],
        **dict.fromkeys(("name", "provider", "tool", "key_id", "browser_id"), "nobody"),
        "number": "7",
    }


async def status_of(client: httpx2.AsyncClient, row: Row, things: dict[str, str]) -> int:
    if row.path.endswith("/cancel"):
        things = things | {"run_id": things["done"]}
    body = {name: _filled(value, things) for name, value in row.body.items()} if row.body is not None else None
    async with client.stream(row.method, row.path.format(**things), json=body) as answer:
        return answer.status_code


def _filled(value: Any, things: dict[str, str]) -> Any:
    return value.format(**things) if isinstance(value, str) else value


async def test_every_cell_is_as_the_table_says(server: Running) -> None:
    own = await things_of(server, "shop", "agent", "sam")
    other = await things_of(server, "other", "agent_other", "zoe")
    wrong: list[str] = []
    for who in WHO:
        client = await (server.person(who) if who == "sam" else server.client(who))
        for row in MATRIX:
            for things, cells in ((own, row.own), (other, row.other)):
                expected = int(cells.split()[WHO.index(who)]) if cells else 0
                found = await status_of(client, row, things) if cells else 0
                if found != expected:
                    whose = "own" if things is own else "other"
                    wrong.append(f"{who or 'nobody'}: {row.method} {row.path} ({whose}): {found}, not {expected}")
    assert wrong == []
    # And nothing was done by any of it.
    assert await server.status(own["run_id"], "PAUSED_APPROVAL")
    assert await server.status(other["run_id"], "PAUSED_APPROVAL")


def test_every_address_is_in_the_table_and_declares_what_it_is_for() -> None:
    found = {(route.method, route.path): route.operation for route in API_ROUTES}

    assert {(row.method, row.path) for row in MATRIX} == set(found)
    assert {place for place, operation in found.items() if operation is None} == OPEN
    assert all(operation in PERMISSIONS for operation in found.values() if operation is not None)


def test_the_table_gives_an_agents_key_no_decision_even_about_its_own_run() -> None:
    decisions = [row for row in MATRIX if row.path.endswith(("/approve", "/reject", "/answer", "/start"))]
    agents = [row.own.split()[WHO.index("agent")] for row in decisions if "{action_id}" in row.path]
    assert set(agents) == {"403"}
