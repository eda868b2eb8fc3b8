"""Files of a skill that somebody trusted by their digests: those bytes, or nothing."""

from hashlib import sha256
from pathlib import Path

import pytest

from interlock import ConfigurationError
from interlock.sandbox.workspace.refusals import PathRefusedError
from interlock.sandbox.workspace.workspace import Workspace
from interlock.tools.skills.skill_folder import SkillFolder, is_hidden
from interlock.tools.skills.skill_tools import skills
from tests.tools.skill_runs import write_file, write_skill


def digests(folder: Path) -> dict[str, str]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest() for path in found}


def test_a_file_that_changed_or_came_since_is_not_read_and_not_listed(tmp_path: Path) -> None:
    folder = write_skill(tmp_path)
    for file in ("same.md", "swapped.md", "longer.md"):
        write_file(folder, file, "as it was\n")
    trusted = digests(tmp_path)
    write_file(folder, "swapped.md", "otherwise\n")
    write_file(folder, "longer.md", "as it was\nand more\n")
    write_file(folder, "new.md", "as it was\n")

    with Workspace(tmp_path, extra_hidden=is_hidden) as workspace:
        skill = SkillFolder(workspace, folder.name, trusted)
        for file in ("swapped.md", "longer.md", "new.md"):
            with pytest.raises(PathRefusedError, match="is not what was trusted, so it is not read"):
                skill.read(file)
        kept, listed = skill.read("same.md"), skill.list_files()

    assert (kept.content, kept.is_truncated) == (b"as it was\n", False)
    assert [each.file for each in listed.files] == ["longer.md", "same.md", "swapped.md"]


def test_all_of_a_long_file_is_checked_and_its_beginning_is_read(tmp_path: Path) -> None:
    folder = write_skill(tmp_path)
    write_file(folder, "long.md", "line\n" * 100)
    trusted = digests(tmp_path)

    with Workspace(tmp_path, extra_hidden=is_hidden) as workspace:
        skill = SkillFolder(workspace, folder.name, trusted)
        read = skill.read("long.md", 12)
        write_file(folder, "long.md", "line\n" * 99 + "evil\n")
        with pytest.raises(PathRefusedError):
            skill.read("long.md", 12)

    assert (read.content, read.size_bytes, read.is_truncated) == (b"line\nline\n", 500, True)


def test_instructions_that_are_not_those_that_were_trusted_are_not_loaded(tmp_path: Path) -> None:
    folder = write_skill(tmp_path)
    trusted = digests(tmp_path)
    with (folder / "SKILL.md").open("a") as file:
        file.write("And more.\n")

    with pytest.raises(ConfigurationError, match="cannot be loaded"):
        skills(tmp_path, trusted=trusted)
