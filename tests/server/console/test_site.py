"""The frame of the console without a browser: its files, its pages, and its words for what went wrong."""

import re
from pathlib import Path

import httpx2
import pytest
from starlette.requests import Request

from interlock.domain.errors import IllegalTransitionError, LogCorruptError, LogError
from interlock.server.console.assets import Assets
from interlock.server.console.markup import quote_segment
from interlock.server.console.rendering import PageRenderer
from interlock.server.core.errors import UnavailableError
from tests.patience import HANG_SECONDS
from tests.server.server_process import Running

pytestmark = pytest.mark.asyncio(loop_scope="session")
_IMPORTED = re.compile(r'from "\./([^"]+)"')


def _served(assets: Assets, url: str) -> tuple[int, str, str]:
    path, _, query = url.partition("?")
    request = Request({"type": "http", "method": "GET", "headers": [], "query_string": query.encode()})
    answer = assets.respond(request, path.rpartition("/")[2])
    return answer.status_code, bytes(answer.body).decode(), answer.headers["cache-control"]


async def test_every_module_is_imported_by_the_one_address_that_pages_have_it_by() -> None:
    assets = Assets("/console/static")
    for name in ("base.js", "inbox.js", "inbox.review.js", "runs.js", "admin.js", "run.js"):
        _, body, _ = _served(assets, assets.url(name))
        imported = _IMPORTED.findall(body)
        assert imported
        for address in imported:
            assert assets.url(address.partition("?")[0]).endswith(f"/{address}")
            status, _, kept = _served(assets, address)
            assert (status, "immutable" in kept) == (200, True)


async def test_a_file_has_another_address_when_one_that_it_imports_changes(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text('import { b } from "./b.js";')
    (tmp_path / "b.js").write_text("export const b = 1;")
    before = Assets("", tmp_path).url("a.js")
    (tmp_path / "b.js").write_text("export const b = 2;")
    assert Assets("", tmp_path).url("a.js") != before


async def test_a_page_cannot_put_something_in_the_place_of_its_frame(served: Running) -> None:
    new = await served.service.sessions.start("olga")
    assert new is not None
    visitor = await served.service.sessions.authenticate(new.token)
    assert visitor is not None
    request = Request({"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": b""})
    pages = PageRenderer(served.service, Assets("/console/static"))
    with pytest.raises(ValueError, match="csrf, me"):
        await pages.render_page(request, visitor, "base_problem.html", me="mallory", csrf="x")


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (LogCorruptError("Event 3 of run_1 is not what was written"), 409, "To see what is damaged"),
        (IllegalTransitionError("run_1 cannot go from <b>"), 409, "&lt;b&gt;"),
        (UnavailableError("busy", "Too many at once."), 429, "Too many at once."),
        (LogError("The log is busy"), 503, "Nothing is known to be done. Try again."),
    ],
)
async def test_what_went_wrong_is_a_page_in_words(
    served: Running, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, words: str
) -> None:
    async def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr(served.service.run_queries, "get_statistics", broken)
    new = await served.service.sessions.start("olga")
    assert new is not None
    async with httpx2.AsyncClient(
        base_url=served.base, cookies={"interlock_session": new.token}, timeout=HANG_SECONDS
    ) as client:
        answer = await client.get("/console/")

    assert (answer.status_code, words in answer.text) == (status, True)
    assert answer.headers["content-type"].startswith("text/html")
    assert ("retry-after" in answer.headers) == (status in (429, 503))


@pytest.mark.parametrize("path", ["policy/backtest", "consents/act_1/reject", "logout"])
async def test_a_form_that_comes_after_the_sign_in_ended_leads_to_a_page_that_can_be_shown(
    served: Running, path: str
) -> None:
    async with httpx2.AsyncClient(base_url=served.base, follow_redirects=True, timeout=HANG_SECONDS) as client:
        answer = await client.post(f"/console/{path}", data={"csrf_token": "x"}, headers={"Origin": served.base})

    page, _, _ = path.partition("/")
    wanted = "/console/" if page == "logout" else f"/console/{page}"
    assert f'name="wanted" value="{wanted}"' in answer.text
    assert ("Your sign-in ended before that was sent. Nothing was done." in answer.text) == (page != "logout")


async def test_no_id_leads_to_another_address_than_its_own() -> None:
    assert quote_segment('../..?a=b#c/"<') == "..%2F..%3Fa%3Db%23c%2F%22%3C"
    assert quote_segment("\ud800") == "%3F"
