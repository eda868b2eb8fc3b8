"""grep: what is found, in which order and how much of it; what is never searched; what cannot be searched for."""

import asyncio
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interlock import HeadlessInteractionProvider
from interlock.domain.decision import Verdict
from interlock.domain.outcome import NextTool
from interlock.domain.tool import CallContext, SandboxScope
from interlock.tools.search import query
from interlock.tools.search.grep import grep_tool
from tests.patience import HANG_SECONDS
from tests.sandbox.ordinary_user import pytest_as_ordinary_user
from tests.tools.search_runs import NOTHING_HOLDS, PlayedSearch, SearchRun, rg, run, sandbox, text_of

__all__ = ["run"]

CANARY = "TOPSECRET"


@pytest.mark.requirement("R278")
async def test_lines_come_with_path_and_number_sorted_by_path_and_are_counted(run: SearchRun) -> None:
    run.write("src/b.py", "import os\nx = 1\nimport sys\n")
    run.write("a.py", "import json\n")
    found = await run.do("grep", pattern="^import")

    assert text_of(found) == "a.py:1: import json\nsrc/b.py:1: import os\nsrc/b.py:3: import sys"
    assert found.summary == "3 matching lines in 2 files; all shown."
    assert found.user_text == "Searched . for ^import: 3 matching lines in 2 files; all shown."
    assert (found.side_effects, found.next_hint, found.next_tool, found.state) == ((), "", None, {})
    assert found.facts == {
        "query": {"pattern": "^import"},
        "matched_lines": 3,
        "matched_files": 2,
        "returned": 3,
        "complete": True,
        "binary_files": 0,
        "closed": 0,
        "unreadable": 0,
        "ignore_files_obeyed": True,
    }


async def test_no_match_is_a_success_that_says_so(run: SearchRun) -> None:
    run.write("a.py", "x")
    found = await run.do("grep", pattern="nowhere")

    assert (found.ok, found.summary, found.content) == (True, "No match.", None)


async def test_files_and_counts_are_shown_without_lines(run: SearchRun) -> None:
    run.write("a", "x\nx\n")
    run.write("b", "x\n")

    assert await run.lines("grep", pattern="x", output="files") == ["a", "b"]
    assert await run.lines("grep", pattern="x", output="count") == ["a: 2", "b: 1"]
    assert (await run.do("grep", pattern="x", output="count")).summary == "3 matching lines in 2 files; all shown."
    assert (await run.do("grep", pattern="x", output="files")).summary == "2 files; all shown."


async def test_lines_around_a_match_are_marked_and_gaps_are_shown(run: SearchRun) -> None:
    run.write("a", "".join(f"{'hit' if number in (3, 5, 12) else 'line'} {number}\n" for number in range(1, 15)))

    assert await run.lines("grep", pattern="hit", context=1) == [
        *("a-2- line 2", "a:3: hit 3", "a-4- line 4", "a:5: hit 5", "a-6- line 6"),
        *("--", "a-11- line 11", "a:12: hit 12", "a-13- line 13"),
    ]
    assert await run.lines("grep", pattern="hit", context=1, offset=1, limit=1) == [
        "a-4- line 4",
        "a:5: hit 5",
        "a-6- line 6",
    ]


async def test_letters_literals_and_lines_are_compared_as_asked(run: SearchRun) -> None:
    run.write("a", "Foo(\nbar\n")

    assert await run.lines("grep", pattern="foo", case_insensitive=True) == ["a:1: Foo("]
    assert await run.lines("grep", pattern="Foo(", literal=True) == ["a:1: Foo("]
    assert await run.lines("grep", pattern=r"Foo\(\nbar", multiline=True) == ["a:1: Foo(", "a:2: bar"]
    assert (await run.do("grep", pattern="foo")).summary == "No match."


async def test_a_glob_and_a_path_narrow_the_search(run: SearchRun) -> None:
    for path in ("a.py", "src/b.py", "src/c.ts", "src/deep/d.py", "other/src/e.py"):
        run.write(path, "x")
    files = {
        glob: await run.lines("grep", pattern="x", output="files", glob=glob)
        for glob in ("*.py", "src/*.py", "src/**/*.{py,ts}", "*/src/*", "*.{ts,md}", "/nowhere/*", "nowhere/*")
        if not glob.startswith("/")
    }

    assert files == {
        "*.py": ["a.py", "other/src/e.py", "src/b.py", "src/deep/d.py"],
        "src/*.py": ["src/b.py"],
        "src/**/*.{py,ts}": ["src/b.py", "src/c.ts", "src/deep/d.py"],
        "*/src/*": ["other/src/e.py"],
        "*.{ts,md}": ["src/c.ts"],
        "nowhere/*": [],
    }
    assert await run.lines("grep", pattern="x", output="files", path="src", glob="*.py") == [
        "src/b.py",
        "src/deep/d.py",
    ]
    assert await run.lines("grep", pattern="x", path="src/c.ts") == ["src/c.ts:1: x"]


