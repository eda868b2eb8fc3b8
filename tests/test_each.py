"""A table in one test: every row is tried, and every failure is shown with its row."""

import inspect
from typing import Any

import pytest

from tests.each import each


class Unshowable:
    def __repr__(self) -> str:
        raise ValueError


def test_all_rows_are_tried_and_every_failure_names_its_row() -> None:
    tried: list[Any] = []

    @each("n, word", [(1, "a"), (2, "b"), (3, Unshowable())])
    def check(extra: str, n: int, word: Any) -> None:
        tried.append((extra, n))
        if n == 3:
            pytest.fail("three")
        assert n < 2

    with pytest.raises(BaseExceptionGroup) as failed:
        check(extra="x")

    assert tried == [("x", 1), ("x", 2), ("x", 3)]
    assert list(inspect.signature(check).parameters) == ["extra"]
    assert "2 of 3 cases of check failed" in str(failed.value)
    notes = [error.__notes__ for error in failed.value.exceptions]
    assert notes[0] == ["case: n=2, word='b'"]
    assert "n=3, word=<Unshowable instance" in notes[1][0]


async def test_rows_of_a_coroutine_are_tried_too() -> None:
    @each("n", [1, 2])
    async def check(n: int) -> None:
        assert n == 1

    with pytest.raises(BaseExceptionGroup, match="1 of 2 cases"):
        await check()


def test_a_table_without_rows_and_a_name_that_is_no_parameter_are_mistakes() -> None:
    def check(n: int) -> None:
        raise NotImplementedError(n)

    with pytest.raises(AssertionError, match="no cases"):
        each("n", [])(check)
    with pytest.raises(AssertionError, match="does not take"):
        each("m", [1])(check)
