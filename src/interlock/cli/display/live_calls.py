"""Calls of a run on a terminal: a row while a call is under way, and a line, perhaps with a diff, when it is done."""

from collections.abc import Mapping

import msgspec
from rich.text import Text

from ...domain.observation import Observation
from ...domain.rendering import render_for_user
from .formatting import took
from .live_text import harmless, rows_of
from .output import visible_line

MAX_DIFF_LINES = 12
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAMES_PER_SECOND = 10
#: From so long on a running call shows what it says.
_LONG_MS = 1_000
_INDENT = " " * 21
_MAX_DETAIL_ROWS = 3
_WORD_CHARS = 9
_TIME_CHARS = 7

#: What became of a call, by its code: the word, and its colour.
_WORDS: Mapping[str, tuple[str, str]] = {
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
    acts_on: str
    #: When it was started, in nanoseconds since 1970; 0: it was not.
    since: int = 0
    waits: bool = False
    #: What it said last.
    progress: str = ""

    def rows(self, now: int) -> list[Text]:
        """Empty: there is nothing to see yet."""
        if self.waits:
            return [_row("waits", "yellow", "", self.tool, self.acts_on)]
        if not self.since:
            return []
        elapsed_ms = max(0, now - self.since) / 1e6
        frame = SPINNER[int(elapsed_ms / 1e3 * _FRAMES_PER_SECOND) % len(SPINNER)]
        rows = [_row(frame, "cyan", f"{elapsed_ms / 1e3:,.0f} s", self.tool, self.acts_on)]
        if self.progress and elapsed_ms >= _LONG_MS:
            rows.append(Text(f"{_INDENT}{visible_line(self.progress.strip())}", "dim"))
        return rows


def ended_lines(call: LiveCall, seen: Observation, width: int) -> list[Text]:
    """The call with what became of it."""
    word, style = _WORDS.get("ok" if seen.ok else seen.code, ("failed", "red"))
    lines = [_row(word, style, took(seen.duration_ms), call.tool, call.acts_on)]
    if not seen.ok or seen.kind == "verification":
        rows = _first_rows(_detail(seen), max(width - len(_INDENT), 20))
        lines += [Text(f"{_INDENT}{row}", style if not seen.ok else "dim") for row in rows]
    if seen.ok and seen.content is not None and seen.content.format == "diff":
        lines += diff_lines(seen.content.text, seen.truncated)
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def diff_lines(diff: str, was_cut: bool = False) -> list[Text]:
    """The first lines of a diff, without its two lines of names."""
    lines = [line for line in harmless(diff).split("\n") if not line.startswith(("--- ", "+++ "))]
    shown = [Text(f"{_INDENT}{line}", _DIFF_STYLES.get(line[:1], "dim")) for line in lines[:MAX_DIFF_LINES]]
    more = len(lines) - MAX_DIFF_LINES
    if more > 0 or was_cut:
        left = f"{more:,} more lines" if more > 0 else "more"
        shown.append(Text(f"{_INDENT}... {left}; the whole diff is kept with the run", "dim"))
    return shown


def _first_rows(text: str, width: int) -> list[str]:
    rows = rows_of(text, width)
    more = "..." if len(rows) > _MAX_DETAIL_ROWS else ""
    return [*rows[: _MAX_DETAIL_ROWS - 1], *(f"{row}{more}" for row in rows[_MAX_DETAIL_ROWS - 1 : _MAX_DETAIL_ROWS])]


def _detail(seen: Observation) -> str:
    """The line above has the command already."""
    is_repeated = seen.user_text.startswith("$ ")
    return render_for_user(msgspec.structs.replace(seen, user_text="") if is_repeated else seen)


def _row(word: str, style: str, time: str, tool: str, acts_on: str) -> Text:
    row = Text("  ")
    row.append(f"{word:{_WORD_CHARS}}", style)
    row.append(f"{time:>{_TIME_CHARS}}   ", "dim")
    row.append(visible_line(tool), "bold")
    return row.append(f" {visible_line(acts_on)}" if acts_on else "")
