"""Strict JSON: what two readers could understand differently is refused."""

import json
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.domain.json import (
    MAX_DEPTH,
    MAX_INTEGER,
    InvalidJsonError,
    Json,
    JsonObject,
    check_value,
    encode,
    encode_sorted,
    is_too_deep,
    parse,
)
from tests.each import each


def nested(depth: int, inner: str = "", opening: str = "[", closing: str = "]") -> str:
    return opening * depth + inner + closing * depth


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-MAX_INTEGER, MAX_INTEGER)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON)
def test_plain_json_is_parsed_as_it_is(value: Json) -> None:
    check_value(value)

    assert parse(encode(value).decode()) == value
    assert parse(json.dumps(value)) == value


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 2}',
        '{"a": 1, "\\u0061": 2}',
        '[{"a": {"b": 1, "c": 2, "b": 1}}]',
    ],
)
def test_an_object_with_a_key_twice_is_refused(text: str) -> None:
    with pytest.raises(InvalidJsonError, match="duplicate key"):
        parse(text)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", '{"a": NaN}', "[1, Infinity]"])
def test_words_for_numbers_that_json_has_not_are_refused(text: str) -> None:
    with pytest.raises(InvalidJsonError):
        parse(text)


@pytest.mark.parametrize("text", ["1e400", "-1e400", '{"a": [1E+309]}', "1.0e00400", "1" * 400 + ".0"])
def test_a_number_beyond_a_float_is_refused(text: str) -> None:
    with pytest.raises(InvalidJsonError, match="not finite"):
        parse(text)


@pytest.mark.parametrize("number", [MAX_INTEGER, -MAX_INTEGER])
def test_the_largest_integer_that_every_reader_keeps_is_allowed(number: int) -> None:
    assert MAX_INTEGER == 2**53 - 1
    assert parse(f'{{"n": {number}}}') == {"n": number}


@pytest.mark.parametrize("number", [2**53, -(2**53), 10**20, -(10**400)])
def test_an_integer_that_some_readers_round_is_refused(number: int) -> None:
    with pytest.raises(InvalidJsonError, match=r"beyond 2\^53-1"):
        parse(f'{{"n": [{number}]}}')


@pytest.mark.parametrize("inner", ["", "1"])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_64_levels_are_allowed_and_65_are_not(inner: str, opening: str, closing: str) -> None:
    innermost = inner if opening == "[" else inner or "{}"
    depth = MAX_DEPTH if innermost != "{}" else MAX_DEPTH - 1
    parse(nested(depth, innermost, opening, closing))

    assert MAX_DEPTH == 64
    with pytest.raises(InvalidJsonError, match="nested deeper than 64 levels"):
        parse(nested(depth + 1, innermost, opening, closing))


@given(JSON, st.integers(0, 6))
def test_depth_is_found_without_parsing(value: Json, limit: int) -> None:
    def depth(value: Json) -> int:
        match value:
            case dict():
                inner = list(cast(JsonObject, value).values())
            case list():
                inner = cast(list[Json], value)
            case _:
                return 0
        return 1 + max(map(depth, inner), default=0)

    assert is_too_deep(encode(value), limit) is (depth(value) > limit)


@pytest.mark.parametrize(
    "text", [b"[" * 257, b'["\\"[", ' + b"[" * 256, b'{"a":' * 257, b'"' + b"[" * 300 + b'"' + b"[" * 257]
)
def test_depth_of_broken_text_is_found(text: bytes) -> None:
    assert is_too_deep(text)
    assert not is_too_deep(b'"' + b"[" * 1000)


def test_depth_that_would_break_a_parser_is_refused() -> None:
    with pytest.raises(InvalidJsonError):
        parse(nested(1_000_000))


def test_brackets_in_text_are_not_depth() -> None:
    assert parse(json.dumps("[" * 100)) == "[" * 100


@pytest.mark.parametrize("text", ['"\\ud800"', '"\\udc00"', '{"\\ud800": 1}', '"\ud800"'], ids=ascii)
def test_half_of_a_surrogate_pair_is_refused(text: str) -> None:
    with pytest.raises(InvalidJsonError):
        parse(text)


def test_a_whole_surrogate_pair_is_a_character() -> None:
    assert parse('"\\ud83d\\ude00"') == "\N{GRINNING FACE}"


@each("text", ["", "{", "[1,]", '{"a": 1} {"b": 2}', "{'a': 1}", '"\n"', "// no\n1", "\ufeff1"])
def test_what_is_almost_json_is_refused(text: str) -> None:
    with pytest.raises(InvalidJsonError):
        parse(text)


@each(
    ("value", "why"),
    [
        ({1: "a"}, "an object key is a int"),
        ({"a": {None: 1}}, "an object key is a NoneType"),
        ([float("nan")], "not finite"),
        ([float("-inf")], "not finite"),
        (2**53, r"beyond 2\^53-1"),
        ((1, 2), "a tuple is not JSON"),
        ({"a": {1, 2}}, "a set is not JSON"),
        ([b"bytes"], "a bytes is not JSON"),
        (["\ud800"], "a lone surrogate"),
        ({"\udfff": 1}, "a lone surrogate"),
    ],
)
def test_a_value_that_is_not_plain_json_is_refused(value: Json, why: str) -> None:
    with pytest.raises(InvalidJsonError, match=why):
        check_value(value)


@given(st.dictionaries(st.text(), JSON))
def test_the_order_of_keys_does_not_change_the_sorted_bytes(value: dict[str, Json]) -> None:
    backwards = dict(reversed(value.items()))

    assert encode_sorted(value) == encode_sorted(backwards)
    assert parse(encode_sorted(value).decode()) == value
