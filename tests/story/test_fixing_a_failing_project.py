"""A CLI agent's main job, in six rounds: read the project, run its tests, read, read, edit, run the tests again.

Every stage leaves its facts, so what a final answer claims can be read from the log.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import pytest

from interlock import (
    LogEntry,
    Observation,
    Replay,
    SideEffect,
    SqliteLog,
    read_export,
    render_for_user,
    to_ndjson,
    verify,
)
from interlock.sandbox.commands import landlock
from interlock.sandbox.commands.probe import SandboxBackend
from interlock.sandbox.host import process_tree
from interlock.tools.shell.fingerprint import take_fingerprint
from tests.sandbox.ordinary_user import pytest_as_ordinary_user

from .story import COMMANDS, SOURCE, TESTS, Story, run_whole

MENDED = SOURCE.replace(" + 1", "")
SETUP, FAILING, TEST, CODE, EDIT, PASSING = range(6)
STAGES = ["tool.intent", "tool.validation", "tool.permission"]
ASKED = ["approval.requested", "approval.granted"]
RUN = ["tool.invocation.started", "tool.invocation.completed", "tool.observation"]


@pytest.fixture(
    scope="module",
    params=[("bubblewrap", "unittest"), ("bubblewrap", "pytest"), ("landlock", "unittest")],
    ids="-".join,
)
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Story:
    backend, program = cast(tuple[SandboxBackend, str], request.param)
    if backend == "landlock" and (why_not := landlock.find_unavailable_reason()):
        pytest.skip(why_not)
    if subprocess.run([sys.executable, "-I", "-c", f"import {program}"], capture_output=True, check=False).returncode:
        pytest.skip(f"the interpreter has no {program}")
    return run_whole(tmp_path_factory.mktemp("story"), backend, program)


def facts_of(story: Story, number: int) -> dict[str, Any]:
    return story.rounds[number].observation.facts


def verification(story: Story, number: int) -> dict[str, Any]:
    return facts_of(story, number)["verification"]


@pytest.mark.requirement("R271", "R254")
def test_each_round_goes_through_all_stages_in_order(story: Story) -> None:
    stages = [[event.type for event in told.events if event.type != "warning"] for told in story.rounds]

    read, asked = [*STAGES, *RUN], [*STAGES, *ASKED, *RUN]
    assert stages == [read, asked, read, read, asked, asked]
    for told in story.rounds:
        assert [event.seq for event in told.events] == sorted(event.seq for event in told.events)
        assert all(event.causation_id is None or event.causation_id < event.seq for event in told.events)


@pytest.mark.requirement("R271")
def test_the_rounds_are_what_the_model_could_know(story: Story) -> None:
    """Each call was made of the message before it: the observations say what to do next."""
    asked = [(told.observation.tool, told.event("tool.intent").raw_input) for told in story.rounds]
    command = COMMANDS[verification(story, FAILING)["program"]]
    assert asked == [
        ("read_file", {"path": "pyproject.toml"}),
        ("bash", {"command": command, "description": "Run the tests"}),
        ("read_file", {"path": "tests/test_prices.py"}),
        ("read_file", {"path": "shop/prices.py"}),
        (
            "edit_file",
            {"path": "shop/prices.py", "old_string": "return sum(prices) + 1", "new_string": "return sum(prices)"},
        ),
        ("bash", {"command": command}),
    ]
    assert [told.observation.ok for told in story.rounds] == [True, False, True, True, True, True]


@pytest.mark.requirement("R271", "R272")
def test_reads_are_allowed_and_record_time_and_baseline(story: Story) -> None:
    for number, path, content in ((TEST, "tests/test_prices.py", TESTS), (CODE, "shop/prices.py", SOURCE)):
        told = story.rounds[number]
        facts, digest = told.observation.facts, sha256(content.encode()).hexdigest()
        assert told.event("tool.permission").decision.verdict == "allow"
        assert (facts["path"], facts["sha256"], facts["truncated"]) == (path, digest, False)
        assert int(facts["mtime_ns"]) > 0
        baseline = told.observation.state[f"file:{path}"]
        assert (baseline["sha256"], baseline["mtime_ns"], baseline["whole"]) == (digest, facts["mtime_ns"], True)
        assert told.observation.side_effects == ()


@pytest.mark.requirement("R271", "R224", "R227", "R237", "R242")
def test_the_log_says_in_which_sandbox_a_command_ran_and_how_it_ended(story: Story) -> None:
    for number, exit_code in ((FAILING, 1), (PASSING, 0)):
        told = story.rounds[number]
        started, completed = told.event("tool.invocation.started"), told.event("tool.invocation.completed")
        facts = told.observation.facts
        assert (started.sandbox, started.profile) == (facts["backend"], "workspace-write")
        assert {"files", "write_only_workspace", "network_off", "syscalls"} <= set(started.capabilities)
        assert (started.cwd, started.executor) == (str(story.root), "async")
        assert 0 < facts["timeout_seconds"] == started.timeout_seconds
        assert completed.invocation_id == started.invocation_id == told.event("tool.observation").invocation_id
        assert (facts["exit_code"], facts["signal"], facts["reason"], facts["cwd"]) == (exit_code, "", "exited", ".")
        assert facts["stdout_bytes"] + facts["stderr_bytes"] > 0
        assert 0 < facts["duration_ms"] <= completed.duration_ms
        assert told.observation.exit_code == exit_code


@pytest.mark.requirement("R271", "R216")
def test_a_command_is_asked_about_with_its_risks_and_the_answer_is_bound_to_it(story: Story) -> None:
    question, told = story.questions[0], story.rounds[FAILING]

    backend = facts_of(story, FAILING)["backend"]
    assert question.tool_name == "bash"
    assert f"sandbox: {backend}/workspace-write" in question.risk
    assert "execute" in question.risk
    assert question.bound.surroundings.cwd == str(story.root)
    assert told.event("tool.invocation.started").payload_hash == question.payload_hash


@pytest.mark.requirement("R271", "R244", "R245", "R246", "R247", "R248", "R249", "P10")
def test_the_failing_run_is_cut_around_its_failure_and_kept_whole(story: Story) -> None:
    told = story.rounds[FAILING]
    observation, output = told.observation, story.kept(FAILING, "command_output")

    assert observation.size is not None
    assert observation.content is not None
    assert observation.truncated
    assert observation.size.produced == observation.size.kept == len(output)
    assert observation.size.shown + observation.size.omitted == len(output)
    assert output.count(b"test_149_prices") >= 1
    assert "tests/test_prices.py" in observation.content.text
    assert "AssertionError: 1 != 0" in observation.content.text
    assert f'"truncated":true,"omittedBytes":{observation.size.omitted}' in told.message
    assert observation.next_tool is not None
    assert observation.next_tool.tool == "read_artifact"
    assert observation.next_tool.input_hint["artifact_id"] == facts_of(story, FAILING)["output"]


@pytest.mark.requirement("R271", "R240", "R241", "R243")
def test_the_failing_run_is_a_verification_that_failed(story: Story) -> None:
    observation, verified = story.rounds[FAILING].observation, verification(story, FAILING)
    report = facts_of(story, FAILING)["report"]

    assert (observation.kind, observation.code) == ("verification", "command_failed")
    assert observation.failure is not None
    assert (observation.failure.phase.label, observation.failure.retryable) == ("execute", True)
    assert (verified["ok"], verified["exit_code"], verified["counts"]["failed"]) == (False, 1, 150)
    assert "test_000_prices" in report["failing"][0]
    assert "tests/test_prices.py" in str(report["first_failure"])
    assert "failed" in render_for_user(observation)
    assert "\n" not in render_for_user(observation)


@pytest.mark.requirement("R271")
def test_the_edit_is_asked_about_with_both_texts_and_the_file_as_it_is(story: Story) -> None:
    question, told = story.questions[1], story.rounds[EDIT]

    assert told.event("tool.permission").decision.verdict == "ask"
    assert (question.tool_name, question.capability) == ("edit_file", "edit_file shop/prices.py")
    assert question.arguments["old_string"] == "return sum(prices) + 1"
    assert question.arguments["new_string"] == "return sum(prices)"
    (file,) = question.bound.surroundings.files
    assert (file.path, file.sha256) == ("shop/prices.py", sha256(SOURCE.encode()).hexdigest())
    started = told.event("tool.invocation.started")
    assert (started.action_id, started.payload_hash) == (question.action_id, question.payload_hash)


@pytest.mark.requirement("R271", "R272", "R241")
def test_the_edit_renews_the_baseline_and_leaves_before_after_and_diff(story: Story) -> None:
    observation = story.rounds[EDIT].observation

    assert (story.root / "shop" / "prices.py").read_text() == MENDED
    assert story.kept(EDIT, "file_before").decode() == SOURCE
    assert story.kept(EDIT, "file_after").decode() == MENDED
    digests = [sha256(text.encode()).hexdigest() for text in (SOURCE, MENDED)]
    assert [observation.facts["old_sha256"], observation.facts["sha256"]] == digests
    assert observation.state["file:shop/prices.py"]["sha256"] == digests[1]
    assert observation.content is not None
    assert observation.content.format == "diff"
    assert observation.content.text.splitlines()[-2:] == ["-    return sum(prices) + 1", "+    return sum(prices)"]
    assert observation.side_effects == (SideEffect(kind="modified", target="shop/prices.py", detail="+1 -1 lines"),)
    assert render_for_user(observation) == "Modified shop/prices.py (+1 -1)"


@pytest.mark.requirement("R271", "R273")
def test_the_passing_run_is_an_ok_observation_with_nothing_cut_and_no_effects(story: Story) -> None:
    observation, verified = story.rounds[PASSING].observation, verification(story, PASSING)

    assert (observation.ok, observation.kind, observation.tool) == (True, "verification", "bash")
    assert observation.summary == f"{verified['program']} passed."
    assert (observation.exit_code, observation.side_effects, observation.truncated) == (0, (), False)
    assert observation.duration_ms is not None
    assert observation.duration_ms > 0
    assert (verified["ok"], verified["counts"]["passed"]) == (True, 150)
    assert f'"summary":"{verified["program"]} passed.","exitCode":0,"durationMs":' in story.rounds[PASSING].message
    assert render_for_user(observation) == f"{verified['program']} passed: 150 passed"


@pytest.mark.requirement("R271")
def test_the_edit_makes_the_first_verification_stale_and_not_the_second(story: Story) -> None:
    first, second = verification(story, FAILING), verification(story, PASSING)
    with_root = os.open(story.root, os.O_RDONLY)
    try:
        now = take_fingerprint(with_root).digest
    finally:
        os.close(with_root)

    assert first["workspace"] != second["workspace_before"]
    assert second["workspace"] == now
    assert not first["changed_during"], "what tests write for themselves is no change"
    assert not second["changed_during"]


@pytest.mark.requirement("R271")
def test_what_a_final_answer_claims_can_be_read_from_the_log(story: Story) -> None:
    entries = asyncio.run(_entries(story))
    observed = Replay(entries).observations()

    read = [observation.facts["path"] for observation in observed if observation.tool == "read_file"]
    changed = [effect.target for observation in observed for effect in _effects(observation)]
    last = [observation for observation in observed if observation.kind == "verification"][-1]
    assert read == ["pyproject.toml", "tests/test_prices.py", "shop/prices.py"]
    assert changed == ["shop/prices.py"]
    assert (last.facts["verification"]["ok"], last.summary.endswith(" passed.")) == (True, True)


@pytest.mark.requirement("R271", "R269")
def test_replay_tells_the_same_story_and_executes_nothing(story: Story) -> None:
    before = dict(_files(story.root))

    replay = Replay(asyncio.run(_entries(story)))

    assert [message.text for message in replay.messages()] == [told.message for told in story.rounds]
    assert (
        replay.state_at(len(replay) - 1).tool_state["file:shop/prices.py"]["sha256"]
        == sha256(MENDED.encode()).hexdigest()
    )
    assert dict(_files(story.root)) == before


@pytest.mark.requirement("R271")
def test_the_log_verifies_and_an_edited_one_does_not(story: Story) -> None:
    entries, run_id = asyncio.run(_entries(story)), story.runtime.run_id
    exported = b"".join(to_ndjson(entries))

    assert verify(entries, run_id).ok
    flaw = verify(read_export(exported.replace(b'"ok":false', b'"ok":true').splitlines()), run_id).flaw
    assert flaw is not None
    assert flaw.problem == "edited"


@pytest.mark.requirement("R271")
def test_nothing_is_left_behind(story: Story) -> None:
    known = {"pyproject.toml", "shop", "tests", ".pytest_cache"}
    left = [pid for pid in process_tree.list_descendants(os.getpid()) if b"unittest" in _command_line(pid)]

    assert left == []
    assert list((story.root.parent / "temporary").iterdir()) == []
    assert {path.name for path in story.root.iterdir()} <= known


def test_the_story_is_the_same_for_an_ordinary_user() -> None:
    if os.geteuid() != 0:
        pytest.skip("this is one")
    pytest_as_ordinary_user(__file__)


async def _entries(story: Story) -> list[LogEntry]:
    async with SqliteLog(story.log) as log:
        return await log.read(story.runtime.run_id)


def _effects(observation: Observation) -> tuple[SideEffect, ...]:
    assert isinstance(observation.side_effects, tuple)
    return observation.side_effects


def _files(root: Path) -> Iterator[tuple[Path, tuple[int, bytes]]]:
    return ((path, (path.stat().st_mtime_ns, path.read_bytes())) for path in root.rglob("*") if path.is_file())


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
