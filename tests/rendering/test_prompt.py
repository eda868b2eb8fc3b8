"""The short form of a question on a real terminal: it fits the window, ends with the choices, and cannot deceive."""

from hashlib import sha256
from pathlib import Path
from typing import Any
from unicodedata import category, normalize

import pytest

from interlock.domain.payload import ApprovalBinding, ExecutionEnvironment, FileOperand
from interlock.interaction.terminal_dialog import read_old_content
from interlock.rendering.argument_outline import MAX_TEXT_INDENT
from interlock.rendering.escaping import visible_pieces
from interlock.rendering.prompt import render_prompt
from tests.each import each
from tests.pipeline.approval.person import PROMPT, at_terminal, make_question
from tests.pipeline.approval.test_display_attacks import ATTACKS, Attack
from tests.pipeline.approval.test_terminal import CUT, ENDED, YES

SIZES = ((80, 24), (40, 10))


def lines(question: Any, width: int = 80, height: int = 24, **options: Any) -> list[str]:
    return [line.text for line in render_prompt(question, width, height, **options).lines]


def test_a_command_takes_four_lines() -> None:
    question = make_question({"command": "pytest -q", "description": "", "timeout_seconds": None}, agent="coder")

    assert lines(question) == [
        "bash in /work, sandbox: bwrap, agent coder, for ada",
        "asked: Commands are asked about.",
        "  $ pytest -q",
        "risk: may write to the workspace",
    ]


def test_arguments_beside_the_command_are_shown() -> None:
    shown = lines(make_question({"command": "ls\nid", "cwd": "src", "background": True}))

    assert shown[2:6] == ["  $ ls", "  | id", "  cwd | src", "  background = true"]


@pytest.mark.parametrize(
    ("arguments", "body"),
    [
        (
            {"path": "a.py", "old_string": "x = 1\ny", "new_string": "x = 2\ny", "replace_all": False, "edits": []},
            ["  a.py (+1 -1)", "  - x = 1", "  + x = 2", "    y"],
        ),
        (
            {
                "path": "a.py",
                "edits": [{"old_string": "a", "new_string": ""}, {"old_string": "b", "new_string": "c\n"}],
            },
            [
                *("  a.py (+1 -2)", "  @ edit 1 of 2", "  - a", "  @ edit 2 of 2", "  - b", "  + c"),
                "  @ the line break at the end is added",
            ],
        ),
        (
            {"path": "a.py", "old_string": "a", "new_string": "b", "replace_all": True},
            ["  path | a.py", "  old_string | a", "  new_string | b", "  replace_all = true"],
        ),
        (
            {"path": "a.py", "old_string": "a", "new_string": "b", "edits": [{"old_string": "c", "new_string": "d"}]},
            ["  path | a.py", "  old_string | a", "  new_string | b", "  edits: list of 1"],
        ),
    ],
)
def test_an_edit_is_a_diff_that_hides_nothing(arguments: dict[str, Any], body: list[str]) -> None:
    assert lines(make_question(arguments, tool_name="edit_file"))[2 : 2 + len(body)] == body


def test_a_foreign_tool_is_shown_by_its_arguments() -> None:
    bound = ApprovalBinding(tool_origin="mcp", tool_source="evil")

    assert lines(make_question({"command": "ls", "x": None}, bound=bound))[:4] == [
        "bash from mcp evil, no sandbox",
        "asked: Commands are asked about.",
        "  command | ls",
        "  x = null",
    ]


def test_a_replaced_file_is_compared_only_with_what_is_bound(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    files = (FileOperand("a.txt", sha256(b"one\ntwo\n").hexdigest()),)
    bound = ApprovalBinding(surroundings=ExecutionEnvironment(cwd=str(tmp_path), files=files))
    question = make_question({"path": "a.txt", "content": "one\n2\n"}, tool_name="write_file", bound=bound)

    shown = lines(question, old_content=read_old_content(question))
    (tmp_path / "a.txt").write_text("one\n2\n")

    assert shown[2:7] == ["  a.txt (+1 -1)", "  @ @@ -1,2 +1,2 @@", "    one", "  - two", "  + 2"]
    assert read_old_content(question) is None
    assert lines(question)[2] == "  a.txt (+3 -0) It replaces all of the file that is there."


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_a_prompt_fits_its_window(width: int, height: int) -> None:
    long = "/very/long" * 50
    question = make_question(
        {"command": "x\n" * 90},
        tool_name="bash",
        agent="a" * 90,
        reason="because " * 90,
        risk=("deletes " * 90,),
        bound=ApprovalBinding(requester="r" * 90, surroundings=ExecutionEnvironment(cwd=long, sandbox="bwrap/x")),
    )

    shown = lines(question, width, height)

    assert len(shown) <= height - 3
    assert max(map(len, shown)) < width
    assert [line.endswith("…") for line in (*shown[:2], shown[-1])] == [True] * 3
    assert any(line.endswith("more lines, press d") for line in shown)


@each(("width", "height"), SIZES)
@each("attack", ATTACKS)
async def test_nothing_that_deceives_reaches_the_window(attack: Attack, width: int, height: int) -> None:
    """The window shows the question up to its choices, and all of the payload before it can be approved."""
    with at_terminal(width, height) as person:
        question = make_question({"command": attack.payload}, reason=attack.payload, agent=attack.payload)
        cut = render_prompt(question, width, height).hidden_lines > 0
        answer = await person.answers(question, f"{CUT if cut else f'{PROMPT}<'}\x04")
        rows = [row.rstrip() for row in person.screen.display]

    assert answer == ENDED
    assert sum(row.startswith("bash in /work, sandbox: bwrap") for row in rows) == 1
    assert rows[rows.index("(that was all)") - 1].endswith((PROMPT.strip(), CUT.strip("< ")))
    assert not [c for row in rows for c in row if category(c) in {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}]
    if not cut:
        shown = "".join(row[4:] for row in rows if row.startswith("  "))
        escaped = "".join("".join(visible_pieces(line, MAX_TEXT_INDENT)) for line in attack.payload.split("\n"))
        assert normalize("NFC", shown.replace(" ", "")) == normalize("NFC", escaped.replace(" ", ""))


@each("attack", ATTACKS)
def test_no_line_of_ours_can_be_written_by_others(attack: Attack) -> None:
    text = attack.payload
    bound = ApprovalBinding(tool_source=text, requester=text, surroundings=ExecutionEnvironment(cwd=text, sandbox=text))
    question = make_question({text: [text]}, tool_name=text, agent=text, reason=text, risk=(text,), bound=bound)

    for width, height in SIZES:
        shown = lines(question, width, height)
        assert len(shown) <= height - 3
        ours = [line for line in shown if not line.startswith("  ")]
        assert [line.split(":")[0] for line in ours[1:] if not line.startswith(("...", "warning"))] == ["asked", "risk"]


async def test_the_window_may_change_its_size() -> None:
    with at_terminal(40, 10) as person:
        question = make_question({"command": "x\n" * 12 + "end"})
        await person.answers(question, f"{CUT}?", f"{CUT}\x04")
        person.resizes(80, 24)
        assert await person.answers(question, "y") == YES
