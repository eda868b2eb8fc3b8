"""glob: which files are listed, in which order and how many; what is never listed."""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interlock.domain.outcome import NextTool
from interlock.sandbox.interface import CommandLimits
from interlock.tools.search import ripgrep
from tests.corpora import path_escape
from tests.corpora.path_escape import Case, Scene
from tests.each import each
from tests.sandbox.ordinary_user import pytest_as_ordinary_user
from tests.tools.search_runs import SearchRun, run, text_of

__all__ = ["run"]

LINK_OUT = ("symlink", "{OUT}", "d")
#: More of the kinds of the corpus: what a pattern or a path may lead to.
MORE = [
    Case(f"{op}-{number}", op, path, False, op, (LINK_OUT, ("symlink", "../../out", "a/up"), ("dir", "a/b")))
    for op, paths in {
        "glob": (
            *(
                "..",
                "../**",
                "a/../../*",
                "**/../*",
                "{a,..}/*",
                "{..,.}/out/*",
                "/**",
                "/etc/*",
                "{OUT}/*",
                "{WS}/../*",
            ),
            *(
                "d/*",
                "d/**/*.txt",
                "./d/*",
                "a/up/*",
                "a/../d/*",
                "{WS}/d/*",
                "{WS}-evil/*",
                "a/up/../*",
                "d/x/*",
                ".ssh/*",
            ),
        ),
        "grep": (
            "..",
            "/",
            "{OUT}",
            "d",
            "./d",
            "d/",
            "a/up",
            "a/up/secret.txt",
            "{WS}/d",
            "{WS}-evil",
            "d/x",
            "~",
            ".ssh",
        ),
    }.items()
    for number, path in enumerate(paths)
]
CASES = [case for case in path_escape.load() if case.op in ("glob", "grep")]


@pytest.mark.requirement("R278")
async def test_files_are_listed_by_their_paths_sorted_and_counted(run: SearchRun) -> None:
    for path in ("src/b.py", "src/a/x.py", "a.py", "src.py", "b.ts"):
        run.write(path)
    found = await run.do("glob", pattern="*.py")

    assert text_of(found).split("\n") == ["a.py", "src.py", "src/a/x.py", "src/b.py"]
    assert found.summary == "4 files; all shown."
    assert found.user_text == "Looked in . for *.py: 4 files; all shown."
    assert found.facts == {
        "pattern": "*.py",
        "path": ".",
        "matched": 4,
        "returned": 4,
        "offset": 0,
        "complete": True,
        "closed": 0,
        "unreadable": 0,
        "ignore_files_obeyed": True,
    }
    assert (found.side_effects, found.state, found.next_tool) == ((), {}, None)


async def test_patterns_begin_at_the_path_and_absolute_ones_at_their_own(run: SearchRun) -> None:
    for path in ("a.py", "src/a.py", "src/x/b.py", "src/x/c.ts", "lib/src/d.py"):
        run.write(path)
    (run.root / "alias").symlink_to("src/x")

    assert await run.lines("glob", pattern="src/*.py") == ["src/a.py"]
    assert await run.lines("glob", pattern="*.py", path="src") == ["src/a.py", "src/x/b.py"]
    assert await run.lines("glob", pattern="x/*", path="src") == ["src/x/b.py", "src/x/c.ts"]
    assert await run.lines("glob", pattern="./*.py", path="src/") == ["src/a.py"]
    assert await run.lines("glob", pattern=f"{run.root}/src/**/*.{{py,ts}}") == ["src/a.py", "src/x/b.py", "src/x/c.ts"]
    assert await run.lines("glob", pattern=f"{run.root}/*.py") == ["a.py"]
    assert await run.lines("glob", pattern="alias/*.py") == ["src/x/b.py"]
    assert await run.lines("glob", pattern="**/src/*.py") == ["lib/src/d.py", "src/a.py"]
    assert (await run.do("glob", pattern="nowhere/*.py")).summary == "No file fits."
    assert (await run.do("glob", pattern="a.py/*")).summary == "No file fits."


async def test_gitignore_holds_and_hidden_files_are_listed_but_not_git(run: SearchRun) -> None:
    run.write(".gitignore", "*.log\nbuild/\n!keep.log\n")
    for path in ("a.log", "keep.log", "build/x.js", ".github/ci.yml", ".git/config", "sub/.git", "b.txt"):
        run.write(path)
    run.write("sub/.gitignore", "*.txt\n")
    run.write("sub/c.txt")

    assert await run.lines("glob", pattern="**") == [
        ".github/ci.yml",
        ".gitignore",
        "b.txt",
        "keep.log",
        "sub/.gitignore",
    ]
    assert await run.lines("glob", pattern="*.log") == ["keep.log"]
    assert await run.lines("glob", pattern="*/*.txt") == []
    assert await run.lines("glob", pattern="build/**") == ["build/x.js"]


