"""The live view on a screen, and in a pipe."""

from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pyte
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console

from interlock.cli.display.live import MAX_DIFF_LINES, LiveView
from interlock.cli.display.live_region import LiveRegion
from interlock.domain import event as facts
from interlock.domain.call import Answer
from interlock.domain.event import Event
from interlock.domain.messages import Usage
from interlock.domain.observation import Content, Observation
from interlock.domain.outcome import ArtifactRef, Failure, OutputSize
from interlock.models.interface import StreamFinished, StreamRestarted, TextDelta
from tests.pipeline.approval.person import make_question

SECOND = 1_000_000_000
#: A line feed also goes to the start of the line, as terminals do it for programs.
_NEW_LINE_MODE = 20


class Watching:
    """A view, and what somebody in front of it sees."""

    def __init__(
        self, columns: int = 80, lines: int = 24, *, terminal: bool = True, notify: Any = "bell", **options: Any
    ) -> None:
        self._file = StringIO()
        self._shown = 0
        self._screen = pyte.Screen(columns, lines)
        self._screen.set_mode(_NEW_LINE_MODE)
        self._stream = pyte.Stream(self._screen)
        self._seq = 0
        self.now = 100 * SECOND
        console = Console(
            file=self._file,
            force_terminal=terminal,
            width=columns,
            height=lines,
            color_system=None,
            highlight=False,
            soft_wrap=True,
        )
        self.view = LiveView(LiveRegion(console, notify=notify), now=lambda: self.now, **options)

    def happens(self, *happened: Any) -> None:
        for fact in happened:
            self.view.on_event(Event(self._seq, "run_1", self.now, "", None, fact))
            self._seq += 1

    @property
    def rows(self) -> list[str]:
        written = self._file.getvalue()
        self._stream.feed(written[self._shown :])
        self._shown = len(written)
        rows = [row.rstrip() for row in self._screen.display]
        while rows and not rows[-1]:
            rows.pop()
        return rows

    @property
    def written(self) -> str:
        return self._file.getvalue()


def proposed(call_id: str = "c1", tool: str = "bash", **arguments: Any) -> facts.CallProposed:
    return facts.CallProposed(call_id=call_id, tool=tool, raw_input=arguments or {"command": "make"})


def started(call_id: str = "c1") -> facts.InvocationStarted:
    return facts.InvocationStarted(
        invocation_id="i", call_id=call_id, tool="bash", executor="x", tool_version="1", timeout_seconds=1
    )


def seen(call_id: str = "c1", ok: bool = True, **fields: Any) -> facts.CallObserved:
    given: dict[str, Any] = {"tool": "bash", "summary": "", "duration_ms": 1_234.0} | fields
    return facts.CallObserved(observation_id="o", observation=Observation(call_id=call_id, ok=ok, **given))


def printed(text: str, call_id: str = "c1", produced: int = 0, **fields: Any) -> facts.CallObserved:
    """A command that ended, with the output that the model got."""
    shown = len(text.encode())
    size = OutputSize(produced=produced or shown, kept=shown, shown=shown, omitted=max(0, produced - shown))
    stored = ArtifactRef(id=f"sha256:{'ab' * 32}", kind="command_output", size_bytes=shown)
    return seen(
        call_id, content=Content(text=text), size=size, artifacts=(stored,), facts={"command": "make"}, **fields
    )


def asked() -> facts.ModelRequested:
    return facts.ModelRequested(menu_digest="", message_count=1)


def test_a_running_call_has_one_row_which_becomes_its_line() -> None:
    watching = Watching()

    watching.happens(proposed(), started())
    assert watching.rows == ["  ⠋            0 s   bash make"]
    watching.now += 12 * SECOND
    watching.view.on_progress("c1", "compiling 3 of 7")
    watching.view.refresh()
    assert watching.rows == ["  ⠋           12 s   bash make", "    | compiling 3 of 7"]
    watching.happens(seen())

    assert watching.rows == ["  ok         1.2 s   bash make"]


