"""The tie between what must hold (`requirements.toml`) and the tests that prove it, in both directions.

Tests are read with `ast` and not imported, so this says the same whatever is selected, skipped or broken elsewhere.
A mark counts on a test function, on a test class, or as a module's `pytestmark`; anywhere else it is a mistake, for
nobody would see what it proves. `python -m tests.test_requirements` prints which tests prove which line.
"""

import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple, TypeAlias

import pytest

TESTS = Path(__file__).parent
STAGES = ("core", "policy", "local-tools", "agent", "service")
IDS = [
    f"{kind}{number:0{width}}"
    for kind, width, numbers in (
        ("D", 2, range(1, 16)),
        ("P", 2, range(1, 32)),
        ("R", 3, range(1, 280)),
    )
    for number in numbers
]


class Line(NamedTuple):
    id: str
    source: str
    #: One of `STAGES`; more or fewer than one word here is a mistake in the data.
    stage: str
    sentence: str
    note: str


class Mark(NamedTuple):
    """One use of `pytest.mark.requirement`. `test` is empty where it sits on no test."""

    test: str
    place: str
    ids: tuple[str, ...]
    literal: bool


def lines() -> list[Line]:
    sources: dict[str, dict[str, dict[str, str]]] = tomllib.loads((TESTS / "requirements.toml").read_text("utf-8"))
    return [_line(id_, source, words) for source, entries in sources.items() for id_, words in entries.items()]


def _line(id_: str, source: str, words: dict[str, str]) -> Line:
    stages = {word: sentence for word, sentence in words.items() if word != "note"}
    return Line(id_, source, " ".join(stages), " ".join(stages.values()), words.get("note", ""))


@cache
def marks() -> tuple[Mark, ...]:
    """Every requirement mark in this folder."""
    sources = ((file.read_text("utf-8"), _name(file)) for file in sorted(TESTS.rglob("*.py")))
    return tuple(mark for source, name in sources if "mark.requirement" in source for mark in marks_in(source, name))


def _name(file: Path) -> str:
    return file.relative_to(TESTS.parent).as_posix()


_Test: TypeAlias = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def marks_in(source: str, file: str) -> list[Mark]:
    module = ast.parse(source, file)
    owners = {id(node): test for test, place in _places(module, file) for node in ast.walk(place)}
    calls = {id(node.func): node for node in ast.walk(module) if isinstance(node, ast.Call)}
    found = [node for node in ast.walk(module) if isinstance(node, ast.Attribute) and _is_mark(node)]
    return [_mark(calls.get(id(node)), owners.get(id(node), ""), f"{file}:{node.lineno}") for node in found]


def _places(scope: ast.Module | _Test, name: str) -> Iterator[tuple[str, ast.AST]]:
    """Where a mark may be: decorators of tests, and `pytestmark` of modules and test classes."""
    if not isinstance(scope, ast.Module):
        yield from ((name, decorator) for decorator in scope.decorator_list)
    if isinstance(scope, ast.Module | ast.ClassDef):
        for node in scope.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
                yield name, node.value
            elif isinstance(node, _Test) and _is_test(node):
                yield from _places(node, f"{name}::{node.name}")


def _is_test(node: _Test) -> bool:
    """A class that holds tests counts under any name: a suite that other modules inherit is not collected itself."""
    if isinstance(node, ast.ClassDef):
        return node.name.startswith("Test") or any(_is_test(inner) for inner in node.body if isinstance(inner, _Test))
    return node.name.startswith("test_")


def _is_mark(node: ast.Attribute) -> bool:
    return node.attr == "requirement" and ast.unparse(node.value).endswith("mark")


