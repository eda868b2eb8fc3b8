"""A write or an edit that started and has no recorded end: what the file says of it, and what a later process does."""

import json
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock import HeadlessInteractionProvider, SqliteLog, ToolRuntime
from interlock.domain.event import InvocationStarted
from interlock.domain.tool import ToolDefinition
from interlock.sandbox.workspace.workspace import Workspace
from interlock.tools.files.edit_file import edit_file_tool
from interlock.tools.files.file_change import UnchangedFile, WrittenFile, make_baseline
from interlock.tools.files.text_file import Encoding, TextFile, encode_text
from interlock.tools.files.write_file import write_file_tool
from tests.patience import HANG_SECONDS
from tests.support import facts
from tests.tools.file_runs import context
from tests.tools.killed_writer import KNOWN, runtime_in

ROOT = Path(__file__).parents[2]
MENDS = {"path": KNOWN, "old_string": "two", "new_string": "2"}


async def told(tool: ToolDefinition, **arguments: Any) -> bool | None:
    assert tool.reconcile is not None
    answer = tool.reconcile(arguments)
    assert not isinstance(answer, bool | None)
    return await answer


def overwrite(tool: ToolDefinition, file: Path, old: TextFile, content: str) -> WrittenFile | UnchangedFile:
    """As a run that knows all of the file."""
    baseline = make_baseline(file.read_bytes(), old, file.stat().st_mtime_ns, whole=True)
    return tool.handler(context=context(tool.name, dict(baseline.to_state(file.name))), path=file.name, content=content)


def make(file: Path, content: bytes) -> None:
    file.write_bytes(content)


TEXTS = st.text("ab\n\r\ufeffé", max_size=6)
ENCODINGS = st.sampled_from(("utf-8", "utf-8-bom", "utf-16-le", "utf-16-be"))


@pytest.mark.requirement("D15")
@given(TEXTS, ENCODINGS, TEXTS)
async def test_what_is_told_of_a_write_is_never_the_opposite_of_what_happened(
    old: str, encoding: Encoding, new: str
) -> None:
    with TemporaryDirectory() as root, Workspace(root) as workspace:
        file, tool = Path(root, "file.txt"), write_file_tool(workspace)
        make(file, encode_text(old, encoding))
        before = await told(tool, path="file.txt", content=new)
        result = overwrite(tool, file, TextFile(old, encoding), new)
        after = await told(tool, path="file.txt", content=new)

    # What is there already is not written, and whoever wants it there has it.
    assert (before, after) == (True if isinstance(result, UnchangedFile) else None, True)


async def test_a_file_that_is_not_there_was_not_written_and_cannot_have_been_edited(tmp_path: Path) -> None:
    with Workspace(tmp_path) as workspace:
        written = await told(write_file_tool(workspace), path="new/file.txt", content="x")
        edited = await told(edit_file_tool(workspace), **MENDS)

    assert (written, edited) == (False, None)


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n\0two", b"caf\xe9 and so on, but not that", b"\xff\xfetwo"])
async def test_a_file_that_is_no_text_or_in_no_known_encoding_says_nothing_of_what_is_not_in_it(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / KNOWN).write_bytes(content)

    with Workspace(tmp_path) as workspace:
        written = await told(write_file_tool(workspace), path=KNOWN, content="two")
        edited = await told(edit_file_tool(workspace), **MENDS)

    assert (written, edited) == (None, None)


