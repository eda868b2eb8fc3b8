"""The page of a run in three views: its transcript, a waterfall of its time, and its events.

Transcript and waterfall show a page of turns. In the view of events one number is the position: the event `at`. The
timeline marks it, the details are about it, and the state is the one after it. Without it the page follows the newest
event. All parts are drawn here; `run.js` fetches those that change. Timelines are shown window by window, so a run of
any length is as fast as a short one.
"""

import asyncio
from collections.abc import Coroutine
from time import time_ns
from typing import Annotated, Any, Literal
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Meta
from starlette.responses import RedirectResponse, Response

from ....domain import event as facts
from ....domain.errors import ArtifactError
from ....domain.event import LogEntry, decode_event
from ....domain.state.lifecycle import ActionState
from ....history.call_view import CallView
from ....rendering.edit_diff import parse_unified_diff
from ....rendering.question import CHANGE_SIGNS, describe_tried_change
from ...core.errors import ConflictError, NotFoundError, not_found_error
from ...core.identity.permissions import Operation, is_allowed
from ...core.index.rows import RunRow
from ...core.runs.undo_service import UndoPreview, UndoSelection
from ...core.service import Service
from ..markup import render_line
from ..session import Pages, Visit
from ..views.call import build_call_panel
from ..views.events import TimelineRow, build_event_panel, build_timeline_row
from ..views.figures import build_figures
from ..views.transcript import build_transcript
from ..views.waterfall import build_waterfall
from .run_tree import load_tree

WINDOW_ROWS = 200
#: How much of an artifact is shown at once.
ARTIFACT_BYTES = 64 << 10

EventSeq = Annotated[int, Meta(ge=0, le=2**53)]
CallName = Annotated[str, Meta(max_length=1_000)]
View = Literal["", "transcript", "waterfall", "events"]


