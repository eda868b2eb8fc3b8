"""The tool bash with real commands in a real sandbox: what they reach, and what is left when they are over."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock import Observation
from interlock.sandbox.commands.probe import choose_sandbox
from interlock.sandbox.host.programs import python_folders
from interlock.sandbox.interface import CommandLimits, CommandSandbox
from tests.patience import HANG_SECONDS, with_time_to_begin
from tests.tools.shell import terminal

PYTHON = python_folders()
TOKEN = f"leftover-{os.getpid()}"


def text_of(observation: Observation) -> str:
    return observation.content.text if observation.content else ""


@pytest.fixture(scope="module")
def commands() -> CommandSandbox:
    sandbox = choose_sandbox()
    if sandbox.confinement.backend != "bubblewrap":
        pytest.skip(f"only {sandbox.confinement.backend} works here")
    return sandbox


def processes_with(word: str) -> list[str]:
    found: list[str] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if word in words and folder.name != str(os.getpid()):
            found.append(words)
    return found


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    assert processes_with(TOKEN) == []


@pytest.mark.requirement("R178", "R237", "R242")
async def test_both_streams_the_exit_code_and_the_time_are_known(tmp_path: Path, commands: CommandSandbox) -> None:
    async with terminal(tmp_path, commands) as shell:
        said = await shell.run("echo out; echo err >&2; mkdir sub; cd sub; exit 3")
        kept = await shell.call("read_artifact", artifact_id=said.facts["output"])

    assert (said.code, said.exit_code, said.summary) == ("command_failed", 3, said.summary)
    facts = said.facts
    assert (facts["exit_code"], facts["signal"], facts["reason"], facts["cwd"]) == (3, "", "exited", "sub")
    assert (facts["stdout_bytes"], facts["stderr_bytes"]) == (4, 4)
    assert 0 < facts["duration_ms"] < 60_000
    assert "out" in text_of(said)
    assert "err" in text_of(said)
    assert {"out", "err"} <= set(text_of(kept).split())
    assert {ref.kind for ref in said.artifacts} == {"command_output", "command_output_index"}


@pytest.mark.requirement("R232")
async def test_an_allowed_command_reads_no_home_no_secrets_and_writes_no_system(
    tmp_path: Path, commands: CommandSandbox
) -> None:
    (tmp_path / ".env").write_text("PASSWORD=hunter2")
    script = f"cat .env; ls {Path.home()}; cat /etc/shadow; touch /usr/x /etc/x; cat /proc/1/environ; true"

    async with terminal(tmp_path, commands) as shell:
        said = await shell.run(script)

    assert said.ok
    assert "hunter2" not in text_of(said)
    assert "root:" not in text_of(said)
    assert text_of(said).count("Read-only file system") == 2


@pytest.mark.requirement("R234", "R239")
async def test_nothing_of_our_environment_reaches_a_command(
    tmp_path: Path, commands: CommandSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERLOCK_TEST_KEY", "hunter2")

    async with terminal(tmp_path, commands, environment={"CI": "1"}) as shell:
        said = await shell.run("env; cat /proc/*/environ | tr '\\0' '\\n'")

    assert "CI=1" in text_of(said)
    assert "hunter2" not in text_of(said)


async def test_read_only_is_held_by_the_kernel_whatever_the_words_say(tmp_path: Path, commands: CommandSandbox) -> None:
    def claimed(script: str, cwd: str) -> bool:
        return True

    async with terminal(tmp_path, commands, is_read_only=claimed) as shell:
        said = await shell.run("touch x")

    assert (said.facts["profile"], said.exit_code, said.side_effects) == ("read-only", 1, ())
    assert said.facts["violations"][0]["cause"] == "read_only"
    assert not (tmp_path / "x").exists()


async def test_a_repository_can_be_used_but_its_hooks_cannot_be_changed(
    tmp_path: Path, commands: CommandSandbox
) -> None:
    async with terminal(tmp_path, commands) as shell:
        await shell.run("git init -q && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first")
        script = "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && "
        said = await shell.run(script + "! touch .git/hooks/x && ! git config a.b c && git log --oneline | wc -l")

    assert said.exit_code == 0, text_of(said)
    assert "2" in text_of(said)
    assert not (tmp_path / ".git/hooks/x").exists()
    assert said.side_effects != ()


async def test_a_file_that_other_programs_obey_is_told_when_it_is_new(tmp_path: Path, commands: CommandSandbox) -> None:
    async with terminal(tmp_path, commands) as shell:
        new = await shell.run("echo evil > .envrc")
        held = await shell.run("echo more >> .envrc")

    assert new.facts["guarded"] == [".envrc"]
    assert (held.exit_code, (tmp_path / ".envrc").read_text()) == (1, "evil\n")


@pytest.mark.requirement("R224")
@pytest.mark.parametrize("script", ["sleep 60", "trap '' TERM INT; sleep 60; sleep 60", "setsid sleep 60 & wait"])
async def test_a_command_that_does_not_end_is_ended(tmp_path: Path, commands: CommandSandbox, script: str) -> None:
    limits = CommandLimits(grace_seconds=0.1)

    async with terminal(tmp_path, commands, limits=limits) as shell:
        said = await with_time_to_begin(
            lambda seconds: shell.run(f"echo begun; : {TOKEN}; {script}", timeout_seconds=seconds),
            lambda said: text_of(said).startswith("begun"),
        )

    assert (said.code, said.facts["reason"]) == ("command_timed_out", "timeout")
    assert text_of(said).startswith("begun")


async def test_a_daemon_does_not_outlive_its_command(tmp_path: Path, commands: CommandSandbox) -> None:
    async with terminal(tmp_path, commands) as shell:
        said = await shell.run(f"(setsid bash -c 'exec -a {TOKEN} sleep 60' &) ; echo done", timeout_seconds=30)

    assert (said.ok, text_of(said)) == (True, "done")


@pytest.mark.requirement("R225")
async def test_a_cancelled_command_leaves_its_output_and_nothing_else(tmp_path: Path, commands: CommandSandbox) -> None:
    begun = asyncio.Event()

    def on_progress(call_id: str, line: str) -> None:
        begun.set()

    run = {"on_progress": on_progress}

    async with terminal(tmp_path, commands, run=run, limits=CommandLimits(grace_seconds=0.1)) as shell:
        running = asyncio.ensure_future(shell.run(f"echo begun; exec -a {TOKEN} sleep 60"))
        await asyncio.wait_for(begun.wait(), HANG_SECONDS)
        shell.runtime.cancel_call(f"{shell.runtime.run_id}-1")
        said = await running
        kept = await shell.call("read_artifact", artifact_id=said.artifacts[0].id)
        after = await shell.run("echo alive")

    assert said.code == "cancelled"
    assert "begun" in text_of(kept)
    assert text_of(after) == "alive"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("yes", "output_limit"),
        ("for n in $(seq 200); do sleep 60 & done; wait", "process_limit"),
        ("head -c 300000000 /dev/zero | tail", "memory_limit"),
    ],
)
async def test_a_command_that_takes_too_much_is_ended_and_the_run_goes_on(
    tmp_path: Path, commands: CommandSandbox, script: str, reason: str
) -> None:
    limits = CommandLimits(memory_bytes=64 << 20, processes=40, output_bytes=1 << 20, grace_seconds=0.1)

    async with terminal(tmp_path, commands, limits=limits) as shell:
        said = await with_time_to_begin(
            lambda seconds: shell.run(script, timeout_seconds=seconds),
            lambda said: said.facts["reason"] == reason or "violations" in said.facts,
        )
        after = await shell.run("echo alive")

    assert (said.ok, text_of(after)) == (False, "alive")
    if said.facts["reason"] != reason:
        # A limit that the kernel holds was what it ran into first: then it goes on or fails in its own words.
        assert said.code in ("command_failed", "command_timed_out")
        assert said.facts["violations"]


async def test_a_full_temporary_folder_is_explained(tmp_path: Path, commands: CommandSandbox) -> None:
    limits = CommandLimits(temporary_bytes=1 << 20)

    async with terminal(tmp_path, commands, limits=limits) as shell:
        said = await shell.run("head -c 4000000 /dev/zero > /tmp/x")

    assert said.facts["violations"][0]["cause"] == "temporary_space"


async def test_binary_noise_and_escape_sequences_are_an_observation(tmp_path: Path, commands: CommandSandbox) -> None:
    async with terminal(tmp_path, commands) as shell:
        said = await shell.run(r"printf '\x00\xff\xfe\x1b]0;title\x07\x1b[2Jred\n'; head -c 3000 /dev/urandom")

    assert said.ok
    assert said.facts["stdout_bytes"] == 3021
    assert text_of(said).startswith("[binary output: 3,021 bytes, ")
    text_of(said).encode()


async def test_a_folder_with_a_name_that_is_no_text_is_a_place(tmp_path: Path, commands: CommandSandbox) -> None:
    async with terminal(tmp_path, commands) as shell:
        said = await shell.run(r"""n=$'\xff\e[2J'; mkdir "$n" && cd "$n" && pwd""")

    assert (said.ok, said.facts["cwd"].isprintable()) == (True, True)
    assert str(said.side_effects[0]).isprintable()


async def test_a_folder_that_is_deleted_under_the_shell_is_no_end_of_the_run(
    tmp_path: Path, commands: CommandSandbox
) -> None:
    (tmp_path / "sub").mkdir()

    async with terminal(tmp_path, commands) as shell:
        said = await shell.run("rm -rf ../sub; echo gone", cwd="sub")
        refused = await shell.run("echo x", cwd="sub")

    assert (said.ok, refused.code) == (True, "runtime_precondition_failed")


@pytest.mark.requirement("P10", "R244", "R245", "R246", "R247", "R248", "R249")
async def test_a_long_output_shows_the_failure_and_keeps_every_byte(tmp_path: Path, commands: CommandSandbox) -> None:
    script = "seq 1 60000; echo 'AssertionError: Expected 4, received 5'; seq 1 60000; echo end >&2; exit 1"

    async with terminal(tmp_path, commands) as shell:
        said = await shell.run(script)
        assert said.next_tool is not None
        more = await shell.call(said.next_tool.tool, **said.next_tool.input_hint)

    assert said.size is not None
    assert said.truncated
    assert said.size.produced == said.size.kept == said.size.shown + said.size.omitted
    assert said.size.produced == said.facts["stdout_bytes"] + said.facts["stderr_bytes"] == 2 * 348_894 + 39 + 4
    assert "Expected 4, received 5" in text_of(said)
    assert len(text_of(said)) <= 30_000
    assert "Expected 4, received 5" in text_of(more)


_TEST = """import unittest
class SumTest(unittest.TestCase):
    def test_sum(self):
        self.assertEqual(2 + 2, {expected})
