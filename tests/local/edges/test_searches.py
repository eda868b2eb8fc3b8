"""What searches find is what is there: compared with a plain search in Python, and with names made to mislead."""

import os
import random
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from interlock.tools.search.search_output import display_name
from tests.local.toolbox import box, commands_of, text_of
from tests.sandbox.ordinary_user import pytest_as_ordinary_user

_NAMES = ("a", "ab", "a.py", "B.py", "c.ts", ".x", "a b", "-a", "é.py", "a\nb", "a:b", "[x]", "!n", "#c", "a,b", "q?")
_FOLDERS = ("s", "t", "u.d", ".h", "a:c", "n\nl", "[d]")
_PARTS = (
    "*",
    "**",
    "a",
    "*.py",
    "a*",
    "?",
    "[ab]*",
    "[!a]*",
    "{a,c}*",
    "s",
    "t",
    "*:*",
    ".*",
    "*.{py,ts}",
    "[[]*",
    "-*",
)
_REGEXES = ("foo", "é", "o+b", "^foo", "x$", "-", "[0-9]", "foo|bar", "^$", "(?i)FOO", ".", "0:", "12-")
_WORDS = ("foo", "bar", "é", "-", ":", "0:", "12-", " ", "x")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "workspace").mkdir()
    return tmp_path / "workspace"


def _tree(root: Path, chance: random.Random) -> dict[str, list[str]]:
    files: dict[str, list[str]] = {}
    for _ in range(40):
        folders = [chance.choice(_FOLDERS) for _ in range(chance.randint(0, 3))]
        path = "/".join([*folders, chance.choice(_NAMES)])
        lines = ["".join(chance.choices(_WORDS, k=chance.randint(0, 5))) for _ in range(chance.randint(0, 6))]
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("".join(f"{line}\n" for line in lines))
        files[path] = lines
    return files


def _expanded(pattern: str) -> Iterator[str]:
    if (braces := re.search(r"\{([^{}]*)\}", pattern)) is None:
        yield pattern
        return
    for choice in braces[1].split(","):
        yield from _expanded(pattern[: braces.start()] + choice + pattern[braces.end() :])


def _fits(globs: list[str], names: list[str]) -> bool:
    if not globs:
        return not names
    if globs[0] == "**":
        return any(_fits(globs[1:], names[at:]) for at in range(len(names) + 1))
    return bool(names) and fnmatchcase(names[0], globs[0]) and _fits(globs[1:], names[1:])


def _meant(pattern: str, path: str) -> bool:
    for each in _expanded(pattern):
        globs = each.split("/") if "/" in pattern else ["**", each]
        if _fits([*globs, "*"] if globs[-1] == "**" else globs, path.split("/")):
            return True
    return False


@pytest.mark.parametrize("seed", [1, 2])
async def test_searches_find_what_a_plain_search_finds(workspace: Path, seed: int) -> None:
    chance = random.Random(seed)
    files = _tree(workspace, chance)
    ordered = sorted(files, key=os.fsencode)
    patterns = ["/".join(chance.choices(_PARTS, k=chance.randint(1, 4))) for _ in range(12)]
    async with box(workspace, commands=commands_of("bubblewrap")) as run:
        globbed = {each: text_of(await run.call("glob", pattern=each, limit=2_000)) for each in patterns}
        grepped = {each: text_of(await run.call("grep", pattern=each, limit=1_000)) for each in _REGEXES}

    for pattern, found in globbed.items():
        assert found.splitlines() == [display_name(path.encode()) for path in ordered if _meant(pattern, path)], pattern
    for regex, found in grepped.items():
        expected = [
            f"{display_name(path.encode())}:{number}: {line}"
            for path in ordered
            for number, line in enumerate(files[path], 1)
            if re.search(regex, line)
        ]
        assert (found.split("\n") if found else []) == expected, regex


@pytest.mark.parametrize("tool_name", ["grep", "glob"])
async def test_another_folder_in_the_place_of_the_workspace_is_not_searched(workspace: Path, tool_name: str) -> None:
    """Commands are refused then, and files are read from the folder that was opened at first."""
    other = workspace.with_name("other")
    other.mkdir()
    (other / "private").write_text("canary\n")
    async with box(workspace, commands=commands_of("bubblewrap")) as run:
        os.rename(workspace, workspace.with_name("moved"))
        os.rename(other, workspace)
        said = await run.call(tool_name, pattern="canary" if tool_name == "grep" else "*")

    assert "private" not in text_of(said)
    assert said.code == "sandbox_setup_failed"