async def test_what_gitignore_leaves_out_is_searched_only_by_its_own_path(run: SearchRun) -> None:
    run.write(".gitignore", "build/\n*.log\n")
    run.write("build/out.js", "x")
    run.write("src/.gitignore", "made.py\n")
    run.write("src/made.py", "x")
    run.write("a.log", "x")
    run.write(".hidden/a", "x")
    run.write(".git/config", "x")

    assert await run.lines("grep", pattern="x", output="files") == [".hidden/a"]
    assert await run.lines("grep", pattern="x", output="files", glob="*.log") == []
    assert await run.lines("grep", pattern="x", output="files", glob="**") == [".hidden/a"]
    assert await run.lines("grep", pattern="x", output="files", path="build") == ["build/out.js"]
    assert await run.lines("grep", pattern="x", output="files", glob="build/*.js") == ["build/out.js"]
    assert await run.lines("grep", pattern="x", output="files", path="a.log") == ["a.log"]


@pytest.mark.requirement("R244", "R247")
async def test_a_page_says_that_there_is_more_and_how_to_read_on(run: SearchRun) -> None:
    run.write("a", "x\n" * 250)
    found = await run.do("grep", pattern="x")

    assert found.summary == "250 matching lines in 1 file; 1 to 100 shown."
    assert found.next_hint == "offset=100 shows the next ones. A narrower pattern, path or glob finds fewer."
    assert found.next_tool == NextTool(tool="grep", input_hint={"pattern": "x", "offset": 100})
    assert text_of(found).count("\n") == 99
    assert (await run.do("grep", pattern="x", offset=250)).summary == (
        "250 matching lines in 1 file; none after the first 250."
    )


@pytest.mark.parametrize("output", ["content", "files", "count"])
async def test_following_the_hints_gives_everything_once(run: SearchRun, output: str) -> None:
    for number in range(30):
        run.write(f"{number % 7}/{number}.txt", "x\ny\nx\n")
    pages = await run.all_pages("grep", pattern="x", output=output, limit=7)
    one = await run.lines("grep", pattern="x", output=output, limit=1_000)

    assert pages == one
    assert len(one) == (60 if output == "content" else 30)


@pytest.mark.parametrize("tool", ["grep", "glob", "list_dir"])
async def test_no_offset_is_too_far(run: SearchRun, tool: str) -> None:
    run.write("a", "x")
    arguments = {"grep": {"pattern": "x"}, "glob": {"pattern": "*"}, "list_dir": {}}[tool]

    assert "none after the first" in (await run.do(tool, **arguments, offset=10**9)).summary
    assert (await run.do(tool, **arguments, offset=10**9 + 1)).code == "schema_invalid"


@pytest.mark.requirement("R244")
async def test_more_than_can_be_counted_is_at_least_and_still_comes_in_order(
    run: SearchRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query, "MAX_COUNTED", 500)
    for number in range(20):
        run.write(f"{number:02}", "x\n" * 100)
    found = await run.do("grep", pattern="x", limit=90)
    pages = await run.all_pages("grep", pattern="x", limit=150, offset=1_800)

    assert found.summary.startswith("At least ")
    assert found.summary.endswith("(there is too much to count); 1 to 90 shown.")
    assert found.facts["complete"] is False
    assert text_of(found).split("\n") == [f"00:{line}: x" for line in range(1, 91)]
    assert [line for line in pages if line] == [f"{file}:{line}: x" for file in (18, 19) for line in range(1, 101)]


async def test_a_page_of_long_lines_fits_and_goes_on(run: SearchRun) -> None:
    run.write("a", ("x" * 390 + "\n") * 200)
    found = await run.do("grep", pattern="x", limit=200)

    assert len(text_of(found)) <= query.MAX_TEXT_CHARS
    assert found.size is None
    assert len(await run.all_pages("grep", pattern="x", limit=200)) == 200


