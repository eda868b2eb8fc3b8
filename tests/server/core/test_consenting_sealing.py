"""Secrets at rest: what was sealed opens with the same words and a key that is known, and in no other way."""

from hypothesis import given
from hypothesis import strategies as st

from interlock.server.core.sealing import SealingKeys

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


def test_keys_do_not_show_themselves() -> None:
    assert NEW.hex() not in repr(SealingKeys([NEW]))
    assert "nnnn" not in repr(SealingKeys([NEW]))
