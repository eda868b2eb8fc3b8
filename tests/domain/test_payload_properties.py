"""Over many payloads: one canonical form per value, and no bound field can change without the hash."""

from typing import Any, TypeAlias

import msgspec
import pytest
import rfc8785
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interlock.domain import json
from interlock.domain.payload import (
    ApprovalBinding,
    ExecutionEnvironment,
    FileOperand,
    Payload,
    canonical_payload,
    hash_payload,
    read_canonical_arguments,
)
from tests.each import each

MANY = settings(database=None, suppress_health_check=[HealthCheck.too_slow])
SOME = settings(MANY)

WORDS = st.text(max_size=8)
#: A whole number beyond 2^53 is written as an integer that nobody may read back, so it cannot be approved.
NUMBERS = st.floats(allow_nan=False, allow_infinity=False).filter(
    lambda number: not number.is_integer() or abs(number) < 2**53
)
SCALARS = st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | NUMBERS | WORDS
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3), max_leaves=6
)
ARGUMENTS = st.dictionaries(WORDS, VALUES, max_size=3)
VARIABLES = st.dictionaries(WORDS, WORDS, max_size=2)
FILES = st.builds(FileOperand, path=WORDS, sha256=WORDS, unbound=WORDS)

#: One payload with nothing in it, and one with everything.
BARE = Payload("", "", "", {}, ApprovalBinding(surroundings=ExecutionEnvironment(files=(FileOperand(""),))))
FULL = Payload(
    "run_1",
    "call_1",
    "edit",
    {"path": "notes.txt", "lines": [1, 2.5, None]},
    ApprovalBinding(
        tool_origin="mcp",
        tool_source="files",
        tool_version="2",
        tool_definition="sha256:ab",
        policy="sha256:cd",
        requester="ada",
        surroundings=ExecutionEnvironment(
            cwd="/work",
            environment={"CI": "1"},
            sandbox="none/async",
            files=(FileOperand("notes.txt", "ef"), FileOperand("src", unbound="a folder")),
        ),
    ),
    1_700_000_000_000_000_000,
)

#: Where the field is, from the payload on, and what it may hold.
Path: TypeAlias = tuple[str | int, ...]
FIELDS: dict[str, tuple[Path, st.SearchStrategy[Any]]] = {
    "run": (("run_id",), WORDS),
    "call": (("call_id",), WORDS),
    "tool name": (("tool_name",), WORDS),
    "tool origin": (("bound", "tool_origin"), WORDS),
    "tool source": (("bound", "tool_source"), WORDS),
    "tool version": (("bound", "tool_version"), WORDS),
    "tool definition": (("bound", "tool_definition"), WORDS),
    "arguments": (("arguments",), st.dictionaries(WORDS, SCALARS | st.lists(SCALARS, max_size=2), max_size=2)),
    "cwd": (("bound", "surroundings", "cwd"), WORDS),
    "environment": (("bound", "surroundings", "environment"), VARIABLES),
    "sandbox": (("bound", "surroundings", "sandbox"), WORDS),
    "files": (("bound", "surroundings", "files"), st.lists(FILES, max_size=2).map(tuple)),
    "file path": (("bound", "surroundings", "files", 0, "path"), WORDS),
    "file digest": (("bound", "surroundings", "files", 0, "sha256"), WORDS),
    "file unbound": (("bound", "surroundings", "files", 0, "unbound"), WORDS),
    "policy": (("bound", "policy"), WORDS),
    "mode": (("bound", "mode"), WORDS),
    "requester": (("bound", "requester"), WORDS),
    "expires": (("expires_at",), st.integers(0, 2**63)),
}


def with_value(whole: Any, path: Path, value: Any) -> Any:
    """The same, with another value at this place."""
    if not path:
        return value
    first, *rest = path
    if isinstance(first, int):
        return (*whole[:first], with_value(whole[first], tuple(rest), value), *whole[first + 1 :])
    return msgspec.structs.replace(whole, **{first: with_value(getattr(whole, first), tuple(rest), value)})


@pytest.mark.requirement("D12", "R161")
@each("field", FIELDS)
def test_no_bound_field_can_change_without_the_hash(field: str) -> None:
    path, values = FIELDS[field]
    originals = [(payload, hash_payload(canonical_payload(payload))) for payload in (BARE, FULL)]

    @MANY
    @given(values)
    def differs(value: Any) -> None:
        for payload, original in originals:
            mutated = with_value(payload, path, value)
            assert (hash_payload(canonical_payload(mutated)) == original) == (mutated == payload)

    differs()


@SOME
@given(VALUES)
def test_what_is_canonical_stays_as_it_is_when_it_is_read_and_written_again(value: Any) -> None:
    canonical = rfc8785.dumps(value)

    assert rfc8785.dumps(json.parse(canonical)) == canonical


@MANY
@given(ARGUMENTS)
def test_the_bytes_are_those_that_the_reference_writes_whatever_way_they_are_made(arguments: dict[str, Any]) -> None:
    canonical = canonical_payload(msgspec.structs.replace(FULL, arguments=arguments))

    assert canonical == rfc8785.dumps({**json.parse(canonical), "arguments": arguments})


@pytest.mark.requirement("D12")
@SOME
@given(ARGUMENTS)
def test_arguments_read_back_from_the_canonical_bytes_are_those_that_went_in(arguments: dict[str, Any]) -> None:
    payload = msgspec.structs.replace(FULL, arguments=arguments)
    canonical = canonical_payload(payload)

    assert read_canonical_arguments(canonical) == arguments
    again = msgspec.structs.replace(payload, arguments=read_canonical_arguments(canonical))
    assert canonical_payload(again) == canonical


@SOME
@given(VALUES, VALUES)
def test_different_values_have_different_bytes_and_equal_ones_the_same(one: Any, other: Any) -> None:
    same_bytes = rfc8785.dumps(one) == rfc8785.dumps(other)

    assert same_bytes == (_told_apart(one) == _told_apart(other))


@SOME
@given(
    st.recursive(
        st.floats() | st.integers() | st.binary() | st.text(st.characters(), max_size=4), st.lists, max_leaves=4
    )
)
def test_any_value_has_one_canonical_form_or_is_refused(value: Any) -> None:
    try:
        again = read_canonical_arguments(canonical_payload(Payload("run", "call", "tool", {"value": value})))
    except json.InvalidJsonError:
        return
    assert again == {"value": value}


def _told_apart(value: Any) -> Any:
    """The value with its kind: Python takes True for 1."""
    match value:
        case bool() | None:
            return repr(value)
        case dict():
            return {key: _told_apart(inner) for key, inner in value.items()}  # pyright: ignore[reportUnknownVariableType]
        case list():
            return [_told_apart(inner) for inner in value]  # pyright: ignore[reportUnknownVariableType]
        case _:
            return ("text", value) if isinstance(value, str) else ("number", value)
