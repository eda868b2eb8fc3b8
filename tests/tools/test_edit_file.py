"""edit_file: only files that were read and are what was read, exact texts, all or nothing, and a diff of it."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from interlock import CallbackInteractionProvider, Question
from interlock.domain.event import InvocationStarted
from interlock.domain.outcome import SideEffect
from interlock.sandbox.workspace.workspace import Workspace
from interlock.tools.files.baseline import FileBaseline, load_baseline
from interlock.tools.files.edit_file import EditFile, edit_file_tool
from interlock.tools.files.file_change import WrittenFile
from interlock.tools.files.read_file import normalize_read, read_file_tool
from tests.support import facts
from tests.tools.file_runs import FileRun, context, run, text_of

__all__ = ["run"]

CODE = "def f():\n    return 1\n\ndef g():\n    return 1\n"


async def edit(run: FileRun, path: str, old: str, new: str, **more: object) -> tuple[str, str]:
    """The code and the words of the outcome."""
    edited = await run.do("edit_file", path=path, old_string=old, new_string=new, **more)
    return edited.code, edited.summary


@pytest.mark.requirement("R229", "R241", "R272")
async def test_an_edit_is_shown_as_a_diff_and_renews_what_the_run_knows(run: FileRun) -> None:
    (run.root / "a.py").write_text(CODE)
    await run.read("a.py")
    edited = await run.do("edit_file", path="a.py", old_string="def g", new_string="def h")
    status = (run.root / "a.py").stat()

    assert (run.root / "a.py").read_text() == CODE.replace("def g", "def h")
    assert edited.content is not None
    assert (edited.content.format, edited.content.text) == (
        "diff",
        "--- a/a.py\n+++ b/a.py\n@@ -1,5 +1,5 @@\n def f():\n     return 1\n \n-def g():\n+def h():\n     return 1",
    )
    assert (edited.summary, edited.user_text) == ("modified a.py (+1 -1 lines)", "Modified a.py (+1 -1)")
    assert edited.side_effects == (SideEffect(kind="modified", target="a.py", detail="+1 -1 lines"),)
    assert load_baseline(edited.state, "a.py") == FileBaseline(
        sha256=edited.facts["sha256"],
        size_bytes=status.st_size,
        mtime_ns=status.st_mtime_ns,
        encoding="utf-8",
        lines=5,
        whole=True,
    )
    assert await run.artifact(edited, "file_before") == CODE
    assert await run.artifact(edited, "file_after") == CODE.replace("def g", "def h")


@pytest.mark.requirement("R236")
def test_the_raw_result_has_both_contents_the_patch_path_time_and_that_diagnostics_did_not_run(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(CODE)
    with Workspace(tmp_path) as workspace:
        read = read_file_tool(workspace).handler(context=context("read_file"), path="a.py")
        knowing = context("edit_file", normalize_read(read).state)
        changed = edit_file_tool(workspace).handler(
            context=knowing, call=EditFile(path="a.py", old_string="def g", new_string="def h")
        )

    assert isinstance(changed, WrittenFile)
    assert (changed.old_content, changed.new_content) == (CODE.encode(), CODE.replace("def g", "def h").encode())
    assert [hunk[:4] for hunk in changed.diff.hunks] == [(1, 5, 1, 5)]
    assert (changed.path, changed.diagnostics) == ("a.py", "not run")
    assert changed.mtime_ns == (tmp_path / "a.py").stat().st_mtime_ns


@pytest.mark.requirement("R198", "R199", "R200", "R201", "R202", "R205")
async def test_a_file_that_was_not_read_is_not_edited(run: FileRun) -> None:
    (run.root / "a.py").write_text(CODE)
    edited = await run.do("edit_file", path="a.py", old_string="def g", new_string="def h")

    assert edited.failure is not None
    assert (edited.code, edited.failure.phase) == ("runtime_precondition_failed", "validate")
    assert (edited.side_effects, edited.content) == ((), None)
    assert edited.summary == "a.py was not read in this run. Read it with read_file first. Nothing was executed."
    assert not any(isinstance(fact, InvocationStarted) for fact in await facts(run.runtime))
    assert (run.root / "a.py").read_text() == CODE


@pytest.mark.requirement("R198", "R200", "R201", "R203", "R205")
async def test_a_text_that_is_there_twice_is_ambiguous_and_its_lines_are_named(run: FileRun) -> None:
    (run.root / "a.py").write_text(CODE)
    await run.read("a.py")
    edited = await run.do("edit_file", path="a.py", old_string="return 1", new_string="return 2")

    assert edited.failure is not None
    assert (edited.code, edited.failure.phase, edited.side_effects) == ("ambiguous_target", "validate", ())
    assert "found 2 times, beginning in lines 2, 5" in edited.summary
    assert (run.root / "a.py").read_text() == CODE
    assert (await edit(run, "a.py", "return 1", "return 2", replace_all=True))[1] == (
        "modified a.py (2 replacements, +2 -2 lines)"
    )


@pytest.mark.requirement("R198", "R200", "R201", "R204", "R205")
@pytest.mark.parametrize("changed", [CODE + "# more\n", CODE.replace("1", "2")], ids=["longer", "as-long"])
async def test_a_file_that_changed_since_it_was_read_is_not_edited(run: FileRun, changed: str) -> None:
    file = run.root / "a.py"
    file.write_text(CODE)
    await run.read("a.py")
    status = file.stat()
    file.write_text(changed)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    edited = await run.do("edit_file", path="a.py", old_string="def g", new_string="def h")

    assert edited.failure is not None
    assert (edited.code, edited.failure.phase, edited.side_effects) == ("stale_file_baseline", "validate", ())
    assert file.read_text() == changed
    await run.read("a.py")
    assert (await edit(run, "a.py", "def g", "def h"))[0] == "ok"


async def test_a_file_that_was_written_anew_with_the_same_content_is_not_stale(run: FileRun) -> None:
    (run.root / "a.py").write_text(CODE)
    await run.read("a.py")
    (run.root / "a.py").unlink()
    (run.root / "a.py").write_text(CODE)

    assert (await edit(run, "a.py", "def g", "def h"))[0] == "ok"


async def test_to_have_read_a_part_is_enough(run: FileRun) -> None:
    (run.root / "a.py").write_text(CODE)
    await run.read("a.py", offset=4, limit=1)

    assert (await edit(run, "a.py", "def g", "def h"))[0] == "ok"
    assert (await run.do("write_file", path="a.py", content="new")).code == "runtime_precondition_failed"


async def test_a_text_that_is_not_there_changes_nothing_and_a_near_miss_is_told(run: FileRun) -> None:
    (run.root / "a.py").write_text(CODE)
    await run.read("a.py", limit=1)

    assert await edit(run, "a.py", "def g():\n\treturn 1", "x") == (
        "runtime_precondition_failed",
        "a.py: old_string was not found: at line 4 there is the same text with other whitespace. Nothing was executed.",
    )
    assert (run.root / "a.py").read_text() == CODE


@pytest.mark.requirement("R222", "R272")
async def test_edits_of_one_file_in_one_batch_all_apply_one_after_the_other(run: FileRun) -> None:
    (run.root / "a.txt").write_text("one two three\n")
    await run.read("a.txt")
    calls = [
        ("edit_file", {"path": path, "old_string": old, "new_string": old.upper()})
        for path, old in (("a.txt", "one"), ("./a.txt", "two"), ("a.txt", "three"))
    ]
    edited = await run.batch(*calls)

    assert [observation.code for observation in edited] == ["ok", "ok", "ok"]
    assert (run.root / "a.txt").read_text() == "ONE TWO THREE\n"
    started = [fact for fact in await facts(run.runtime) if isinstance(fact, InvocationStarted)]
    assert [fact.waited_for for fact in started[1:]] == [(), ("c2",), ("c2", "c3")]


@pytest.mark.requirement("R222")
async def test_an_edit_whose_text_an_earlier_one_took_away_changes_nothing(run: FileRun) -> None:
    (run.root / "a.txt").write_text("one\n")
    await run.read("a.txt")
    calls = [("edit_file", {"path": "a.txt", "old_string": "one", "new_string": new}) for new in ("1", "2")]
    first, second = await run.batch(*calls)

    assert (first.code, second.code) == ("ok", "runtime_precondition_failed")
    assert second.side_effects == ()
    assert (run.root / "a.txt").read_text() == "1\n"


async def test_several_edits_are_made_at_once_or_not_at_all(run: FileRun) -> None:
    (run.root / "a.py").write_text(CODE)
    await run.read("a.py")
    good = {"old_string": "def f", "new_string": "def e"}
    everywhere = {"old_string": "return 1", "new_string": "return 2", "replace_all": True}
    failed = await run.do("edit_file", path="a.py", edits=[good, {"old_string": "nowhere", "new_string": ""}])
    made = await run.do("edit_file", path="a.py", edits=[good, everywhere])

    assert (failed.code, failed.summary) == (
        "runtime_precondition_failed",
        "a.py: edit 2 of 2: old_string was not found. Nothing was executed.",
    )
    assert made.facts["replacements"] == 3
    assert (run.root / "a.py").read_text() == CODE.replace("def f", "def e").replace("return 1", "return 2")


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"new_string": "x"},
        {"old_string": "", "new_string": "x"},
        {"edits": []},
        {"old_string": "a", "new_string": "b", "edits": [{"old_string": "a", "new_string": "b"}]},
        {"replace_all": True, "edits": [{"old_string": "a", "new_string": "b"}]},
        {"edits": [{"old_string": "", "new_string": "b"}]},
        {"edits": [{"old_string": "a"}]},
        {"edits": [{"old_string": "a", "new_string": "b", "more": 1}]},
        {"edits": [{"old_string": "a", "new_string": "b"}] * 101},
        {"old_string": 5, "new_string": "b"},
        {"old_string": "a", "new_string": "b", "replace_all": "yes"},
    ],
)
async def test_arguments_say_one_edit_or_several(run: FileRun, arguments: dict[str, object]) -> None:
    assert (await run.do("edit_file", path="a.py", **arguments)).code == "schema_invalid"


async def test_bytes_around_an_edit_stay_as_they_are(run: FileRun) -> None:
    contents = {
        "crlf.txt": (b"one\r\ntwo\r\nend", b"one\r\n2\r\n2b\r\nend"),
        "mixed.txt": (b"one\ntwo\r\nend\n", b"one\n2\r\n2b\r\nend\n"),
        "bom.txt": (b"\xef\xbb\xbftwo\n", b"\xef\xbb\xbf2\n2b\n"),
        "utf16.txt": ("\ufefftwo\r\n".encode("utf-16-be"), "\ufeff2\r\n2b\r\n".encode("utf-16-be")),
        "latin.txt": (b"caf\xe9 two \x0c\n", b"caf\xe9 2\n2b \x0c\n"),
    }
    for name, (before, after) in contents.items():
        (run.root / name).write_bytes(before)
        await run.read(name)
        assert (await edit(run, name, "two", "2\n2b"))[0] == "ok"
        assert (run.root / name).read_bytes() == after, name


async def test_an_edit_that_would_make_a_text_binary_is_refused(run: FileRun) -> None:
    (run.root / "a.txt").write_text("one\n")
    await run.read("a.txt")
    code, message = await edit(run, "a.txt", "one", "o\0e")

    assert code == "runtime_precondition_failed"
    assert "a.txt has a NUL character" in message
    assert (run.root / "a.txt").read_text() == "one\n"


async def test_kept_line_endings_are_told(run: FileRun) -> None:
    (run.root / "a.txt").write_bytes(b"one\r\ntwo\r\n")
    await run.read("a.txt")

    assert (await edit(run, "a.txt", "one\ntwo", "1\n2"))[1] == "modified a.txt (+2 -2 lines); line endings (CRLF) kept"


async def test_mode_attributes_and_a_hard_link_elsewhere_are_kept(run: FileRun) -> None:
    file, outside = run.root / "a.sh", run.root.parent / "outside.sh"
    file.write_text("one\n")
    file.chmod(0o755)
    try:
        os.setxattr(file, "user.note", b"kept")
    except OSError:
        pytest.skip("the file system has no attributes")
    os.link(file, outside)
    await run.read("a.sh")
    await edit(run, "a.sh", "one", "two")

    assert (file.read_text(), file.stat().st_mode & 0o777, os.getxattr(file, "user.note")) == ("two\n", 0o755, b"kept")
    assert outside.read_text() == "one\n"


@pytest.mark.requirement("R229")
@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("missing.txt", "does not exist yet. Make it with write_file"),
        ("folder", "is a folder"),
        ("pipe", "is no plain file"),
        ("alias", "link"),
        ("logo.png", "is a binary file"),
        ("huge", "changed since it was read"),
    ],
)
async def test_what_cannot_be_edited_is_a_failed_precondition(run: FileRun, path: str, words: str) -> None:
    (run.root / "folder").mkdir()
    os.mkfifo(run.root / "pipe")
    for name in ("real.txt", "huge"):
        (run.root / name).write_text("one\n")
    (run.root / "alias").symlink_to("real.txt")
    (run.root / "logo.png").write_bytes(b"\x89PNG\r\n\x1a\n\0")
    for name in ("real.txt", "huge", "logo.png"):
        await run.read(name)
    os.truncate(run.root / "huge", 1 << 40)
    code, message = await edit(run, path, "one", "two")

    assert code in ("runtime_precondition_failed", "stale_file_baseline")
    assert words in message
    assert (run.root / "real.txt").read_text() == "one\n"


@pytest.mark.requirement("R229")
@pytest.mark.parametrize("path", ["/etc/passwd", "../x", ".git/config", ".env", "a\0", "~"])
async def test_what_is_not_to_be_written_is_refused_at_the_gate(run: FileRun, path: str) -> None:
    (run.root / ".git").mkdir()
    (run.root / ".git/config").write_text("root\n")

    if path == ".git/config":
        await run.read(path)
    assert (await edit(run, path, "root", "x"))[0] == "policy_denied"
    assert (run.root / ".git/config").read_text() == "root\n"


async def test_a_large_file_is_checked_beside_the_event_loop(run: FileRun, monkeypatch: pytest.MonkeyPatch) -> None:
    (run.root / "a.txt").write_text("line\n" * 100_000 + "end\n")
    await run.read("a.txt")
    beside: list[object] = []
    to_thread = asyncio.to_thread

    def noticed(function: Callable[..., object], *arguments: object) -> Coroutine[None, None, object]:
        beside.append(function)
        return to_thread(function, *arguments)

    monkeypatch.setattr(asyncio, "to_thread", noticed)

    assert (await edit(run, "a.txt", "line", "x"))[0] == "ambiguous_target"
    assert (await edit(run, "a.txt", "end", "END"))[1] == "modified a.txt (+1 -1 lines)"
    assert len(beside) == 2


async def test_a_long_diff_is_cut_and_all_of_it_is_kept(run: FileRun) -> None:
    (run.root / "a.txt").write_text("".join(f"number {number}\n" for number in range(3_000)))
    await run.read("a.txt")
    edited = await run.do("edit_file", path="a.txt", old_string="number", new_string="No.", replace_all=True)

    assert edited.size is not None
    assert edited.summary == "modified a.txt (3,000 replacements, +3,000 -3,000 lines)"
    assert edited.size.kept == edited.size.produced == edited.size.shown + edited.size.omitted
    assert len(text_of(edited)) < 21_000
    assert [artifact.kind for artifact in edited.artifacts] == ["file_before", "file_after", "diff"]


@pytest.mark.requirement("R239")
async def test_no_path_of_the_host_is_told(run: FileRun) -> None:
    (run.root / "a.py").write_text(CODE)
    observations = [
        await run.do("read_file", path=str(run.root / "a.py")),
        await run.do("edit_file", path=str(run.root / "a.py"), old_string="def g", new_string="def h"),
        await run.do("write_file", path=str(run.root / "b.py"), content="x"),
    ]

    assert all(observation.ok for observation in observations)
    assert not any(str(run.root) in repr((seen.summary, text_of(seen), seen.state)) for seen in observations)


@pytest.mark.requirement("R204")
async def test_a_file_that_changed_while_a_person_was_asked_is_not_edited(tmp_path: Path) -> None:
    changed = CODE.replace("1", "2")

    def approve(_question: Question) -> bool:
        (tmp_path / "a.py").write_text(changed)
        return True

    run = FileRun(tmp_path, mode="default", interaction=CallbackInteractionProvider(approve))
    (tmp_path / "a.py").write_text(CODE)
    await run.read("a.py")
    code, _ = await edit(run, "a.py", "def g", "def h")
    run.workspace.close()

    assert (code, (tmp_path / "a.py").read_text()) == ("stale_file_baseline", changed)
