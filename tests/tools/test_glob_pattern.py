"""Glob patterns: which paths they mean, where they begin, and that none of them takes long."""

from fnmatch import fnmatchcase
from itertools import takewhile
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.domain.errors import PreconditionError
from interlock.sandbox.workspace.refusals import PathRefusedError
from interlock.tools.search.glob_pattern import GlobPattern, parse_pattern
from tests.each import each

PATHS = ("a.py", "b.ts", "src/a.py", "src/x/b.py", "src/x/y/c.ts", "tests/src/d.py", "src/{e}", "src/[f].py")


def meant(text: str) -> list[str]:
    """As the search does it: from the folder on, by the whole path or by the last name."""
    pattern = parse_pattern(text)
    return [path for path in PATHS if _is_meant(pattern, path)]


def _is_meant(pattern: GlobPattern, path: str) -> bool:
    folder = f"{pattern.folder}/" if pattern.folder else ""
    rest = path.removeprefix(folder)
    if not path.startswith(folder) or (pattern.depth is not None and rest.count("/") >= pattern.depth):
        return False
    if pattern.matches is not None:
        return pattern.matches(rest.encode())
    return not pattern.names or any(fnmatchcase(rest.rpartition("/")[2], name) for name in pattern.names)


@each(
    ("text", "paths"),
    [
        ("*.py", ["a.py", "src/a.py", "src/x/b.py", "tests/src/d.py", "src/[f].py"]),
        ("./*.py", ["a.py"]),
        ("src/*.py", ["src/a.py", "src/[f].py"]),
        ("src/**/*.py", ["src/a.py", "src/x/b.py", "src/[f].py"]),
        ("src/**", ["src/a.py", "src/x/b.py", "src/x/y/c.ts", "src/{e}", "src/[f].py"]),
        ("src/", ["src/a.py", "src/x/b.py", "src/x/y/c.ts", "src/{e}", "src/[f].py"]),
        ("**/src/*.py", ["src/a.py", "tests/src/d.py", "src/[f].py"]),
        ("*/*/*.py", ["src/x/b.py", "tests/src/d.py"]),
        ("**/x/**/*.ts", ["src/x/y/c.ts"]),
        ("{src,tests}/**/*.{py,ts}", ["src/a.py", "src/x/b.py", "src/x/y/c.ts", "tests/src/d.py", "src/[f].py"]),
        ("src/{x/b.py,a.py}", ["src/a.py", "src/x/b.py"]),
        ("{a,{b,c}}.{py,ts}", ["a.py", "b.ts", "src/a.py", "src/x/b.py", "src/x/y/c.ts"]),
        ("src/?.py", ["src/a.py"]),
        ("src/[ab].py", ["src/a.py"]),
        ("*/[!a].py", []),
        ("*/[^b]*.py", ["src/a.py", "src/[f].py"]),
        (r"*/\{e\}", ["src/{e}"]),
        ("*/[{]e}", ["src/{e}"]),
        (r"*/\[f].py", ["src/[f].py"]),
        ("**", list(PATHS)),
        ("**/**/*", list(PATHS)),
        (".", list(PATHS)),
        ("src/a.py", ["src/a.py"]),
        ("src/missing", []),
    ],
)
def test_a_pattern_means_these_paths(text: str, paths: list[str]) -> None:
    assert meant(text) == paths


@each(
    ("text", "folder"),
    [
        ("*.py", ""),
        ("src/*.py", "src"),
        ("src/x/b.py", "src/x"),
        ("./src//x/**", "src/x"),
        ("src/{x,y}/*", "src"),
        ("src/{x/a,x/b}", "src/x"),
        ("/ws/src/**/*.py", "/ws/src"),
        ("/*", "/"),
        ("d/**", "d"),
        ("s*/x/*", ""),
        (r"s\*/x", ""),
    ],
)
def test_a_pattern_begins_in_the_folder_that_it_spells_out(text: str, folder: str) -> None:
    assert parse_pattern(text).folder == folder


@each("text", ["..", "../*", "a/../b", "**/../*", "{a,..}/x", "{a,../b}", "a/..", "/ws/../x", "../"])
def test_a_pattern_that_leads_up_is_refused(text: str) -> None:
    with pytest.raises(PathRefusedError) as refused:
        parse_pattern(text)
    assert refused.value.kind == "outside"


@pytest.mark.parametrize(
    "text", ["{a", "{a,{b}", "a\0b", "{a,b}" * 7, "{" * 500 + "}" * 499, "{a,b,c,d}{a,b,c,d}{a,b,c,d,e}"]
)
def test_what_is_no_pattern_is_said_in_words(text: str) -> None:
    with pytest.raises(PreconditionError, match="glob pattern cannot be used"):
        parse_pattern(text)


@pytest.mark.parametrize(
    "text", ["*/" + "*a" * 200 + "b", "*/" + "**/" * 200 + "b", "*/" + "a*" * 300, "**/a/" * 150 + "b"]
)
def test_no_pattern_takes_long(text: str) -> None:
    matches = parse_pattern(text).matches
    assert matches is not None
    began = process_time()
    matches(b"x/" + b"a" * 250)
    matches(b"a/" * 2_000 + b"c")

    assert process_time() - began < 1


@given(
    st.lists(
        st.sampled_from(["**", "*", "a", "b", "a*", "*a*b*", "?b", "[ab]", "[!a]*", "a*b*a"]), min_size=2, max_size=5
    ),
    st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=5),
)
def test_paths_are_matched_as_a_plain_search_would(pattern: list[str], names: list[str]) -> None:
    read = parse_pattern("/".join(pattern))
    assert read.folder == "/".join(takewhile(lambda name: name in "ab", pattern[:-1]))
    rest = [*pattern[read.folder.count("/") + 1 if read.folder else 0 :]]
    if read.matches is not None:
        assert read.matches("/".join(names).encode()) == fits(rest, names)


def fits(pattern: list[str], names: list[str]) -> bool:
    """Try everything."""
    if not pattern or not names:
        return pattern == names
    if pattern[0] == "**":
        return pattern == ["**"] or fits(pattern[1:], names) or fits(pattern, names[1:])
    return fnmatchcase(names[0], pattern[0]) and fits(pattern[1:], names[1:])


@given(st.text("ab*?[]{},/\\.!^-", max_size=30), st.text("ab/.", min_size=1, max_size=20))
def test_every_text_is_a_pattern_or_refused(text: str, path: str) -> None:
    try:
        pattern = parse_pattern(text)
    except (PathRefusedError, PreconditionError):
        return
    assert ".." not in pattern.folder.split("/")
    if pattern.matches is not None:
        pattern.matches(path.encode())
