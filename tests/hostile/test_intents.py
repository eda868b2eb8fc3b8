"""Intents that no sane model would send: each is answered, nothing but what is valid runs, nothing is raised."""

import asyncio
from collections import OrderedDict, UserDict
from dataclasses import dataclass
from enum import IntEnum
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interlock import Limits, ToolIntent, ToolRuntime, tool
from tests.corpora.injection import MORE, load
from tests.hostile.runs import NoText, survives
from tests.patience import HANG_SECONDS
from tests.support import call

ran: list[dict[str, Any]] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


@tool
async def work(x: int, note: str = "") -> str:
    ran.append({"x": x, "note": note})
    return "fine"


@tool(visible=lambda _: False)
async def hidden(x: int) -> None:
    ran.append({"hidden": x})


def runtime() -> ToolRuntime:
    return ToolRuntime(tools=[work, hidden])


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"x": value}
    return value


def cyclic() -> Any:
    value: dict[str, Any] = {}
    value["x"] = value
    return value


class Number(IntEnum):
    ONE = 1


class Text(str):
    __slots__ = ()


ARGUMENTS: dict[str, Any] = {
    "cut off": '{"x": 1',
    "not json": "x = 1",
    "duplicate key": '{"x": 1, "x": 2}',
    "duplicate key inside": '{"x": 1, "note": {"a": 1, "a": 2}}',
    "NaN": '{"x": NaN}',
    "Infinity": '{"x": Infinity}',
    "1e400": '{"x": 1e400}',
    "400 digits": '{"x": 1%s}' % ("0" * 400),
    "beyond 2^53": '{"x": 9007199254740993}',
    "deep text": f'{{"x": {"[" * 200}1{"]" * 200}}}',
    "very deep text": "[" * 100_000,
    "deep": nested(200),
    "very deep": nested(5_000),
    "cyclic": cyclic(),
    "huge": '{"x": "%s"}' % ("a" * 1_000_000),
    "list": "[1]",
    "list value": [1],
    "string": '"text"',
    "number": "1",
    "null": "null",
    "None": None,
    "nan": {"x": float("nan")},
    "set": {"x": {1}},
    "bytes": b'{"x": 1}',
    "bytes inside": {"x": b"1"},
    "object": object(),
    "no text": NoText(),
    "object inside": {"x": NoText()},
    "keys": {1: 2},
    "wrong type": {"x": "many"},
    "float": {"x": 1.5},
    "bool": {"x": True},
    "extra": {"x": 1, "y": 2},
    "missing": {},
    "empty": "",
    "surrogate text": '{"x": "\ud800"}',
    "surrogate escape": '{"x": 1, "note": "\\ud800"}',
    "surrogate": {"x": 1, "note": "\ud800"},
    "surrogate key": {"\ud800": 1},
    "byte order mark": '\ufeff{"x": 1}',
    "two values": '{"x": 1} {"x": 2}',
    "comment": '{"x": 1 /* one */}',
    "single quotes": "{'x': 1}",
    "many values": {"x": [0] * 200_000},
    "user dict": UserDict({"x": 1}),
    "nulls": "\x00" * 10,
}


@pytest.mark.requirement("R207")
@pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=ARGUMENTS)
async def test_arguments_that_are_no_sane_object_are_refused_unexecuted(arguments: Any) -> None:
    intent = ToolIntent(call_id="c1", tool_name="work", arguments=arguments)
    result = await survives(runtime(), intent, call("c2", "work", x=7))

    assert result.observations[0].code in {"arguments_malformed", "arguments_too_large", "schema_invalid"}
    assert ran == [{"x": 7, "note": ""}]


SUBCLASSES: dict[str, Any] = {
    "ordered": OrderedDict(x=1),
    "enum": {"x": Number.ONE},
    "key": {Text("x"): 1},
    "value": {"x": 1, "note": Text("a")},
    "text": Text('{"x": 1}'),
    "whole float": '{"x": 1.0}',
}


