"""write_file: makes files, overwrites only what the run knows all of, and leaves no half of anything."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from interlock.domain.errors import ArtifactError, PreconditionError
from interlock.domain.event import WarningRaised
from interlock.domain.outcome import NextTool, SideEffect
from interlock.sandbox.workspace.workspace import Workspace
from interlock.storage.memory_artifacts import MemoryArtifacts
from interlock.tools.files.baseline import load_baseline
from interlock.tools.files.file_change import MAX_NEW_FILE_DIFF_CHARS
from interlock.tools.files.write_file import write_file_tool
from tests.patience import HANG_SECONDS
from tests.support import facts
from tests.tools.file_runs import FileRun, context, names, run, text_of

__all__ = ["run"]


@pytest.mark.requirement("R229", "R241")
async def test_a_new_file_is_made_with_its_folders_and_shown_as_a_diff(run: FileRun) -> None:
    written = await run.do("write_file", path="a/b/c.txt", content="one\ntwo\n")

    assert (run.root / "a/b/c.txt").read_text() == "one\ntwo\n"
    assert written.content is not None
    assert (written.content.format, written.content.text) == (
        "diff",
        "--- /dev/null\n+++ b/a/b/c.txt\n@@ -0,0 +1,2 @@\n+one\n+two",
    )
    assert written.summary == "created a/b/c.txt (+2 -0 lines)"
    assert written.user_text == "Created a/b/c.txt (+2 -0)"
    assert written.side_effects == (SideEffect(kind="created", target="a/b/c.txt", detail="+2 -0 lines"),)
    assert names(run.root) == ["a", "a/b", "a/b/c.txt"]


async def test_a_new_file_has_the_usual_mode(run: FileRun) -> None:
    before = os.umask(0o027)
    try:
        await run.do("write_file", path="a.txt", content="one\n")
    finally:
        os.umask(before)

    assert (run.root / "a.txt").stat().st_mode & 0o777 == 0o640


@pytest.mark.requirement("R198", "R199", "R200", "R201", "R205", "R229")
async def test_a_file_that_was_not_read_is_not_overwritten(run: FileRun) -> None:
    (run.root / "a.txt").write_text("old\n")
    written = await run.do("write_file", path="a.txt", content="new\n")

    assert written.failure is not None
    assert (written.code, written.failure.phase, written.side_effects) == (
        *("runtime_precondition_failed", "validate", ()),
    )
    assert (run.root / "a.txt").read_text() == "old\n"


@pytest.mark.requirement("R229")
async def test_a_file_of_which_a_part_was_read_is_overwritten_once_all_of_it_was(run: FileRun) -> None:
    (run.root / "a.txt").write_text("1\n2\n3\n4\n")
    await run.read("a.txt", offset=2, limit=2)
    partly = await run.do("write_file", path="a.txt", content="new\n")
    await run.read("a.txt", limit=1)
    await run.read("a.txt", offset=4)
    wholly = await run.do("write_file", path="a.txt", content="new\n")

    assert partly.code == "runtime_precondition_failed"
    assert "not all of a.txt was read in this run: lines 2-3 of 4 were shown" in partly.summary
    assert wholly.summary == "modified a.txt (+1 -4 lines)"
    assert wholly.side_effects == (SideEffect(kind="modified", target="a.txt", detail="+1 -4 lines"),)
    assert (run.root / "a.txt").read_text() == "new\n"


async def test_a_file_with_a_line_that_was_cut_is_not_known_as_a_whole(run: FileRun) -> None:
    (run.root / "a.txt").write_text("x" * 3_000 + "\nend\n")
    await run.read("a.txt")
    written = await run.do("write_file", path="a.txt", content="new\n")

    assert written.code == "runtime_precondition_failed"
    assert "lines that are too long to be shown" in written.summary
    assert (await run.do("edit_file", path="a.txt", old_string="end", new_string="END")).ok


@pytest.mark.requirement("R204")
async def test_a_file_that_changed_since_is_not_overwritten(run: FileRun) -> None:
    file = run.root / "a.txt"
    file.write_text("old\n")
    await run.read("a.txt")
    status = file.stat()
    file.write_text("odd\n")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    written = await run.do("write_file", path="a.txt", content="new\n")

    assert (written.code, file.read_text()) == ("stale_file_baseline", "odd\n")


@pytest.mark.requirement("R272")
async def test_what_the_run_wrote_it_may_overwrite_and_before_and_after_are_kept(run: FileRun) -> None:
    await run.do("write_file", path="a.txt", content="one\n")
    again = await run.do("write_file", path="a.txt", content="two\n")

    assert again.ok
    assert (await run.artifact(again, "file_before"), await run.artifact(again, "file_after")) == ("one\n", "two\n")
    baseline = load_baseline(again.state, "a.txt")
    assert baseline is not None
    assert (baseline.whole, baseline.mtime_ns) == (True, (run.root / "a.txt").stat().st_mtime_ns)
    assert text_of(await run.read("a.txt")) == "1\ttwo"


async def test_the_same_content_again_writes_nothing(run: FileRun) -> None:
    await run.do("write_file", path="a.txt", content="one\n")
    inode = (run.root / "a.txt").stat().st_ino
    again = await run.do("write_file", path="a.txt", content="one\n")

    assert (again.ok, again.side_effects, again.facts["changed"]) == (True, (), False)
    assert (run.root / "a.txt").stat().st_ino == inode


@pytest.mark.requirement("R222")
async def test_writes_of_one_file_in_one_batch_come_one_after_the_other(run: FileRun) -> None:
    calls = [("write_file", {"path": path, "content": f"{path}\n"}) for path in ("a.txt", "./a.txt", "x/../b.txt")]
    (run.root / "x").mkdir()
    first, second, other = await run.batch(*calls)

    assert (first.ok, second.ok, other.ok) == (True, True, True)
    assert (run.root / "a.txt").read_text() == "./a.txt\n"


async def test_mode_attributes_line_endings_and_encoding_of_the_old_file_are_kept(run: FileRun) -> None:
    file = run.root / "a.sh"
    file.write_bytes(b"\xff\xfe" + "one\r\ntwo\r\n".encode("utf-16-le"))
    file.chmod(0o750)
    await run.read("a.sh")
    written = await run.do("write_file", path="a.sh", content="1\n2\n")

    assert file.read_bytes() == b"\xff\xfe" + "1\r\n2\r\n".encode("utf-16-le")
    assert file.stat().st_mode & 0o777 == 0o750
    assert written.summary.endswith("; line endings (CRLF) kept; encoding (utf-16-le) kept")
    assert await run.artifact(written, "file_before") == "one\r\ntwo\r\n"


async def test_a_file_in_an_unknown_encoding_is_not_overwritten(run: FileRun) -> None:
    """Who read it was shown escapes for such bytes, and would write these back."""
    (run.root / "a.txt").write_bytes("café\n".encode("latin-1"))
    await run.read("a.txt")
    written = await run.do("write_file", path="a.txt", content="caf\\xe9\n")

    assert (run.root / "a.txt").read_bytes() == "café\n".encode("latin-1")
    assert "a.txt has bytes that are no UTF-8, and they would be lost. Change it with edit_file" in written.summary


@pytest.mark.parametrize("before", [None, "", "\ufeffone\n"])
async def test_a_byte_order_mark_in_the_content_is_there_once(run: FileRun, before: str | None) -> None:
    if before is not None:
        (run.root / "a.txt").write_bytes(before.encode())
        await run.read("a.txt")
    written = await run.do("write_file", path="a.txt", content="\ufefftwo\n")

    assert (run.root / "a.txt").read_bytes() == "\ufefftwo\n".encode()
    assert written.facts["encoding"] == "utf-8-bom"


@pytest.mark.requirement("R229")
async def test_binary_files_and_content_that_is_no_text_are_refused(run: FileRun) -> None:
    (run.root / "a.bin").write_bytes(b"\0\1")
    await run.read("a.bin")

    assert "binary" in (await run.do("write_file", path="a.bin", content="text")).summary
    assert "NUL" in (await run.do("write_file", path="new", content="a\0b")).summary
    assert names(run.root) == ["a.bin"]


@pytest.mark.requirement("R229")
@pytest.mark.parametrize(
    "path", ["../out.txt", "/tmp/out.txt", "link/out.txt", ".git/hooks/pre-commit", ".ENV", ".ssh/x", "a\0b", ""]
)
async def test_what_is_not_to_be_written_is_refused_at_the_gate(run: FileRun, path: str) -> None:
    (run.root / "link").symlink_to(run.root.parent)
    written = await run.do("write_file", path=path, content="x")

    assert (written.code, written.side_effects) == ("policy_denied", ())
    assert names(run.root.parent) == ["ws", "ws/link"]


@pytest.mark.requirement("R229")
@pytest.mark.parametrize("path", ["folder", "pipe", "alias", "file/x", "folder/"])
async def test_what_is_no_plain_file_is_not_written(run: FileRun, path: str) -> None:
    (run.root / "folder").mkdir()
    (run.root / "file").write_text("one\n")
    (run.root / "alias").symlink_to("file")
    os.mkfifo(run.root / "pipe")
    await run.read("file")
    written = await run.do("write_file", path=path, content="x")

    assert (written.code, written.side_effects) == ("runtime_precondition_failed", ())
    assert names(run.root) == ["alias", "file", "folder", "pipe"]


async def test_a_long_diff_is_cut_and_all_of_it_is_kept(run: FileRun) -> None:
    content = "".join(f"line é {number}\n" for number in range(1_000))
    written = await run.do("write_file", path="a.txt", content=content)
    kept = next(artifact for artifact in written.artifacts if artifact.kind == "diff")

    assert written.size is not None
    assert len(text_of(written)) < MAX_NEW_FILE_DIFF_CHARS + 100
    assert written.size.produced == written.size.kept == kept.size_bytes == written.size.shown + written.size.omitted
    assert text_of(written).endswith(f"[... {written.size.omitted:,} bytes of the diff omitted ...]")
    assert written.next_tool == NextTool(tool="read_artifact", input_hint={"artifact_id": kept.id})


async def test_a_mark_for_a_secret_does_not_replace_the_secret(run: FileRun) -> None:
    secret = "sk-" + "ant-" + "api03-" + "Qz7Wx3Lk9" * 5
    (run.root / "a.py").write_text(f'KEY = "{secret}"\nx = 1\n')
    await run.read("a.py")
    marked = 'KEY = "[redacted:anthropic_key]"\n'
    written = await run.do("write_file", path="a.py", content=marked)
    edited = await run.do("edit_file", path="a.py", old_string="x = 1\n", new_string=marked)
    beside = await run.do("edit_file", path="a.py", old_string="x = 1", new_string="x = 2")

    assert (written.code, edited.code, beside.ok) == (*["runtime_precondition_failed"] * 2, True)
    assert "stands for a secret" in written.summary
    assert (run.root / "a.py").read_text() == f'KEY = "{secret}"\nx = 2\n'
    assert secret not in await run.artifact(beside, "file_after")
    assert (await run.do("write_file", path="test_marks.py", content=marked)).ok


def while_it_is_written(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something after the new content was written aside, and before it takes the name."""
    flush = os.fsync

    def fsync(file: int) -> None:
        act()
        flush(file)

    monkeypatch.setattr(os, "fsync", fsync)


