"""Calls of a run on a terminal: a row while a call is under way, and a line, perhaps with a diff, when it is done."""

from collections.abc import Mapping

import msgspec
from rich.text import Text

from ...domain.observation import Observation
from ...domain.rendering import render_for_user
from ...rendering.times import format_elapsed
from .live_text import neutralize_text, wrap_line
from .output import make_visible

MAX_DIFF_LINES = 12
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAMES_PER_SECOND = 10
#: From so long on a running call shows what it says.
_PROGRESS_AFTER_MS = 1_000
_INDENT = " " * 21
_MAX_DETAIL_ROWS = 3
_LABEL_CHARS = 9
_TIME_CHARS = 7

#: What became of a call, by its code: the word, and its colour.
_OUTCOME_LABELS: Mapping[str, tuple[str, str]] = {
    "ok": ("ok", "green"),
    "policy_denied": ("denied", "red"),
    "user_denied": ("refused", "red"),
    "approval_expired": ("expired", "red"),
    "guardrail_refused": ("denied", "red"),
    "cancelled": ("cancelled", "yellow"),
    "cancelled_before_start": ("cancelled", "yellow"),
    "skipped": ("skipped", "yellow"),
    "timed_out": ("timed out", "red"),
    "outcome_unknown": ("unknown", "bold red"),
}
_DIFF_STYLES: Mapping[str, str] = {"+": "green", "-": "red", "@": "cyan"}


class LiveCall(msgspec.Struct):
    """A call that has no outcome yet."""

    tool: str
    summary: str
    #: When it was started, in nanoseconds since 1970; 0: it was not.
    started_at: int = 0
    is_waiting: bool = False
    #: What it said last.
    progress: str = ""

    def rows(self, now: int) -> list[Text]:
        """Return the rows of the call; empty: there is nothing to see yet."""
        if self.is_waiting:
            return [_format_row("waits", "yellow", "", self.tool, self.summary)]
        if not self.started_at:
            return []
        elapsed_ms = max(0, now - self.started_at) / 1e6
        frame = SPINNER[int(elapsed_ms / 1e3 * _FRAMES_PER_SECOND) % len(SPINNER)]
        rows = [_format_row(frame, "cyan", f"{elapsed_ms / 1e3:,.0f} s", self.tool, self.summary)]
        if self.progress and elapsed_ms >= _PROGRESS_AFTER_MS:
            rows.append(Text(f"{_INDENT}{make_visible(self.progress.strip())}", "dim"))
        return rows


def format_finished_call(call: LiveCall, observation: Observation, width: int) -> list[Text]:
    """Format a call with its outcome."""
    label, style = _OUTCOME_LABELS.get("ok" if observation.ok else observation.code, ("failed", "red"))
    lines = [_format_row(label, style, format_elapsed(observation.duration_ms), call.tool, call.summary)]
    if not observation.ok or observation.kind == "verification":
        rows = _wrap_detail(_get_detail(observation), max(width - len(_INDENT), 20))
        lines += [Text(f"{_INDENT}{row}", style if not observation.ok else "dim") for row in rows]
    if observation.ok and observation.content is not None and observation.content.format == "diff":
        lines += format_diff(observation.content.text, observation.truncated)
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def format_diff(diff: str, was_cut: bool = False) -> list[Text]:
    """Return the first lines of a diff, without its two lines of names."""
    lines = [line for line in neutralize_text(diff).split("\n") if not line.startswith(("--- ", "+++ "))]
    shown = [Text(f"{_INDENT}{line}", _DIFF_STYLES.get(line[:1], "dim")) for line in lines[:MAX_DIFF_LINES]]
    more = len(lines) - MAX_DIFF_LINES
    if more > 0 or was_cut:
        left = f"{more:,} more lines" if more > 0 else "more"
        shown.append(Text(f"{_INDENT}... {left}; the whole diff is kept with the run", "dim"))
    return shown


def _wrap_detail(text: str, width: int) -> list[str]:
    rows = wrap_line(text, width)
    more = "..." if len(rows) > _MAX_DETAIL_ROWS else ""
    return [*rows[: _MAX_DETAIL_ROWS - 1], *(f"{row}{more}" for row in rows[_MAX_DETAIL_ROWS - 1 : _MAX_DETAIL_ROWS])]


def _get_detail(observation: Observation) -> str:
    """The line above has the command already."""
    is_repeated = observation.user_text.startswith("$ ")
    return render_for_user(msgspec.structs.replace(observation, user_text="") if is_repeated else observation)


def _format_row(label: str, style: str, time: str, tool: str, summary: str) -> Text:
    row = Text("  ")
    row.append(f"{label:{_LABEL_CHARS}}", style)
    row.append(f"{time:>{_TIME_CHARS}}   ", "dim")
    row.append(make_visible(tool), "bold")
    return row.append(f" {make_visible(summary)}" if summary else "")
