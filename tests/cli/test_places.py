"""Where things of a user live."""

import os
from pathlib import Path

import pytest

from interlock.cli.config.user_paths import UserPaths, find_user_paths, make_private_folder
from interlock.domain.errors import ConfigurationError
from tests.sandbox.ordinary_user import run_as_ordinary_user


def test_folders_follow_the_rules_of_xdg_and_else_the_home(tmp_path: Path) -> None:
    assert find_user_paths({"HOME": str(tmp_path)}) == UserPaths(
        tmp_path / ".config" / "interlock", tmp_path / ".local" / "state" / "interlock"
    )
    assert find_user_paths({"HOME": str(tmp_path), "XDG_CONFIG_HOME": "/c", "XDG_STATE_HOME": "/s"}) == UserPaths(
        Path("/c/interlock"), Path("/s/interlock")
    )


def test_a_folder_that_is_not_absolute_is_ignored(tmp_path: Path) -> None:
    assert (
        find_user_paths({"HOME": str(tmp_path), "XDG_STATE_HOME": "state"}).state == tmp_path / ".local/state/interlock"
    )


def test_without_a_home_there_is_a_place_for_nothing_and_it_says_so() -> None:
    nowhere = UserPaths(None, None)

    assert nowhere.own_paths == ()
    with pytest.raises(ConfigurationError, match=r"no place for runs.*XDG_STATE_HOME, or name a log with --log"):
        _ = nowhere.log
    with pytest.raises(ConfigurationError, match=r"no place for settings.*XDG_CONFIG_HOME"):
        _ = nowhere.settings_file


def test_a_home_that_does_not_exist_is_none() -> None:
    assert find_user_paths({"HOME": "/nonexistent"}) == UserPaths(None, None)


def test_folders_are_made_for_their_owner_alone(tmp_path: Path) -> None:
    places = UserPaths(None, tmp_path / "a" / "b" / "interlock")

    made = places.make_state_folder()

    assert [oct(folder.stat().st_mode & 0o777) for folder in (made, made.parent, made.parent.parent)] == ["0o700"] * 3
    assert places.make_state_folder() == made


def test_a_folder_that_others_may_write_into_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)

    with pytest.raises(ConfigurationError, match="Others may write into"):
        make_private_folder(tmp_path)


def test_a_folder_that_cannot_be_made_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(ConfigurationError, match="cannot be used: Not a directory"):
        make_private_folder(tmp_path / "file" / "interlock")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, 65534)

    with pytest.raises(ConfigurationError, match="belongs to user 65534"):
        make_private_folder(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="this user may have a home")
def test_a_user_with_no_home_and_no_environment_has_settings_and_is_told_what_cannot_be_kept() -> None:
    program = "import os; os.umask(0); from interlock.cli.main import main; main()"

    shown = run_as_ordinary_user("-c", program, "config", "show", "--json")
    kept = run_as_ordinary_user("-c", program, "config", "set", "model", "m")

    assert (shown.returncode, shown.stderr) == (0, "")
    assert kept.returncode == 2
    assert "interlock: " in kept.stderr
