"""list_dir: names with kinds and sizes, folders first; links are shown and not followed."""

import os
from pathlib import Path

import pytest

from interlock.domain.outcome import NextTool
from tests.corpora import path_escape
from tests.corpora.path_escape import Case, Scene
from tests.tools.file_runs import socket_at
from tests.tools.search_runs import SearchRun, run, text_of

__all__ = ["run"]


@pytest.mark.requirement("R278")
async def test_folders_come_first_then_files_with_sizes_and_all_is_counted(run: SearchRun) -> None:
    run.write("b.txt", "x" * 1_234)
    run.write(".hidden", "")
    run.write(".gitignore", "ignored\n")
    run.write("ignored", "x")
    run.write("z/in", "")
    run.write(".git/config", "")
    listed = await run.do("list_dir")

    assert text_of(listed).split("\n") == [
        *(".git/", "z/", ".gitignore  8 bytes", ".hidden  0 bytes", "b.txt  1,234 bytes", "ignored  1 bytes"),
    ]
    assert listed.summary == "2 folders and 4 files; all shown."
    assert listed.user_text == "Listed .: 2 folders and 4 files; all shown."
    assert listed.facts == {
        "folder": ".",
        "folders": 2,
        "others": 4,
        "returned": 6,
        "offset": 0,
        "complete": True,
    }
    assert (listed.side_effects, listed.state) == ((), {})


@pytest.mark.requirement("R229")
async def test_links_and_special_files_are_shown_for_what_they_are(run: SearchRun) -> None:
    outside = run.root.parent / "out"
    outside.mkdir()
    (outside / "secret.txt").write_text("TOPSECRET")
    (run.root / "d").symlink_to(outside)
    (run.root / "gone").symlink_to("nowhere")
    os.mkfifo(run.root / "pipe")
    socket_at(run.root / "socket").close()
    lines = await run.lines("list_dir")

    assert lines == [f"d -> {outside}", "gone -> nowhere", "pipe  [pipe]", "socket  [socket]"]


@pytest.mark.requirement("R229")
async def test_secrets_are_named_and_marked(run: SearchRun) -> None:
    run.write(".env", "KEY=1")
    run.write(".ssh/id", "")
    run.write("sub/.env.local", "")
    run.write("rule", "")
    run.hidden = ("rule",)

    assert await run.lines("list_dir") == [
        ".ssh/  [credentials, closed to tools]",
        "sub/",
        ".env  5 bytes  [credentials, closed to tools]",
        "rule  0 bytes  [hidden, closed to tools]",
    ]
    assert await run.lines("list_dir", path="sub") == [".env.local  0 bytes  [credentials, closed to tools]"]


async def test_odd_names_stand_on_one_line(run: SearchRun) -> None:
    for name in (b"a\nb", b"\xff", b"-rf", b"a: b"):
        run.write(os.fsdecode(name), "")
    (run.root / "to").symlink_to("x\ny")

    assert await run.lines("list_dir") == [
        "-rf  0 bytes",
        '"a\\nb"  0 bytes',
        "a: b  0 bytes",
        'to -> "x\\ny"',
        '"\\xff"  0 bytes',
    ]


@pytest.mark.requirement("R244", "R247")
async def test_pages_say_that_there_is_more_and_give_every_name_once(run: SearchRun) -> None:
    for number in range(30):
        run.write(f"f{number:02}", "")
    (run.root / "folder").mkdir()
    listed = await run.do("list_dir", limit=12)

    assert listed.summary == "1 folder and 30 files; 1 to 12 shown."
    assert listed.next_hint == "offset=12 shows the next ones."
    assert listed.next_tool == NextTool(tool="list_dir", input_hint={"path": ".", "limit": 12, "offset": 12})
    pages = await run.all_pages("list_dir", limit=12)
    assert pages == ["folder/", *(f"f{number:02}  0 bytes" for number in range(30))]
    assert (await run.do("list_dir", offset=50)).summary == "1 folder and 30 files; none after the first 50."


async def test_an_empty_folder_says_so(run: SearchRun) -> None:
    assert (await run.do("list_dir")).summary == "The folder is empty."


async def test_more_names_than_are_looked_at_are_at_least(run: SearchRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.tools.files.list_dir.MAX_NAMES", 3)
    for number in range(5):
        run.write(str(number))
    listed = await run.do("list_dir")

    assert listed.summary == "At least 0 folders and 3 files; all shown."
    assert listed.facts["complete"] is False


@pytest.mark.parametrize(("path", "words"), [("missing", "does not exist"), ("a", "is not a folder"), ("a/b", "a")])
async def test_what_is_no_folder_cannot_be_listed(run: SearchRun, path: str, words: str) -> None:
    run.write("a", "")
    listed = await run.do("list_dir", path=path)

    assert (listed.ok, listed.code) == (False, "runtime_precondition_failed")
    assert words in listed.summary


LISTINGS = [case for case in [*path_escape.load(), *path_escape.MORE] if case.op == "list"]


@pytest.mark.requirement("R229")
@pytest.mark.parametrize("case", LISTINGS, ids=lambda case: case.id)
async def test_only_folders_of_the_workspace_are_listed(tmp_path: Path, case: Case) -> None:
    scene = Scene(tmp_path)
    path = scene.set_up(case)
    run = SearchRun(scene.workspace)
    listed = await run.do("list_dir", path=path)
    run.workspace.close()

    assert listed.ok == case.allowed
    assert "secret.txt" not in text_of(listed)
