"""The files that a call names are looked at without an act on anything but plain files."""

import os
from hashlib import sha256
from pathlib import Path

import pytest

from interlock.sandbox.workspace import file_operands
from interlock.sandbox.workspace.file_operands import bind_files


def whys(names: list[str], folder: Path) -> list[str]:
    return [operand.unbound for operand in bind_files(names, str(folder))]


@pytest.fixture(params=[True, False], ids=["with links to open files", "without"])
def has_fd_links(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.param:
        monkeypatch.setattr(file_operands, "has_fd_links", lambda: False)


@pytest.mark.usefixtures("has_fd_links")
def test_a_plain_file_is_read_also_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("plain")
    (tmp_path / "link").symlink_to("file")

    bound = bind_files(["file", "link"], str(tmp_path))

    assert [operand.sha256 for operand in bound] == [sha256(b"plain").hexdigest()] * 2


@pytest.mark.usefixtures("has_fd_links")
def test_what_is_no_plain_file_is_named_as_such(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    (tmp_path / "away").symlink_to("nowhere")

    assert whys(["/dev/zero", ".", "away", "link", "pipe"], tmp_path) == [
        "a folder",
        "not a plain file",
        "",
        "not a plain file",
        "not a plain file",
    ]


def test_a_writer_that_waits_at_a_pipe_is_not_woken(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    bind_files(["pipe"], str(tmp_path))

    # There is still nobody who reads.
    with pytest.raises(OSError, match="No such device or address"):
        os.open(tmp_path / "pipe", os.O_WRONLY | os.O_NONBLOCK)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("plain")
    (tmp_path / "file").chmod(0)

    assert whys(["file"], tmp_path) == ["it cannot be read (PermissionError)"]