"""


@pytest.mark.requirement("R238", "R240", "R241", "R243", "R273")
async def test_a_real_test_run_is_a_verification_until_a_file_is_edited(
    tmp_path: Path, commands: CommandSandbox
) -> None:
    script = f"{sys.executable} -m unittest"
    (tmp_path / "test_sum.py").write_text(_TEST.format(expected=50))

    async with terminal(tmp_path, commands, readable=PYTHON) as shell:
        failed = await shell.run(script)
        (tmp_path / "test_sum.py").write_text(_TEST.format(expected=4))
        passed = await shell.run(script)

    assert (failed.code, failed.summary) == ("command_failed", "unittest failed: 1 run, 1 failed")
    assert "AssertionError: 4 != 50" in text_of(failed)
    assert failed.facts["report"]["first_failure"]["line"] == 4
    assert (passed.ok, passed.summary, passed.exit_code, passed.side_effects) == (True, "unittest passed.", 0, ())
    assert (passed.kind, passed.truncated) == ("verification", False)
    first, second = (each.facts["verification"] for each in (failed, passed))
    assert first["workspace"] != second["workspace"] == second["workspace_before"]


@pytest.mark.requirement("R226")
async def test_a_server_in_the_background_serves_until_it_is_stopped(tmp_path: Path, commands: CommandSandbox) -> None:
    async with terminal(tmp_path, commands, limits=CommandLimits(grace_seconds=0.1)) as shell:
        started = await shell.run(f"echo up; exec -a {TOKEN} sleep 60", background=True)
        task_id = started.facts["task"]["id"]
        meanwhile = await shell.run("echo meanwhile")
        assert processes_with(TOKEN)
        stopped = await shell.call("stop_task", task_id=task_id)

    assert text_of(meanwhile) == "meanwhile"
    assert (stopped.facts["task"]["status"], "up" in text_of(stopped)) == ("stopped", True)


_LONG_OUTPUT = """
import asyncio, resource, sys
from pathlib import Path
from interlock import FileArtifacts
from interlock.sandbox.interface import CommandLimits
from interlock.sandbox.commands.probe import choose_sandbox
from tests.tools.shell import terminal

async def main(folder, size):
    run = {"artifacts": FileArtifacts(folder / "artifacts")}
    limits = CommandLimits(output_bytes=2 * size)
    async with terminal(folder / "workspace", choose_sandbox(), run=run, limits=limits) as shell:
        await shell.run("seq 1 300000")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        said = await shell.run(f"yes 'INFO one more line of a log' | head -c {size}; echo 'error: last' >&2; exit 1")
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(said.facts["stdout_bytes"], said.size.kept, grown // 1024, said.next_tool is not None)

asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
"""


@pytest.mark.parametrize("size", [20 << 20, pytest.param(100 << 20, marks=pytest.mark.soak)])
def test_a_huge_output_is_kept_whole_in_little_memory(tmp_path: Path, commands: CommandSandbox, size: int) -> None:
    (tmp_path / "workspace").mkdir()

    ran = subprocess.run(
        [sys.executable, "-c", _LONG_OUTPUT, str(tmp_path), str(size)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )

    printed, kept, grown_mib, offered = ran.stdout.split()
    assert (int(printed), int(kept), offered) == (size, size + len("error: last\n"), "True")
    assert int(grown_mib) < 10
