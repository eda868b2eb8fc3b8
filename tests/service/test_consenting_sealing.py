"""Secrets at rest: what was sealed opens with the same words and a key that is known, and in no other way."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock import ConfigurationError
from interlock.service.sealing import SEALING_KEY_ENV, SealingKeys, new_sealing_key, sealing_keys

OLD, NEW = b"o" * 32, b"n" * 32
WORDS = ("grant", "user:ada", "read_mail")


@given(plain=st.binary(), words=st.lists(st.text()))
def test_what_was_sealed_opens_with_the_same_words(plain: bytes, words: list[str]) -> None:
    keys = SealingKeys([NEW])
    assert keys.unseal(keys.seal(plain, words), words) == plain


@given(words=st.lists(st.text()), others=st.lists(st.text()))
def test_it_does_not_open_with_others(words: list[str], others: list[str]) -> None:
    keys = SealingKeys([NEW])
    assert (keys.unseal(keys.seal(b"token", words), others) is None) is (words != others)


def test_it_does_not_open_when_a_single_bit_of_it_changed() -> None:
    keys = SealingKeys([NEW])
    sealed = keys.seal(b"token", WORDS)
    for place in range(8 * len(sealed)):
        other = bytearray(sealed)
        other[place // 8] ^= 1 << place % 8
        assert keys.unseal(bytes(other), WORDS) is None


@given(st.binary(max_size=64))
def test_what_was_never_sealed_does_not_open(sealed: bytes) -> None:
    assert SealingKeys([NEW]).unseal(sealed, WORDS) is None


def test_the_same_thing_is_never_sealed_the_same_way_and_does_not_show() -> None:
    keys = SealingKeys([NEW])
    sealed = {keys.seal(b"a very secret token", WORDS) for _ in range(100)}
    assert len(sealed) == 100
    assert not any(b"secret" in one or b"ada" in one for one in sealed)


def test_keys_are_replaced_one_after_the_other() -> None:
    before, during, after = SealingKeys([OLD]), SealingKeys([NEW, OLD]), SealingKeys([NEW])
    old = before.seal(b"token", WORDS)

    assert during.unseal(old, WORDS) == b"token"
    assert after.unseal(old, WORDS) is None
    assert after.unseal(during.seal(b"token", WORDS), WORDS) == b"token"


def test_a_key_is_made_on_first_use_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "sealing.key"
    sealed = sealing_keys(path, {}).seal(b"token", WORDS)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["sealing.key"]
    assert sealing_keys(path, {}).unseal(sealed, WORDS) == b"token"


def test_what_the_environment_says_counts_more_and_leaves_no_file(tmp_path: Path) -> None:
    old, new = new_sealing_key(), new_sealing_key()
    sealed = sealing_keys(tmp_path / "key", {SEALING_KEY_ENV: old}).seal(b"token", WORDS)

    assert sealing_keys(tmp_path / "key", {SEALING_KEY_ENV: f"{new}, {old}"}).unseal(sealed, WORDS) == b"token"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["short", "pass phrase of some length", "x" * 43 + "!", "ä" * 43, "A" * 44])
def test_what_is_not_a_key_is_refused_and_not_repeated(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationError, match="32 random bytes in base64") as raised:
        sealing_keys(tmp_path / "key", {SEALING_KEY_ENV: text})
    assert text not in str(raised.value)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "sealing.key"
    sealing_keys(path, {})
    path.chmod(mode)
    with pytest.raises(ConfigurationError, match="mode 0600"):
        sealing_keys(path, {})


def test_links_folders_and_pipes_are_refused(tmp_path: Path) -> None:
    sealing_keys(tmp_path / "real", {})
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "folder").mkdir(mode=0o700)
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name in ("link", "dangling", "folder", "pipe"):
        with pytest.raises(ConfigurationError):
            sealing_keys(tmp_path / name, {})
    assert not (tmp_path / "nothing").exists()


def test_an_empty_file_is_not_a_key(tmp_path: Path) -> None:
    (tmp_path / "key").touch(0o600)
    with pytest.raises(ConfigurationError, match="there has to be one"):
        sealing_keys(tmp_path / "key", {})


def test_a_folder_that_is_not_there_is_an_error_in_words(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be used: No such file"):
        sealing_keys(tmp_path / "none" / "key", {})


def test_keys_do_not_show_themselves() -> None:
    assert NEW.hex() not in repr(SealingKeys([NEW]))
    assert "nnnn" not in repr(SealingKeys([NEW]))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_an_ordinary_user_makes_a_key_and_cannot_use_that_of_another(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    folder = tmp_path / "theirs"
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    program = "import sys; from interlock.service.sealing import sealing_keys; sealing_keys(sys.argv[1], {})"

    def run_as_nobody(path: Path) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-I", "-c", program, path],
            user=65534, group=65534, extra_groups=[], env={}, capture_output=True, text=True, check=False,
        )  # fmt: skip

    if run_as_nobody(folder / "sealing.key").returncode != 0:
        pytest.skip("this Python cannot be run by an ordinary user")
    assert (folder / "sealing.key").stat().st_uid == 65534
    with pytest.raises(ConfigurationError, match="of this user's"):
        sealing_keys(folder / "sealing.key", {})