@pytest.mark.requirement("R244", "R247")
async def test_pages_say_that_there_is_more_and_give_every_path_once(run: SearchRun) -> None:
    paths = sorted(f"{number % 7}/{number}.txt" for number in range(50))
    for path in paths:
        run.write(path)
    found = await run.do("glob", pattern="*.txt", limit=20)

    assert found.summary == "50 files; 1 to 20 shown."
    assert found.next_hint == "offset=20 shows the next ones. A narrower pattern finds fewer."
    assert found.next_tool == NextTool(
        tool="glob", input_hint={"pattern": "*.txt", "path": ".", "limit": 20, "offset": 20}
    )
    assert await run.all_pages("glob", pattern="*.txt", limit=20) == paths
    assert (await run.do("glob", pattern="*.txt", offset=99)).summary == "50 files; none after the first 99."


async def test_more_than_can_be_listed_is_at_least_and_still_comes_in_order(
    run: SearchRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ripgrep, "_LIMITS", CommandLimits(output_bytes=2_000))
    for number in range(600):
        run.write(f"{number:03}")
    found = await run.do("glob", pattern="**", limit=100)

    assert found.summary.startswith("At least ")
    assert text_of(found).split("\n") == [f"{number:03}" for number in range(100)]


async def test_among_many_files_closed_ones_are_left_out_too(run: SearchRun) -> None:
    for path in (".env", "é/.env", *map(str, range(600))):
        run.write(path)
    found = await run.do("glob", pattern="**", limit=2_000)

    assert found.summary == "600 files; all shown. Not listed, since closed to tools: 2."
    assert ".env" not in text_of(found)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"a\nb.txt", '"a\\nb.txt"'),
        (b"\xff.txt", '"\\xff.txt"'),
        (b"--x.txt", "--x.txt"),
        (b"include:x.txt", "include:x.txt"),
    ],
)
async def test_odd_names_are_listed_on_one_line(run: SearchRun, name: bytes, shown: str) -> None:
    run.write(os.fsdecode(name))

    assert await run.lines("glob", pattern="*.txt") == [shown]
    assert await run.lines("glob", pattern="?*.txt") == [shown]


async def test_a_pattern_may_look_like_an_option_or_a_type(run: SearchRun) -> None:
    run.write("include:py")
    run.write("--files")

    assert await run.lines("glob", pattern="include:py") == ["include:py"]
    assert await run.lines("glob", pattern="--files") == ["--files"]


@pytest.mark.requirement("R229")
async def test_secrets_and_what_rules_close_are_not_listed(run: SearchRun) -> None:
    for path in (".env", ".env.example", "keys/id_rsa", ".ssh/config", "closed/a", "closed/b/c", "closedness", "d"):
        run.write(path)
    run.hidden = ("closed", "closed/a", "closed/b/c", "d")
    found = await run.do("glob", pattern="**")

    assert text_of(found).split("\n") == [".env.example", "closedness"]
    assert (await run.do("glob", pattern="closed/**")).code == "policy_denied"


@pytest.mark.requirement("R229")
@each("case", [*CASES, *MORE])
async def test_no_search_leads_outside(tmp_path_factory: pytest.TempPathFactory, case: Case) -> None:
    scene = Scene(tmp_path_factory.mktemp("scene"))
    path = scene.set_up(case)
    run = SearchRun(scene.workspace)
    if case.op == "glob":
        found = await run.do("glob", pattern=path)
    else:
        found = await run.do("grep", pattern=path_escape.CANARY, path=path)
    run.workspace.close()

    assert not case.allowed
    assert (found.ok, found.code, found.side_effects) == (False, "policy_denied", ())
    assert "secret.txt" not in text_of(found)


@pytest.mark.parametrize("pattern", ["[a", "{a", "a\0"])
async def test_what_is_no_pattern_is_said_in_words(run: SearchRun, pattern: str) -> None:
    found = await run.do("glob", pattern=pattern)

    assert (found.ok, found.code) == (False, "runtime_precondition_failed")


async def test_a_path_has_to_be_a_folder(run: SearchRun) -> None:
    run.write("a.py")

    assert "a glob needs a folder" in (await run.do("glob", pattern="*.py", path="a.py")).summary
    assert "missing does not exist" in (await run.do("glob", pattern="*.py", path="missing")).summary


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pattern=st.text(st.sampled_from("ab*?[]{},/\\.!-~:\n"), min_size=1, max_size=12))
async def test_whatever_a_model_sends_nothing_outside_is_listed(run: SearchRun, pattern: str) -> None:
    (run.root.parent / "outside.txt").touch()
    run.write("ab/a", "")
    found = await run.do("glob", pattern=pattern)

    assert found.code in ("ok", "runtime_precondition_failed", "policy_denied")
    assert text_of(found) in ("", "ab/a")


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests are run by an ordinary user already")
def test_listing_is_the_same_for_an_ordinary_user() -> None:
    pytest_as_ordinary_user(__file__, "-k", "sorted or gitignore or secrets")
