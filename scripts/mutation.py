"""Change the code that decides and records, one small change at a time, and see whether a test fails.

`make mutation` works through the modules of `mutation.toml`. One process collects the tests of the chosen modules and
stays as it is: everything else happens in forks of it. The first fork runs all tests once and notes which lines each of
them reaches and how long it takes. Then every mutant is a fork that exchanges the code of one function in memory, or
the value of one private constant, and runs the tests that reach the changed line, the fastest first, until one fails.
No file is written.

Mutants are taken in an order that a fixed seed gives, one module after the other, until all are done or the time is
over. Not changed: texts with spaces, annotations, defaults of arguments, class bodies and public constants. A mutant
that cannot change any behaviour is in `mutation.toml` with the reason. Exits with 1 when a module is below the target.
"""

import argparse
import ast
import gc
import os
import pickle
import random
import signal
import sys
import tempfile
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from time import monotonic, sleep
from types import CodeType, FunctionType
from typing import Any, NamedTuple, TypeVar

import coverage
import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "interlock"
SEED = 15
JOBS = 2
#: The part of the mutants that the tests must notice, in each module.
TARGET = 0.95
#: Tests that reach a mutant are run as long as they took so many seconds in all without it: first different ones, then
#: all others.
FIRST_SECONDS, MAX_SECONDS = 15.0, 60.0
#: A mutant that takes so much longer than its tests without it hangs: it was noticed.
HANG_SECONDS, HANG_FACTOR = 90.0, 4.0
_SURVIVED, _KILLED, _INVALID = 0, 1, 3
T = TypeVar("T")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Mutant(NamedTuple):
    """One change: the node that is exchanged, and where."""

    path: Path
    #: The outermost function around the change, or the constant.
    name: str
    line: int
    #: First line of the function with its decorators; 0 for a constant.
    first_line: int
    before: ast.AST
    after: ast.AST
    change: str

    @property
    def key(self) -> tuple[str, str, str]:
        return str(self.path.relative_to(SOURCE)), self.name, self.change