def test_what_became_of_a_call_is_one_word_and_the_reason_below() -> None:
    watching = Watching()
    denied = Failure.from_code("policy_denied", "bash was refused by policy: no. Nothing was executed.")

    watching.happens(
        proposed("c1"),
        seen("c1", ok=False, failure=denied, duration_ms=None),
        proposed("c2", command="pytest"),
        seen("c2", ok=False, summary="pytest failed: 1 failed", failure=Failure.from_code("tool_failed", "x")),
        proposed("c3"),
        seen("c3", ok=False, failure=Failure.from_code("cancelled", "The call was cancelled.")),
    )

    assert watching.rows == [
        "  denied             bash make",
        " " * 21 + "bash was refused by policy: no. Nothing was executed.",
        "  failed     1.2 s   bash pytest",
        " " * 21 + "pytest failed: 1 failed",
        "  cancelled  1.2 s   bash make",
        " " * 21 + "The call was cancelled.",
    ]


def test_an_edit_shows_its_diff_and_a_long_one_only_its_beginning() -> None:
    watching = Watching()
    diff = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n" + "\n".join(f"+line {number}" for number in range(30))

    watching.happens(proposed(tool="edit_file", path="x"), seen(content=Content(text=diff, format="diff")))

    assert watching.rows[:3] == ["  ok         1.2 s   edit_file x", " " * 21 + "@@ -1 +1 @@", " " * 21 + "+line 0"]
    assert watching.rows[-1] == " " * 21 + "... 19 more lines; the whole diff is kept with the run"
    assert len(watching.rows) == MAX_DIFF_LINES + 2


def test_what_a_model_says_is_seen_while_it_says_it() -> None:
    watching = Watching()
    watching.happens(asked())

    watching.view.on_model_event(TextDelta("I look "))
    assert watching.rows == ["| I look"]
    watching.view.on_model_event(TextDelta("at it.\nThen"))
    assert watching.rows == ["| I look at it.", "| Then"]
    watching.view.on_model_event(StreamFinished(reason="stop"))
    watching.happens(facts.ModelResponded(text="I look at it.\nThen"))

    assert watching.rows == ["| I look at it.", "| Then"]


def test_what_is_heard_before_the_log_has_come_so_far_is_shown_after_what_happened_before() -> None:
    watching = Watching()
    watching.happens(asked())
    watching.view.on_model_event(TextDelta("First."))
    watching.view.on_model_event(StreamFinished(reason="tool_calls"))
    watching.view.on_model_event(TextDelta("Second."))

    watching.happens(facts.ModelResponded(text="First.", call_count=1), proposed(), started(), seen(), asked())

    assert watching.rows == ["| First.", "  ok         1.2 s   bash make", "| Second."]


def test_a_model_that_says_nothing_is_seen_to_be_waited_for() -> None:
    watching = Watching()
    watching.happens(asked())
    assert watching.rows == []

    watching.now += 3 * SECOND
    watching.view.refresh()

    assert watching.rows == ["  ⠋        3 s   waiting for the model"]


def test_an_answer_that_broke_off_is_told() -> None:
    watching = Watching()
    watching.happens(asked())

    for event in (TextDelta("Half an"), StreamRestarted("The connection was cut."), TextDelta("A whole answer.")):
        watching.view.on_model_event(event)

    assert watching.rows == [
        "| Half an",
        "(the answer broke off: The connection was cut. It is asked for again.)",
        "| A whole answer.",
    ]


def test_an_answer_that_nobody_heard_is_shown_from_the_log() -> None:
    watching = Watching()

    watching.happens(asked(), facts.ModelResponded(text="Recorded."))

    assert watching.rows == ["| Recorded."]


def test_while_a_person_is_asked_nothing_is_drawn_and_what_happens_is_told_afterwards() -> None:
    watching = Watching()
    watching.happens(proposed("c1"), proposed("c2", command="ls"), started("c2"))

    with watching.view.suspended():
        before = watching.written
        watching.happens(seen("c2"))
        watching.view.refresh()
        assert watching.written == before

    assert watching.rows == ["  ok         1.2 s   bash ls"]