@pytest.mark.parametrize("arguments", SUBCLASSES.values(), ids=SUBCLASSES)
async def test_arguments_in_a_subclass_of_a_plain_type_run_or_are_refused(arguments: Any) -> None:
    result = await survives(runtime(), ToolIntent(call_id="c1", tool_name="work", arguments=arguments))

    assert len(ran) == int(result.observations[0].ok)


NAMES: list[Any] = [
    "", None, 5, b"work", ["work"], {}, object(), "a" * 257, "a" * 1_000_000, "wo\x00rk", "wo\nrk", "\x1b[2J",
    "\ud800", "\u200bwork", "work\u202e", "\x7f", "WORK", " work", "work ", "../work", "read artifact", NoText(),
]  # fmt: skip


def _short(name: Any) -> str:
    return repr(name)[:20] if isinstance(name, str | bytes | int) else type(name).__name__


@pytest.mark.requirement("R185", "R207")
@pytest.mark.parametrize("name", NAMES, ids=_short)
async def test_a_name_that_is_no_tool_runs_nothing(name: Any) -> None:
    result = await survives(runtime(), ToolIntent(call_id="c1", tool_name=name, arguments={"x": 1}))

    assert result.observations[0].code in {"unknown_tool", "call_id_invalid"}
    assert ran == []


@pytest.mark.parametrize("call_id", NAMES[:16], ids=_short)
async def test_a_call_without_a_usable_id_is_answered_and_not_executed(call_id: Any) -> None:
    result = await survives(runtime(), ToolIntent(call_id=call_id, tool_name="work", arguments={"x": 1}))

    assert result.observations[0].code == "call_id_invalid"
    assert ran == []


@dataclass
class Broken:
    id: str = "c1"

    @property
    def function(self) -> Any:
        raise ValueError("no function")


class Endless:
    """Every attribute is one more of the same."""

    def __getattr__(self, name: str) -> Any:
        return Endless()


THINGS: dict[str, Any] = {
    "None": None,
    "number": 5,
    "text": '{"id": "c1", "name": "work"}',
    "bytes": b"call",
    "list": [],
    "empty": {},
    "only id": {"id": "c1"},
    "only name": {"name": "work"},
    "function is text": {"id": "c1", "function": "work"},
    "function without arguments": {"id": "c1", "function": {"name": "work"}},
    "keys": {1: 2, None: 3},
    "set": {1, 2},
    "object": object(),
    "no text": NoText(),
    "broken property": Broken(),
    "mock": Mock(),
    "endless": Endless(),
    "class": ToolIntent,
    "exception": ValueError("x"),
    "tool_use without input": {"type": "tool_use", "id": "c1", "name": "work"},
    "nested too deep": {"id": "c1", "function": {"name": "work", "arguments": nested(5_000)}},
}


@pytest.mark.requirement("R207")
@pytest.mark.parametrize("thing", THINGS.values(), ids=THINGS)
async def test_what_is_no_call_at_all_is_answered_beside_a_call_that_runs(thing: Any) -> None:
    result = await survives(runtime(), thing, call("good", "work", x=7))

    assert not result.observations[0].ok
    assert result.observations[1].ok
    assert ran == [{"x": 7, "note": ""}]


async def test_a_reason_that_is_no_text_is_survived() -> None:
    reasons: list[Any] = [None, 5, NoText(), "\ud800", "r" * 1_000_000]
    wishes = [
        ToolIntent(call_id=f"c{number}", tool_name="work", arguments={"x": 1}, reason=reason)
        for number, reason in enumerate(reasons)
    ]
    result = await survives(runtime(), *wishes)

    assert len(result.observations) == 5


async def test_ids_that_are_reused_run_once_or_not_at_all() -> None:
    same = call("c1", "work", x=1)
    result = await survives(runtime(), same, same, call("c2", "work", x=2), call("c2", "work", x=3))

    assert [observation.code for observation in result.observations] == [
        "ok",
        "ok",
        "call_id_conflict",
        "call_id_conflict",
    ]
    assert ran == [{"x": 1, "note": ""}]


