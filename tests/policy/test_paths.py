"""Where a path leads, from every folder that it may start in."""

import os
from pathlib import Path
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.policy.engine.paths import PathResolver, PathTarget


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "project"
    (made / "src").mkdir(parents=True)
    (made / "src" / "a.py").write_text("1")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return made


def relatives(root: Path, given_path: str, bases: tuple[str, ...] = ("",)) -> set[str | None]:
    return {place.relative for place in PathResolver(str(root)).resolve(given_path, writes=False, bases=bases).targets}


@pytest.mark.parametrize(
    ("path", "relative"),
    [
        ("src/a.py", "src/a.py"),
        ("./src//a.py/", "src/a.py"),
        ("src/../src/./a.py", "src/a.py"),
        ("", "."),
        (".", "."),
        ("src/..", "."),
        ("new/file", "new/file"),
        ("..", None),
        ("../project-evil/x", None),
        ("/etc/passwd", None),
        ("//etc/passwd", None),
        (" src/a.py", " src/a.py"),
        ("src/a.py ", "src/a.py "),
        ("src/a.py.", "src/a.py."),
        ("src\\a.py", "src\\a.py"),
    ],
)
def test_a_path_is_named_from_the_workspace_on(path: str, relative: str | None, root: Path) -> None:
    assert relatives(root, path) == {relative}


def test_an_absolute_path_into_the_workspace_is_inside(root: Path) -> None:
    for path in (f"{root}/src/a.py", f"/{root}/src/a.py", f"{root}/../project/src/a.py"):
        assert relatives(root, path) == {"src/a.py"}


def test_home_is_where_the_environment_says_and_a_tilde_may_be_a_name(root: Path) -> None:
    found = PathResolver(str(root)).resolve("~/.ssh/id", writes=False)

    assert {place.absolute for place in found.targets} == {f"{root}/~/.ssh/id", f"{root.parent}/home/.ssh/id"}
    assert not found.is_inside_workspace


def test_every_folder_that_a_command_may_run_in_counts(root: Path) -> None:
    assert relatives(root, "a.py", ("", "src", "/tmp", "src/..")) == {"a.py", "src/a.py", None}
    assert PathResolver(str(root)).is_inside("a.py", ("", "src"))
    assert not PathResolver(str(root)).is_inside("a.py", ("", "/tmp"))


def test_a_link_leads_to_two_places(root: Path, tmp_path: Path) -> None:
    (root / "out").symlink_to(tmp_path)
    found = PathResolver(str(root)).resolve("out/x", writes=True)

    assert set(found.targets) == {PathTarget(f"{root}/out/x", "out/x"), PathTarget(f"{tmp_path}/x", None)}
    assert (found.writes, found.is_inside_workspace) == (True, False)


def test_dots_behind_a_link_are_read_both_ways(root: Path, tmp_path: Path) -> None:
    (tmp_path / "far" / "deep").mkdir(parents=True)
    (root / "link").symlink_to(tmp_path / "far" / "deep")

    assert relatives(root, "link/../x") == {"x", None}


def test_links_in_a_circle_are_followed_no_further(root: Path) -> None:
    (root / "one").symlink_to("two")
    (root / "two").symlink_to("one")

    assert relatives(root, "one/x") <= {"one/x", "two/x"}


@pytest.mark.parametrize("path", ["a\0b", "\0", "~\0", "~nobody\0/x", "a\ud800", "~\ud800"])
def test_a_path_that_no_file_system_takes_leads_nowhere(path: str, root: Path) -> None:
    found = PathResolver(str(root)).resolve(path, writes=False)

    assert (found.targets, found.is_inside_workspace) == ((), False)


def test_without_a_wildcard_the_characters_are_themselves(root: Path) -> None:
    [found] = PathResolver(str(root)).resolve_word("src/*.py", writes=False, bases=("",), is_glob=False)

    assert [place.relative for place in found.targets] == ["src/*.py"]


@pytest.mark.parametrize(
    "path", ["/proc/self/cwd/x", "//proc/1/fd/3", "/dev/fd/3", "/dev/stdin", "/tmp/../proc/self/cwd"]
)
def test_what_is_another_thing_for_every_process_leads_nowhere_known(path: str, root: Path) -> None:
    assert PathResolver(str(root)).resolve(path, writes=False).targets == ()


def test_a_wildcard_is_every_file_that_it_matches_and_itself(root: Path) -> None:
    (root / "src" / ".hidden.py").write_text("1")
    found = PathResolver(str(root)).resolve_word("src/*.py", writes=False, bases=("",), is_glob=True)

    named = {place.relative for path in found for place in path.targets}
    assert named == {"src/*.py", "src/a.py", "src/.hidden.py"}


def test_a_wildcard_with_too_many_files_is_not_known(root: Path) -> None:
    for number in range(1_001):
        (root / "src" / f"{number}.txt").touch()

    [found] = PathResolver(str(root)).resolve_word("src/*.txt", writes=False, bases=("",), is_glob=True)
    assert found.targets == ()


def test_wildcards_of_one_decision_share_a_budget(root: Path) -> None:
    for number in range(100):
        (root / "src" / f"{number}.txt").touch()
    workspace = PathResolver(str(root))

    def known(decision: PathResolver) -> list[bool]:
        found = [decision.resolve_word(f"src/{at}*.p", writes=False, bases=("",), is_glob=True) for at in range(100)]
        return [bool(paths[0].targets) for paths in found]

    decision = workspace.with_budget()
    assert known(decision)[0]
    assert not known(decision)[-1]
    assert known(workspace.with_budget())[0]


def test_paths_beyond_the_budget_of_a_decision_are_not_known(root: Path) -> None:
    decision = PathResolver(str(root)).with_budget()
    found = [decision.resolve(str(at), writes=False, bases=("", "src")) for at in range(3_000)]

    assert [bool(path.targets) for path in found] == [True] * 2_500 + [False] * 500
    assert decision.resolve("0", writes=False, bases=("", "src")) == found[0]


def test_a_wildcard_in_a_path_that_leads_nowhere_known_is_not_looked_for(root: Path) -> None:
    [found] = PathResolver(str(root)).resolve_word("/proc/self/*", writes=False, bases=("",), is_glob=True)
    assert found.targets == ()


def test_a_workspace_whose_name_has_wildcards_is_taken_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "[ab]").mkdir()
    (tmp_path / "a").mkdir()
    (tmp_path / "[ab]" / "x").touch()
    found = PathResolver(str(tmp_path / "[ab]")).resolve_word("?", writes=False, bases=("",), is_glob=True)

    assert {place.relative for path in found for place in path.targets} == {"?", "x"}


def test_the_root_may_be_the_workspace() -> None:
    assert PathResolver("/").resolve("etc/passwd", writes=False).targets[0].relative == "etc/passwd"


@given(st.text(alphabet="a./~ \\*?\n\0é", max_size=20), st.sampled_from([("",), ("src", ".."), ("/tmp",)]))
def test_no_text_is_too_strange_and_what_is_inside_has_no_dots(text: str, bases: tuple[str, ...]) -> None:
    for place in PathResolver("/nowhere/project").resolve(text, writes=False, bases=bases).targets:
        assert os.path.normpath(place.absolute) == place.absolute
        assert place.relative is None or ".." not in place.relative.split("/")


@pytest.mark.parametrize("path", ["a/" * 50_000, "../" * 33_000, "a" * 100_000, "~" * 100_000])
def test_a_path_of_100_kb_is_judged_in_time(path: str) -> None:
    before = process_time()
    PathResolver("/nowhere/project").resolve(path, writes=False)

    assert process_time() - before < 5