@pytest.mark.requirement("R244")
async def test_a_long_line_is_cut_around_the_match(run: SearchRun) -> None:
    run.write("min.js", "é" * 5_000 + "needle" + "b" * 5_000 + "\n")
    run.write("huge.js", "a" * 6_000_000 + "needle\n")
    huge, minified = await run.lines("grep", pattern="needle")

    assert minified.startswith("min.js:1: …é")
    assert minified.endswith("b…")
    assert "éneedleb" in minified
    assert len(minified) < 450
    assert huge.startswith("huge.js:1: …aaa")
    assert huge.endswith("a…")


@pytest.mark.requirement("R239")
async def test_binary_files_are_named_and_not_shown(run: SearchRun) -> None:
    run.write("a.bin", b"\x00\x01\xffneedle\x00\n")
    run.write("b.txt", "needle\n")

    assert await run.lines("grep", pattern="needle") == ["b.txt:1: needle", "[binary, and not shown: a.bin]"]
    assert await run.lines("grep", pattern="needle", output="files") == ["a.bin", "b.txt"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"a:1: b.txt", "a:1: b.txt"),
        (b"-e", "-e"),
        (b"--pre=sh", "--pre=sh"),
        (b"new\n\nline", '"new\\n\\nline"'),
        (b"bad\xff", '"bad\\xff"'),
        (b"caf\xc3\xa9", "café"),
        (b"x: binary file matches", "x: binary file matches"),
        (b"\x1b[31m", '"\\x1b[31m"'),
    ],
)
async def test_odd_names_are_found_and_shown_on_one_line(run: SearchRun, name: bytes, shown: str) -> None:
    run.write(os.fsdecode(name), "needle")

    assert await run.lines("grep", pattern="needle") == [f"{shown}:1: needle"]
    assert await run.lines("grep", pattern="needle", output="count") == [f"{shown}: 1"]
    assert await run.lines("grep", pattern="needle", output="files") == [shown]


async def test_other_encodings_are_searched_and_shown_as_text(run: SearchRun) -> None:
    run.write("latin", "caf\xe9 needle\r\n".encode("latin-1"))
    run.write("utf16", "\ufeffneedle é\n".encode("utf-16-le"))

    assert await run.lines("grep", pattern="needle") == ["latin:1: caf\ufffd needle", "utf16:1: needle é"]


@pytest.mark.requirement("R229")
@pytest.mark.parametrize(
    "path", ["d", "d/deep", "..", "/", "/etc", "../out", "{OUT}", "f", "~", "file:///etc", ".env", ".ssh"]
)
async def test_nothing_outside_and_no_secret_is_searched_by_its_path(run: SearchRun, path: str) -> None:
    outside = run.root.parent / "out"
    (outside / "deep").mkdir(parents=True)
    (outside / "deep" / "secret.txt").write_text(CANARY)
    (run.root / "d").symlink_to(outside)
    (run.root / "f").symlink_to(outside / "deep" / "secret.txt")
    run.write(".env", CANARY)
    run.write(".ssh/key", CANARY)
    found = await run.do("grep", pattern=CANARY, path=path.replace("{OUT}", str(outside)))

    assert (found.ok, found.code) == (False, "policy_denied")
    assert found.failure is not None
    assert found.failure.details["layer"] == "path boundary"


@pytest.mark.requirement("R229")
async def test_links_are_not_followed_and_secrets_are_neither_shown_nor_counted(run: SearchRun) -> None:
    outside = run.root.parent / "out"
    outside.mkdir()
    (outside / "secret.txt").write_text(CANARY)
    (run.root / "d").symlink_to(outside)
    (run.root / "f").symlink_to(outside / "secret.txt")
    secrets = (".env", ".env.local", "x/.ENV", ".ssh/id", "id_rsa", "keys/a.P12", ".docker/config.json", ".aws/x/y")
    for path in secrets:
        run.write(path, CANARY)
    run.write(".env.example", CANARY)
    run.write("closed/by/rule", CANARY)
    run.hidden = ("closed", "closed/by/rule")

    for output in ("content", "files", "count"):
        found = await run.do("grep", pattern=CANARY, output=output)
        assert text_of(found).split("\n")[0].startswith(".env.example")
        assert (found.facts["matched_files"], found.facts["returned"]) == (1, 1)
    everywhere = await run.do("grep", pattern=CANARY, glob="{.env*,*rsa,*.P12,config.json,rule,y}")
    assert everywhere.facts["matched_files"] == 1
    assert "closed to tools" in text_of(everywhere)