@pytest.mark.requirement("R204", "R201")
async def test_a_file_that_somebody_else_makes_meanwhile_is_kept(run: FileRun, monkeypatch: pytest.MonkeyPatch) -> None:
    while_it_is_written(monkeypatch, lambda: (run.root / "a.txt").write_text("theirs"))
    written = await run.do("write_file", path="a.txt", content="ours")

    assert (written.code, written.side_effects) == ("stale_file_baseline", ())
    assert written.summary.endswith("Nothing was changed.")
    assert (names(run.root), (run.root / "a.txt").read_text()) == (["a.txt"], "theirs")


@pytest.mark.requirement("R204", "R201")
async def test_a_file_that_somebody_else_changes_meanwhile_is_kept(
    run: FileRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run.root / "a.txt").write_text("before")
    await run.read("a.txt")
    while_it_is_written(monkeypatch, lambda: (run.root / "a.txt").write_text("theirs"))
    written = await run.do("write_file", path="a.txt", content="ours")

    assert (written.code, written.side_effects) == ("stale_file_baseline", ())
    assert (names(run.root), (run.root / "a.txt").read_text()) == (["a.txt"], "theirs")


def test_a_call_that_was_stopped_does_not_write_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = context("write_file")
    while_it_is_written(monkeypatch, lambda: setattr(stopped, "cancelled", True))
    with Workspace(tmp_path) as workspace, pytest.raises(PreconditionError, match=r"stopped before a\.txt was written"):
        write_file_tool(workspace).handler(context=stopped, path="a.txt", content="late")

    assert names(tmp_path) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EACCES, errno.EIO])
