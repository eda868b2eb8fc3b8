"""The views of a run that tell its story, in a real browser: transcript, waterfall, related runs, live output."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from time import time_ns

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from interlock import ToolContext, tool
from interlock.agent.agent import Agent
from interlock.domain import event as facts
from interlock.domain.event import Fact, LogEntry
from interlock.models.interface import ModelEvent, ModelRequest, StreamFinished, TextDelta
from interlock.models.scripted import ScriptedModel, ScriptedTurn, tool_call
from interlock.server.core.runs.served_agent import ServedAgent
from tests.server.console.browser import assert_accessible, assert_no_sideways, is_live, opened_as
from tests.server.console.history import STORY, write_story
from tests.server.console.visits import ADMIN, Stage, visit, written
from tests.server.server_process import console_server

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def on(program: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Stage]:
    async with console_server(tmp_path_factory.mktemp("state")) as served:
        await write_story(served.service.log, time_ns())
        yield Stage(served, program)


async def test_a_transcript_tells_what_was_said_and_done(on: Stage) -> None:
    async with visit(on, path=f"/console/runs/{STORY}") as (page, _):
        entries = page.locator(".turns .entry")
        heads = [text.split("\n")[0].strip() for text in await entries.locator(".entry-head").all_inner_texts()]
        assert [head.split(" ")[0] for head in heads] == [
            "user:sam",
            *("gpt-5-mini", "lookup", "gpt-5-mini", "refund", "gpt-5-mini", "edit_page", "gpt-5-mini"),
            "Run",
        ]
        refund = page.locator(".entry.call", has_text="Refund 42.00 EUR for order A-1042")
        await expect(refund.locator(".asked")).to_contain_text("Yes, by user:olga")
        await expect(refund.locator(".asked")).to_contain_text("after 12 min: Half is enough.")
        await expect(refund.get_by_role("region", name="Edited arguments")).to_contain_text('"amount": 21.0')
        await expect(page.get_by_role("region", name="What changed")).to_contain_text("Add photos")
        await expect(page.locator(".head-facts")).to_contain_text("12 min, 1 question")
        await expect(page.locator(".head-facts")).to_contain_text("9,707 in, 197 out")


async def test_calls_lead_to_their_approvals_and_back(on: Stage) -> None:
    async with visit(on, path=f"/console/runs/{STORY}") as (page, _):
        await page.get_by_role("link", name="Refund 42.00 EUR for order A-1042").click()
        await page.wait_for_url("**/console/inbox/act_story*")
        await page.locator(f'main a[href*="/console/runs/{STORY}"]').first.click()
        await page.wait_for_url(f"**/console/runs/{STORY}**")


async def test_a_waterfall_shows_what_took_how_long(on: Stage) -> None:
    async with visit(on, path=f"/console/runs/{STORY}?view=waterfall") as (page, _):
        rows = page.locator(".spans tbody tr")
        assert [" ".join(text.split()) for text in await rows.locator("th").all_inner_texts()] == [
            "Model: gpt-5-mini",
            "Call: lookup",
            "Model: gpt-5-mini",
            "Question about refund",
            "Call: refund",
            "Model: gpt-5-mini",
            "Call: edit_page",
            "Model: gpt-5-mini",
        ]
        waited = rows.filter(has_text="Question about refund")
        assert (await waited.locator(".took").inner_text()).strip() == "12 min"
        await expect(page.locator("[data-cut]")).to_contain_text("12 min of it are left out of the bars")
        await expect(page.locator("#waterfall-title")).to_have_text("It took 13 min")
        await waited.get_by_role("link").click()
        await expect(page.get_by_role("tab", name="The person saw")).to_have_attribute("aria-selected", "true")


async def test_children_and_forks_are_a_tree(on: Stage) -> None:
    async with visit(on, path=f"/console/runs/{STORY}.research") as (page, _):
        tree = page.get_by_role("region", name="Related runs").last
        assert [" ".join(text.split()) for text in await tree.locator("li > .row").all_inner_texts()] == [
            "shop Completed Mia's order A-1042 arrived broken. Look at it, and put it right.",
            "research Completed this run",
        ]
        await tree.get_by_role("link", name="shop").click()
        await expect(page.locator(".tree li li")).to_have_count(2)
        await page.locator(".tree li li", has_text="fork").get_by_role("link").click()
        await expect(page.locator(".head-facts")).to_contain_text(f"{STORY} after event 4")
        await expect(page.locator("#run-status")).to_contain_text("Cancelled")


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_every_view_can_be_used_by_everybody(on: Stage, theme: str) -> None:
    async with opened_as("alex", on.browser, on.house, theme=theme, phone=theme == "dark") as (page, _):
        for view in ("transcript", "waterfall", "events"):
            await page.goto(f"/console/runs/{STORY}?view={view}")
            await assert_accessible(page)
            if theme == "dark":
                await page.set_viewport_size({"width": 360, "height": 740})
                await assert_no_sideways(page)


async def test_a_run_without_turns_says_so(on: Stage) -> None:
    entries = written("run_new", [facts.RunStarted(schema=1, agent="shop", requester="user:sam")])
    done = on.house.service.log.append("run_new", entries)
    assert done is not None
    await done
    async with visit(on) as (page, _):
        await page.goto("/console/runs/run_new")
        await expect(page.get_by_text("Nothing was said yet.")).to_be_visible()
        await page.goto("/console/runs/run_new?view=waterfall")
        await expect(page.get_by_text("Nothing took time yet.")).to_be_visible()


async def test_pages_of_turns_have_every_turn_once(on: Stage) -> None:
    asked = facts.ModelRequested(menu_digest="0", message_count=1, agent="shop", model="m")
    said = [each for number in range(130) for each in (asked, facts.ModelResponded(text=f"Answer {number}."))]
    entries = written("run_talk", [facts.RunStarted(schema=1, agent="shop", requester="user:sam"), *said])
    done = on.house.service.log.append("run_talk", entries)
    assert done is not None
    await done
    queries = on.house.service.run_queries

    forward, page = list[int](), await queries.list_turns(ADMIN, "run_talk", 0)
    while True:
        forward += [turn.seq for turn in page.turns]
        if not page.has_later:
            break
        page = await queries.list_turns(ADMIN, "run_talk", page.last_seq + 1)
    backward, page = list[int](), await queries.list_turns(ADMIN, "run_talk")
    while True:
        backward = [*(turn.seq for turn in page.turns), *backward]
        if not page.has_earlier:
            break
        page = await queries.list_turns(ADMIN, "run_talk", None, page.first_seq)

    assert forward == backward == list(range(1, 261, 2))


async def test_a_long_run_is_read_once(on: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that is requested again reads its own turns, however long the run is."""
    asked = facts.ModelRequested(menu_digest="0", message_count=1, agent="shop", model="m")
    said = [each for number in range(1_000) for each in (asked, facts.ModelResponded(text=f"Answer {number}."))]
    every: list[Fact] = [
        facts.RunStarted(schema=1, agent="shop", requester="user:sam"),
        *said,
        facts.RunCompleted(message="Done."),
    ]
    log, read = on.house.service.log, list[int]()
    done = log.append("run_long", written("run_long", every))
    assert done is not None
    await done
    original = log.read

    async def count(run_id: str, after_seq: int = -1, limit: int | None = None) -> Sequence[LogEntry]:
        found = await original(run_id, after_seq, limit)
        read.append(len(found))
        return found

    client = await on.house.person("alex")
    for view in ("transcript", "waterfall"):
        assert (await client.get(f"/console/runs/run_long?view={view}")).status_code == 200
        monkeypatch.setattr(log, "read", count)
        assert (await client.get(f"/console/runs/run_long?view={view}")).status_code == 200

    assert sum(read) < 500


