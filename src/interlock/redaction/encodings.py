"""Encodings of secrets: base64, hex, URL, JSON, HTML."""

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from functools import cache
from string import ascii_letters, digits
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from .. import lazy_module, lazy_pattern
from ..domain.rendering import json_escape
from .patterns import SECRET_PATTERNS, SecretMatch, SecretPattern, build_prefix_pattern

if TYPE_CHECKING:
    from urllib import parse
else:
    parse = lazy_module("urllib.parse")

#: What a known token begins with: enough bytes to be seen in an encoded text.
_TOKEN_PREFIXES = (
    *("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xoxb-", "xoxp-", "sk-ant-", "sk-proj-"),
    *("sk_live_", "rk_live_", "AKIA", "ASIA", "AIza", "npm_", "pypi-", "-----BEGIN"),
)
_HTML = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;", ord('"'): "&quot;", ord("'"): "&#x27;"}
_URL_SAFE = str.maketrans("+/", "-_")
_STANDARD = str.maketrans("-_", "+/")
#: No token is shorter, in any encoding.
MIN_ENCODED_CHARS = 20
RUN_CHARACTERS = frozenset(ascii_letters + digits + "+/_-")
#: Every byte becomes a sign: it may be in an encoded text, or not.
_RUN_SIGN, _OTHER_SIGN = b"r", b"."
_RUN_SIGNS = b"".join([_RUN_SIGN if chr(code) in RUN_CHARACTERS else _OTHER_SIGN for code in range(256)])
_base64_run = lazy_pattern(r"[A-Za-z0-9+/_-]*={0,2}").match
_hex_run = lazy_pattern(r"[0-9A-Fa-f]*").match
_last_bits = lazy_pattern(r"[A-Za-z0-9+/_-]?={0,2}").match
#: Enough of a token to see what it is, in base64 and in hex.
_LOOK_CHARS = 128


def encoded_variants(value: str) -> Iterator[str]:
    """Yield the value and its usual escaped forms."""
    encoded = value.encode("utf-8", "surrogatepass")
    percent = "".join(f"%{byte:02X}" for byte in encoded)
    yield from (value, repr(value)[1:-1], value.translate(_HTML))
    yield from (encoded.hex(), encoded.hex().upper(), percent, percent.lower())
    yield from (
        escaped := _json_escape(value),
        _json_escape(escaped),
        _ascii_escape(escaped),
        _json_escape(_ascii_escape(escaped)),
    )
    for url in (parse.quote(encoded, safe=""), parse.quote(encoded), parse.quote_plus(encoded)):
        yield url
        yield re.sub("%..", lambda match: match[0].lower(), url)


def _json_escape(value: str) -> str:
    return msgspec.json.encode(re.sub(r"[\ud800-\udfff]", "\ufffd", value)).decode()[1:-1]


def _ascii_escape(value: str) -> str:
    return re.sub(r"[^\x00-\x7f]", lambda match: json_escape(match[0]), value)


def base64_stems(value: str) -> Iterator[tuple[str, int]]:
    """Yield the certain base64 characters of the value, for each offset in its first group of three bytes."""
    encoded = value.encode("utf-8", "surrogatepass")
    for offset in range(3):
        stem = b64encode(bytes(offset) + encoded).decode()[_leading_chars(offset) : (offset + len(encoded)) * 8 // 6]
        yield stem, offset
        yield stem.translate(_URL_SAFE), offset


def _leading_chars(offset: int) -> int:
    """Return how many base64 characters hold a bit of the bytes before."""
    return -(-offset * 8 // 6)


def base64_end(text: str, end: int) -> int:
    """Return where base64 that holds a stem up to `end` has the last bits of it."""
    match = _last_bits(text, end)
    return match.end() if match else end


class _Stem(NamedTuple):
    """What an encoded token begins with: how to decode it there, and which forms it may have."""

    decode: Callable[[str, int], bytes]
    run: Callable[[str, int], re.Match[str] | None]
    forms: tuple[SecretPattern, ...]


class _Stems(NamedTuple):
    by_text: dict[str, _Stem]
    search: Callable[[str, int, int], re.Match[str] | None]


def _from_base64(offset: int) -> Callable[[str, int], bytes]:
    before = _leading_chars(offset)

    def decode(text: str, at: int) -> bytes:
        run = _base64_run(text[max(0, at - before) : at + _LOOK_CHARS])
        characters = run[0].rstrip("=").translate(_STANDARD) if run else ""
        characters = characters[:-1] if len(characters) % 4 == 1 else characters
        return b64decode(characters + "=" * (-len(characters) % 4))[offset:]

    return decode


def _from_hex(text: str, at: int) -> bytes:
    run = _hex_run(text[at : at + _LOOK_CHARS])
    digits = run[0] if run else ""
    return bytes.fromhex(digits[: len(digits) // 2 * 2])


def _patterns_for(beginning: str) -> tuple[SecretPattern, ...]:
    return tuple(form for form in SECRET_PATTERNS if any(beginning.lower().startswith(word) for word in form.words))


@cache
def _token_stems() -> tuple[_Stems, ...]:
    """Return how tokens begin in base64, and in hex."""
    base64 = {
        stem: _Stem(_from_base64(offset), _base64_run, _patterns_for(word))
        for word in _TOKEN_PREFIXES
        for stem, offset in base64_stems(word)
    }
    digits = {
        stem: _Stem(_from_hex, _hex_run, _patterns_for(word))
        for word in _TOKEN_PREFIXES
        for stem in (word.encode().hex(), word.encode().hex().upper())
    }
    return tuple(_Stems(each, re.compile(build_prefix_pattern(each)).search) for each in (base64, digits))


def find_encoded(text: str) -> list[SecretMatch]:
    """Return known tokens in base64 or hex. The encoded text is taken whole from the token on."""
    runs = find_long_runs(text, MIN_ENCODED_CHARS)
    if not runs:
        return []
    return [found for stems in _token_stems() for start, end in runs for found in _find_stems(text, stems, start, end)]


def find_long_runs(text: str, min_chars: int) -> list[tuple[int, int]]:
    """Return where the runs of so many characters of base64 begin and end."""
    signs, wanted = text.encode("ascii", "replace").translate(_RUN_SIGNS), _RUN_SIGN * min_chars
    runs: list[tuple[int, int]] = []
    start = signs.find(wanted)
    while start >= 0:
        end = signs.find(_OTHER_SIGN, start + min_chars)
        end = len(signs) if end < 0 else end
        runs.append((start, end))
        start = signs.find(wanted, end)
    return runs


def _find_stems(text: str, stems: _Stems, start: int, end: int) -> Iterator[SecretMatch]:
    """Yield the tokens in one run."""
    match = stems.search(text, start, end)
    while match is not None:
        at = match.start()
        stem = stems.by_text[match[0]]
        token = stem.decode(text, at).decode("latin-1")
        name = next((form.name for form in stem.forms if re.match(form.pattern, token)), "")
        run = stem.run(text, at) if name else None
        if run is not None:
            yield SecretMatch(at, run.end(), name)
        match = stems.search(text, run.end() if run else at + 1, end)