def test_an_answer_from_elsewhere_is_told_and_one_from_here_is_not() -> None:
    watching = Watching()
    granted = facts.ApprovalGranted(call_id="c1", action_id="act_1", answer=Answer(approved=True, by="ana"))
    no = facts.ApprovalRejected(
        call_id="c2", action_id="act_2", answer=Answer(approved=False, by="bob", reason="not today")
    )
    watching.happens(proposed("c1"), facts.ApprovalRequested(call_id="c1", question=make_question()))
    assert watching.rows == ["  waits              bash make"]

    watching.view.answered_locally.add("act_3")
    watching.happens(granted, proposed("c2"), no)
    watching.happens(
        facts.ApprovalGranted(call_id="c2", action_id="act_3", answer=Answer(approved=True, by="terminal:me"))
    )

    assert watching.rows == [
        "  Approved by ana: bash make",
        "  Rejected by bob (not today): bash make",
    ]


async def test_a_question_waits_until_what_happened_before_it_is_shown() -> None:
    watching = Watching()
    watching.happens(facts.ApprovalRequested(call_id="c1", question=make_question()))

    await watching.view.wait_until_shown("act_1")


def test_warnings_conflicts_and_failures_are_told() -> None:
    watching = Watching()

    watching.happens(
        facts.WarningRaised(message="An answer was not taken."),
        facts.ClaimContradicted(claim="passed", status="failed", message="Tests failed.", told=True),
        facts.ApprovalVoided(call_id="c1", action_id="a", reason="a file changed"),
        facts.FinalAnswerRejected(message="It is no JSON."),
        facts.ModelFailed(message="No connection."),
    )

    assert watching.rows == [
        "  Warning: An answer was not taken.",
        "  The answer contradicts the facts: Tests failed. The model is informed.",
        "  Question void: a file changed",
        "  Final answer rejected: It is no JSON.",
        "  The model gave no answer: No connection.",
    ]


def test_many_calls_at_once_take_a_few_rows() -> None:
    watching = Watching()

    watching.happens(*(fact for number in range(50) for fact in (proposed(f"c{number}"), started(f"c{number}"))))

    assert (len(watching.rows), watching.rows[-1]) == (8, "  ... and more")


def test_nothing_that_comes_from_elsewhere_acts_on_the_terminal() -> None:
    watching = Watching()
    evil = "\x1b[2J\x1b]0;owned\x07\u202e\r\x9b1A"
    watching.happens(asked())
    own = watching.written

    for feed in _every_way_in(watching, evil):
        feed()

    written = watching.written[len(own) :]
    for ours in ("\x1b[K", "\x1b[J", "\r", *(f"\x1b[{rows}A" for rows in range(1, 9))):
        written = written.replace(ours, "")
    assert not {"\x1b", "\x07", "\u202e", "\r", "\x9b"}.intersection(written)


def _every_way_in(watching: Watching, evil: str) -> list[Callable[[], None]]:
    view, happens = watching.view, watching.happens
    answer = Answer(approved=True, by=evil, reason=evil)
    failed = Failure.from_code("tool_failed", evil)
    return [
        lambda: view.on_model_event(TextDelta(evil)),
        lambda: view.on_model_event(StreamRestarted(evil)),
        lambda: happens(facts.ModelResponded(text=evil)),
        lambda: happens(proposed(tool=evil, command=evil), started()),
        lambda: view.on_progress("c1", evil),
        lambda: setattr(watching, "now", watching.now + 5 * SECOND),
        view.refresh,
        lambda: happens(facts.ApprovalGranted(call_id="c1", action_id="a", answer=answer)),
        lambda: happens(seen(ok=False, summary=evil, failure=failed)),
        lambda: happens(seen("c2", tool=evil, content=Content(text=f"+{evil}", format="diff"))),
        lambda: happens(proposed("c3"), printed(evil, "c3")),
        lambda: happens(
            facts.WarningRaised(message=evil), facts.ModelFailed(message=evil), facts.FinalAnswerRejected(message=evil)
        ),
        lambda: happens(facts.ApprovalVoided(call_id="c1", action_id="a", reason=evil)),
        lambda: happens(facts.ClaimContradicted(claim=evil, status="failed", message=evil)),
    ]


def test_a_pipe_gets_plain_lines_and_nothing_that_is_drawn_anew() -> None:
    watching = Watching(terminal=False)
    watching.happens(asked())
    watching.view.on_model_event(TextDelta("I look at it.\nAnd "))
    watching.view.on_model_event(TextDelta("more."))
    watching.view.on_model_event(StreamFinished(reason="tool_calls"))

    watching.happens(facts.ModelResponded(text="..."), proposed(), started(), seen())

    assert watching.written == "| I look at it.\n| And more.\n  ok         1.2 s   bash make\n"


