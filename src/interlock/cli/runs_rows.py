"""Lines of a run as they come, when nobody knows yet how wide the columns have to be."""

import json
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from ..domain.event import Event
from .replay_words import row
from .runs_story import Told
from .show import visible_line

_WHO_CELLS, _OUTCOME_CELLS, _TYPE_CELLS = 10, 14, 25
_LEAST_CELLS = 8
_GAP = "  "
#: For a pipe, which has no width.
_MAX_CHARS = 500


class Rows:
    def __init__(self) -> None:
        self._console = Console(highlight=False, markup=False, emoji=False)
        self._room = max(self._console.width, 40) if self._console.is_terminal else _MAX_CHARS

    def event(self, event: Event, started_at: int) -> None:
        number, seconds, kind, words = row(event, started_at)
        self._print(Text(f"{number}{_GAP}{seconds}{_GAP}{kind:{_TYPE_CELLS}}{_GAP}{visible_line(words)}"))

    def told(self, told: Told) -> None:
        """Who, about what, and the outcome: that is never cut for what it is about."""
        line = _fit(told.who, _WHO_CELLS, pad=True).append(_GAP)
        outcome = Text(visible_line(told.outcome), style=told.style)
        about = self._room - line.cell_len
        if told.outcome:
            about -= max(outcome.cell_len, _OUTCOME_CELLS) + len(_GAP)
            outcome = Text(_GAP).append_text(outcome)
        what = _fit(told.what, max(about, _LEAST_CELLS), pad=bool(told.outcome) and self._console.is_terminal)
        what.stylize("" if told.outcome else told.style)
        self._print(line.append_text(what).append_text(outcome))

    def _print(self, line: Text) -> None:
        line.truncate(self._room, overflow="ellipsis")
        line.rstrip()
        self._console.print(line, soft_wrap=True)


def say_json_line(value: Any) -> None:
    """One value on one line, at once: somebody may be reading along."""
    text = json.dumps(msgspec.to_builtins(value, str_keys=True))
    print(text.replace("\x7f", "\\u007f"), flush=True)


def _fit(text: str, cells: int, *, pad: bool) -> Text:
    fitted = Text(visible_line(text))
    fitted.truncate(cells, overflow="ellipsis", pad=pad)
    return fitted
