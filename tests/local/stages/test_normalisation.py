"""What the readers get of the real tools: a model, a person, and the log; and of a long output, the useful part."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from interlock import FileArtifacts, NormalizedOutput, Observation, render_for_user, tool
from interlock.domain.event import CallObserved
from interlock.tools.shell.command_result import CommandResult

from .runs import Calls, local_run, message_of, text_of

pytestmark = pytest.mark.usefixtures("confined")
SECRET = "hunter2-and-some-more"
EDIT = {"path": "src/sums.py", "old_string": "return a - b\n\n", "new_string": "return a + b\n\n"}


def kinds_of(observation: Observation) -> list[str]:
    return [] if isinstance(observation.side_effects, str) else [effect.kind for effect in observation.side_effects]


@pytest.mark.requirement("R178", "R237", "R242", "R246")
async def test_a_command_yields_streams_status_time_and_place_and_every_byte_is_kept(
    root: Path, tmp_path: Path
) -> None:
    artifacts = FileArtifacts(tmp_path / "artifacts")

    async with local_run(root, artifacts=artifacts) as run:
        done = await run.bash("printf 'out\\n'; printf 'err\\n' >&2; cd src; kill -TERM $$")
        [observed] = await run.facts(CallObserved, "c1")
        output = artifacts.read(done.facts["output"])
        streams = artifacts.read(done.facts["streams"])

    facts = observed.observation.facts
    assert (done.code, done.exit_code, facts["signal"], facts["reason"]) == (
        "command_killed",
        None,
        "SIGTERM",
        "exited",
    )
    assert (facts["stdout_bytes"], facts["stderr_bytes"]) == (4, 4)
    assert facts["duration_ms"] > 0
    assert sorted(output.decode().split()) == ["err", "out"]
    assert b"stderr" in streams
    assert [artifact.kind for artifact in done.artifacts] == ["command_output", "command_output_index"]
    assert done.artifacts[0].path


@pytest.mark.requirement("R238", "R239", "R178", "R237")
async def test_the_raw_result_of_a_command_goes_to_nobody_as_it_is(root: Path) -> None:
    raw: list[CommandResult] = []

    def taken(value: dict[str, object]) -> object:
        assert isinstance(value["output"], CommandResult)
        raw.append(value["output"])
        return value["output"]

    async with local_run(root) as run:
        registry = run.runtime.registry
        bash = registry.unregister("bash")
        assert bash is not None
        assert bash.normalize is not None
        registry.register(tool(bash.handler, name="bash", normalize=bash.normalize, post_hooks=[taken]))
        result = await run.propose(("bash", {"command": "echo out; echo err >&2; exit 3"}))

    [seen] = raw
    assert (seen.output.stdout, seen.output.stderr, seen.ended.exit_code, seen.ended_in) == (b"out\n", b"err\n", 3, ".")
    assert seen.output is not None
    assert seen.duration_ms > 0
    assert "CommandResult" not in message_of(result)
    assert "peak_memory_bytes" not in message_of(result)


@pytest.mark.requirement("R239", "R234")
async def test_no_reader_sees_keys_escape_sequences_or_where_the_project_is(root: Path, tmp_path: Path) -> None:
    (root / "settings.py").write_text(f"KEY = '{SECRET}'\n")
    (root / "image.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8)
    artifacts = FileArtifacts(tmp_path / "artifacts")
    noise = f"printf '\\e[2J\\e]0;t\\a'; cat settings.py; echo {SECRET} | base64; head -c 99 image.png"

    async with local_run(root, secrets={"KEY": SECRET}, artifacts=artifacts) as run:
        calls: list[Calls] = [
            ("read_file", {"path": "settings.py"}),
            ("read_file", {"path": "image.png"}),
            ("grep", {"pattern": "KEY"}),
            ("glob", {"pattern": "**/*"}),
            ("list_dir", {}),
            ("bash", {"command": noise}),
            ("write_file", {"path": "copy.py", "content": f"KEY = '{SECRET}'\n"}),
        ]
        result = await run.propose(*calls)
        told = [message_of(result, observation.call_id) for observation in result.observations]
        log = (await run.runtime.export()).decode()
        stored = b"".join(path.read_bytes() for path in (tmp_path / "artifacts").rglob("*") if path.is_file())

    assert [observation.ok for observation in result.observations] == [True] * 7
    for text in (*told, log, *map(render_for_user, result.observations)):
        assert SECRET not in text
        assert "\x1b" not in text
    assert SECRET.encode() not in stored
    assert not [text for text in told if str(root) in text]
    assert (root / "copy.py").read_text() == f"KEY = '{SECRET}'\n"


@pytest.mark.requirement("R240", "R241", "R242")
async def test_every_tool_has_a_text_for_the_model_a_line_for_a_person_and_facts_for_the_log(root: Path) -> None:
    async with local_run(root) as run:
        await run.do("read_file", path="src/sums.py")
        read = await run.do("read_file", path="notes.txt")
        edit = await run.do("edit_file", **EDIT)
        wrote = await run.do("write_file", path="new.txt", content="x\n")
        found = await run.do("grep", pattern="return")
        names = await run.do("glob", pattern="**/*.py")
        listed = await run.do("list_dir")
        command = await run.bash("echo hi > made.txt; echo done")
        all_of_them = [read, edit, wrote, found, names, listed, command]

    assert [observation.ok for observation in all_of_them] == [True] * 7
    for observation in all_of_them:
        line = render_for_user(observation)
        assert line
        assert "\n" not in line.strip() or observation is edit
        assert text_of(observation) != line
        assert (observation.facts != {}, observation.duration_ms is not None) == (True, True)
    assert (edit.content is not None and edit.content.format) == "diff"
    assert "-    return a - b\n+    return a + b" in text_of(edit)
    changed = [kind for observation in (edit, wrote, command) for kind in kinds_of(observation)]
    assert changed == ["modified", "created", "modified"]
    assert [observation.side_effects for observation in (read, found, names, listed)] == [()] * 4


@pytest.mark.requirement("R272")
async def test_an_edit_renews_the_baseline_and_keeps_before_after_and_diff(root: Path) -> None:
    before = (root / "src/sums.py").read_text()

    async with local_run(root) as run:
        read = await run.do("read_file", path="src/sums.py")
        edited = await run.do("edit_file", **EDIT)
        kept = {artifact.kind: await run.text_of_artifact(artifact.id) for artifact in edited.artifacts}
        again = await run.do("edit_file", path="src/sums.py", old_string="def add", new_string="def plus")

    known, renewed = read.state["file:src/sums.py"], edited.state["file:src/sums.py"]
    assert known["mtime_ns"].isdigit()
    assert known["sha256"] != renewed["sha256"]
    assert kept["file_before"] == before
    assert kept["file_after"] == before.replace("a - b", "a + b", 1)
    assert again.ok


@pytest.mark.requirement("R273", "R240", "R245")
async def test_a_run_of_tests_is_a_verification_of_the_files_as_they_were(root: Path) -> None:
    test = "import unittest\nfrom sums import add\n\n\nclass T(unittest.TestCase):\n    def test_add(self):\n"
    (root / "src/test_sums.py").write_text(test + "        self.assertEqual(add(2, 2), 4)\n")
    command = {"command": f"{sys.executable} -B -m unittest -v", "cwd": "src"}

    async with local_run(root) as run:
        failed = await run.do("bash", **command)
        await run.do("read_file", path="src/sums.py")
        await run.do("edit_file", **EDIT)
        result = await run.propose(("bash", command))
        [passed] = result.observations

    assert (failed.ok, failed.exit_code, failed.kind, failed.side_effects) == (False, 1, "verification", ())
    assert "AssertionError: 0 != 4" in text_of(failed)
    assert failed.facts["report"]["failing"]
    assert (passed.ok, passed.exit_code, passed.side_effects, passed.truncated) == (True, 0, (), False)
    assert passed.summary == "unittest passed."
    assert passed.duration_ms is not None
    header = json.loads(message_of(result).partition("\n")[0])
    assert header.pop("durationMs") >= 0
    assert header == {
        "type": "tool.observation",
        "tool": "bash",
        "ok": True,
        "kind": "verification",
        "summary": "unittest passed.",
        "exitCode": 0,
        **{name: header[name] for name in ("artifact", "artifacts")},
    }
    assert failed.facts["verification"]["workspace"] != passed.facts["verification"]["workspace"]


@pytest.mark.requirement("R179")
async def test_a_failing_command_says_all_that_the_model_needs(root: Path) -> None:
    lines = "print('x' * 99 + chr(10), end='')\n" * 900
    failing = "raise SystemExit('FAILED test_sum: Expected 4, received 5')\n"
    (root / "check.py").write_text(lines + failing)

    async with local_run(root) as run:
        result = await run.propose(("bash", {"command": f"{sys.executable} check.py"}))

    header = json.loads(message_of(result).partition("\n")[0])
    assert (header["type"], header["tool"], header["ok"]) == ("tool.observation", "bash", False)
    assert (header["exitCode"], header["truncated"]) == (1, True)
    assert header["message"].startswith("exit 1 after ")
    assert "Expected 4, received 5" in header["preview"]
    assert header["nextHint"] == "The output was cut. Read the rest with read_artifact."
    [kept, _] = header["artifacts"]
    assert (kept["kind"], header["artifact"]) == ("command_output", kept)
    assert header["suggestedNextTool"]["inputHint"]["artifact_id"] == kept["id"]


@pytest.mark.requirement("P10", "R244", "R245", "R246", "R247", "R248", "R249")
async def test_of_a_long_output_the_model_sees_the_failure_and_the_rest_is_an_artifact_byte_for_byte(
    root: Path, tmp_path: Path
) -> None:
    numbers = "".join(f"{number}\n" for number in range(1, 40_001))
    failure = "FAILED test_sums.py::test_add - AssertionError: Expected 4, received 5\n"
    (root / "out.txt").write_text(f"{numbers}{failure}{numbers}last line\n")
    artifacts = FileArtifacts(tmp_path / "artifacts")

    async with local_run(root, artifacts=artifacts) as run:
        result = await run.propose(("bash", {"command": "cat out.txt; exit 1"}))
        [cut] = result.observations
        assert cut.next_tool is not None
        more = await run.do(cut.next_tool.tool, **cut.next_tool.input_hint)
        [observed] = await run.facts(CallObserved, "c1")
        kept = artifacts.read(cut.artifacts[0].id)

    assert cut.size is not None
    assert kept == (root / "out.txt").read_bytes()
    assert len(kept) == cut.size.produced == cut.size.kept == cut.size.shown + cut.size.omitted
    assert ("Expected 4, received 5" in text_of(cut), "last line" in text_of(cut)) == (True, True)
    assert len(text_of(cut)) <= 30_000
    message = message_of(result)
    assert '"truncated":true' in message
    assert f'"omittedBytes":{cut.size.omitted}' in message
    assert '"suggestedNextTool":{"tool":"read_artifact"' in message
    assert cut.artifacts[0].id in message
    assert "Expected 4, received 5" in text_of(more)
    assert observed.observation.artifacts == cut.artifacts


@pytest.mark.requirement("R244", "R247", "R250", "R251", "R252", "R235")
async def test_a_long_file_is_read_part_by_part_as_the_hints_say_and_not_twice(root: Path) -> None:
    (root / "long.txt").write_text("".join(f"line {number}\n" for number in range(1, 5_001)))
    seen: list[str] = []

    async with local_run(root) as run:
        read = await run.do("read_file", path="long.txt")
        first = read
        while read.next_tool is not None:
            seen += text_of(read).splitlines()
            read = await run.do(read.next_tool.tool, **read.next_tool.input_hint)
        seen += text_of(read).splitlines()
        again = await run.do("read_file", path="long.txt", limit=5_000)

    assert (first.facts["limit"], first.facts["last_line"], first.facts["truncated"]) == (2_000, 2_000, True)
    assert "offset=2001" in first.next_hint
    assert seen == [f"{number}\tline {number}" for number in range(1, 5_001)]
    assert (again.facts["code"], text_of(again)) == ("file_unchanged", "")


@pytest.mark.requirement("R243")
async def test_a_failed_read_command_and_remote_call_have_the_same_shape(root: Path) -> None:
    def rpc(result: dict[str, Any]) -> NormalizedOutput:
        return NormalizedOutput(ok=False, code="mcp_error", summary=result["error"]["message"], text="")

    @tool(origin="mcp", source="tickets", normalize=rpc)
    async def find_ticket() -> dict[str, Any]:
        """Find a ticket."""
        return {"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "Method not found"}}

    async with local_run(root) as run:
        run.runtime.registry.register(find_ticket)
        result = await run.propose(
            ("read_file", {"path": "missing"}), ("bash", {"command": "exit 4"}), ("find_ticket", {})
        )

    failures = [observation.failure for observation in result.observations]
    assert [(failure.phase, failure.code) for failure in failures if failure is not None] == [
        ("validate", "runtime_precondition_failed"),
        ("execute", "command_failed"),
        ("execute", "mcp_error"),
    ]
    heads = [message_of(result, each.call_id).partition("\n")[0].partition("}")[0] for each in result.observations]
    fields = ('"type":"tool.observation"', '"ok":false', '"phase":', '"code":', '"message":', '"sideEffects":')
    assert all(field in head for head in heads for field in fields)


@pytest.mark.requirement("R278")
async def test_there_is_a_tool_for_each_daily_task_beside_the_shell(root: Path) -> None:
    async with local_run(root) as run:
        names = set(run.runtime.registry.names())

    assert names == {
        *("read_file", "write_file", "edit_file", "grep", "glob", "list_dir", "read_artifact"),
        *("bash", "read_task", "wait_task", "stop_task", "list_tasks"),
    }