#: The end of what a model has written is held back as long as it may be the begin of a secret.
_FILLER = " and so on" * 60


class _Writer:
    """A model that writes an answer piece by piece, each when the test lets it."""

    name = "writer"

    def __init__(self) -> None:
        self.pieces = asyncio.Semaphore(0)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        for text in ("I am thinking, <b>slowly</b>\u202e.", " And on.", " Done."):
            await self.pieces.acquire()
            yield TextDelta(text=text + _FILLER)
        await self.pieces.acquire()
        yield StreamFinished(reason="stop")

    async def close(self) -> None: ...


async def test_text_appears_while_the_model_writes(program: Browser, tmp_path: Path) -> None:
    """As text, with what cannot be seen written out, and then as its event has it."""
    model = _Writer()
    agent = ServedAgent(agent=Agent(name="shop", provider=model, tools=[]))
    async with console_server(tmp_path / "state", agents=[agent]) as served:
        run_id = await served.begin("Think.")
        async with opened_as("alex", program, served) as (page, _):
            await page.goto(f"/console/runs/{run_id}")
            await is_live(page)
            model.pieces.release()
            await expect(page.locator("#written")).to_contain_text("I am thinking, <b>slowly</b>\\u{202e}.")
            model.pieces.release()
            await expect(page.locator("#written")).to_contain_text("And on.")
            for _ in range(2):
                model.pieces.release()
            await expect(page.locator(".entry.model .prose")).to_contain_text("Done.")
            await expect(page.locator("#writing")).to_be_hidden()
            await expect(page.locator("#run-status")).to_contain_text("Completed")


async def test_progress_of_a_running_call_appears(program: Browser, tmp_path: Path) -> None:
    may_go_on, may_end = asyncio.Event(), asyncio.Event()

    @tool
    async def count(context: ToolContext) -> str:
        """Count."""
        await may_go_on.wait()
        context.progress("halfway, <i>nearly</i>")
        await may_end.wait()
        return "counted"

    turns = [ScriptedTurn(calls=(tool_call("count", call_id="c1"),)), ScriptedTurn(text="It is counted.")]
    agent = Agent(name="shop", provider=ScriptedModel(turns, by_position=True), tools=[count])
    async with (
        console_server(tmp_path / "state", agents=[ServedAgent(agent=agent)]) as served,
        opened_as("alex", program, served) as (page, _),
    ):
        run_id = await served.begin("Count.")
        await page.goto(f"/console/runs/{run_id}")
        await is_live(page)
        await expect(page.locator(".entry.call")).to_contain_text("Running")
        may_go_on.set()
        await expect(page.locator("[data-progress]")).to_have_text("halfway, <i>nearly</i>")
        may_end.set()
        await expect(page.locator(".entry.call")).to_contain_text("Done")
        await expect(page.locator("#run-status")).to_contain_text("Completed")
