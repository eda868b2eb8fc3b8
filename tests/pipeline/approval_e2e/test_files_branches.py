"""What a call names and cannot be held fast: the person is told, and what is held fast is read within a bound."""

import os
from pathlib import Path

import pytest

from interlock.domain.payload import FileOperand
from interlock.sandbox.workspace.file_operands import bind_files
from tests.support import call

from .scene import Scene

MIB = 1 << 20
SAYS_EMPTY = Path("/proc/self/maps")
UNREADABLE = Path("/proc/self/mem")


def sparse(path: Path, size_bytes: int) -> str:
    """A file of zeros that takes no room."""
    with path.open("wb") as file:
        file.truncate(size_bytes)
    return path.name


def why(found: tuple[FileOperand, ...]) -> dict[str, str]:
    return {file.path: file.unbound for file in found}


def test_a_pipe_that_nobody_writes_to_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    assert bind_files(["pipe"], str(tmp_path)) == (FileOperand("pipe", unbound="not a plain file"),)


def test_a_folder_a_missing_file_and_a_name_that_is_none_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    found = bind_files(["folder", "gone", "file/below", "a\0b"], str(tmp_path))

    assert why(found) == {"a\0b": "it cannot be read (ValueError)", "file/below": "", "folder": "a folder", "gone": ""}
    assert not any(file.sha256 for file in found)


def test_files_are_read_up_to_a_bound_for_all_of_them_together(tmp_path: Path) -> None:
    first, second = sparse(tmp_path / "a", 32 * MIB - 1), sparse(tmp_path / "b", 2)
    third = sparse(tmp_path / "c", 1)
    found = bind_files([first, second, third], str(tmp_path))

    assert why(found) == {"a": "", "b": "with the files before it over 32 MiB", "c": ""}


def test_exactly_as_much_as_the_bound_is_read(tmp_path: Path) -> None:
    [found] = bind_files([sparse(tmp_path / "a", 32 * MIB)], str(tmp_path))

    assert (found.unbound, len(found.sha256)) == ("", 64)


@pytest.mark.skipif(not SAYS_EMPTY.exists(), reason="needs /proc")
def test_a_file_that_has_more_than_it_says_is_cut_off_at_the_bound(tmp_path: Path) -> None:
    sparse(tmp_path / "a", 32 * MIB - 10)
    (tmp_path / "b").symlink_to(SAYS_EMPTY)
    assert (tmp_path / "b").stat().st_size == 0
    found = bind_files(["a", "b"], str(tmp_path))

    assert why(found) == {"a": "", "b": "with the files before it over 32 MiB"}


@pytest.mark.skipif(not UNREADABLE.exists(), reason="needs /proc")
def test_a_file_that_opens_and_cannot_be_read_is_not_held_fast() -> None:
    assert why(bind_files([str(UNREADABLE)], "/")) == {str(UNREADABLE): "it cannot be read (OSError)"}


def test_more_files_than_a_person_can_look_at_are_not_all_held_fast(tmp_path: Path) -> None:
    for number in range(66):
        (tmp_path / f"{number:02}").write_text("x")
    found = bind_files([f"{number:02}" for number in range(66)], str(tmp_path))

    assert [file.path for file in found if file.unbound] == ["64", "65"]
    assert {file.unbound for file in found[64:]} == {"one of more than 64"}


async def test_the_person_is_told_what_cannot_be_held_fast(scene: Scene) -> None:
    (scene.folder / "folder").mkdir()
    async with scene.runtime() as runtime:
        [question] = (await runtime.execute([call("c1", "edit", path="folder")])).questions

    assert "folder cannot be held fast: a folder" in question.risk
