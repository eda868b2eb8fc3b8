"""The page of a run: what it is about, its timeline, and everything as of any of its events.

One number is the position of the page: the event `at`. The timeline marks it, the details are about it, and the state
is the one after it. Without it the page follows the newest event. All parts are drawn here;
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
from ....domain.errors import ArtifactError
from ....domain.event import LogEntry, decode_event
from ....domain.state.lifecycle import ActionState
from ....history.call_view import CallView
from ...core.errors import NotFoundError, not_found_error
from ...core.identity.permissions import Operation, is_allowed
from ...core.identity.principal import Principal
from ...core.index.rows import RunQuery, RunRow
from ...core.service import Service
from ..markup import render_line
from ..rendering import PageRenderer
from ..session import Visitor
from ..views.call import build_call_panel
from ..views.events import TimelineRow, build_event_panel, build_timeline_row

WINDOW_ROWS = 200
#: How much of an artifact is shown at once.
ARTIFACT_BYTES = 64 << 10
_MAX_CHILDREN = 100

_Endpoint: TypeAlias = Callable[..., Awaitable[Response]]
EventSeq = Annotated[int | None, Query(ge=0, le=2**53)]


class TimelineWindow(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive events, and whether there are others around them."""

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


class RunOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the first events."""

    task: str = ""
    workspace: str = ""
    mode: str = ""
    parent_run_id: str = ""
    parent_call_id: str = ""
    forked_from: str = ""
    forked_at: int = -1


def routes(service: Service, pages: PageRenderer) -> APIRouter:
    router, page = APIRouter(), _RunPage(service, pages)
    endpoints: dict[str, _Endpoint] = {
        "": page.show,
        "/calls/{call_id:path}": page.show_call,
        "/actions/{action_id}": page.show_action,
        "/artifacts": page.show_artifacts,
        "/artifacts/{artifact_id}": page.show_artifact,
        "/parts/timeline": page.show_timeline_part,
        "/parts/at": page.show_event_part,
        "/parts/calls/{call_id:path}": page.show_call_part,
    }
    for path, endpoint in endpoints.items():
        router.add_api_route(f"/runs/{{run_id}}{path}", endpoint, methods=["GET"])
    return router


class _RunPage:
    def __init__(self, service: Service, pages: PageRenderer) -> None:
        self._service = service
        self._queries = service.run_queries
        self._pages = pages

    async def show(self, request: Request, run_id: str, visitor: Visitor, at: EventSeq = None) -> Response:
        return await self._render(request, run_id, visitor, at, {})

    async def show_call(self, request: Request, run_id: str, call_id: str, visitor: Visitor) -> Response:
        call = await self._queries.get_call(visitor.principal, run_id, call_id)
        return await self._render_call(request, run_id, visitor, call, "model")

    async def show_action(self, request: Request, run_id: str, action_id: str, visitor: Visitor) -> Response:
        action = await self._queries.get_action(visitor.principal, run_id, action_id)
        call = await self._queries.get_call(visitor.principal, run_id, action.call_id)
        return await self._render_call(request, run_id, visitor, call, "person")

    async def show_timeline_part(
        self,
        request: Request,
        run_id: str,
        visitor: Visitor,
        after: Annotated[int, Query(ge=-1, le=2**53)] = -1,
        limit: Annotated[int, Query(ge=1, le=WINDOW_ROWS)] = WINDOW_ROWS,
    ) -> Response:
        run = await self._queries.get_run(visitor.principal, run_id)
        window = await self._load_window(visitor.principal, run, after, limit)
        return await self._pages.render_page(request, visitor, "run_part_timeline.html", run=run, window=window, at=-1)

    async def show_event_part(
        self, request: Request, run_id: str, visitor: Visitor, at: Annotated[int, Query(ge=0, le=2**53)]
    ) -> Response:
        values = await self._load_state_at(visitor.principal, run_id, at)
        return await self._pages.render_page(request, visitor, "run_part_at.html", call=None, lens="", **values)

    async def show_call_part(self, request: Request, run_id: str, call_id: str, visitor: Visitor) -> Response:
        run = await self._queries.get_run(visitor.principal, run_id)
        call = await self._queries.get_call(visitor.principal, run_id, call_id)
        shown = await asyncio.to_thread(build_call_panel, call)
        values: dict[str, Any] = {"run": run, "call": shown, "lens": "model", "event": None}
        return await self._pages.render_page(request, visitor, "run_part_details.html", **values)

    async def show_artifacts(self, request: Request, run_id: str, visitor: Visitor) -> Response:
        run = await self._queries.get_run(visitor.principal, run_id)
        kept = await self._queries.list_artifacts(visitor.principal, run_id)
        return await self._pages.render_page(request, visitor, "run_artifacts.html", run=run, artifacts=kept)

    async def show_artifact(
        self,
        request: Request,
        run_id: str,
        artifact_id: str,
        visitor: Visitor,
        start: Annotated[int, Query(ge=0, le=2**53)] = 0,
    ) -> Response:
        run = await self._queries.get_run(visitor.principal, run_id)
        size = await self._queries.get_artifact_size(visitor.principal, run_id, artifact_id)
        try:
            content = await self._queries.read_artifact(artifact_id, start, ARTIFACT_BYTES) if size > start else b""
        except ArtifactError as error:
            raise NotFoundError("artifact_lost", f"{artifact_id} cannot be shown: {error}", {}) from None
        text = _decode_lines(content)
        lines = None if text is None else await asyncio.to_thread(lambda: [render_line(each) for each in text])
        end = start + len(content)
        values: dict[str, Any] = {
            "run": run,
            "artifact_id": artifact_id,
            "size": size,
            "start": start,
            "end": end,
            "lines": lines,
        }
        return await self._pages.render_page(request, visitor, "run_artifact.html", **values)

    async def _render_call(
        self, request: Request, run_id: str, visitor: Visitor, call: CallView, lens: str
    ) -> Response:
        at = call.observed_seq if call.observed_seq >= 0 else None
        shown = await asyncio.to_thread(build_call_panel, call)
        return await self._render(request, run_id, visitor, at, {"call": shown, "lens": lens})

    async def _render(
        self, request: Request, run_id: str, visitor: Visitor, at: int | None, chosen: dict[str, Any]
    ) -> Response:
        principal = visitor.principal
        run = await self._queries.get_run(principal, run_id)
        position = run.last_seq if at is None else min(at, run.last_seq)
        after = max(-1, (run.last_seq if at is None else position + WINDOW_ROWS // 2) - WINDOW_ROWS)
        children = await self._queries.list_runs(
            principal, RunQuery(parent_run_id=run_id, include_child_runs=True, limit=_MAX_CHILDREN)
        )
        final = await self._queries.get_state(principal, run_id)
        values = await self._load_state_at(principal, run_id, position)
        values |= {
            "run": run,
            "pinned": at is not None,
            "window": await self._load_window(principal, run, after, WINDOW_ROWS),
            "beginning": await self._load_origin(run_id),
            "final": final,
            "open_questions": [each for each in final.questions if each.status == ActionState.PENDING.name],
            "children": children.rows,
            "may_cancel": not run.state.is_over and is_allowed(principal, Operation.CANCEL_RUN, run),
            "may_export": is_allowed(principal, Operation.EXPORT_RUN, run),
            "call": None,
            "lens": "",
        }
        return await self._pages.render_page(request, visitor, "run.html", **(values | chosen))

    async def _load_state_at(self, principal: Principal, run_id: str, at: int) -> dict[str, Any]:
        page = await self._queries.list_events(principal, run_id, at - 1, 1)
        if not page.entries:
            raise not_found_error("event", str(at))
        state = await self._queries.get_state(principal, run_id, at)
        run = await self._queries.get_run(principal, run_id)
        event = await asyncio.to_thread(build_event_panel, page.entries[0])
        return {"run": run, "at": at, "state": state, "event": event}

    async def _load_window(self, principal: Principal, run: RunRow, after: int, limit: int) -> TimelineWindow:
        page = await self._queries.list_events(principal, run.run_id, after, limit)
        rows = await asyncio.to_thread(_build_rows, page.entries)
        first = rows[0].seq if rows else after + 1
        return TimelineWindow(rows=rows, first=first, last=rows[-1].seq if rows else after, last_seq=page.last_seq)

    async def _load_origin(self, run_id: str) -> RunOrigin:
        """Load the first events. The caller has checked the permission."""
        origin = RunOrigin()
        for entry in await self._service.log.read(run_id, -1, 4):
            fact = decode_event(entry).fact
            if isinstance(fact, facts.RunStarted):
                origin = RunOrigin(
                    workspace=fact.workspace,
                    mode=fact.mode.value,
                    parent_run_id=fact.parent_run_id,
                    parent_call_id=fact.parent_call_id,
                    forked_from=fact.forked_from,
                    forked_at=fact.forked_at,
                )
            elif isinstance(fact, facts.UserMessageReceived) and not origin.task:
                origin = msgspec.structs.replace(origin, task=fact.text)
        return origin


def _build_rows(entries: tuple[LogEntry, ...]) -> tuple[TimelineRow, ...]:
    return tuple(build_timeline_row(decode_event(entry)) for entry in entries)


def _decode_lines(content: bytes) -> list[str] | None:
    """The lines of it; None when it is no text. A character that the end cuts is not a sign of that."""
    for cut in range(4):
        try:
            return content[: len(content) - cut].decode().split("\n")
        except UnicodeDecodeError as error:
            if error.end < len(content) - cut:
                break
    return None
