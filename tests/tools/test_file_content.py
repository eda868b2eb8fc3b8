"""All of a file, read once and bounded; and what can be written at all."""

from pathlib import Path

import pytest

from interlock.domain.errors import PreconditionError
from interlock.domain.tool import CallContext, ToolContext
from interlock.sandbox.workspace.workspace import Workspace
from interlock.tools.files import file_change, file_content
from interlock.tools.files.file_change import check_redaction_marks, encode_content
from interlock.tools.files.file_content import has_same_content, load_file, read_content
from interlock.tools.files.text_file import TextFile

pytestmark = pytest.mark.requirement("R229")


def test_a_file_that_grows_while_it_is_read_is_read_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one")
    with Workspace(tmp_path) as workspace, workspace.open_file("a", None) as opened:
        (tmp_path / "a").write_bytes(b"one and two")
        assert read_content(opened).content == b"one and two"


def test_a_file_that_grows_beyond_the_limit_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_content, "MAX_FILE_BYTES", 10)
    (tmp_path / "a").write_bytes(b"one")
    with Workspace(tmp_path) as workspace, workspace.open_file("a", None) as opened:
        (tmp_path / "a").write_bytes(b"x" * 11)
        with pytest.raises(PreconditionError, match="has 11 bytes"):
            read_content(opened)


def test_a_file_is_compared_by_size_and_by_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one")
    with Workspace(tmp_path) as workspace:
        before = load_file(workspace, "a", None)
        for content, same in ((b"one", True), (b"two", False), (b"longer", False)):
            (tmp_path / "a").write_bytes(content)
            with workspace.open_file("a", None) as opened:
                assert has_same_content(opened.fd, before) is same


def test_text_that_no_file_can_hold_is_not_written() -> None:
    with pytest.raises(PreconditionError, match="characters that a cannot hold in utf-8"):
        encode_content("a", TextFile("\ud800", "utf-8"))


def test_more_than_the_limit_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_change, "MAX_FILE_BYTES", 10)

    assert encode_content("a", TextFile("x" * 10, "utf-8")) == b"x" * 10
    with pytest.raises(PreconditionError, match="a has 22 bytes"):
        encode_content("a", TextFile("x" * 10, "utf-16-le"))


def test_where_nothing_is_redacted_a_mark_is_only_text(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    bare = ToolContext(CallContext(run_id="r"), "c1", "edit_file", lambda _call_id, _message: None)
    with Workspace(tmp_path) as workspace:
        check_redaction_marks(load_file(workspace, "a", None), "old", "[redacted:name]", bare)
