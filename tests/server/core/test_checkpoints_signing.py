"""The key is its owner's alone, is made once, and what an old one signed can be checked after it was replaced."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from interlock.audit.standalone_verifier import verify_signature
from interlock.domain.errors import ConfigurationError
from interlock.server.core.audit.signing import Signer, is_signature
from tests.sandbox.ordinary_user import pytest_as_ordinary_user


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "signing.key"


def names(signer: Signer) -> list[str]:
    kept = signer.list_keys()
    return [key.key for key in kept]


def test_a_key_is_made_once_for_its_owner_only(path: Path) -> None:
    first, second = Signer(path), Signer(path)

    assert first.get_current_key().public == second.get_current_key().public
    assert sorted(os.listdir(path.parent)) == ["signing.key", "signing.pub"]
    assert {stat.S_IMODE((path.parent / name).stat().st_mode) for name in os.listdir(path.parent)} == {0o600}
    assert len(first.get_current_key().key_id) == 16


def test_many_who_begin_at_once_have_one_key(path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        keys = {signer.get_current_key().key_id for signer in threads.map(Signer, [path] * 16)}

    assert len(keys) == 1
    assert names(Signer(path)) == list(keys)


def test_a_signature_is_accepted_by_both_who_check(path: Path) -> None:
    key = Signer(path).get_current_key()

    for check in (is_signature, verify_signature):
        assert check(key.public, b"said", key.sign(b"said"))
        assert not check(key.public, b"never said", key.sign(b"said"))
        assert not check(key.public, b"said", b"")
        assert not check(b"", b"said", key.sign(b"said"))


def test_a_new_key_is_seen_by_whoever_signs_and_the_old_ones_are_kept(path: Path) -> None:
    times = iter(range(0, 10**12, 10**9))
    signer, other = Signer(path, now=lambda: next(times)), Signer(path)
    old = other.get_current_key()

    new = signer.rotate()

    assert (new.key != old.key_id, other.get_current_key().key_id, signer.get_current_key().key_id) == (
        True,
        new.key,
        new.key,
    )
    first, second = other.list_keys()
    assert (first.key, second.key, second.until) == (old.key_id, new.key, "")
    assert first.until == second.since == "1970-01-01T00:00:01.000000Z"


def test_a_crash_between_the_two_files_of_a_new_key_is_mended(path: Path) -> None:
    signer = Signer(path)
    kept = signer.public_path.read_bytes()
    new = signer.rotate()
    signer.public_path.write_bytes(kept)

    assert names(Signer(path))[1:] == [new.key]


def test_a_lost_key_is_made_anew_and_what_it_signed_can_still_be_checked(path: Path) -> None:
    lost = Signer(path).get_current_key()
    path.unlink()

    found = names(Signer(path))
    assert (found[0], len(found)) == (lost.key_id, 2)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601, 0o666])
@pytest.mark.parametrize("name", ["signing.key", "signing.pub"])
def test_a_file_that_others_can_get_at_is_refused(path: Path, mode: int, name: str) -> None:
    Signer(path)
    (path.parent / name).chmod(mode)

    with pytest.raises(ConfigurationError, match=r"Others may get at .* Do `chmod 600"):
        Signer(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_key_of_somebody_else_is_refused(path: Path) -> None:
    Signer(path)
    os.chown(path, 65534, 65534)

    with pytest.raises(ConfigurationError, match="belongs to user 65534"):
        Signer(path)


def test_what_is_no_key_is_refused_in_words(path: Path) -> None:
    other = X25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for content in (b"", b"nonsense", other):
        path.write_bytes(content)
        path.chmod(0o600)
        with pytest.raises(ConfigurationError, match="is no Ed25519 key"):
            Signer(path)
    path.unlink()
    path.symlink_to(path.parent / "elsewhere")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        Signer(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(ConfigurationError, match="is not a file"):
        Signer(path)


def test_public_keys_that_were_damaged_are_refused_in_words(path: Path) -> None:
    signer = Signer(path)
    with signer.public_path.open("ab") as file:
        file.write(b"nonsense\n")

    with pytest.raises(ConfigurationError, match="line 2 is no public key"):
        signer.list_keys()


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be used for a key"):
        Signer(tmp_path / "none" / "signing.key")


@pytest.mark.skipif(os.geteuid() != 0, reason="it is an ordinary user who runs this")
def test_an_ordinary_user_can_do_all_this() -> None:
    pytest_as_ordinary_user(__file__, str(Path(__file__).with_name("test_checkpoints.py")))