async def test_a_link_inside_leads_to_the_real_path(run: SearchRun) -> None:
    run.write("real/a", "x")
    (run.root / "alias").symlink_to("real")

    assert await run.lines("grep", pattern="x", path="alias") == ["real/a:1: x"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"pattern": "(x"}, "unclosed group"),
        ({"pattern": "x{1000}{1000}{1000}"}, "size limit"),
        ({"pattern": "a\nb"}, "multiline"),
        ({"pattern": "(?=x)"}, "look-around"),
        ({"pattern": "\0"}, "NUL"),
        ({"pattern": "x", "glob": "[a"}, "unclosed character class"),
        ({"pattern": "x", "glob": "{a"}, "is not closed"),
        ({"pattern": "x", "glob": "\0"}, "NUL"),
        ({"pattern": "x", "path": "missing"}, "missing does not exist"),
        ({"pattern": "x", "path": "pipe"}, "neither a folder nor a plain file"),
        ({"pattern": "x", "path": "a", "glob": "*.py"}, "a glob needs a folder"),
    ],
)
async def test_what_cannot_be_searched_is_said_in_words(
    run: SearchRun, arguments: dict[str, object], words: str
) -> None:
    run.write("a", "x")
    os.mkfifo(run.root / "pipe")
    found = await run.do("grep", **arguments)

    assert (found.ok, found.code, found.side_effects) == (False, "runtime_precondition_failed", ())
    assert words in found.summary
    assert str(run.root) not in found.summary


async def test_hostile_patterns_end_soon(run: SearchRun) -> None:
    run.write("a", "a" * 100_000 + "!\n" + "é" * 50_000)
    async with asyncio.timeout(HANG_SECONDS):
        for pattern in ("(a+)+$", "(a*)*b", "(a|a)*c", "(.*)(.*)(.*)(.*)x", r"(\w+\s?)+$", "((((a{0,50}){0,50})))z"):
            assert (await run.do("grep", pattern=pattern, output="count")).code in ("ok", "runtime_precondition_failed")


async def test_files_that_cannot_be_read_are_counted(run: SearchRun) -> None:
    run.write("a", "x")
    run.write("b", "x")
    (run.root / "b").chmod(0)
    found = await run.do("grep", pattern="x")

    readable = os.geteuid() == 0 and found.facts["unreadable"] == 0
    assert text_of(found) == ("a:1: x\nb:1: x" if readable else "a:1: x\n[could not be read: 1 file or folder]")
    assert found.facts["complete"] == readable


@pytest.mark.requirement("R229")
async def test_a_match_is_not_a_read(run: SearchRun) -> None:
    run.write("a.txt", "one\n")
    await run.do("grep", pattern="one")
    refused = await run.do("edit_file", path="a.txt", edits=[{"old_string": "one", "new_string": "two"}])

    assert not refused.ok
    assert (run.root / "a.txt").read_text() == "one\n"


@pytest.mark.requirement("R220")
def test_searches_may_run_side_by_side_and_name_their_sandbox(run: SearchRun) -> None:
    confinement = sandbox().confinement
    tool = grep_tool(run.workspace, sandbox(), rg(), lambda: ())
    arguments = {"pattern": "x", "path": ".", "glob": ""}
    assert tool.reach is not None

    assert (tool.concurrency, tool.read_only, tool.idempotent) == ("safe", True, True)
    assert tool.reach(arguments, CallContext(run_id="r")) == SandboxScope(
        sandbox=confinement.backend, profile="read-only", capabilities=confinement.capabilities
    )


async def test_without_a_sandbox_a_search_is_a_question_to_a_person(tmp_path: Path) -> None:
    nothing = PlayedSearch(confinement=NOTHING_HOLDS)
    run = SearchRun(tmp_path, nothing, interaction=HeadlessInteractionProvider())
    tool = grep_tool(run.workspace, nothing, rg(), lambda: ())
    assert tool.authorize is not None
    opinion = tool.authorize({"pattern": "x", "path": ".", "glob": ""}, CallContext(run_id="r"))
    refused = await run.do("grep", pattern="x")
    run.workspace.close()

    assert (opinion.verdict, opinion.layer) == (Verdict.ASK, "sandbox")
    assert not refused.ok
    assert nothing.started == []


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pattern=st.text(min_size=1, max_size=20), glob=st.text(max_size=10))
async def test_whatever_a_model_sends_there_is_an_observation(run: SearchRun, pattern: str, glob: str) -> None:
    run.write("a.txt", "text")
    found = await run.do("grep", pattern=pattern, glob=glob, literal=len(glob) % 2 == 0)

    assert found.code in ("ok", "runtime_precondition_failed", "policy_denied")


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests are run by an ordinary user already")
def test_the_search_is_the_same_for_an_ordinary_user() -> None:
    pytest_as_ordinary_user(__file__, "-k", "secret or sorted or odd_names or could")
