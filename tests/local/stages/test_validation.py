"""What the real tools refuse before anybody is asked: the six codes, and that nothing happened."""

import os
from pathlib import Path
from typing import Any

import pytest

from interlock import ERROR_CODES, Phase
from interlock.domain.event import CallValidated, InvocationStarted, PolicyEvaluated

from .runs import Person, local_run, text_of

EDIT = {"old_string": "return a - b", "new_string": "return a + b"}


def every_file(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.mark.requirement("R198", "R199", "R200", "R201", "R205")
@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("read_files", {"path": "notes.txt"}, "unknown_tool"),
        ("read_file", {"path": 7}, "schema_invalid"),
        ("read_file", {"path": "notes.txt", "limit": 1_000_000}, "schema_invalid"),
        ("read_file", {"path": "missing.txt"}, "runtime_precondition_failed"),
        ("read_file", {"path": "src"}, "runtime_precondition_failed"),
        ("write_file", {"path": "notes.txt", "content": "x"}, "runtime_precondition_failed"),
        ("edit_file", {"path": "notes.txt", "old_string": "two", "new_string": "2"}, "runtime_precondition_failed"),
        ("edit_file", {"path": "missing.txt", **EDIT}, "runtime_precondition_failed"),
        ("bash", {"command": ""}, "runtime_precondition_failed"),
        ("bash", {"command": "echo a\0b"}, "runtime_precondition_failed"),
        ("bash", {"command": "ls", "cwd": "missing"}, "runtime_precondition_failed"),
        ("bash", {"command": "ls", "cwd": "notes.txt"}, "runtime_precondition_failed"),
        ("bash", {"command": "ls", "timeout_seconds": -1}, "schema_invalid"),
        ("bash", {"command": "ls", "sandbox": False}, "schema_invalid"),
        ("wait_task", {"task_id": "task_of_somebody"}, "runtime_precondition_failed"),
    ],
)
async def test_a_call_that_cannot_be_done_is_told_so_before_anybody_is_asked(
    root: Path, tool: str, arguments: dict[str, Any], code: str
) -> None:
    before, person = every_file(root), Person()

    async with local_run(root, mode="default", interaction=person) as run:
        refused = await run.do(tool, **arguments)
        judged, started = await run.facts(PolicyEvaluated), await run.facts(InvocationStarted)

    assert refused.failure is not None
    assert (refused.code, refused.failure.phase) == (code, ERROR_CODES[code].phase)
    assert (refused.side_effects, refused.failure.side_effects, refused.failure.retryable) == ((), (), True)
    assert (judged, started, person.asked) == ([], [], [])
    assert every_file(root) == before


@pytest.mark.requirement("R200", "R201")
async def test_a_local_tool_that_was_taken_away_is_no_longer_there(root: Path) -> None:
    async with local_run(root) as run:
        run.runtime.registry.unregister("bash")
        gone = await run.bash("touch x")

    assert (gone.code, gone.side_effects) == ("unknown_tool", ())
    assert not (root / "x").exists()


@pytest.mark.requirement("R202", "R198", "R205")
async def test_an_edit_needs_a_read_and_a_search_hit_or_a_shell_that_printed_it_is_none(
    root: Path, confined: None
) -> None:
    async with local_run(root) as run:
        assert "sums.py" in text_of(await run.do("grep", pattern="def add"))
        assert "def add" in text_of(await run.bash("cat src/sums.py"))
        refused = await run.do("edit_file", path="src/sums.py", **EDIT, replace_all=True)
        await run.do("read_file", path="src/sums.py")
        edited = await run.do("edit_file", path="src/sums.py", **EDIT, replace_all=True)

    assert (refused.code, edited.ok) == ("runtime_precondition_failed", True)
    assert "read_file" in refused.summary
    assert (root / "src/sums.py").read_text().count("a + b") == 2


@pytest.mark.requirement("R203", "R198", "R201", "R205")
async def test_a_text_that_is_there_twice_is_ambiguous_and_its_lines_are_named(root: Path) -> None:
    before = (root / "src/sums.py").read_bytes()

    async with local_run(root) as run:
        await run.do("read_file", path="src/sums.py")
        refused = await run.do("edit_file", path="src/sums.py", **EDIT)

    assert (refused.code, refused.side_effects) == ("ambiguous_target", ())
    assert ("2" in refused.summary, "6" in refused.summary) == (True, True)
    assert (root / "src/sums.py").read_bytes() == before


@pytest.mark.requirement("R204", "R198", "R201", "R205")
async def test_an_edit_of_a_file_that_a_command_changed_meanwhile_is_stale(root: Path, confined: None) -> None:
    async with local_run(root) as run:
        await run.do("read_file", path="notes.txt")
        await run.bash("echo four >> notes.txt")
        stale = await run.do("edit_file", path="notes.txt", old_string="two", new_string="2")
        over = await run.do("write_file", path="notes.txt", content="mine")
        await run.do("read_file", path="notes.txt")
        edited = await run.do("edit_file", path="notes.txt", old_string="two", new_string="2")

    assert (stale.code, over.code, edited.ok) == ("stale_file_baseline", "stale_file_baseline", True)
    assert (root / "notes.txt").read_text() == "one\n2\nthree\nfour\n"


@pytest.mark.requirement("R204")
async def test_a_file_that_was_changed_back_in_time_is_stale_all_the_same(root: Path) -> None:
    file = root / "notes.txt"

    async with local_run(root) as run:
        await run.do("read_file", path="notes.txt")
        times = file.stat()
        file.write_text("one\nTWO\nthree\n")
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
        stale = await run.do("edit_file", path="notes.txt", old_string="three", new_string="3")

    assert stale.code == "stale_file_baseline"


@pytest.mark.requirement("R199")
async def test_the_log_has_the_checks_before_the_gate(root: Path) -> None:
    async with local_run(root) as run:
        await run.do("read_file", path="notes.txt")
        order = [type(step.event.fact) for step in await run.runtime.replay()]

    assert order.index(CallValidated) < order.index(PolicyEvaluated) < order.index(InvocationStarted)


@pytest.mark.requirement("R205", "R211")
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read_file", {"path": "../beside.txt"}),
        ("read_file", {"path": "/etc/passwd"}),
        ("read_file", {"path": ".env"}),
        ("write_file", {"path": ".git/hooks/pre-commit", "content": "x"}),
        ("grep", {"pattern": "x", "path": ".."}),
        ("list_dir", {"path": "/"}),
        ("bash", {"command": "ls", "cwd": ".."}),
    ],
)
async def test_what_may_never_be_reached_is_a_refusal_of_the_gate_and_no_failed_check(
    root: Path, tool: str, arguments: dict[str, Any]
) -> None:
    (root / ".env").write_text("KEY=hunter2")
    (root.parent / "beside.txt").write_text("outside")

    async with local_run(root) as run:
        refused = await run.do(tool, **arguments)
        judged = await run.judged("c1")
        started = await run.facts(InvocationStarted)

    assert refused.failure is not None
    assert (refused.code, refused.failure.phase, started) == ("policy_denied", Phase.PERMIT, [])
    assert (judged.decision.verdict, judged.decision.layer) == ("deny", "path boundary")
    assert "hunter2" not in repr(refused)