def _mark(call: ast.Call | None, test: str, place: str) -> Mark:
    given = [] if call is None else [*call.args, *(keyword.value for keyword in call.keywords)]
    ids = [node.value for node in given if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    literal = call is not None and not call.keywords and 0 < len(given) == len(ids)
    return Mark(test, place, tuple(ids), literal)


def proofs(found: Iterable[Mark]) -> dict[str, list[str]]:
    """Which tests prove a line, by its id."""
    tests: defaultdict[str, list[str]] = defaultdict(list)
    for mark in found:
        for id_ in mark.ids if mark.test else ():
            tests[id_].append(mark.test)
    return dict(tests)


def report() -> str:
    """The lines in the order of the data, each with its stage and the tests that prove it."""
    tests, known = proofs(marks()), lines()
    rows = [f"{line.id:5} {line.stage:12} {', '.join(tests.get(line.id, ['-']))}" for line in known]
    counts = (_count(stage, [line for line in known if line.stage == stage], tests) for stage in STAGES)
    return "\n".join([*rows, "", *counts])


def _count(stage: str, of_stage: list[Line], tests: dict[str, list[str]]) -> str:
    return f"{stage}: {sum(line.id in tests for line in of_stage)} of {len(of_stage)} lines are named by a test"


def test_the_ids_are_complete_and_unique() -> None:
    assert [line.id for line in lines()] == IDS


def test_every_line_has_one_stage_and_says_one_sentence() -> None:
    wrong = [line for line in lines() if line.stage not in STAGES or not line.sentence.endswith(".")]
    assert wrong == []


def test_no_two_lines_say_the_same() -> None:
    sentences = [line.sentence for line in lines()]
    assert len(set(sentences)) == len(sentences)


def test_every_core_line_is_named_by_a_test() -> None:
    tests = proofs(marks())
    missing = [f"{line.id} {line.sentence}" for line in lines() if line.stage == "core" and line.id not in tests]
    assert not missing, "\n".join([f"no test names these {len(missing)} core lines:", *missing])


def test_every_id_that_a_test_names_exists() -> None:
    unknown = [f"{mark.place} {id_}" for mark in marks() for id_ in mark.ids if id_ not in IDS]
    assert not unknown, "\n".join(["no such line in requirements.toml:", *unknown])


def test_requirement_marks_take_only_literal_ids() -> None:
    wrong = [mark.place for mark in marks() if not mark.literal]
    assert not wrong, "\n".join(['write the ids out, as in @pytest.mark.requirement("R044"):', *wrong])


def test_requirement_marks_sit_on_tests() -> None:
    astray = [mark.place for mark in marks() if not mark.test]
    assert not astray, "\n".join(["put the mark on a test, a test class or the module's pytestmark:", *astray])


def test_marks_are_found_on_functions_classes_modules_and_parameters() -> None:
    source = """
        pytestmark = [pytest.mark.timeout(5), pytest.mark.requirement("R001")]

        @pytest.mark.requirement("R002", "R003")
        async def test_one(): ...

        @mark.requirement("R004")
        class TestMany:
            pytestmark = pytest.mark.requirement("R005")

            @pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.requirement("R006"))])
            def test_two(self, n): ...

        class Suite:
            @pytest.mark.requirement("R007")
            def test_three(self): ...
    """
    assert proofs(marks_in(dedent(source), "t.py")) == {
        "R001": ["t.py"],
        "R002": ["t.py::test_one"],
        "R003": ["t.py::test_one"],
        "R004": ["t.py::TestMany"],
        "R005": ["t.py::TestMany"],
        "R006": ["t.py::TestMany::test_two"],
        "R007": ["t.py::Suite::test_three"],
    }


@pytest.mark.parametrize("arguments", ["(ID)", "(f'R001')", "(*IDS)", "(1)", "('R001', ID)", "(id='R001')", "()", ""])
def test_a_mark_with_anything_but_literal_strings_is_seen(arguments: str) -> None:
    [mark] = marks_in(f"@pytest.mark.requirement{arguments}\ndef test_it(): ...", "t.py")
    assert not mark.literal


@pytest.mark.parametrize(
    "source",
    [
        "proves = pytest.mark.requirement('R001')",
        "@pytest.mark.requirement('R001')\ndef helper(): ...",
        "@pytest.mark.requirement('R001')\nclass Fake: ...",
        "def test_it():\n    pytest.mark.requirement('R001')",
    ],
)
def test_a_mark_that_sits_on_no_test_is_seen_and_proves_nothing(source: str) -> None:
    found = marks_in(source, "t.py")
    assert [mark.place.split(":")[0] for mark in found if not mark.test] == ["t.py"]
    assert proofs(found) == {}


if __name__ == "__main__":
    print(report())
