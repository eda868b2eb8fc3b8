"""Changing one key of a JSON file leaves everything else as it was."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.domain.errors import ConfigurationError
from interlock.hooks.json_file import read_object, set_key

_TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=8)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | st.floats(-1e6, 1e6, allow_nan=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=8,
)
_SETTINGS = st.dictionaries(_TEXT | st.just("hooks"), _VALUES, max_size=5)
_INDENTS = st.sampled_from([None, 2, 4, "\t"])


@given(_SETTINGS, _INDENTS, st.booleans())
def test_other_keys_stay_to_the_byte(settings: dict[str, Any], indent: Any, crlf: bool) -> None:
    text = json.dumps(settings, indent=indent, ensure_ascii=False) + "\n"
    content = (text.replace("\n", "\r\n") if crlf else text).encode()
    value: dict[str, Any] = {"PreToolUse": [{"hooks": []}]}

    changed = set_key(content, "hooks", value, "f")

    assert read_object(changed, "f") == {**settings, "hooks": value}
    for key, kept in settings.items():
        if key != "hooks":
            assert json.dumps(key, ensure_ascii=False).encode() in changed
            assert json.dumps(kept, indent=None, ensure_ascii=False).encode() in changed or indent is not None


@given(_SETTINGS, _INDENTS)
def test_removing_an_added_key_gives_the_same_settings(settings: dict[str, Any], indent: Any) -> None:
    settings.pop("hooks", None)
    content = json.dumps(settings, indent=indent).encode()

    removed = set_key(set_key(content, "hooks", {"a": []}, "f"), "hooks", None, "f")

    assert read_object(removed, "f") == settings
    assert removed == content or not settings


def test_empty_file_becomes_an_object() -> None:
    assert json.loads(set_key(b"", "hooks", {}, "f")) == {"hooks": {}}


@pytest.mark.parametrize("content", [b"[]", b"{", b'{"a": 1, "a": 2}', b"// c\n{}", b'{"a": 1,}', b"\xff", b"[" * 999])
def test_what_is_not_plain_json_is_not_changed(content: bytes) -> None:
    with pytest.raises(ConfigurationError, match="Nothing was changed"):
        set_key(content, "hooks", {}, "f")