@pytest.mark.parametrize("terminal", [True, False])
@given(
    text=st.text(st.sampled_from("ok \n\r\t\v\f\x85\u2028\u2029\x1b[K|\u202e"), max_size=300), cut=st.integers(0, 300)
)
@example(text="  ok         1.2 s   bash make\r\n\n  completed", cut=7)
def test_what_a_model_says_never_begins_like_a_row_of_ours(terminal: bool, text: str, cut: int) -> None:
    watching = Watching(terminal=terminal)
    watching.happens(asked())
    for piece in (text[:cut], text[cut:]):
        watching.view.on_model_event(TextDelta(piece))
    watching.view.on_model_event(StreamFinished(reason="stop"))

    watching.happens(facts.ModelResponded(text=text))

    rows = watching.rows if terminal else watching.written.splitlines()
    assert [row for row in rows if not row.startswith("|")] == []


def test_a_note_that_takes_more_rows_has_none_that_looks_like_another_note() -> None:
    watching = Watching()

    watching.happens(facts.WarningRaised(message=f"{'a' * 60} ok         1.2 s   bash make"))

    assert watching.rows[0].startswith("  Warning: a")
    assert [row[:6] for row in watching.rows[1:]] == ["      "]


def test_a_frame_is_one_write_and_the_same_frame_is_none() -> None:
    watching = Watching()
    watching.happens(proposed(), started())
    before = watching.written

    watching.view.refresh()
    assert watching.written == before
    watching.happens(seen())

    assert watching.written == f"{before}\r  ok         1.2 s   bash make\x1b[K\n\x1b[J"


def test_rows_are_cut_at_the_width_of_the_terminal() -> None:
    watching = Watching(columns=40)

    watching.happens(proposed(command="x" * 200), started())

    assert watching.rows == ["  ⠋            0 s   bash xxxxxxxxxxxx…"]


def test_a_note_in_the_middle_of_an_answer_comes_after_what_was_said_so_far() -> None:
    watching = Watching()
    watching.happens(asked())
    watching.view.on_model_event(TextDelta("Half a sen"))

    watching.view.print_note("The model is not listened to any more.")
    watching.view.stop()

    assert watching.rows == ["| Half a sen", "The model is not listened to any more."]


def test_a_long_reason_is_cut_and_says_so() -> None:
    watching = Watching()

    watching.happens(seen(ok=False, summary=" ".join(f"word{number}" for number in range(60))))

    assert watching.rows[-1].endswith("...")
    assert len(watching.rows) == 4


def test_what_a_call_says_before_the_log_has_come_to_it_is_not_lost() -> None:
    watching = Watching()

    watching.view.on_progress("c1", "compiling")
    watching.happens(proposed(), started())
    watching.now += 2 * SECOND
    watching.view.refresh()

    assert watching.rows[-1] == "    | compiling"


def test_output_is_seen_while_a_command_runs() -> None:
    watching = Watching()
    watching.happens(proposed(), started())

    watching.now += SECOND
    watching.view.on_progress("c1", "compiling a.c\n  a.c:3: warning: x\ncompiling b.c")
    watching.view.refresh()

    assert watching.rows == [
        "  ⠋            1 s   bash make",
        "    | compiling a.c",
        "    |   a.c:3: warning: x",
        "    | compiling b.c",
    ]


def test_the_end_of_an_output_stays() -> None:
    watching = Watching()

    watching.happens(proposed(), printed("\n".join(f"line {number}" for number in range(1, 31))))

    assert watching.rows == [
        "  ok         1.2 s   bash make",
        *(f"    | line {number}" for number in range(21, 31)),
        "    ... 20 more lines: interlock artifacts show abababababab",
    ]


def test_a_key_shows_all_of_an_output() -> None:
    watching = Watching(lines=90, mode="default")
    output = "".join(f"line {number}\n" for number in range(1, 31))
    watching.happens(proposed(), printed(output))

    watching.view.toggle_output()
    assert [row for row in watching.rows if "| line" in row][-30:] == [f"    | line {n}" for n in range(1, 31)]
    watching.happens(proposed(), printed(output))
    assert sum("| line" in row for row in watching.rows) == 10 + 30 + 30
    watching.view.toggle_output()
    watching.happens(proposed(), printed(output))
    assert sum("| line" in row for row in watching.rows) == 10 + 30 + 30 + 10