@pytest.mark.parametrize("path", ["../outside.txt", "/etc/passwd", ".env", "folder", "link", "a\0b", ""])
async def test_a_file_that_may_not_be_looked_at_says_nothing(tmp_path: Path, path: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("/etc/passwd")

    with Workspace(tmp_path) as workspace:
        written = await told(write_file_tool(workspace), path=path, content="root")
        edited = await told(edit_file_tool(workspace), path=path, old_string="root", new_string="toor")

    assert (written, edited) == (None, None)


# A process that is killed, and the next one.


def kill(root: Path, state: Path, when: str, *call: object) -> None:
    words = [sys.executable, "-m", "tests.tools.killed_writer", str(root), str(state), when, json.dumps(call)]
    assert subprocess.run(words, cwd=ROOT, check=False, timeout=HANG_SECONDS).returncode == -signal.SIGKILL


@asynccontextmanager
async def after_a_kill(folder: Path, when: str, tool_name: str, **arguments: object) -> AsyncGenerator[ToolRuntime]:
    """The run as the next process has it. Nobody answers there."""
    root, state = folder / "project", folder / "state"
    root.mkdir()
    state.mkdir()
    make(root / KNOWN, b"one\ntwo\n")
    kill(root, state, when, tool_name, arguments)
    log = SqliteLog(state / "log.db")
    with Workspace(root) as workspace:
        async with runtime_in(workspace, state, log, interaction=HeadlessInteractionProvider("wait")) as runtime:
            yield runtime
    await log.close()


async def starts(runtime: ToolRuntime) -> int:
    return sum(isinstance(fact, InvocationStarted) and fact.call_id == "c2" for fact in await facts(runtime))


WRITES = {"path": "new.txt", "content": "one\n2\n"}
CALLS = [("edit_file", MENDS), ("write_file", WRITES)]


@pytest.mark.requirement("D15", "P07")
@pytest.mark.parametrize(("tool_name", "arguments"), CALLS)
async def test_what_was_written_when_the_process_was_killed_is_known_and_not_written_again(
    tmp_path: Path, tool_name: str, arguments: dict[str, str]
) -> None:
    async with after_a_kill(tmp_path, "after", tool_name, **arguments) as runtime:
        file = tmp_path / "project" / arguments["path"]
        written = file.stat()
        [done] = (await runtime.resume()).observations

        assert (done.call_id, done.ok, done.side_effects) == ("c2", True, "unknown")
        assert "had been done" in done.summary
        assert (file.read_text(), file.stat().st_ino, await starts(runtime)) == ("one\n2\n", written.st_ino, 1)


@pytest.mark.requirement("D15", "P07", "R236")
@pytest.mark.parametrize(("tool_name", "arguments"), CALLS)
async def test_an_edit_is_known_when_its_diagnostics_died(
    tmp_path: Path, tool_name: str, arguments: dict[str, str]
) -> None:
    async with after_a_kill(tmp_path, "diagnosing", tool_name, **arguments) as runtime:
        (tmp_path / "project" / arguments["path"]).write_text("mine\n")  # so that the file itself says nothing
        [done] = (await runtime.resume()).observations

        assert (done.call_id, done.ok, await starts(runtime)) == ("c2", True, 1)
        assert done.side_effects != "unknown"
        assert [effect.target for effect in done.side_effects] == [arguments["path"]]


@pytest.mark.requirement("D15", "P07")
@pytest.mark.parametrize(("tool_name", "arguments"), CALLS)
async def test_what_was_not_written_when_the_process_was_killed_is_asked_again(
    tmp_path: Path, tool_name: str, arguments: dict[str, str]
) -> None:
    async with after_a_kill(tmp_path, "before", tool_name, **arguments) as runtime:
        waiting = await runtime.resume()
        file = tmp_path / "project" / arguments["path"]
        before = file.read_text() if file.exists() else ""
        [question] = await runtime.questions()
        await runtime.decide(question.action_id, approved=True, by="ada", payload_hash=question.payload_hash)
        [done] = (await runtime.resume()).observations

        assert (waiting.status, before) == ("PAUSED_APPROVAL", "one\ntwo\n" if tool_name == "edit_file" else "")
        assert (done.ok, file.read_text(), await starts(runtime)) == (True, "one\n2\n", 2)


@pytest.mark.requirement("D15")
@pytest.mark.parametrize("when", ["before", "after"])
async def test_what_cannot_be_told_is_unknown_and_not_done_again(tmp_path: Path, when: str) -> None:
    """Somebody changed the file between the two processes."""
    async with after_a_kill(tmp_path, when, "edit_file", **MENDS) as runtime:
        file = tmp_path / "project" / KNOWN
        file.write_text("mine\n")
        [unknown] = (await runtime.resume()).observations

        assert (unknown.code, unknown.side_effects) == ("outcome_unknown", "unknown")
        assert (sha256(file.read_bytes()).digest(), await starts(runtime)) == (sha256(b"mine\n").digest(), 1)
