"""Many cases in one test: `@each("words, expected", CASES)` stands where `pytest.mark.parametrize` would.

A test of its own costs every worker some milliseconds, and a table has hundreds of rows. All rows are tried, and every
one that fails is shown with its values. It is for cases that differ in data only: what needs a fixture of its own, or
takes long, stays a test of its own.
"""

import functools
import inspect
import reprlib
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import pytest

_Test: TypeAlias = Callable[..., Any]
#: Values may be long, deep, or have no representation.
_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = 200


def each(names: str | Sequence[str], cases: Iterable[Any]) -> Callable[[_Test], _Test]:
    """Run a test for every case. Fail with all failures, each with its case as a note."""
    fields = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    rows = [dict(zip(fields, case if len(fields) > 1 else (case,), strict=True)) for case in cases]

    def decorate(test: _Test) -> _Test:
        assert rows, f"{test.__name__} has no cases"
        if inspect.iscoroutinefunction(test):

            @functools.wraps(test)
            async def run_async(**given: Any) -> None:
                with _collect(test, len(rows)) as failed:
                    for row in rows:
                        try:
                            await test(**given, **row)
                        except (Exception, pytest.fail.Exception) as error:
                            failed.append(_with_case(error, row))

            return _without(run_async, test, fields)

        @functools.wraps(test)
        def run(**given: Any) -> None:
            with _collect(test, len(rows)) as failed:
                for row in rows:
                    try:
                        test(**given, **row)
                    except (Exception, pytest.fail.Exception) as error:
                        failed.append(_with_case(error, row))

        return _without(run, test, fields)

    return decorate


@contextmanager
def _collect(test: _Test, count: int) -> Generator[list[BaseException]]:
    failed: list[BaseException] = []
    yield failed
    if failed:
        raise BaseExceptionGroup(f"{len(failed)} of {count} cases of {test.__name__} failed", failed)


def _with_case(error: BaseException, row: dict[str, Any]) -> BaseException:
    error.add_note("case: " + ", ".join(f"{name}={_SHOWN.repr(value)}" for name, value in row.items()))
    return error


def _without(run: _Test, test: _Test, fields: list[str]) -> _Test:
    """Leave the fields out of what pytest looks for as fixtures."""
    signature = inspect.signature(test)
    assert set(fields) <= signature.parameters.keys(), f"{test.__name__} does not take {fields}"
    rest = [parameter for name, parameter in signature.parameters.items() if name not in fields]
    setattr(run, "__signature__", signature.replace(parameters=rest))  # noqa: B010 - functions do not declare it
    return run
