"""What the file tools say of odd files, odd spellings and several calls at once is what is on the disk."""

import os
from pathlib import Path

import pytest

from tests.local.toolbox import box, commands_of, text_of
from tests.support import call


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "workspace").mkdir()
    return tmp_path / "workspace"


async def test_a_read_beside_an_edit_in_the_same_turn_shows_all_of_one_version(workspace: Path) -> None:
    """Reading waits for nothing, so it is the one before or the one after."""
    (workspace / "f").write_text("old\n")
    async with box(workspace, commands=commands_of("bubblewrap")) as run:
        await run.call("read_file", path="f")
        turn = await run.runtime.execute(
            [
                call("edit", "edit_file", path="f", old_string="old", new_string="new"),
                call("read", "read_file", path="./f", again=True),
            ]
        )

    assert [said.ok for said in turn.observations] == [True, True]
    assert text_of(turn.observations[1]) in ("1\told", "1\tnew")


async def test_bytes_that_are_no_utf_8_are_not_replaced_by_their_escapes(workspace: Path) -> None:
    r"""A reader is shown `\xe9` for such a byte: who writes all of the file back has to be told, and not to lose it."""
    (workspace / "menu.txt").write_bytes(b"caf\xe9\ntea\n")
    async with box(workspace, commands=commands_of("bubblewrap")) as run:
        shown = await run.call("read_file", path="menu.txt")
        said = await run.call("write_file", path="menu.txt", content="caf\\xe9\ngreen tea\n")

    assert text_of(shown) == "1\tcaf\\xe9\n2\ttea"
    # Refused, or at least in the diff.
    assert not said.ok or "-caf" in text_of(said)
    assert not said.ok or (workspace / "menu.txt").read_bytes() == b"caf\xe9\ngreen tea\n"


async def test_an_edit_makes_no_binary_file_of_a_text(workspace: Path) -> None:
    """write_file refuses the same."""
    (workspace / "f").write_text("one\n")
    async with box(workspace, commands=commands_of("bubblewrap")) as run:
        await run.call("read_file", path="f")
        said = await run.call("edit_file", path="f", old_string="one", new_string="o\0e")

    assert said.code == "runtime_precondition_failed"
    assert (workspace / "f").read_text() == "one\n"


async def test_a_byte_order_mark_is_not_doubled(workspace: Path) -> None:
    (workspace / "f").write_bytes(b"\xef\xbb\xbfone\n")
    async with box(workspace, commands=commands_of("bubblewrap")) as run:
        await run.call("read_file", path="f")
        await run.call("write_file", path="f", content="\ufefftwo\n")

    assert (workspace / "f").read_bytes() == b"\xef\xbb\xbftwo\n"


async def test_an_edit_leaves_the_line_endings_of_a_file_as_they_are(workspace: Path) -> None:
    (workspace / "lf").write_bytes(b"a\nb\n")
    (workspace / "crlf").write_bytes(b"a\r\nb\r\n")
    async with box(workspace, commands=commands_of("bubblewrap")) as run:
        for name, new in (("lf", "x\r\ny"), ("crlf", "x\ny")):
            await run.call("read_file", path=name)
            await run.call("edit_file", path=name, old_string="a", new_string=new)

    assert (workspace / "crlf").read_bytes() == b"x\r\ny\r\nb\r\n"
    assert (workspace / "lf").read_bytes() == b"x\ny\nb\n"


async def test_all_spellings_of_a_path_are_one_file(workspace: Path) -> None:
    (workspace / "d").mkdir()
    (workspace / "d" / "f").write_text("0\n")
    os.symlink("d", workspace / "to-d")
    spellings = ("d/f", "./d//f", str(workspace / "d" / "f"), "to-d/f", "d/../d/f")
    async with box(workspace, commands=commands_of("bubblewrap")) as run:
        await run.call("read_file", path="to-d/f")
        said = [
            await run.call("edit_file", path=path, old_string=str(number), new_string=str(number + 1))
            for number, path in enumerate(spellings)
        ]

    assert [one.ok for one in said] == [True] * len(spellings)
    assert (workspace / "d" / "f").read_text() == "5\n"


async def test_a_change_by_a_command_or_another_run_makes_what_was_read_stale(workspace: Path) -> None:
    (workspace / "f").write_text("one\n")
    (workspace / "g").write_text("one\n")
    commands = commands_of("bubblewrap")
    async with box(workspace, commands=commands) as run, box(workspace, commands=commands) as other:
        for each in (run, other):
            await each.call("read_file", path="f")
            await each.call("read_file", path="g")
        await run.bash("touch -r f stamp; printf 'two\n' > f; touch -r stamp f")
        by_command = await run.call("edit_file", path="f", old_string="one", new_string="x")
        await other.call("edit_file", path="g", old_string="one", new_string="two")
        by_other = await run.call("write_file", path="g", content="x")

    assert (by_command.code, by_other.code) == ("stale_file_baseline", "stale_file_baseline")
    assert ((workspace / "f").read_text(), (workspace / "g").read_text()) == ("two\n", "two\n")


@pytest.mark.parametrize("path", ["", "a\0b", "x" * 300, "/etc/passwd"])
async def test_a_refusal_says_once_that_nothing_was_done(workspace: Path, path: str) -> None:
    async with box(workspace, commands=commands_of("bubblewrap")) as run:
        said = await run.call("read_file", path=path)

    assert not said.ok
    assert said.summary.count("Nothing was") == 1
