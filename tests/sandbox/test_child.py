"""What a handler's value becomes on its way out of a process."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError

from interlock.sandbox.handlers.child import to_json_bytes
from tests.each import each

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


class Opaque:
    def __str__(self) -> str:
        return "an opaque object"


class Seat(msgspec.Struct):
    row: int
    note: object


@dataclass
class Ticket:
    file: Path


class Booking(BaseModel):
    tickets: set[int]


@given(JSON)
def test_json_data_comes_out_as_it_is(value: Any) -> None:
    assert msgspec.json.decode(to_json_bytes(value)) == value


@each(
    ("value", "nearest"),
    [
        (b"text", "text"),
        ([b"\xff\xfe"], ["__4="]),
        (float("nan"), "NaN"),
        ((1, 2), [1, 2]),
        (Ticket(Path("/a")), {"file": "/a"}),
        (Booking(tickets={1}), {"tickets": [1]}),
        (Seat(3, Opaque()), {"row": 3, "note": "an opaque object"}),
        ({"here": Opaque()}, {"here": "an opaque object"}),
    ],
)
def test_what_is_no_json_becomes_what_is_nearest_to_it(value: Any, nearest: Any) -> None:
    assert msgspec.json.decode(to_json_bytes(value)) == nearest


def test_text_that_cannot_be_encoded_is_an_error() -> None:
    with pytest.raises(PydanticSerializationError, match="surrogates not allowed"):
        to_json_bytes("\ud800")
