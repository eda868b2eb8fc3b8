"""A damaged run is a state of its own, over REST and in the console, and not only an error."""

from pathlib import Path

import pytest

from tests.server.core.test_damaged_runs import DAMAGE, damage
from tests.server.server_process import NOTE, running_server


@pytest.mark.requirement("P26")
@pytest.mark.parametrize("how", DAMAGE)
async def test_damaged_run_has_its_own_page(tmp_path: Path, how: str) -> None:
    async with running_server(tmp_path, console=True) as server:
        run_id = await server.begin(NOTE)
        asked = await server.asked(run_id)
        client, olga = await server.client("operator"), await server.person("olga")
        assert (await client.get(f"/v1/runs/{run_id}")).json()["damaged"] is False
        damage(tmp_path, run_id, how)

        page = await olga.get(f"/console/runs/{run_id}")
        shown = (await client.get(f"/v1/runs/{run_id}")).json()
        sent = await olga.get(f"/console/inbox/{asked['action_id']}")
        by_call = await olga.get(f"/console/runs/{run_id}/calls/c0")

    assert (page.status_code, by_call.status_code) == (200, 200)
    assert 'data-state="damaged"' in page.text
    assert "are not what was written" in page.text
    assert f'action="/console/runs/{run_id}/cancel"' in page.text
    assert (shown["state"], shown["damaged"], shown["status"]) == ("damaged", True, "PAUSED_APPROVAL")
    assert (sent.status_code, sent.headers["location"]) == (303, f"/console/runs/{run_id}")


@pytest.mark.requirement("P26")
async def test_damaged_run_is_cancelled_on_its_page(tmp_path: Path) -> None:
    async with running_server(tmp_path, console=True) as server:
        run_id = await server.begin(NOTE)
        await server.asked(run_id)
        client, olga = await server.client("operator"), await server.person("olga")
        damage(tmp_path, run_id, "edited")
        await olga.get(f"/console/runs/{run_id}")

        form = {"csrf_token": olga.headers["X-CSRF-Token"], "reason": "Restored elsewhere."}
        gone = await olga.post(f"/console/runs/{run_id}/cancel", data=form)
        forged = await olga.post(f"/console/runs/{run_id}/cancel", data=form | {"csrf_token": "no"})
        shown = (await client.get(f"/v1/runs/{run_id}")).json()
        page = (await olga.get(f"/console/runs/{run_id}")).text

    assert (gone.status_code, forged.status_code) == (303, 403)
    assert (shown["state"], shown["damaged"], shown["cancelled"]) == ("cancelled", True, True)
    assert shown["message"].endswith("Closed by user:olga: Restored elsewhere.")
    assert "/cancel" not in page