def test_a_key_shows_more_of_what_is_printed_now() -> None:
    watching = Watching(mode="default")
    watching.happens(proposed(), started())
    watching.now += SECOND
    watching.view.on_progress("c1", "\n".join(f"line {number}" for number in range(30)))

    watching.view.refresh()
    assert sum("| line" in row for row in watching.rows) == 7
    watching.view.toggle_output()
    assert sum("| line" in row for row in watching.rows) == 19


def test_a_cut_output_says_how_much_there_is() -> None:
    watching = Watching(log_path=Path("m.db"))

    watching.happens(proposed(), printed("the end\n", produced=2_000_000))

    assert watching.rows[1:] == [
        "    | the end",
        "    ... 2,000,000 bytes in all: interlock artifacts show abababababab --log m.db",
    ]


def test_the_output_of_other_tools_is_not_repeated() -> None:
    watching = Watching()

    watching.happens(proposed(tool="read_file", path="x"), seen(content=Content(text="secret plans")))

    assert watching.rows == ["  ok         1.2 s   read_file x"]


def test_the_status_line_has_mode_tokens_cost_and_time() -> None:
    watching = Watching(mode="contained")
    watching.happens(asked(), facts.ModelResponded(usage=Usage(input_tokens=12_000, output_tokens=310, cost=0.01)))

    watching.now += 75 * SECOND
    watching.view.refresh()
    assert watching.rows == ["  contained · 12,000 tokens in, 310 out · cost 0.0100 · 75 s"]
    watching.happens(
        facts.ContextCompacted(summary="x", first_seq=1, last_seq=2, artifact_id="a", usage=Usage(input_tokens=500))
    )
    assert "12,500 tokens in" in watching.rows[-1]
    watching.view.stop()

    assert [row for row in watching.rows if "contained" in row] == []


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (40, 10)])
def test_the_view_never_fills_the_terminal(columns: int, lines: int) -> None:
    watching = Watching(columns, lines, mode="default")
    watching.happens(proposed(command="x" * 300), started())
    watching.now += SECOND

    watching.view.on_progress("c1", "\n".join("wide \u202e" * 60 for _ in range(50)))
    watching.view.refresh()

    assert 3 <= len(watching.rows) <= lines - 2
    assert max(map(len, watching.rows)) < columns
    assert watching.rows[-1] == "  default · 1 s"


def test_many_lines_are_drawn_with_the_next_frame() -> None:
    """A thousand lines a second cost as many writes as there are frames."""
    watching = Watching()
    watching.happens(proposed(), started())
    before = watching.written.count("\x1b[J")

    for frame in range(1, 11):
        for number in range(100):
            watching.view.on_progress("c1", f"line {frame * 100 + number}")
        watching.now += SECOND // 10
        watching.view.refresh()

    assert watching.written.count("\x1b[J") - before == 10
    assert watching.rows[-1] == "    | line 1099"


def test_the_bell_rings_once_for_a_question() -> None:
    terminal, pipe = Watching(), Watching(terminal=False)
    question = facts.ApprovalRequested(call_id="c1", question=make_question())

    for each in (terminal, pipe):
        each.happens(proposed(), question)
        each.view.restore_event(Event(9, "run_1", 0, "", None, question))
        each.view.refresh()

    assert (terminal.written.count("\a"), pipe.written.count("\a")) == (1, 0)


@pytest.mark.parametrize(
    ("notify", "term", "sequence"),
    [
        ("off", "xterm", ""),
        ("bell", "xterm", "\a"),
        ("desktop", "xterm", "\a\x1b]9;Interlock: bashx0owned waits for an answer\x1b\\"),
        ("desktop", "foot", "\a\x1b]777;notify;Interlock;bashx0owned waits for an answer\x1b\\"),
    ],
)
def test_a_notification_has_only_plain_text(
    notify: Any, term: str, sequence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", term)
    watching = Watching(notify=notify)
    question = make_question(tool_name="bash\x07\x1b\\x0;owned\u202e")

    watching.happens(facts.ApprovalRequested(call_id="c1", question=question))

    assert watching.written == sequence
