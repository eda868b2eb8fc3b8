"""The generated docs say what the code says, and a stale one is noticed."""

from pathlib import Path

import pytest

from interlock.domain.event import InvocationStarted, RunStarted
from interlock.domain.outcome import ERROR_CODES
from interlock.domain.state.lifecycle import RUN_TRANSITIONS
from scripts.docs import UnknownBlockError, event_table, fields, fill_blocks, main, state_table


def test_docs_are_written_once_and_then_fresh(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"], tmp_path) == 1
    assert "error: docs/events.md is stale; run 'make docs'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []

    assert main([], tmp_path) == 0
    assert main(["--check"], tmp_path) == 0
    assert sorted(path.name for path in (tmp_path / "docs").iterdir()) == [
        "error-codes.md",
        "events.md",
        "images",
        "openapi.json",
        "policy.schema.json",
        "states.md",
    ]


def test_an_edited_file_is_named_and_written_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([], tmp_path)
    edited = tmp_path / "docs" / "error-codes.md"
    edited.write_text(edited.read_text().replace("policy_denied", "policy_allowed"))
    capsys.readouterr()

    assert main(["--check"], tmp_path) == 1
    assert capsys.readouterr().err == "error: docs/error-codes.md is stale; run 'make docs'\n"
    assert main([], tmp_path) == 0
    assert capsys.readouterr().out == "wrote docs/error-codes.md\n"
    assert main(["--check"], tmp_path) == 0


def test_every_transition_has_a_row() -> None:
    begin, _, *rows = state_table(RUN_TRANSITIONS).splitlines()

    assert begin == "It begins as `running`. It ends as `completed`, `degraded`, `failed`, `cancelled`."
    assert "| `paused_approval` | run.resumed | `running` |" in rows
    assert len(rows) - 2 == sum(len(row) for row in RUN_TRANSITIONS.values())


def test_every_code_has_a_row(tmp_path: Path) -> None:
    main([], tmp_path)
    page = (tmp_path / "docs" / "error-codes.md").read_text()

    assert all(f"| `{code}` |" in page for code in ERROR_CODES)


def test_fields_are_read_with_their_types_and_comments() -> None:
    assert [tuple(field) for field in fields(RunStarted)][:4] == [
        (
            "schema",
            "int",
            True,
            "The version of this vocabulary. A reader that does not know it refuses the run with a message.",
        ),
        ("agent", "str", False, ""),
        ("workspace", "str", False, "The workspace, and the user that the run acts for."),
        ("requester", "str", False, ""),
    ]
    assert [field.name for field in fields(InvocationStarted)] == list(InvocationStarted.__struct_fields__)


def test_every_event_has_a_row_with_its_fields() -> None:
    fields = "`call_count: int`, `menu_digest?: str`, `mode?: PermissionMode`, `interactive?: bool`"
    assert f"| `tool.batch.started` | {fields} |" in event_table()


def test_a_block_is_filled_and_the_text_around_it_stays() -> None:
    text = "# Mine\n\n<!-- generated: error-codes -->\nold\n<!-- end -->\n\nAlso mine.\n"
    filled = fill_blocks(text, "README.md")

    assert filled.startswith("# Mine\n\n<!-- generated: error-codes -->\n| code |")
    assert filled.endswith("|\n<!-- end -->\n\nAlso mine.\n")
    assert "\nold\n" not in filled
    assert fill_blocks(filled, "README.md") == filled


def test_two_blocks_in_one_file_are_both_filled() -> None:
    block = "<!-- generated: {} -->\n<!-- end -->\n"
    filled = fill_blocks(block.format("cli-exit-codes") + block.format("error-codes"), "README.md")

    assert "| `130` | interrupted |" in filled
    assert "`policy_denied`" in filled


def test_a_marker_inside_a_line_is_text() -> None:
    text = "Write `<!-- generated: anything -->` above it.\n"

    assert fill_blocks(text, "README.md") == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<!-- generated: nonsense -->\n<!-- end -->\n", "README.md asks for 'nonsense'; there are api-reference"),
        ("<!-- generated: run-states -->\n", "README.md has a generated block without '<!-- end -->'"),
        (
            "<!-- generated: run-states -->\n<!-- generated: events -->\n<!-- end -->\n",
            "README.md has a generated block without '<!-- end -->'",
        ),
    ],
)
def test_a_wrong_marker_is_refused(text: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UnknownBlockError, match=why):
        fill_blocks(text, "README.md")

    (tmp_path / "README.md").write_text(text)
    assert main([], tmp_path) == 1
    assert why in capsys.readouterr().err