async def test_a_write_that_the_system_refuses_changes_nothing_and_says_so(
    run: FileRun, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    (run.root / "a.txt").write_text("old")
    await run.read("a.txt")

    def refuse(*_names: object, **_folders: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "replace", refuse)
    written = await run.do("write_file", path="a.txt", content="new")

    assert (written.code, written.side_effects) == ("write_failed", ())
    assert written.summary == f"a.txt could not be written: {os.strerror(number)}. The file is as it was."
    assert (names(run.root), (run.root / "a.txt").read_text()) == (["a.txt"], "old")


class Store(MemoryArtifacts):
    full = False

    def keep(self, content: bytes) -> str:
        if self.full:
            raise ArtifactError("the store is full")
        return super().keep(content)


async def test_without_room_for_evidence_nothing_is_overwritten_and_a_new_file_is_warned_about(tmp_path: Path) -> None:
    store = Store()
    run = FileRun(tmp_path, artifacts=store)
    (tmp_path / "old.txt").write_text("old")
    await run.read("old.txt")
    store.full = True
    overwritten = await run.do("write_file", path="old.txt", content="new")
    made = await run.do("write_file", path="new.txt", content="new")
    run.workspace.close()

    assert overwritten.code == "runtime_precondition_failed"
    assert (made.ok, (tmp_path / "old.txt").read_text(), (tmp_path / "new.txt").read_text()) == (True, "old", "new")
    warned = [fact.message for fact in await facts(run.runtime) if isinstance(fact, WarningRaised)]
    assert len(warned) == 1
    assert "the evidence of it could not be kept" in warned[0]


PROGRAM = """
import os, resource, signal, sys
from interlock.domain.tool import CallContext, ToolContext
from interlock.sandbox.workspace.workspace import Workspace
from interlock.tools.files.write_file import write_file_tool

def die(*_names, **_folders):
    os.kill(os.getpid(), signal.SIGKILL)

def die_after(*names, replace=os.replace, **folders):
    replace(*names, **folders)
    die()

match sys.argv[2]:
    case "before":
        os.replace = die
    case "after":
        os.replace = die_after
    case "limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, 1_000))
with Workspace(sys.argv[1]) as workspace:
    context = ToolContext(CallContext(run_id="r"), "c1", "write_file", lambda call_id, message: None)
    print(write_file_tool(workspace).handler(context=context, path="new.txt", content="x" * 5_000))
"""


def written_by_another_process(root: Path, way: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(root), way],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_SECONDS,
    )


