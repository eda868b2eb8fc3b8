"""Regular expressions that are compiled when they are first used."""

import re
from types import SimpleNamespace

import pytest

import interlock
from interlock import lazy_pattern


def test_pattern_is_compiled_once_with_its_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[str, int]] = []

    def compile_pattern(pattern: str, flags: int) -> "re.Pattern[str]":
        given.append((pattern, flags))
        return re.compile(pattern, flags)

    monkeypatch.setattr(interlock, "_re", SimpleNamespace(compile=compile_pattern))
    find = lazy_pattern("b+").search
    assert given == []

    assert [bool(find(text)) for text in ("abb", "a", "b")] == [True, False, True]
    assert given == [("b+", 0)]
