"""Print the largest modules and functions: signs to look at, not limits."""

import argparse
import ast
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("src", "tests")


class Size(NamedTuple):
    lines: int
    place: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--top", type=int, default=15, help="how many of each to print (default: %(default)s)")
    top: int = parser.parse_args().top
    for folder in FOLDERS:
        modules = sorted((ROOT / folder).rglob("*.py"))
        _show(f"{folder}: modules", [module_size(path) for path in modules], top)
        _show(f"{folder}: functions", [size for path in modules for size in function_sizes(path)], top)


def module_size(path: Path) -> Size:
    return Size(len(path.read_text(encoding="utf-8").splitlines()), str(path.relative_to(ROOT)))


def function_sizes(path: Path) -> Iterator[Size]:
    module = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    for name, function in _functions(module, ()):
        lines = (function.end_lineno or function.lineno) - function.lineno + 1
        yield Size(lines, f"{path.relative_to(ROOT)}:{function.lineno} {name}")


def _functions(node: ast.AST, outer: tuple[str, ...]) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _functions(child, outer)
            continue
        names = (*outer, child.name)
        if not isinstance(child, ast.ClassDef):
            yield ".".join(names), child
        yield from _functions(child, names)


def _show(title: str, sizes: Sequence[Size], top: int) -> None:
    print(f"{title}: {_summary([size.lines for size in sizes])}")
    for size in _largest(sizes, top):
        print(f"{size.lines:6}  {size.place}")
    print()


def _largest(sizes: Iterable[Size], top: int) -> list[Size]:
    return sorted(sizes, key=lambda size: (-size.lines, size.place))[:top]


def _summary(lines: Sequence[int]) -> str:
    if len(lines) < 2:  # noqa: PLR2004  a spread needs two
        return f"{len(lines)}, {sum(lines)} lines"
    p90 = quantiles(lines, n=10, method="inclusive")[-1]
    return f"{len(lines)}, {sum(lines)} lines, median {median(lines):.0f}, p90 {p90:.0f}, max {max(lines)}"


if __name__ == "__main__":
    main()
