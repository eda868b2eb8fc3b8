"""The page of a run: what it is about, its timeline, and everything as of any of its events.

One number says where the page stands: the event `at`. The timeline marks it, the details are about it, and the state
is the one after it. Without it the page stands at the newest event and goes along with it. All parts are drawn here;
`run.js` fetches those that change. Timelines are shown window by window, so a run of any length is as fast as a short
one.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeAlias

import msgspec
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from ....domain import event as facts
from ....domain.chain import Entry, decode_event
from ....domain.errors import ArtifactError
from ....domain.state.lifecycle import ActionState
from ....history.call_view import CallView
from ...core.errors import NotFoundError, unknown
from ...core.identity.permissions import Operation, may
from ...core.identity.principal import Principal
from ...core.index.rows import RunQuery, RunRow
from ...core.service import Service
from ..markup import shown_line
from ..rendering import Pages
from ..session import Visitor
from ..views.call import call_shown
from ..views.event import event_shown
from ..views.timeline import TimelineRow, timeline_row

WINDOW = 200
#: How much of an artifact is shown at once.
ARTIFACT_BYTES = 64 << 10
_MAX_CHILDREN = 100

_Endpoint: TypeAlias = Callable[..., Awaitable[Response]]
At = Annotated[int | None, Query(ge=0, le=2**53)]


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """Some events, one after the other, and whether there are others around them."""

    rows: tuple[TimelineRow, ...]
    first: int
    last: int
    last_seq: int

    @property
    def has_earlier(self) -> bool:
        return self.first > 0

    @property
    def has_later(self) -> bool:
        return self.last < self.last_seq


class Beginning(msgspec.Struct, frozen=True, kw_only=True):
    """What the first events say."""

    task: str = ""
    workspace: str = ""
    mode: str = ""
    parent_run_id: str = ""
    parent_call_id: str = ""
    forked_from: str = ""
    forked_at: int = -1


def routes(service: Service, pages: Pages) -> APIRouter:
    router, page = APIRouter(), _RunPage(service, pages)
    endpoints: dict[str, _Endpoint] = {
        "": page.whole,
        "/calls/{call_id:path}": page.with_call,
        "/actions/{action_id}": page.with_action,
        "/artifacts": page.artifacts,
        "/artifacts/{artifact_id}": page.artifact,
        "/parts/timeline": page.timeline_part,
        "/parts/at": page.at_part,
        "/parts/calls/{call_id:path}": page.call_part,
    }
    for path, endpoint in endpoints.items():
        router.add_api_route(f"/runs/{{run_id}}{path}", endpoint, methods=["GET"])
    return router


class _RunPage:
    def __init__(self, service: Service, pages: Pages) -> None:
        self._service = service
        self._reading = service.reading
        self._pages = pages

    async def whole(self, request: Request, run_id: str, visitor: Visitor, at: At = None) -> Response:
        return await self._shown(request, run_id, visitor, at, {})

    async def with_call(self, request: Request, run_id: str, call_id: str, visitor: Visitor) -> Response:
        call = await self._reading.call(visitor.principal, run_id, call_id)
        return await self._with(request, run_id, visitor, call, "model")

    async def with_action(self, request: Request, run_id: str, action_id: str, visitor: Visitor) -> Response:
        action = await self._reading.action(visitor.principal, run_id, action_id)
        call = await self._reading.call(visitor.principal, run_id, action.call_id)
        return await self._with(request, run_id, visitor, call, "person")

    async def timeline_part(
        self,
        request: Request,
        run_id: str,
        visitor: Visitor,
        after: Annotated[int, Query(ge=-1, le=2**53)] = -1,
        limit: Annotated[int, Query(ge=1, le=WINDOW)] = WINDOW,
    ) -> Response:
        run = await self._reading.run(visitor.principal, run_id)
        window = await self._window(visitor.principal, run, after, limit)
        return await self._pages.page(request, visitor, "run_part_timeline.html", run=run, window=window, at=-1)

    async def at_part(
        self, request: Request, run_id: str, visitor: Visitor, at: Annotated[int, Query(ge=0, le=2**53)]
    ) -> Response:
        values = await self._as_of(visitor.principal, run_id, at)
        return await self._pages.page(request, visitor, "run_part_at.html", call=None, lens="", **values)

    async def call_part(self, request: Request, run_id: str, call_id: str, visitor: Visitor) -> Response:
        run = await self._reading.run(visitor.principal, run_id)
        call = await self._reading.call(visitor.principal, run_id, call_id)
        shown = await asyncio.to_thread(call_shown, call)
        values: dict[str, Any] = {"run": run, "call": shown, "lens": "model", "event": None}
        return await self._pages.page(request, visitor, "run_part_details.html", **values)

    async def artifacts(self, request: Request, run_id: str, visitor: Visitor) -> Response:
        run = await self._reading.run(visitor.principal, run_id)
        kept = await self._reading.artifacts(visitor.principal, run_id)
        return await self._pages.page(request, visitor, "run_artifacts.html", run=run, artifacts=kept)

    async def artifact(
        self,
        request: Request,
        run_id: str,
        artifact_id: str,
        visitor: Visitor,
        start: Annotated[int, Query(ge=0, le=2**53)] = 0,
    ) -> Response:
        run = await self._reading.run(visitor.principal, run_id)
        size = await self._reading.artifact_size(visitor.principal, run_id, artifact_id)
        try:
            content = await self._reading.artifact_bytes(artifact_id, start, ARTIFACT_BYTES) if size > start else b""
        except ArtifactError as error:
            raise NotFoundError("artifact_lost", f"{artifact_id} cannot be shown: {error}", {}) from None
        text = _text(content)
        lines = None if text is None else await asyncio.to_thread(lambda: [shown_line(each) for each in text])
        end = start + len(content)
        values: dict[str, Any] = {
            "run": run,
            "artifact_id": artifact_id,
            "size": size,
            "start": start,
            "end": end,
            "lines": lines,
        }
        return await self._pages.page(request, visitor, "run_artifact.html", **values)

    async def _with(self, request: Request, run_id: str, visitor: Visitor, call: CallView, lens: str) -> Response:
        at = call.observed_seq if call.observed_seq >= 0 else None
        shown = await asyncio.to_thread(call_shown, call)
        return await self._shown(request, run_id, visitor, at, {"call": shown, "lens": lens})

    async def _shown(
        self, request: Request, run_id: str, visitor: Visitor, at: int | None, chosen: dict[str, Any]
    ) -> Response:
        who = visitor.principal
        run = await self._reading.run(who, run_id)
        here = run.last_seq if at is None else min(at, run.last_seq)
        around = max(-1, (run.last_seq if at is None else here + WINDOW // 2) - WINDOW)
        inside = await self._reading.runs(who, RunQuery(parent_run_id=run_id, inside=True, limit=_MAX_CHILDREN))
        final = await self._reading.state(who, run_id)
        values = await self._as_of(who, run_id, here)
        values |= {
            "run": run,
            "pinned": at is not None,
            "window": await self._window(who, run, around, WINDOW),
            "beginning": await self._beginning(run_id),
            "final": final,
            "open_questions": [each for each in final.questions if each.status == ActionState.PENDING.name],
            "children": inside.rows,
            "may_cancel": not run.state.is_over and may(who, Operation.CANCEL_RUN, run),
            "may_export": may(who, Operation.EXPORT_RUN, run),
            "call": None,
            "lens": "",
        }
        return await self._pages.page(request, visitor, "run.html", **(values | chosen))

    async def _as_of(self, who: Principal, run_id: str, at: int) -> dict[str, Any]:
        page = await self._reading.events(who, run_id, at - 1, 1)
        if not page.entries:
            raise unknown("event", str(at))
        state = await self._reading.state(who, run_id, at)
        run = await self._reading.run(who, run_id)
        event = await asyncio.to_thread(event_shown, page.entries[0])
        return {"run": run, "at": at, "state": state, "event": event}

    async def _window(self, who: Principal, run: RunRow, after: int, limit: int) -> Window:
        page = await self._reading.events(who, run.run_id, after, limit)
        rows = await asyncio.to_thread(_rows, page.entries)
        first = rows[0].seq if rows else after + 1
        return Window(rows=rows, first=first, last=rows[-1].seq if rows else after, last_seq=page.last_seq)

    async def _beginning(self, run_id: str) -> Beginning:
        """Permission was checked by whoever asks for the page."""
        found = Beginning()
        for entry in await self._service.log.read(run_id, -1, 4):
            fact = decode_event(entry).fact
            if isinstance(fact, facts.RunStarted):
                found = Beginning(
                    workspace=fact.workspace,
                    mode=fact.mode.value,
                    parent_run_id=fact.parent_run_id,
                    parent_call_id=fact.parent_call_id,
                    forked_from=fact.forked_from,
                    forked_at=fact.forked_at,
                )
            elif isinstance(fact, facts.UserSaid) and not found.task:
                found = msgspec.structs.replace(found, task=fact.text)
        return found


def _rows(entries: tuple[Entry, ...]) -> tuple[TimelineRow, ...]:
    return tuple(timeline_row(decode_event(entry)) for entry in entries)


def _text(content: bytes) -> list[str] | None:
    """The lines of it; None when it is no text. A character that the end cuts is not a sign of that."""
    for cut in range(4):
        try:
            return content[: len(content) - cut].decode().split("\n")
        except UnicodeDecodeError as error:
            if error.end < len(content) - cut:
                break
    return None