async def test_a_line_of_an_ignore_file_that_means_nothing_is_no_unreadable_file(workspace: Path) -> None:
    (workspace / ".gitignore").write_text("[z-a\n{x\n")
    (workspace / "f").write_text("one\n")
    async with box(workspace, commands=commands_of("bubblewrap")) as run:
        said = await run.call("grep", pattern="one", path=".")

    assert text_of(said) == "f:1: one"
    assert said.facts["unreadable"] == 0


async def test_a_name_like_a_message_of_the_search_is_a_name(workspace: Path) -> None:
    name = 'e: binary file matches (found "\\0" byte around offset 5)\nf'
    (workspace / name).write_text("one\n")
    async with box(workspace, commands=commands_of("bubblewrap")) as run:
        said = await run.call("grep", pattern="one")

    assert text_of(said) == f"{display_name(name.encode())}:1: one"


async def test_a_match_in_a_binary_file_only_is_not_called_none(workspace: Path) -> None:
    (workspace / "data").write_bytes(b"one\0two")
    async with box(workspace, commands=commands_of("bubblewrap")) as run:
        said = await run.call("grep", pattern="one")

    assert "data" in text_of(said)
    assert said.summary == "1 binary file with a match, and no other file."


@pytest.mark.skipif("os.geteuid() == 0", reason="Landlock does not hold root")
async def test_beside_a_closed_folder_landlock_finds_the_other_files(workspace: Path) -> None:
    (workspace / "d" / ".ssh").mkdir(parents=True)
    (workspace / "d" / ".ssh" / "id_rsa").write_text("one canary\n")
    (workspace / "d" / "f").write_text("one\n")
    async with box(workspace, commands=commands_of("landlock")) as run:
        found = [await run.call("grep", pattern="one", path=path) for path in (".", "d")]

    for said in found:
        assert "canary" not in text_of(said)
        assert text_of(said).startswith("d/f:1: one"), said.summary


@pytest.mark.skipif("os.geteuid() == 0", reason="Landlock does not hold root")
@pytest.mark.parametrize("output", ["content", "files", "count"])
async def test_beside_a_closed_folder_landlock_obeys_ignore_files_and_globs(workspace: Path, output: str) -> None:
    (workspace / ".ssh").mkdir()
    (workspace / ".gitignore").write_text("ignored/\n*.log\n")
    for path in ("a.py", "a.log", "b.ts", "-c.py", "n\nl.py", "e/d.py", "e/d.log", "ignored/x.py", ".env", ".git/y.py"):
        (workspace / path).parent.mkdir(exist_ok=True)
        (workspace / path).write_text("one\n")
    (workspace / "link.py").symlink_to("b.ts")
    async with box(workspace, commands=commands_of("landlock")) as run:
        said = await run.call("grep", pattern="one", glob="*.py", output=output)

    *lines, closed = text_of(said).splitlines()
    assert [line.split(":")[0] for line in lines] == ["-c.py", "a.py", "e/d.py", '"n\\nl.py"']
    assert closed == "[not searched, since closed to tools: 2 files or folders]"


@pytest.mark.skipif("os.geteuid() == 0", reason="root may read it")
@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
async def test_beside_a_closed_folder_that_nobody_can_read_a_search_is_not_complete(
    workspace: Path, backend: str
) -> None:
    (workspace / "locked").mkdir(mode=0)
    (workspace / "f").write_text("one\n")
    async with box(workspace, commands=commands_of(backend)) as run:
        found = await run.call("grep", pattern="one")
        none = await run.call("grep", pattern="two")
        listed = await run.call("glob", pattern="*")
        inside = [
            await run.call(tool, pattern="*." if tool == "glob" else "x", path="locked") for tool in ("grep", "glob")
        ]

    assert text_of(found) == "f:1: one\n[could not be read: 1 file or folder]"
    assert none.summary == "No match in what could be read."
    assert listed.summary == "1 file; all shown. Could not be read: 1."
    assert [said.facts["complete"] for said in (found, none, listed)] == [False] * 3
    assert [said.ok for said in inside] == [False, False]


@pytest.mark.skipif("os.geteuid() != 0", reason="this is an ordinary user")
def test_an_ordinary_user_finds_the_other_files_as_well() -> None:
    pytest_as_ordinary_user("tests/local/edges/test_searches.py", "-k", "beside_a_closed_folder")
