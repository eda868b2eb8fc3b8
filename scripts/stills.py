"""Pictures of the terminal for the docs, drawn by the code that draws it for a person: prompts and the live view.
`make docs` writes them.
"""

import fcntl
import os
import pty
import struct
import termios
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from hashlib import sha256
from io import StringIO
from typing import Any
from unittest.mock import patch

import pyte
from rich.console import Console
from rich.text import Text

from interlock.cli.display.live import LiveView
from interlock.cli.display.live_region import LiveRegion
from interlock.domain.call import Question
from interlock.domain.event import CallObserved, CallProposed, Event, InvocationStarted, ModelRequested, ModelResponded
from interlock.domain.messages import Usage
from interlock.domain.observation import Content, Observation
from interlock.domain.payload import ApprovalBinding, ExecutionEnvironment
from interlock.interaction.terminal_dialog import format_choices
from interlock.interaction.terminal_screen import TerminalScreen, WithdrawalSignal
from interlock.models.interface import StreamFinished, TextDelta
from interlock.rendering.prompt import render_prompt
from interlock.rendering.question import DisplayLine

from .recording import COLUMNS, ROWS, draw_still, read_row

_SECOND = 1_000_000_000
_NEW_LINE_MODE = 20
_FOLDER = "/home/ana/shop"
_LAST_CHOICE = b"d details:"
_TERMINAL_VARIABLES = ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS", "LINES")


def draw_prompt() -> str:
    """Draw the prompt about a command."""
    question = _question("bash", {"command": "pytest -q tests"}, "execute", ("execute", "runs project scripts"))
    return draw_still(_show_prompt(question), "A question about a command, with its choices as single keys")


def draw_edit() -> str:
    """Draw the prompt about an edit."""
    edit = {"path": "shop.py", "old_string": "return price - amount", "new_string": "return price * amount"}
    return draw_still(_show_prompt(_question("edit_file", edit, "write", ("write",))), "A question about an edit")


def draw_live_view() -> str:
    """Draw a run while a command prints."""
    file, now = StringIO(), 100 * _SECOND
    with _any_terminal():
        console = Console(file=file, force_terminal=True, width=COLUMNS, height=ROWS, color_system="standard")
        view = LiveView(LiveRegion(console), now=lambda: now, mode="contained")
    view.has_keys = True
    read = Observation(call_id="c1", tool="read_file", ok=True, summary="", duration_ms=2)
    diff = "@@ -1,2 +1,2 @@\n def total(price, amount):\n-    return price - amount\n+    return price * amount\n"
    edited = Observation(
        call_id="c2", tool="edit_file", ok=True, summary="", duration_ms=21, content=Content(text=diff, format="diff")
    )
    facts: list[Any] = [
        ModelRequested(menu_digest="", message_count=1),
        ModelResponded(text="The total **subtracts**. I fix it.", usage=Usage(input_tokens=4_210, output_tokens=96)),
        CallProposed(call_id="c1", tool="read_file", raw_input={"path": "shop.py"}),
        CallObserved(observation_id="o1", observation=read),
        CallProposed(call_id="c2", tool="edit_file", raw_input={"path": "shop.py"}),
        CallObserved(observation_id="o2", observation=edited),
        CallProposed(call_id="c3", tool="bash", raw_input={"command": "pytest -v tests"}),
        InvocationStarted(
            invocation_id="i", call_id="c3", tool="bash", executor="local", tool_version="1", timeout_seconds=600
        ),
    ]
    for seq, fact in enumerate(facts):
        if isinstance(fact, ModelResponded):
            for event in (TextDelta(fact.text), StreamFinished(reason="stop")):
                view.on_model_event(event)
        view.on_event(Event(seq, "run", now, "", None, fact))
    view.on_progress("c3", "\n".join(f"tests/test_shop.py::test_{name} PASSED" for name in ("add", "remove", "total")))
    now += 3 * _SECOND
    view.refresh()
    return draw_still(_read_screen(file.getvalue().encode()), "The live view of a run while a command prints")


PICTURES: Mapping[str, Callable[[], str]] = {
    "terminal-prompt.svg": draw_prompt,
    "terminal-edit.svg": draw_edit,
    "terminal-live.svg": draw_live_view,
}


def _question(tool: str, arguments: dict[str, Any], risk: str, risks: tuple[str, ...]) -> Question:
    around = ExecutionEnvironment(cwd=_FOLDER, sandbox="bubblewrap/workspace-write")
    return Question(
        action_id="act_1",
        run_id="run_1",
        call_id="call_1",
        tool_name=tool,
        kind="approval",
        prompt="",
        reason=f"No rule matches, and its risk is {risk}.",
        arguments=arguments,
        payload_hash=f"sha256:{sha256(b'').hexdigest()}",
        risk=risks,
        bound=ApprovalBinding(requester="ana", surroundings=around),
        scope="rule",
        suggested_rule="{decision: allow}",
    )


def _any_terminal() -> AbstractContextManager[object]:
    """Draw as for a plain terminal with colours, wherever this runs."""
    others = {name: value for name, value in os.environ.items() if name not in _TERMINAL_VARIABLES}
    return patch.dict(os.environ, {**others, "TERM": "xterm"}, clear=True)


def _show_prompt(question: Question) -> list[Text]:
    """Show a question on a terminal of its own, and return what is on it."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    withdrawal, written = WithdrawalSignal(), b""
    with (
        _any_terminal(),
        os.fdopen(slave, "r") as keys,
        os.fdopen(os.dup(slave), "w") as output,
        TerminalScreen(keys, output, withdrawal) as screen,
    ):
        screen.show(
            [*render_prompt(question, COLUMNS, ROWS).lines, DisplayLine(format_choices(question, COLUMNS), "fact")]
        )
        output.flush()
        while _LAST_CHOICE not in written:  # A terminal passes on what is written piece by piece.
            written += os.read(master, 1 << 16)
    withdrawal.close()
    os.close(master)
    return _read_screen(written)


def _read_screen(written: bytes) -> list[Text]:
    screen = pyte.Screen(COLUMNS, ROWS)
    screen.set_mode(_NEW_LINE_MODE)
    pyte.ByteStream(screen).feed(written)
    rows = [read_row(screen, row) for row in range(ROWS)]
    while rows and not rows[-1].plain:
        rows.pop()
    return rows
