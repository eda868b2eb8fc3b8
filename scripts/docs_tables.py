"""Tables for the docs: what a struct has, and how a table is written."""

import ast
import inspect
from typing import NamedTuple


class Field(NamedTuple):
    name: str
    type: str
    required: bool
    meaning: str


def fields(kind: type) -> list[Field]:
    """The fields of a struct as its source has them: order, type, and the `#:` lines above each."""
    source = inspect.getsource(kind)
    lines = source.splitlines()
    definition = ast.parse(source).body[0]
    assert isinstance(definition, ast.ClassDef)  # noqa: S101
    return [
        Field(str(node.target.id), ast.unparse(node.annotation), node.value is None, _comment(lines, node.lineno))
        for node in definition.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    ]


def _comment(lines: list[str], line_number: int) -> str:
    above: list[str] = []
    for line in reversed(lines[: line_number - 1]):
        if not line.strip().startswith("#:"):
            break
        above.insert(0, line.strip().removeprefix("#:").strip())
    return " ".join(above)


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    cells = [head, ("---",) * len(head), *(tuple(cell.replace("|", r"\|") for cell in row) for row in rows)]
    return "\n".join("| " + " | ".join(row) + " |" for row in cells)


def amount(number: float, unit: str) -> str:
    if unit.endswith("bytes"):
        for power, name in ((30, "GiB"), (20, "MiB")):
            if number >= 1 << power:
                return f"{int(number) >> power:,} {name}"
        return f"{number:,} bytes"
    return f"{number:g} s" if unit.endswith("seconds") else f"{number:,}"
