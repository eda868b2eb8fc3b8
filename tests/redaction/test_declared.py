"""Declared secrets are redacted in every usual spelling."""

import base64
import json
import re
import textwrap
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from interlock.redaction.interface import Redactor
from interlock.redaction.redactor import MIN_SECRET_CHARS, SecretRedactor
from tests.each import each

SECRET = 'cor/rect+ho"rse &\u00e9 ba\\ttery'
SPELLINGS: dict[str, Callable[[str], str]] = {
    "raw": str,
    "json": lambda text: json.dumps(text)[1:-1],
    "json in json": lambda text: json.dumps(json.dumps(text)),
    "json with letters": lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "repr": repr,
    "url": lambda text: quote(text, safe=""),
    "url path": quote,
    "url lower": lambda text: re.sub("%..", lambda found: found[0].lower(), quote(text, safe="")),
    "form": quote_plus,
    "every byte": lambda text: "".join(f"%{byte:02x}" for byte in text.encode()),
    "hex": lambda text: text.encode().hex(),
    "hex upper": lambda text: text.encode().hex().upper(),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 after one": lambda text: base64.b64encode(b"x" + text.encode() + b"yz").decode(),
    "base64 after two": lambda text: base64.b64encode(b"xy" + text.encode() + b"z").decode(),
    "base64 for urls": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "zero-width": "\u200b".join,
    "joined": "\u2060\ufeff".join,
    "soft hyphens": "\u00ad".join,
    "zeros": "\x00".join,
    "tags": "\U000e0041".join,
}


@each("spell", SPELLINGS.values())
def test_a_declared_secret_is_found_however_it_is_written(spell: Callable[[str], str]) -> None:
    redactor: Redactor = SecretRedactor({"DB": SECRET})
    written = spell(SECRET)

    redacted = redactor.redact(f"before {written} after")

    assert "[redacted:DB]" in redacted
    assert redacted.startswith("before ")
    assert redacted.endswith(" after")
    assert len(redacted.replace("[redacted:DB]", "").strip()) <= len("before  after") + 8


@pytest.mark.parametrize("before", range(3))
def test_a_secret_in_wrapped_base64_is_found(before: int) -> None:
    file = b"x" * (60 + before) + b"PASSWORD is swordfish-and-more" + b"y" * 60
    wrapped = "\n".join(textwrap.wrap(base64.b64encode(file).decode(), 76))

    redacted = SecretRedactor({"FISH": "swordfish-and-more"}).redact(wrapped)

    assert "[redacted:FISH]" in redacted
    assert len(redacted) <= len(wrapped) + len("[redacted:FISH]") - len(base64.b64encode(b"swordfish-and-mor"))


def test_a_secret_of_several_lines_is_found_as_it_is_and_in_json() -> None:
    secret = "\n".join(["A" * 64, "B" * 64, "Cc=="])
    redactor = SecretRedactor({"KEY": secret})

    assert redactor.redact(f"<{secret}>") == "<[redacted:KEY]>"
    assert redactor.redact(json.dumps({"k": secret})) == '{"k": "[redacted:KEY]"}'


def test_each_secret_gets_its_own_name_at_every_place() -> None:
    redactor = SecretRedactor({"ONE": "first-value", "TWO": "other-value"})

    assert redactor.redact("first-value, other-value; first-valueother-value") == (
        "[redacted:ONE], [redacted:TWO]; [redacted:ONE][redacted:TWO]"
    )


def test_a_declared_name_stands_above_the_name_of_a_form() -> None:
    token = "ghp_0123456789abcdefghijklmnopqrstuvwxyz"

    assert SecretRedactor({"CI_TOKEN": token}).redact(f"use {token}") == "use [redacted:CI_TOKEN]"


def test_a_secret_too_short_to_be_told_apart_is_refused_without_being_said() -> None:
    with pytest.raises(ValueError, match=r"^secret 'PIN' has fewer than 6 characters$") as refused:
        SecretRedactor({"PIN": "41927"})

    assert "41927" not in str(refused.value)


def test_the_redactor_does_not_show_what_it_knows() -> None:
    assert "swordfish" not in repr(SecretRedactor({"FISH": "swordfish"}))


@given(st.text(min_size=MIN_SECRET_CHARS, max_size=40), st.text(max_size=30), st.text(max_size=30))
def test_no_declared_secret_is_ever_left(secret: str, before: str, after: str) -> None:
    assume(secret.strip() and "redacted:" not in secret and secret not in "[redacted:NAME]")
    text = f"{before}{secret}{after}"

    redacted = SecretRedactor({"NAME": secret}).redact(text)

    assert secret not in redacted.replace("[redacted:NAME]", "\n\n")


@given(st.binary(min_size=6, max_size=40), st.binary(max_size=20), st.binary(max_size=20))
def test_no_base64_of_any_alignment_holds_a_declared_secret(secret: bytes, before: bytes, after: bytes) -> None:
    value = secret.hex()
    text = base64.b64encode(before + value.encode() + after).decode()

    redacted = SecretRedactor({"NAME": value}).redact(text)

    assert "[redacted:NAME]" in redacted
    assert len(redacted) <= len("[redacted:NAME]") + (len(before) + len(after)) * 4 // 3 + 8
