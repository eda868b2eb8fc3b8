"""Where sealing keys are: in the environment, or in a file that is its owner's alone."""

import os
import stat
from pathlib import Path

import pytest

from interlock import ConfigurationError
from interlock.server.core.sealing import SEALING_KEY_ENV, generate_sealing_key, load_sealing_keys
from tests.sandbox.ordinary_user import NOBODY, pytest_as_ordinary_user

WORDS = ("grant", "user:ada", "read_mail")


def test_a_key_is_made_on_first_use_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "sealing.key"
    sealed = load_sealing_keys(path, {}).seal(b"token", WORDS)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["sealing.key"]
    assert load_sealing_keys(path, {}).unseal(sealed, WORDS) == b"token"


def test_what_the_environment_says_counts_more_and_leaves_no_file(tmp_path: Path) -> None:
    old, new = generate_sealing_key(), generate_sealing_key()
    sealed = load_sealing_keys(tmp_path / "key", {SEALING_KEY_ENV: old}).seal(b"token", WORDS)

    assert load_sealing_keys(tmp_path / "key", {SEALING_KEY_ENV: f"{new}, {old}"}).unseal(sealed, WORDS) == b"token"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["short", "pass phrase of some length", "x" * 43 + "!", "ä" * 43, "A" * 44])
def test_what_is_not_a_key_is_refused_and_not_repeated(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationError, match="32 random bytes in base64") as raised:
        load_sealing_keys(tmp_path / "key", {SEALING_KEY_ENV: text})
    assert text not in str(raised.value)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "sealing.key"
    load_sealing_keys(path, {})
    path.chmod(mode)
    with pytest.raises(ConfigurationError, match="mode 0600"):
        load_sealing_keys(path, {})


def test_links_folders_and_pipes_are_refused(tmp_path: Path) -> None:
    load_sealing_keys(tmp_path / "real", {})
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "folder").mkdir(mode=0o700)
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name in ("link", "dangling", "folder", "pipe"):
        with pytest.raises(ConfigurationError):
            load_sealing_keys(tmp_path / name, {})
    assert not (tmp_path / "nothing").exists()


def test_an_empty_file_is_not_a_key(tmp_path: Path) -> None:
    (tmp_path / "key").touch(0o600)
    with pytest.raises(ConfigurationError, match="there has to be one"):
        load_sealing_keys(tmp_path / "key", {})


def test_a_folder_that_is_not_there_is_an_error_in_words(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be used: No such file"):
        load_sealing_keys(tmp_path / "none" / "key", {})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_key_of_another_user_is_refused(tmp_path: Path) -> None:
    load_sealing_keys(tmp_path / "key", {})
    os.chown(tmp_path / "key", NOBODY, NOBODY)
    with pytest.raises(ConfigurationError, match="a regular file of this user"):
        load_sealing_keys(tmp_path / "key", {})


@pytest.mark.skipif(os.geteuid() != 0, reason="this is an ordinary user")
def test_all_of_this_holds_for_an_ordinary_user() -> None:
    pytest_as_ordinary_user("tests/server/core/test_consenting_key_file.py")