@pytest.mark.parametrize(("way", "expected"), [("before", 0), ("after", 5_000)])
def test_a_process_that_is_killed_leaves_all_of_the_file_or_nothing(tmp_path: Path, way: str, expected: int) -> None:
    assert written_by_another_process(tmp_path, way).returncode == -9

    file = tmp_path / "new.txt"
    assert (file.stat().st_size if file.exists() else 0) == expected


def test_a_limit_on_the_size_of_files_leaves_nothing_behind(tmp_path: Path) -> None:
    ended = written_by_another_process(tmp_path, "limit")

    assert ended.stdout.startswith("WriteFailure(path='new.txt', reason='File too large')"), ended.stderr
    assert names(tmp_path) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything; test_read_file.py runs this as somebody else")
async def test_a_file_that_may_not_be_written_is_said_to_be_so(run: FileRun) -> None:
    (run.root / "a.txt").write_text("old\n")
    (run.root / "a.txt").chmod(0o444)
    await run.read("a.txt")
    written = await run.do("write_file", path="a.txt", content="new\n")

    assert (written.code, written.side_effects) == ("write_failed", ())
    assert (run.root / "a.txt").read_text() == "old\n"


@pytest.mark.requirement("R219")
def test_writing_is_declared_as_writing_one_file(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "alias").symlink_to("x")
    with Workspace(tmp_path) as workspace:
        tool = write_file_tool(workspace)
        assert tool.write_keys is not None
        keys = {path: tool.write_keys({"path": path}) for path in ("x/a", "alias/a", "x/../x/a", "/etc/x", "\0")}

    assert (tool.concurrency, tool.risk, tool.read_only) == ("keyed", {"write"}, False)
    assert keys["x/a"] == keys["alias/a"] == keys["x/../x/a"] == {"file:x/a"}
    assert keys["/etc/x"] == {"file:/etc/x"}
