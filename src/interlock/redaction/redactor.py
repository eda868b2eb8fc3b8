"""Redacts declared secrets in every usual spelling, and what looks like a secret.

A declared value is found as it is, in base64, hex, URL and JSON form, and with unseen characters or the line breaks
of base64 put between its letters. `patterns` has the forms of undeclared secrets. A secret becomes
`[redacted:NAME]`, so a reader sees that something was there and what.
"""

import re
from collections.abc import Mapping

from .encodings import MIN_ENCODED_CHARS, base64_end, base64_stems, encoded_variants, find_encoded
from .interface import MAX_PLAIN_NAMES
from .matches import find_in_split_text, replace_matches
from .patterns import LONG_TEXT_CHARS, SecretMatch, compile_keyword_search, find_patterns, has_keyword
from .prefilter import CHARACTER_CLASSES, LONG_RUN, ODD, may_be_secret
from .stream import RedactingStream

MIN_SECRET_CHARS = 6
#: What a secret is called that was learned while it was used.
_ADDED_NAME = "access_token"
#: Without declared secrets, what is plain to one redactor is plain to all.
_plain_names: set[str] = set()
#: A shorter text has no long run.
_BEFORE_LONG_RUN = MIN_ENCODED_CHARS - 1
#: A number is found in bytes faster than bytes are.
_ODD_CODE = ODD[0]


class SecretRedactor:
    """A `Redactor`. Declared secrets are name to value; a value that is too short is refused."""

    __slots__ = ("_base64", "_declared", "_learned", "_spellings", "_suspect", "declares", "literals", "plain_names")

    def __init__(self, declared: Mapping[str, str] = {}) -> None:
        for name, value in declared.items():
            if len(value) < MIN_SECRET_CHARS:
                raise ValueError(f"secret {name!r} has fewer than {MIN_SECRET_CHARS} characters")
        self._declared = tuple(declared.items())
        #: Values that are used right now, and how often each was learned.
        self._learned: dict[str, int] = {}
        self._suspect = compile_keyword_search()
        self._rebuild()

    def add_secret(self, value: str) -> None:
        """Declare a secret. One that is too short is ignored."""
        if len(value) >= MIN_SECRET_CHARS:
            self._learned[value] = count = self._learned.get(value, 0) + 1
            if count == 1:
                self._rebuild()

    def remove_secret(self, value: str) -> None:
        """Forget a secret once; it stays while it was added more often."""
        if self._learned.get(value, 0) > 1:
            self._learned[value] -= 1
        elif self._learned.pop(value, 0):
            self._rebuild()

    def _rebuild(self) -> None:
        known = self._declared
        self._spellings: tuple[tuple[str, str], ...] = ()
        self._base64: tuple[tuple[str, str], ...] = ()
        #: What gives a declared secret away when it is in a text.
        self.literals: tuple[str, ...] = ()
        if self._learned:
            known += tuple((_ADDED_NAME, value) for value in self._learned)
        if known:
            self._spellings = tuple({text: name for name, value in known for text in encoded_variants(value)}.items())
            self._base64 = tuple({stem: name for name, value in known for stem, _ in base64_stems(value)}.items())
            self.literals = tuple(text for text, _ in (*self._spellings, *self._base64))
        self.declares = bool(known)
        self.plain_names: set[str] = set() if known or len(_plain_names) >= MAX_PLAIN_NAMES else _plain_names

    def is_plain(self, text: str) -> bool:
        """Return True if there is nothing to redact. Fast; False where it is not certain."""
        if has_keyword(text) if text[LONG_TEXT_CHARS:] else self._suspect(text.lower()) is not None:
            return False
        lines = text.replace("\r\n", "\n") if "\r" in text else text
        if may_be_secret(lines):
            return False
        for literal in self.literals:  # noqa: SIM110 - faster than `all`
            if literal in text or (lines is not text and literal in lines):
                return False
        return True

    def redact(self, text: str) -> str:
        """Replace every secret in a text."""
        if self.literals or "\r" in text or text[LONG_TEXT_CHARS:]:
            plain = self.is_plain(text)
        elif self._suspect(text.lower()) is not None:
            plain = False
        else:  # what `may_be_secret` does for most texts, without another call: every text comes here
            try:
                kinds = text.encode("ascii").translate(CHARACTER_CLASSES)
            except UnicodeEncodeError:
                kinds = ODD
            if _ODD_CODE not in kinds and not (text[_BEFORE_LONG_RUN:] and LONG_RUN in kinds):
                return text
            plain = not may_be_secret(text)
        return text if plain else replace_matches(text, self.find(text))

    def redact_declared(self, text: str) -> str:
        """Replace only the declared secrets."""
        return replace_matches(text, find_in_split_text(text, self._find_declared))

    def find(self, text: str) -> list[SecretMatch]:
        """Return every secret, the most certain first; they may overlap."""
        return find_in_split_text(text, self._find)

    def stream(self) -> RedactingStream:
        """Return a redactor for a stream of chunks."""
        return RedactingStream(self)

    def _find(self, text: str) -> list[SecretMatch]:
        return self._find_declared(text) + find_patterns(text) + find_encoded(text)

    def _find_declared(self, text: str) -> list[SecretMatch]:
        found: list[SecretMatch] = []
        for spelling, name in self._spellings:
            if spelling in text:
                found += [SecretMatch(m.start(), m.end(), name) for m in re.finditer(re.escape(spelling), text)]
        for stem, name in self._base64:
            if stem in text:
                found += [
                    SecretMatch(m.start(), base64_end(text, m.end()), name) for m in re.finditer(re.escape(stem), text)
                ]
        return found