class TimelineWindow(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive events, and whether there are others around them."""

    rows: tuple[TimelineRow, ...]
    first: int
    last: int
    last_seq: int

    @property
    def has_earlier(self) -> bool:
        """True if there are events before the window."""
        return self.first > 0

    @property
    def has_later(self) -> bool:
        """True if there are events after the window."""
        return self.last < self.last_seq


page = Pages()


@page("GET", "/runs/{run_id}")
async def show(
    visit: Visit, run_id: str, view: View = "", at: EventSeq | None = None, before: EventSeq | None = None
) -> Response:
    """Render a run: its transcript, its waterfall, or its state at an event. Turns are those from the event `at` on, or
    those before one. An address with nothing but `at` is one of an event.
    """
    chosen = view or ("transcript" if at is None else "events")
    if chosen == "events":
        return await _show_or_damaged(visit, run_id, _render(visit, run_id, at, {}))
    return await _show_or_damaged(visit, run_id, _render_turns(visit, run_id, chosen, at, before))


@page("GET", "/runs/{run_id}/calls/{call_id:path}")
async def show_call(visit: Visit, run_id: str, call_id: str) -> Response:
    """Render a run with one of its calls."""

    async def render() -> Response:
        call = await visit.service.run_queries.get_call(visit.principal, run_id, call_id)
        return await _render_call(visit, run_id, call, "model")

    return await _show_or_damaged(visit, run_id, render())


@page("GET", "/runs/{run_id}/actions/{action_id}")
async def show_action(visit: Visit, run_id: str, action_id: str) -> Response:
    """Render a run with the call of one of its approvals."""
    queries = visit.service.run_queries

    async def render() -> Response:
        action = await queries.get_action(visit.principal, run_id, action_id)
        call = await queries.get_call(visit.principal, run_id, action.call_id)
        return await _render_call(visit, run_id, call, "person")

    return await _show_or_damaged(visit, run_id, render())


@page("POST", "/runs/{run_id}/cancel")
async def cancel(visit: Visit, run_id: str, reason: Annotated[str, Meta(max_length=2_000)] = "") -> Response:
    """Cancel a run, from the page of a damaged one, which has no script."""
    await visit.service.run_service.cancel(visit.principal, run_id, reason)
    return RedirectResponse(f"/console/runs/{quote(run_id, safe='')}", 303)


@page("GET", "/runs/{run_id}/undo")
async def show_undo(
    visit: Visit, run_id: str, call: CallName = "", after: EventSeq | None = None, done: CallName = ""
) -> Response:
    """Render what an undo would do. `done`: the run of an undo that was just done."""
    undone = await visit.service.run_queries.get_run(visit.principal, done) if done else None
    if undone is not None and await visit.service.undo_service.find_undone(undone) != run_id:
        raise not_found_error("run", done)
    selection = UndoSelection(call=call, after=after)
    preview = await visit.service.undo_service.preview(visit.principal, run_id, selection)
    return await _render_undo(visit, selection, preview, done=undone)


@page("POST", "/runs/{run_id}/undo")
async def undo(
    visit: Visit,
    run_id: str,
    digest: Annotated[str, Meta(max_length=200)],
    call: CallName = "",
    after: EventSeq | None = None,
) -> Response:
    """Undo exactly what the page showed. If that changed, show what it would be now."""
    selection = UndoSelection(call=call, after=after)
    try:
        result = await visit.service.undo_service.undo(visit.principal, run_id, selection, digest, "console")
    except ConflictError as error:
        if error.code != "undo_changed":
            raise
        preview = await visit.service.undo_service.preview(visit.principal, run_id, selection)
        return await _render_undo(visit, selection, preview, is_changed=True)
    query = {"call": call} if call else {} if after is None else {"after": str(after)}
    where = urlencode(query | {"done": result.undo_run_id})
    return RedirectResponse(f"/console/runs/{quote(run_id, safe='')}/undo?{where}", 303)


@page("GET", "/runs/{run_id}/artifacts")
async def show_artifacts(visit: Visit, run_id: str) -> Response:
    """Render the list of the artifacts of a run."""
    run = await visit.service.run_queries.get_run(visit.principal, run_id)
    kept = await visit.service.run_queries.list_artifacts(visit.principal, run_id)
    return await visit.render("run_artifacts.html", run=run, artifacts=kept)


@page("GET", "/runs/{run_id}/artifacts/{artifact_id}")
async def show_artifact(visit: Visit, run_id: str, artifact_id: str, start: EventSeq = 0) -> Response:
    """Render a part of an artifact as text."""
    queries = visit.service.run_queries
    run = await queries.get_run(visit.principal, run_id)
    size = await queries.get_artifact_size(visit.principal, run_id, artifact_id)
    try:
        content = await queries.read_artifact(artifact_id, start, ARTIFACT_BYTES) if size > start else b""
    except ArtifactError as error:
        raise NotFoundError("artifact_lost", f"{artifact_id} cannot be shown: {error}", {}) from None
    text = _decode_lines(content)
    return await visit.render(
        "run_artifact.html",
        run=run,
        artifact_id=artifact_id,
        size=size,
        start=start,
        end=start + len(content),
        lines=None if text is None else await asyncio.to_thread(lambda: [render_line(each) for each in text]),
    )


@page("GET", "/runs/{run_id}/parts/timeline")
async def show_timeline_part(
    visit: Visit,
    run_id: str,
    after: Annotated[int, Meta(ge=-1, le=2**53)] = -1,
    limit: Annotated[int, Meta(ge=1, le=WINDOW_ROWS)] = WINDOW_ROWS,
) -> Response:
    """Render a part of the timeline."""
    run = await visit.service.run_queries.get_run(visit.principal, run_id)
    window = await _load_window(visit, run, after, limit)
    return await visit.render("run_part_timeline.html", run=run, window=window, at=-1)


@page("GET", "/runs/{run_id}/parts/at")
async def show_event_part(visit: Visit, run_id: str, at: EventSeq) -> Response:
    """Render the details of an event."""
    values = await _load_state_at(visit, run_id, at)
    return await visit.render("run_part_at.html", call=None, lens="", **values)


@page("GET", "/runs/{run_id}/parts/calls/{call_id:path}")
async def show_call_part(visit: Visit, run_id: str, call_id: str) -> Response:
    """Render the details of a call."""
    run = await visit.service.run_queries.get_run(visit.principal, run_id)
    call = await visit.service.run_queries.get_call(visit.principal, run_id, call_id)
    shown = await asyncio.to_thread(build_call_panel, call)
    return await visit.render("run_part_details.html", run=run, call=shown, lens="model", event=None)


async def _render_undo(
    visit: Visit,
    selection: UndoSelection,
    preview: UndoPreview,
    *,
    done: RunRow | None = None,
    is_changed: bool = False,
) -> Response:
    started, _ = await _load_origin(visit.service, preview.run_id)
    return await visit.render(
        "run_undo.html",
        status=409 if is_changed else 200,
        run=await visit.service.run_queries.get_run(visit.principal, preview.run_id),
        workspace=started.workspace,
        preview=preview,
        selection=selection,
        changes=[(CHANGE_SIGNS[each.kind], each.kind, describe_tried_change(each)) for each in preview.changes],
        lines=await asyncio.to_thread(parse_unified_diff, preview.diff),
        done=done,
        is_changed=is_changed,
    )


async def _show_or_damaged(visit: Visit, run_id: str, rendering: Coroutine[Any, Any, Response]) -> Response:
    """Return the page; for a run whose events cannot be read, one that says so and what can be done."""
    try:
        async with visit.service.damaged_runs.detect(run_id):
            return await rendering
    except ConflictError as error:
        if error.code != "log_damaged":
            raise
    run = await visit.service.run_queries.get_run(visit.principal, run_id)
    return await visit.render(
        "run_damaged.html",
        run=run,
        can_cancel=not run.is_over and is_allowed(visit.principal, Operation.CANCEL_RUN, run),
        can_verify=is_allowed(visit.principal, Operation.VERIFY_RUN, run),
    )


async def _render_call(visit: Visit, run_id: str, call: CallView, lens: str) -> Response:
    at = call.observed_seq if call.observed_seq >= 0 else None
    shown = await asyncio.to_thread(build_call_panel, call)
    return await _render(visit, run_id, at, {"call": shown, "lens": lens})


async def _render(visit: Visit, run_id: str, at: int | None, chosen: dict[str, Any]) -> Response:
    run = await visit.service.run_queries.get_run(visit.principal, run_id)
    position = run.last_seq if at is None else min(at, run.last_seq)
    after = max(-1, (run.last_seq if at is None else position + WINDOW_ROWS // 2) - WINDOW_ROWS)
    values = await _load_head(visit, run) | await _load_state_at(visit, run_id, position)
    values |= {
        "run": run,
        "shown_view": "events",
        "pinned": at is not None,
        "window": await _load_window(visit, run, after, WINDOW_ROWS),
        "call": None,
        "lens": "",
    }
    return await visit.render("run.html", **(values | chosen))


async def _render_turns(visit: Visit, run_id: str, view: str, at: int | None, before: int | None) -> Response:
    queries = visit.service.run_queries
    run = await queries.get_run(visit.principal, run_id)
    found = await queries.list_turns(visit.principal, run_id, at, before)
    values = await _load_head(visit, run)
    if view == "waterfall":
        values["waterfall"] = await asyncio.to_thread(build_waterfall, found.turns, time_ns())
    else:
        values["turns"] = await asyncio.to_thread(build_transcript, found.turns)
    return await visit.render(f"run_{view}.html", run=run, shown_view=view, found=found, **values)


async def _load_head(visit: Visit, run: RunRow) -> dict[str, Any]:
    """Load what is above every view of a run."""
    principal, undo_service = visit.principal, visit.service.undo_service
    final = await visit.service.run_queries.get_state(principal, run.run_id)
    started, task = await _load_origin(visit.service, run.run_id)
    return {
        "beginning": started,
        "task": task,
        "final": final,
        "figures": build_figures(final, is_over=run.is_over, now=time_ns()),
        "open_questions": [each for each in final.questions if each.status == ActionState.PENDING.name],
        "tree": await load_tree(visit, run, started),
        "may_undo": await undo_service.can_undo(principal, run),
        "undone_run_id": await undo_service.find_undone(run),
        "undos": await undo_service.list_undos(run) if run.is_over else [],
        "may_cancel": not run.state.is_over and is_allowed(principal, Operation.CANCEL_RUN, run),
        "may_export": is_allowed(principal, Operation.EXPORT_RUN, run),
    }


async def _load_state_at(visit: Visit, run_id: str, at: int) -> dict[str, Any]:
    queries, principal = visit.service.run_queries, visit.principal
    found = await queries.list_events(principal, run_id, at - 1, 1)
    if not found.entries:
        raise not_found_error("event", str(at))
    state = await queries.get_state(principal, run_id, at)
    run = await queries.get_run(principal, run_id)
    event = await asyncio.to_thread(build_event_panel, found.entries[0])
    return {"run": run, "at": at, "state": state, "event": event}


async def _load_window(visit: Visit, run: RunRow, after: int, limit: int) -> TimelineWindow:
    found = await visit.service.run_queries.list_events(visit.principal, run.run_id, after, limit)
    rows = await asyncio.to_thread(_build_rows, found.entries)
    first = rows[0].seq if rows else after + 1
    return TimelineWindow(rows=rows, first=first, last=rows[-1].seq if rows else after, last_seq=found.last_seq)


async def _load_origin(service: Service, run_id: str) -> tuple[facts.RunStarted, str]:
    """Load how the run was started, and its task. The caller has checked the permission."""
    first = [decode_event(entry).fact for entry in await service.log.read(run_id, -1, 4)]
    started = next(fact for fact in first if isinstance(fact, facts.RunStarted))
    return started, next((fact.text for fact in first if isinstance(fact, facts.UserMessageReceived)), "")


def _build_rows(entries: tuple[LogEntry, ...]) -> tuple[TimelineRow, ...]:
    return tuple(build_timeline_row(decode_event(entry)) for entry in entries)


def _decode_lines(content: bytes) -> list[str] | None:
    """Return the lines; None if it is not text. A character cut at the end does not count."""
    for cut in range(4):
        try:
            return content[: len(content) - cut].decode().split("\n")
        except UnicodeDecodeError as error:
            if error.end < len(content) - cut:
                break
    return None