@pytest.mark.parametrize("count", [4_097, 10_000])
async def test_more_calls_than_a_batch_may_have_are_all_refused(count: int) -> None:
    calls = [call(f"c{number}", "work", x=number) for number in range(count)]
    async with asyncio.timeout(HANG_SECONDS):
        result = await runtime().execute(calls)

    assert {observation.code for observation in result.observations} == {"batch_too_large"}
    assert len(result.observations) == len(result.messages) == count
    assert ran == []


async def test_a_batch_of_nothing_is_answered_with_nothing() -> None:
    result = await survives(runtime())

    assert (result.observations, result.messages) == ((), [])


async def test_hidden_and_disabled_tools_are_not_reached_by_any_spelling() -> None:
    calls = [
        ToolIntent(call_id=f"c{number}", tool_name=name, arguments={"x": 1})
        for number, name in enumerate(["hidden", "Hidden", "hidden ", "\uff48idden", "hidden\u200b", "__class__"])
    ]
    result = await survives(runtime(), *calls)

    assert not any(observation.ok for observation in result.observations)
    assert ran == []


PAYLOADS = (*(attack.payload for attack in load()), *MORE)
#: What hypothesis can print when it has found something.
_UNPRINTABLE = {"no text", "object inside", "deep", "very deep", "cyclic", "nested too deep"}
_ODD_OBJECTS = {"mock", "endless", "broken property"}
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters(), max_size=20),
    st.binary(max_size=8),
    st.sampled_from(PAYLOADS),
    st.builds(object),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.text(max_size=6), st.integers()), inner, max_size=4),
        st.tuples(inner),
    ),
    max_leaves=12,
)
names = st.one_of(st.sampled_from(["work", "hidden", "read_artifact", "nobody", ""]), values)
ids = st.one_of(st.sampled_from(["a", "b", "good", ""]), values)
arguments: st.SearchStrategy[Any] = st.one_of(
    values,
    st.dictionaries(st.sampled_from(["x", "note"]), values),
    st.builds(repr, values),
    st.sampled_from([value for name, value in ARGUMENTS.items() if name not in _UNPRINTABLE]),
)


def _intent(call_id: Any, name: Any, given: Any) -> ToolIntent:
    return ToolIntent(call_id=call_id, tool_name=name, arguments=given)


def _openai(call_id: Any, name: Any, given: Any) -> dict[str, Any]:
    return {"id": call_id, "function": {"name": name, "arguments": given}}


def _anthropic(call_id: Any, name: Any, given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def _own(call_id: Any, name: Any, given: Any) -> dict[str, Any]:
    return {"id": call_id, "name": name, "arguments": given, "reason": given}


intents: st.SearchStrategy[Any] = st.one_of(
    values,
    st.sampled_from([value for name, value in THINGS.items() if name not in _UNPRINTABLE | _ODD_OBJECTS]),
    st.builds(_intent, ids, names, arguments),
    st.builds(_openai, ids, names, arguments),
    st.builds(_anthropic, ids, names, arguments),
    st.builds(_own, ids, names, arguments),
)


@pytest.mark.requirement("R175", "R207", "R274")
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(intents, max_size=6), st.lists(intents, max_size=3))
async def test_no_intents_raise_and_each_is_answered_and_only_valid_ones_run(
    first: list[Any], second: list[Any]
) -> None:
    ran.clear()
    one = ToolRuntime(tools=[work, hidden], limits=Limits(max_calls_per_batch=5))
    answered = [*(await survives(one, *first)).observations, *(await survives(one, *second)).observations]

    assert all(set(entry) == {"x", "note"} for entry in ran)
    assert len(ran) <= sum(observation.ok and observation.tool == "work" for observation in answered)
    assert not any(observation.ok for observation in answered if observation.tool not in {"work", "read_artifact"})


@given(st.integers(-(2**53) + 1, 2**53 - 1), st.text(st.characters(exclude_categories=["Cs"]), max_size=50))
async def test_every_sane_intent_runs_once_with_what_it_says(x: int, note: str) -> None:
    ran.clear()
    result = await survives(runtime(), call("c1", "work", x=x, note=note))

    assert result.observations[0].ok
    assert ran == [{"x": x, "note": note}]
