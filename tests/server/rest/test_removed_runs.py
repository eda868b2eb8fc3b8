"""A run that was archived or erased while a server runs: every page and request says so, and none fails."""

from pathlib import Path
from typing import cast

import pytest

from interlock.audit.archive import ArchivableLog, ArchiveOptions, archive_run
from interlock.audit.erase import ErasureOptions, erase_run
from tests.server.server_process import NOTE, Running, running_server

CONTENTS = ("", "/events", "/calls", "/state", "/approvals", "/artifacts", "/audit/verify")


async def remove(server: Running, run_id: str, how: str, folder: Path) -> None:
    log = cast(ArchivableLog, server.service.log)
    if how == "archived":
        await archive_run(log, run_id, ArchiveOptions(folder=folder / "archive", by="olga"))
    else:
        await erase_run(log, run_id, ErasureOptions(by="olga", reason="Asked by the customer."))


@pytest.mark.parametrize("how", ["archived", "erased"])
async def test_removed_run_says_where_it_is(tmp_path: Path, how: str) -> None:
    async with running_server(tmp_path, console=True) as server:
        run_id = await server.begin(NOTE)
        client, olga = await server.client("auditor"), await server.person("olga")
        operator = await server.client("operator")
        await operator.post(f"/v1/runs/{run_id}/cancel", json={})
        await server.ended(run_id, "cancelled")
        await server.begin(NOTE)
        await remove(server, run_id, how, tmp_path)
        answers = [await client.get(f"/v1/runs/{run_id}{part}") for part in CONTENTS]
        page = await olga.get(f"/console/runs/{run_id}")

    words = "was archived to" if how == "archived" else "by olga: Asked by the customer."
    assert {answer.status_code for answer in answers} == {410}
    assert all(answer.json()["error"]["code"] == "run_removed" for answer in answers)
    assert all(words in answer.json()["error"]["message"] for answer in answers)
    assert page.status_code == 410
    assert words in page.text
