"""The files of a skill: nothing outside of its folder, nothing hidden, no more than there is room for."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from interlock import ConfigurationError, PreconditionError
from interlock.sandbox.workspace.refusals import PathRefusedError
from interlock.tools.skills import skill_folder
from interlock.tools.skills.skill_tools import MAX_SKILL_BYTES, skills
from tests.corpora import path_escape
from tests.corpora.path_escape import CANARY, Case, Scene
from tests.each import each
from tests.tools.file_runs import socket_at
from tests.tools.skill_runs import TEXT, SkillRun, text_of, write_file, write_skill


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("../secret.txt", "leads outside the folder of the skill"),
        ("../other/a.md", "leads outside the folder of the skill"),
        ("here/../../other/SKILL.md", "leads outside the folder of the skill"),
        ("/etc/passwd", "leads outside the folder of the skill"),
        ("link.md", "leads outside the folder of the skill"),
        ("sibling.md", "leads outside the folder of the skill"),
        ("absolute.md", "leads outside the folder of the skill"),
        (".git/config", "is hidden"),
        (".env", "is kept for credentials"),
        ("id_rsa", "is kept for credentials"),
        ("a\0b", "is not a path that can be used"),
        ("x" * 5_000, "is not a path that can be used"),
        ("dangling.md", "is a link that is not followed"),
    ],
)
async def test_what_is_not_of_the_skill_is_denied_in_words_and_unread(tmp_path: Path, file: str, words: str) -> None:
    folder, other = write_skill(tmp_path / "skills"), write_skill(tmp_path / "skills", "other")
    for path in (tmp_path / "skills/secret.txt", tmp_path / "secret.txt", other / "a.md"):
        path.write_text(CANARY)
    for hidden in (".git/config", ".env", "id_rsa"):
        write_file(folder, hidden, CANARY)
    (folder / "here").mkdir()
    (folder / "link.md").symlink_to("../../secret.txt")
    (folder / "sibling.md").symlink_to("../other/a.md")
    (folder / "absolute.md").symlink_to(folder / "SKILL.md")
    (folder / "dangling.md").symlink_to("nowhere")
    loaded = await SkillRun(tmp_path / "skills").load(file=file)

    assert loaded.code == "policy_denied"
    assert words in loaded.summary
    assert "Nothing was executed" in loaded.summary
    assert CANARY not in repr(loaded)
    assert len(loaded.summary) < 1_000


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("missing.md", "'missing.md' is not in the skill"),
        ("SKILL.md/x", "is not in the skill"),
        ("sub", "'sub' is not a plain file"),
        (".", "'.' is not a plain file"),
        ("pipe", "'pipe' is not a plain file"),
        ("socket", "'socket' is not a plain file"),
    ],
)
async def test_what_is_no_file_to_read_is_said_and_what_to_do_instead(tmp_path: Path, file: str, words: str) -> None:
    folder = write_skill(tmp_path)
    write_file(folder, "sub/a")
    os.mkfifo(folder / "pipe")
    socket_at(folder / "socket").close()
    loaded = await SkillRun(tmp_path).load(file=file)

    assert loaded.code == "runtime_precondition_failed"
    assert f"{words}. Without a file, the tool says which files there are." in loaded.summary


CASES = [*path_escape.load(), *path_escape.MORE]
READS = [case for case in CASES if case.op == "read" and not case.allowed and case.category != "toctou"]


@each("case", READS)
async def test_no_known_way_out_of_a_folder_leads_out_of_a_skill(tmp_path: Path, case: Case) -> None:
    scene = Scene(Path(mkdtemp(dir=tmp_path)))
    write_file(scene.workspace, "SKILL.md", TEXT.format(name="ws"))
    file = scene.set_up(case)
    loaded = await SkillRun(scene.folder).load("ws", file=file)

    assert CANARY not in repr(loaded)


@pytest.mark.parametrize("target", ["../outside", "other"], ids=["outside", "another skill"])
async def test_a_folder_that_is_swapped_for_a_link_leads_nowhere(tmp_path: Path, target: str) -> None:
    root = tmp_path / "skills"
    folder = write_skill(root)
    for other in (write_skill(root, "other"), write_skill(tmp_path, "outside")):
        write_file(other, "a.md", CANARY)
    write_file(folder, "a.md", "A")
    run = SkillRun(root)
    folder.rename(tmp_path / "moved")
    folder.symlink_to(target)
    loaded, read = await run.load(), await run.load(file="a.md")

    assert loaded.summary == "instructions of the skill notes; 0 files beside them"
    assert (read.code, CANARY in repr(read)) == ("policy_denied", False)


async def test_links_that_stay_in_the_skill_can_be_read(tmp_path: Path) -> None:
    folder = write_skill(tmp_path)
    write_file(folder, "references/style.md", "Short.\n")
    (folder / "style.md").symlink_to("references/style.md")
    read = await SkillRun(tmp_path).load(file="style.md")

    assert (text_of(read), read.facts["file"]) == ("Short.\n", "references/style.md")


async def test_the_list_has_plain_files_only(tmp_path: Path) -> None:
    folder = write_skill(tmp_path)
    for file in ("b.md", "a/deep/c.md", ".hidden", ".git/config", ".env", "id_rsa"):
        write_file(folder, file)
    (folder / "out").symlink_to("/")
    (folder / "loop").symlink_to(".")
    os.mkfifo(folder / "pipe")
    (folder / os.fsdecode(b"odd\n\xff")).touch()
    lines = text_of(await SkillRun(tmp_path).load()).split("\n")

    start = lines.index("Files of this skill, for skill_notes(file=...):")
    assert lines[start + 1 :] == ["- b.md (0 bytes)", '- "odd\\n\\xff" (0 bytes)', "- a/deep/c.md (0 bytes)"]


async def test_thousands_of_files_are_counted_as_far_as_they_are_looked_at(tmp_path: Path) -> None:
    folder = write_skill(tmp_path)
    for number in range(skill_folder.MAX_NAMES + 1):
        (folder / f"{number:04}-{'x' * 40}").touch()
    loaded = await SkillRun(tmp_path).load()

    assert "at least 1,9" in loaded.summary or "at least 2,000" in loaded.summary
    assert text_of(loaded).endswith("[there are more, which are not listed]")
    assert loaded.facts["complete"] is False
    assert len(text_of(loaded)) < 25_000


async def test_a_list_without_room_for_all_says_how_many_are_missing(tmp_path: Path) -> None:
    folder = write_skill(tmp_path)
    for number in range(150):
        (folder / f"{number:03}-{'x' * 200}").touch()
    text = text_of(await SkillRun(tmp_path).load())

    listed = text.count("\n- ")
    assert text.endswith(f"[{150 - listed} more not listed]")
    assert 50 < listed < 150


async def test_a_long_file_is_cut_and_the_rest_can_be_read(tmp_path: Path) -> None:
    folder = write_skill(tmp_path)
    write_file(folder, "long.md", "a line of it\n" * 20_000)
    read = await SkillRun(tmp_path).load(file="long.md")

    assert read.truncated
    assert read.next_tool is not None
    assert read.next_tool.tool == "read_artifact"
    assert read.summary == "notes: long.md, 260,000 bytes"


async def test_of_an_enormous_file_the_beginning_is_read_and_its_size_said(tmp_path: Path) -> None:
    folder = write_skill(tmp_path)
    with write_file(folder, "huge.md", "ä line\n" * 200_000).open("ab") as file:
        file.truncate(10**10)
    read = await SkillRun(tmp_path).load(file="huge.md")

    said = "the first 1,048,576 of 10,000,000,000 bytes; no more than 1,048,576 bytes of a file are read"
    assert read.summary == f"notes: huge.md, {said}"
    assert text_of(read).endswith(f"\n[{said}]")
    assert read.facts["read_bytes"] == 1_048_576


async def test_a_binary_file_is_named_and_not_shown(tmp_path: Path) -> None:
    folder = write_skill(tmp_path)
    write_file(folder, "logo.png", b"\x89PNG\r\n\x1a\n\0\0")
    read = await SkillRun(tmp_path).load(file="logo.png")

    assert read.summary == "notes: logo.png is a binary file (png, 10 bytes); not shown"
    assert text_of(read) == ""


async def test_bytes_that_are_no_utf_8_are_shown_as_such(tmp_path: Path) -> None:
    write_file(write_skill(tmp_path), "latin.md", b"caf\xe9 au lait\n")
    assert text_of(await SkillRun(tmp_path).load(file="latin.md")) == "caf\\xe9 au lait\n"


def _too_large(folder: Path) -> None:
    write_file(folder, "SKILL.md", TEXT.format(name="notes") + "x\n" * MAX_SKILL_BYTES)


def _is_linked(folder: Path) -> None:
    (folder.parent.parent / "SKILL.md").write_text(TEXT.format(name="notes"))
    (folder / "SKILL.md").symlink_to("../../SKILL.md")


def _is_linked_folder(folder: Path) -> None:
    folder.rmdir()
    folder.symlink_to(write_skill(folder.parent.parent, "elsewhere"))


def _has_other_name(folder: Path) -> None:
    write_file(folder, "SKILL.md", TEXT.format(name="other"))


def _is_endless_link(folder: Path) -> None:
    (folder / "SKILL.md").symlink_to("SKILL.md")


BROKEN: dict[Callable[[Path], object], str] = {
    _too_large: r"it has 200,1\d\d bytes, and 100,000 are the most. Move parts of it to files beside it",
    _is_linked: "it leads outside the folder of the skill",
    _is_endless_link: "it is a link that is not followed",
    _is_linked_folder: "it is a link, and those are not followed",
    _has_other_name: "it is called 'other', which has to be the name of its folder",
    lambda folder: (folder / "SKILL.md").symlink_to("nowhere"): "it is a link that is not followed",
    lambda folder: (folder / "SKILL.md").symlink_to("/dev/zero"): "it leads outside the folder of the skill",
    lambda folder: os.mkfifo(folder / "SKILL.md"): "it is not a plain file",
    lambda folder: (folder / "SKILL.md").mkdir(): "it is not a plain file",
    lambda folder: write_file(folder, "SKILL.md", b"\xff"): "line 1: it is not UTF-8",
}


@pytest.mark.parametrize(("break_it", "words"), BROKEN.items(), ids=range(len(BROKEN)))
def test_a_skill_that_cannot_be_loaded_is_a_configuration_error_that_names_it(
    tmp_path: Path, break_it: Callable[[Path], object], words: str
) -> None:
    folder = tmp_path / "skills" / "notes"
    folder.mkdir(parents=True)
    break_it(folder)
    with pytest.raises(ConfigurationError, match=words) as refused:
        skills(tmp_path / "skills")
    assert str(folder) in str(refused.value)


def test_two_folders_cannot_have_one_name(tmp_path: Path) -> None:
    write_skill(tmp_path, "notes")
    write_skill(tmp_path, "notes2", TEXT.format(name="notes"))
    with pytest.raises(ConfigurationError, match=r"notes2/SKILL.md' cannot be loaded: it is called 'notes'"):
        skills(tmp_path)


NAMES = st.sampled_from(
    ["..", ".", "", "a.md", "sub", "notes", "other", "SKILL.md", "up", "here", "~", "file:", ".git"]
)


@given(st.one_of(st.text(max_size=30), st.lists(NAMES, min_size=1, max_size=8).map("/".join)))
@example("\ud800")
def test_no_text_reads_anything_outside_of_the_skill(tmp_path_factory: pytest.TempPathFactory, file: str) -> None:
    root = tmp_path_factory.getbasetemp() / "property"
    if not root.exists():
        folder, other = write_skill(root), write_skill(root, "other", TEXT + CANARY)
        write_file(root, "a.md", CANARY)
        write_file(other, "a.md", CANARY)
        write_file(folder, "a.md", "A")
        write_file(folder, ".git/a.md", CANARY)
        write_file(folder, "sub/a.md", "A")
        (folder / "up").symlink_to("..")
        (folder / "here").symlink_to("sub/..")
    found = next(one for one in skills(root) if one.name == "skill_notes")
    with suppress(PathRefusedError, PreconditionError):
        assert CANARY not in repr(found.handler(file))