class Baseline(NamedTuple):
    """A test without a mutant: its seconds, and the lines of each module that it reaches."""

    seconds: float
    lines: dict[str, set[int]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("modules", nargs="*", help="modules below src/interlock (default: all of mutation.toml)")
    parser.add_argument("--minutes", type=float, default=10, help="time for the mutants (default: %(default)s)")
    options = parser.parse_args()
    table: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
    modules: dict[str, str] = table["modules"]
    chosen: list[str] = options.modules or list(modules)
    explained = {(row["module"], row["function"], row["change"]) for row in table.get("equivalent", [])}
    tests = sorted({test for module in chosen for test in table["tests"][modules[module]]})
    work = MutationRun([SOURCE / module for module in chosen], explained, options.minutes * 60)
    arguments = ["-q", "-s", "--no-header", "--inline-snapshot=disable", "--hypothesis-seed=0", "--timeout=30"]
    os.chdir(ROOT)
    code = pytest.main([*arguments, "-p", "no:cacheprovider", *tests], plugins=[work])
    return int(code) or int(work.is_below_target)


class MutationRun:
    """A run of pytest that mutates the modules instead of running the tests once."""

    def __init__(self, paths: list[Path], explained: set[tuple[str, str, str]], seconds: float) -> None:
        self._paths = paths
        self._explained = explained
        self._seconds = seconds
        self.is_below_target = False

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        settings: Any = import_module("hypothesis").settings  # not before pytest, which rewrites it
        settings.register_profile("mutation", settings.get_profile(settings.get_current_profile_name()), database=None)
        settings.load_profile("mutation")
        print(f"running {len(session.items)} tests without a mutant", flush=True)
        baseline = _measure(session, self._paths)
        print(
            f"{len(baseline)} of them pass and take {sum(one.seconds for one in baseline.values()):.0f} s", flush=True
        )
        order = {path: list(find_mutants(path)) for path in self._paths}
        shuffle = random.Random(SEED).shuffle  # noqa: S311 - the same order each time
        for mutants in order.values():
            shuffle(mutants)
        results = self._run(session, baseline, [mutant for turn in _turns(order.values()) for mutant in turn])
        self._report(order, results)
        return True

    def _run(
        self, session: pytest.Session, baseline: dict[str, Baseline], mutants: list[Mutant]
    ) -> dict[Mutant, tuple[int, int]]:
        """Run mutants until the time is over. Return how each ended, and how many tests reach it."""
        functions = _functions({str(path) for path in self._paths})
        items = {item.nodeid: item for item in session.items}
        until, results = monotonic() + self._seconds, dict[Mutant, tuple[int, int]]()
        running: dict[int, tuple[Mutant, int, float, tempfile.TemporaryDirectory[str]]] = {}
        left = [mutant for mutant in reversed(mutants) if mutant.key not in self._explained]
        if missing := {one.key[:2] for one in left if one.first_line and not functions[_place(one)]}:
            raise LookupError(f"these functions are not in memory: {sorted(missing)}")
        while running or (left and monotonic() < until):
            while left and len(running) < JOBS and monotonic() < until:
                mutant = left.pop()
                chosen = _choose_tests(mutant, baseline)
                folder = tempfile.TemporaryDirectory(prefix="mutant-")
                pid = os.fork()
                if not pid:
                    _be_mutant(mutant, functions, session, [items[name] for name in chosen], folder.name)
                expected = sum(baseline[name].seconds for name in chosen)
                running[pid] = mutant, len(chosen), monotonic() + HANG_SECONDS + HANG_FACTOR * expected, folder
            sleep(0.01)
            for pid, (mutant, reached, deadline, folder) in list(running.items()):
                done, status = os.waitpid(pid, os.WNOHANG)
                if not done and monotonic() < deadline:
                    continue
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
                if not done:
                    os.waitpid(pid, 0)
                results[mutant] = (os.waitstatus_to_exitcode(status) if done else _KILLED), reached
                folder.cleanup()
                del running[pid]
        return results

    def _report(self, order: dict[Path, list[Mutant]], results: dict[Mutant, tuple[int, int]]) -> None:
        print(f"\n{'module':42} {'mutants':>8} {'run':>6} {'killed':>7} {'explained':>10} {'score':>7}")
        for path, mutants in order.items():
            ends = Counter(results[mutant][0] for mutant in mutants if mutant in results)
            survived = ends[_SURVIVED]
            killed = ends.total() - survived - ends[_INVALID]
            run = killed + survived
            explained = sum(mutant.key in self._explained for mutant in mutants)
            score = f"{100 * killed / run:.1f} %" if run else "-"
            all_valid = len(mutants) - ends[_INVALID]
            name = str(path.relative_to(SOURCE))
            print(f"{name:42} {all_valid:8} {run:6} {killed:7} {explained:10} {score:>7}")
            self.is_below_target |= killed < TARGET * run
        known = {mutant.key for mutants in order.values() for mutant in mutants}
        modules = {key[0] for key in known}
        for key in sorted(key for key in self._explained - known if key[0] in modules):
            print(f"explained, but there is no such mutant: {key}")
        for mutants in order.values():
            for mutant in sorted(mutants, key=lambda mutant: mutant.line):
                code, reached = results.get(mutant, (_KILLED, 0))
                if code == _SURVIVED:
                    place = f"{mutant.path.relative_to(ROOT)}:{mutant.line}"
                    print(f"survived: {place} {mutant.name}: {mutant.change} ({reached} tests)")


def _turns(columns: Iterable[list[T]]) -> Iterator[list[T]]:
    """Take the last of each column in turn."""
    rest = [list(column) for column in columns]
    while any(rest):
        yield [column.pop() for column in rest if column]


def _measure(session: pytest.Session, paths: list[Path]) -> dict[str, Baseline]:
    """Run all tests in a fork. Return those that pass."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        result = Path(folder, "baseline")
        pid = os.fork()
        if not pid:
            try:
                _isolate(folder)
                result.write_bytes(pickle.dumps(_trace(session, paths)))
            except BaseException as error:  # pytest must not go on in this process
                os.write(_stderr, f"{error!r}\n".encode())
            os._exit(0)
        os.waitpid(pid, 0)
        return pickle.loads(result.read_bytes())  # noqa: S301 - written above


def _trace(session: pytest.Session, paths: list[Path]) -> dict[str, Baseline]:
    tracer = coverage.Coverage(data_file=None, config_file=False, include=[str(path) for path in paths])
    tracer.set_option("run:disable_warnings", ["no-data-collected"])
    tracer.start()
    passed: dict[str, float] = {}
    for item, following in zip(session.items, [*session.items[1:], None], strict=False):
        tracer.switch_context(item.nodeid)
        failed, began = session.testsfailed, monotonic()
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed == failed:
            passed[item.nodeid] = monotonic() - began
        else:
            os.write(_stderr, f"left out, because it fails: {item.nodeid}\n".encode())
    tracer.stop()
    lines: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for path in map(str, paths):
        for line, tests in tracer.get_data().contexts_by_lineno(path).items():
            for test in tests:
                lines[test][path].add(line)
    return {name: Baseline(seconds, dict(lines[name])) for name, seconds in passed.items()}


_stderr = os.dup(2)


def _isolate(folder: str) -> None:
    """Give a fork its own process group and temporary folder, and no output."""
    os.setpgid(0, 0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.environ["TMPDIR"] = os.environ["PYTEST_DEBUG_TEMPROOT"] = tempfile.tempdir = folder


def _choose_tests(mutant: Mutant, baseline: dict[str, Baseline]) -> list[str]:
    """Return the tests that reach the mutant: different ones, then the others, the fastest first."""
    path = str(mutant.path)
    lines = range(mutant.line, mutant.line + 1)
    if not mutant.first_line:  # a constant: where it is used
        tree = ast.parse(mutant.path.read_text())
        uses = (node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == mutant.name)
        lines = [node.lineno for node in uses]
    reached = [name for name, one in baseline.items() if not one.lines.get(path, set()).isdisjoint(lines)]
    # Tests of one file that reach the same lines of the module are alike: one of each kind in turn.
    kinds: dict[tuple[str, frozenset[int]], list[str]] = defaultdict(list)
    for name in sorted(reached, key=lambda name: baseline[name].seconds, reverse=True):
        kinds[name.partition("::")[0], frozenset(baseline[name].lines[path])].append(name)
    seconds = {name: baseline[name].seconds for name in reached}
    in_turn = [name for turn in _turns(kinds.values()) for name in sorted(turn, key=seconds.__getitem__)]
    first = sorted(_take(in_turn, seconds, FIRST_SECONDS), key=seconds.__getitem__)
    rest = sorted(seconds.keys() - first, key=seconds.__getitem__)
    return first + _take(rest, seconds, MAX_SECONDS - FIRST_SECONDS)


def _take(names: list[str], seconds: dict[str, float], most: float) -> list[str]:
    """Return as many of the tests as fit in the time, in their order."""
    taken: list[str] = []
    for name in names:
        if seconds[name] <= most:
            most -= seconds[name]
            taken.append(name)
    return taken


def _functions(paths: set[str]) -> dict[tuple[str, str, int], list[FunctionType]]:
    """Return the functions of these files by file, name and first line, wherever they are kept."""
    found: dict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
    gc.unfreeze()  # the tests freeze what they collect, and frozen objects are not listed
    for function in gc.get_objects():
        if type(function) is FunctionType and function.__code__.co_filename in paths:
            code = function.__code__
            found[code.co_filename, code.co_qualname, code.co_firstlineno].append(function)
    return found


def _place(mutant: Mutant) -> tuple[str, str, int]:
    return str(mutant.path), mutant.name, mutant.first_line


def _be_mutant(
    mutant: Mutant,
    functions: dict[tuple[str, str, int], list[FunctionType]],
    session: pytest.Session,
    items: list[pytest.Item],
    folder: str,
) -> None:
    """Apply the change in this fork, run the tests, and exit."""
    code = _INVALID
    try:
        _isolate(folder)
        if _apply(mutant, functions):
            code = _SURVIVED
            for item, following in zip(items, [*items[1:], None], strict=False):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if session.testsfailed:
                    break
            code = _KILLED if session.testsfailed else _SURVIVED
    except BaseException:  # such as a test run that the mutant stopped
        code = _INVALID if code == _INVALID else _KILLED
    finally:
        os._exit(code)


def _apply(mutant: Mutant, functions: dict[tuple[str, str, int], list[FunctionType]]) -> bool:
    """Exchange the code in memory. Return False if the change does not compile."""
    tree = _trees[mutant.path]
    ast.fix_missing_locations(_Exchange(mutant.before, mutant.after).visit(tree))
    if not mutant.first_line:
        module = sys.modules[f"interlock.{'.'.join(mutant.path.relative_to(SOURCE).with_suffix('').parts)}"]
        statement = next(node for node in tree.body if mutant.name in _assigned(node))
        exec(compile(ast.Module([statement], []), str(mutant.path), "exec"), vars(module))  # noqa: S102
        return True
    try:
        compiled = compile(tree, str(mutant.path), "exec", dont_inherit=True)
    except SyntaxError:
        return False
    codes = {(code.co_qualname, code.co_firstlineno): code for code in _codes(compiled)}
    code = codes[mutant.name, mutant.first_line]
    targets = functions[_place(mutant)]
    if any(len(target.__code__.co_freevars) != len(code.co_freevars) for target in targets):
        return False
    for target in targets:
        target.__code__ = code
    return True


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


class _Exchange(ast.NodeTransformer):
    def __init__(self, before: ast.AST, after: ast.AST) -> None:
        self._before = before
        self._after = after

    def visit(self, node: ast.AST) -> Any:
        return ast.copy_location(self._after, node) if node is self._before else self.generic_visit(node)


_trees: dict[Path, ast.Module] = {}


def find_mutants(path: Path) -> Iterator[Mutant]:
    """List the mutants of a module."""
    tree = _trees[path] = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    for name, first_line, nodes in _places(tree, ""):
        for node in nodes:
            for after in _variants(node):
                before = _show(node)
                change = f"{before} -> {_show(after)}" if not isinstance(after, ast.Pass) else f"without {before}"
                line = node.pattern.lineno if isinstance(node, ast.match_case) else getattr(node, "lineno", first_line)
                yield Mutant(path, name, line, first_line, node, after, change)


def _show(node: ast.AST) -> str:
    match node:
        case ast.match_case():
            guard = f" if {ast.unparse(node.guard)}" if node.guard else ""
            return f"case {ast.unparse(node.pattern)}{guard}"
        case ast.ExceptHandler():
            body = " raise" if isinstance(node.body[0], ast.Raise) else ""
            return f"except {ast.unparse(node.type) if node.type else ''}:{body}"
        case ast.If() | ast.While():
            return f"if {ast.unparse(node.test)}"
        case _:
            return " ".join(ast.unparse(node).split())


def _places(node: ast.Module | ast.ClassDef, outer: str) -> Iterator[tuple[str, int, Iterator[ast.AST]]]:
    """List the outermost functions and the private constants of a module, with the nodes that can be changed."""
    for child in node.body:
        match child:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                first = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
                yield outer + child.name, first, _inside(child)
            case ast.ClassDef():
                yield from _places(child, f"{outer}{child.name}.")
            case ast.Assign() | ast.AnnAssign() if not outer and child.value is not None:
                for name in _assigned(child)[:1]:
                    if name.startswith("_"):
                        yield name, 0, _expressions(child.value)
            case _:
                pass


def _assigned(node: ast.stmt) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _inside(function: _Function) -> Iterator[ast.AST]:
    for statement in function.body:
        yield from _expressions(statement)


def _expressions(node: ast.AST) -> Iterator[ast.AST]:
    """List the nodes of a statement that can be changed. Texts, annotations and defaults are not."""
    match node:
        case ast.JoinedStr() | ast.Assert() | ast.arguments() | ast.pattern():
            return
        case ast.Expr(value=ast.Constant()):
            return
        case ast.Raise():
            yield node
            return
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield from _inside(node)
            return
        case ast.AnnAssign():
            if node.value is not None:
                yield from _expressions(node.value)
            return
        case _:
            yield node
    for child in ast.iter_child_nodes(node):
        yield from _expressions(child)


_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_OPERATORS: dict[type[ast.operator], ast.operator] = {
    ast.Add: ast.Sub(),
    ast.Sub: ast.Add(),
    ast.Mult: ast.FloorDiv(),
    ast.Div: ast.Mult(),
    ast.BitOr: ast.BitAnd(),
    ast.BitAnd: ast.BitOr(),
}


def _variants(node: ast.AST) -> Iterator[ast.AST]:
    """List what a node can be exchanged for."""
    yield from _conditions(node)
    yield from _values(node)
    yield from _calls(node)
    yield from _statements(node)


def _conditions(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(ops=[operator], left=left, comparators=compared):
            for other in _COMPARISONS[type(operator)]:
                yield ast.Compare(left, [other()], compared)
        case ast.BoolOp(op=operator, values=values):
            for place in range(len(values)):
                rest = values[:place] + values[place + 1 :]
                yield rest[0] if len(rest) == 1 else ast.BoolOp(operator, rest)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.If() if _is_plain(node.test):
            yield ast.If(_negate(node.test), node.body, node.orelse)
        case ast.IfExp() if _is_plain(node.test):
            yield ast.IfExp(_negate(node.test), node.body, node.orelse)
        case _:
            return


def _values(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.BinOp(op=operator, left=left, right=right) if type(operator) in _OPERATORS:
            if not _is_text(left) and not _is_text(right):
                yield ast.BinOp(left, _OPERATORS[type(operator)], right)
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            yield ast.Constant(value + 1)
        case ast.Constant(value=str() as value) if not any(character.isspace() for character in value):
            yield ast.Constant("mutant")
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant | ast.List):
            yield ast.Return(None)
        case _:
            return


def _calls(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Call(func=ast.Name(id="suppress"), args=[_, *_]):
            yield ast.Call(node.func, [], [])
        case ast.Call(keywords=[_, *_]):
            for place, keyword in enumerate(node.keywords):
                if keyword.arg is not None:
                    yield ast.Call(node.func, node.args, node.keywords[:place] + node.keywords[place + 1 :])
        case _:
            return


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Expr() | ast.Raise() | ast.Continue() | ast.Break() | ast.Delete() | ast.AugAssign():
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()
        case ast.ExceptHandler() if not isinstance(node.body[0], ast.Raise):
            yield ast.ExceptHandler(node.type, node.name, [ast.Raise()])
        case ast.match_case():
            yield ast.match_case(node.pattern, ast.Constant(value=False), node.body)
        case _:
            return


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _is_plain(test: ast.expr) -> bool:
    """Return True for a condition that no other change negates."""
    return not isinstance(test, ast.Compare) and not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not))


def _negate(test: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.Not(), test)


if __name__ == "__main__":
    sys.exit(main())
