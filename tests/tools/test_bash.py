"""The tool bash in a run: what it may start, what it is given, and what becomes of its end."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock import Answer, CallbackInteractionProvider, Question, Rule, RulePolicy, ToolRuntime, Verdict, tool
from interlock.domain.errors import SandboxSetupError
from interlock.domain.event import InvocationStarted, WarningRaised
from interlock.domain.observation import Observation
from interlock.sandbox.interface import CommandLimits, CommandSpec, Confinement, OutputHandler, RunningCommand
from interlock.sandbox.workspace.hidden_files import WorkspaceScan
from tests.patience import HANG_SECONDS
from tests.support import call, facts
from tests.tools.shell import FULL, Play, PlayedSandbox, shell_in, terminal

NONE = Confinement(backend="none", capabilities=("kill_tree",), degraded=True, notes=("Nothing holds them back.",))


def text_of(observation: Observation) -> str:
    return observation.content.text if observation.content else ""


# What it is given.


@pytest.mark.requirement("R230")
async def test_a_command_runs_in_the_workspace_with_what_the_developer_chose(tmp_path: Path) -> None:
    commands = PlayedSandbox()
    limits = CommandLimits(processes=7)
    options: dict[str, Any] = {"readable": ("/opt/python",), "environment": {"CI": "1"}, "limits": limits}

    async with terminal(tmp_path, commands, **options) as shell:
        await shell.run("make")

    (started,) = commands.started
    assert (started.script, started.cwd, started.environment) == ("make", "", {"CI": "1"})
    assert (started.profile.workspace, started.profile.writable) == (str(tmp_path), True)
    assert (started.profile.readable, started.profile.limits, started.profile.network) == (
        ("/opt/python",),
        limits,
        False,
    )


async def test_what_was_proved_to_only_read_is_run_so_that_it_cannot_write(tmp_path: Path) -> None:
    commands = PlayedSandbox()

    async with terminal(tmp_path, commands) as shell:
        read = await shell.run("ls -la")
        await shell.run("ls; touch x")

    assert [command.profile.writable for command in commands.started] == [False, True]
    assert (read.facts["profile"], read.side_effects) == ("read-only", ())


async def test_secrets_are_hidden_and_settings_are_held(tmp_path: Path) -> None:
    for name in (".env", ".vscode/settings.json", ".git/hooks/pre-commit", ".git/HEAD"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).touch()
    commands = PlayedSandbox()

    async with terminal(tmp_path, commands) as shell:
        await shell.run("make")

    profile = commands.started[0].profile
    assert profile.hidden == (f"{tmp_path}/.env",)
    assert set(profile.read_only) == {f"{tmp_path}/.vscode", f"{tmp_path}/.git/hooks"}


@pytest.mark.requirement("R224")
async def test_every_command_has_a_time_and_the_maximum_holds(tmp_path: Path) -> None:
    commands = PlayedSandbox()

    async with terminal(tmp_path, commands, default_timeout_seconds=5, max_timeout_seconds=10) as shell:
        for asked in (None, 7, 11, 1e300):
            told = text_of(await shell.run("make", timeout_seconds=asked))
            assert told == ("[timeout_seconds was lowered to 10, which is the most]" if (asked or 0) > 10 else "")

    assert [running.timeout for running in commands.running] == [5, 7, 10, 10]


async def test_the_start_is_recorded_with_what_the_command_can_reach(tmp_path: Path) -> None:
    async with terminal(tmp_path, PlayedSandbox(), environment={"CI": "1"}) as shell:
        await shell.run("make")
        (started,) = [fact for fact in await facts(shell.runtime) if isinstance(fact, InvocationStarted)]

    assert (started.sandbox, started.profile) == ("played", "workspace-write")
    assert started.capabilities == FULL.capabilities


# Where it starts and ends.


async def test_a_command_starts_in_the_folder_that_was_named(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    commands = PlayedSandbox()

    async with terminal(tmp_path, commands) as shell:
        said = await shell.run("make", cwd="src")

    assert commands.started[0].cwd == f"{tmp_path}/src"
    assert (said.facts["cwd"], text_of(said)) == ("src", "")


@pytest.mark.requirement("R237")
async def test_where_the_shell_ended_is_told_and_the_next_one_starts_in_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    commands = PlayedSandbox(Play(cwd="src"))

    async with terminal(tmp_path, commands) as shell:
        said = await shell.run("cd src && make")
        await shell.run("make")

    assert said.facts["cwd"] == "src"
    assert "the shell ended in src" in text_of(said)
    assert [command.cwd for command in commands.started] == ["", ""]


@pytest.mark.requirement("R198")
@pytest.mark.parametrize(
    "arguments",
    [
        {"command": ""},
        {"command": " \n"},
        {"command": "echo \0"},
        {"command": "x" * 100_001},
        {"command": "make", "cwd": "missing"},
        {"command": "make", "cwd": "file"},
        {"command": "make", "cwd": "file/x"},
    ],
)
async def test_what_cannot_be_run_now_is_told_before_anybody_is_asked(
    tmp_path: Path, arguments: dict[str, Any]
) -> None:
    (tmp_path / "file").touch()
    commands = PlayedSandbox()

    async with terminal(tmp_path, commands, run={"mode": "default"}) as shell:
        said = await shell.call("bash", **arguments)

    assert (said.code, said.side_effects) == ("runtime_precondition_failed", ())
    assert commands.started == []


@pytest.mark.parametrize("cwd", ["..", "/etc", "out", "~", "a\0b", ".ssh"])
async def test_a_folder_outside_is_refused_at_the_gate(tmp_path: Path, cwd: str) -> None:
    (tmp_path / "out").symlink_to("/etc")
    (tmp_path / ".ssh").mkdir()
    commands = PlayedSandbox()

    async with terminal(tmp_path, commands) as shell:
        said = await shell.run("make", cwd=cwd)

    assert said.code == "policy_denied"
    assert said.failure is not None
    assert said.failure.details["layer"] == "path boundary"
    assert commands.started == []


# What may start.


@pytest.mark.requirement("R233")
async def test_a_denied_command_does_not_start_because_there_is_a_sandbox(tmp_path: Path) -> None:
    commands = PlayedSandbox()
    policy = RulePolicy([Rule(id="no-reset", verdict=Verdict.DENY, command="git reset --hard *")])

    async with terminal(tmp_path, commands, run={"policy": policy}) as shell:
        said = await shell.run("git reset --hard HEAD~1")

    assert (said.code, commands.started) == ("policy_denied", [])


async def yes(question: Question) -> Answer:
    return Answer(approved=True, by="someone")


class Asked:
    """Somebody who says yes, and remembers what they were asked."""

    def __init__(self) -> None:
        self.questions: list[Question] = []

    async def answer(self, question: Question) -> Answer:
        self.questions.append(question)
        return await yes(question)


@pytest.mark.requirement("R213")
async def test_the_sample_policy_allows_asks_and_denies_commands(tmp_path: Path) -> None:
    commands, person = PlayedSandbox(), Asked()
    policy = RulePolicy([Rule(id="no-reset", verdict=Verdict.DENY, command="git reset --hard *")])
    run = {"policy": policy, "interaction": CallbackInteractionProvider(person.answer), "mode": "default"}

    async with terminal(tmp_path, commands, run=run) as shell:
        said = [
            await shell.run(script) for script in ("ls", "npm test", "rm -rf node_modules", "git reset --hard HEAD")
        ]
        shell.runtime.switch_mode(mode="trusted")
        await shell.run("npm test")

    assert [each.code for each in said] == ["ok", "ok", "ok", "policy_denied"]
    assert [question.arguments["command"] for question in person.questions] == ["npm test", "rm -rf node_modules"]
    assert any("delete" in risk for risk in person.questions[1].risk)
    assert [command.script for command in commands.started] == ["ls", "npm test", "rm -rf node_modules", "npm test"]


async def test_a_host_without_a_sandbox_asks_about_every_command(tmp_path: Path) -> None:
    commands, person = PlayedSandbox(confinement=NONE), Asked()
    policy = RulePolicy([Rule(id="all", verdict=Verdict.ALLOW, tools="bash")])
    run = {"policy": policy, "interaction": CallbackInteractionProvider(person.answer)}

    async with terminal(tmp_path, commands, run=run) as shell:
        for script in ("ls", "ls", "make"):
            assert (await shell.run(script)).ok

    assert [question.scope for question in person.questions] == ["once"] * 3
    assert "Nothing holds them back." in person.questions[0].reason


async def test_a_read_only_run_starts_nothing_where_that_cannot_be_held(tmp_path: Path) -> None:
    commands = PlayedSandbox(confinement=NONE)

    async with terminal(tmp_path, commands, run={"mode": "read_only"}) as shell:
        said = await shell.run("ls")

    assert said.failure is not None
    assert (said.code, said.failure.details["layer"], commands.started) == ("policy_denied", "sandbox", [])


async def test_a_read_only_run_reads_without_a_question(tmp_path: Path) -> None:
    commands = PlayedSandbox()

    async with terminal(tmp_path, commands, run={"mode": "read_only"}) as shell:
        assert (await shell.run("ls")).ok
        assert (await shell.run("touch x")).code == "policy_denied"

    assert [command.profile.writable for command in commands.started] == [False]


async def test_leaving_the_sandbox_is_always_a_question_to_a_person(tmp_path: Path) -> None:
    outside, person = PlayedSandbox(confinement=NONE), Asked()
    policy = RulePolicy([Rule(id="all", verdict=Verdict.ALLOW, tools="*")])
    run = {"policy": policy, "interaction": CallbackInteractionProvider(person.answer)}
    arguments = {"command": "ls", "reason": "needs the printer"}

    async with terminal(tmp_path, PlayedSandbox(), outside=outside, run=run) as shell:
        first, second = [await shell.call("bash_outside", **arguments) for _ in range(2)]

    assert [question.scope for question in person.questions] == ["once", "once"]
    assert "needs the printer" in person.questions[0].reason
    assert any("every host" in risk for risk in person.questions[0].risk)
    assert (first.facts["profile"], first.side_effects, second.ok) == ("unconfined", "unknown", True)


async def test_leaving_the_sandbox_does_not_happen_where_nobody_can_be_asked(tmp_path: Path) -> None:
    outside = PlayedSandbox(confinement=NONE)
    policy = RulePolicy([Rule(id="all", verdict=Verdict.ALLOW, tools="*")])

    async with terminal(tmp_path, PlayedSandbox(), outside=outside, run={"policy": policy}) as shell:
        said = await shell.call("bash_outside", command="ls", reason="because")

    assert (said.ok, outside.started) == (False, [])


async def test_no_argument_of_bash_chooses_the_sandbox(tmp_path: Path) -> None:
    definition = shell_in(tmp_path, PlayedSandbox()).bash_tool()

    assert set(definition.spec.parameters_schema["properties"]) == {
        "command",
        "description",
        "cwd",
        "timeout_seconds",
        "background",
        "hosts",
    }


# Its turn.


@pytest.mark.requirement("R219", "R221", "R223")
async def test_a_test_run_waits_for_the_edit_that_was_proposed_before_it(tmp_path: Path) -> None:
    order: list[str] = []

    @tool(risk="write", write_keys=lambda arguments: "file:a")
    async def edit() -> None:
        """Edit."""
        order.append("edit begins")
        await asyncio.wait([asyncio.ensure_future(asyncio.to_thread(order.append, "edit ends"))])

    commands = PlayedSandbox(Play(changes=lambda _: order.append("test")))
    shell = shell_in(tmp_path, commands)
    runtime = ToolRuntime(tools=[edit, shell.bash_tool()], mode="trusted", workspace=tmp_path)

    await runtime.execute(
        [call("c1", "edit"), call("c2", "bash", command="pytest"), call("c3", "bash", command="make")]
    )
    await runtime.close()

    assert order == ["edit begins", "edit ends", "test", "test"]


# Its end.


@pytest.mark.requirement("R225")
async def test_a_cancelled_command_is_stopped_and_what_it_printed_is_kept(tmp_path: Path) -> None:
    commands = PlayedSandbox(Play(hangs=True, output=(("stdout", b"step 1\nstep 2\n"),)))

    async with terminal(tmp_path, commands) as shell:
        running = asyncio.ensure_future(shell.run("make"))
        while not commands.running:
            await asyncio.wait([running], timeout=0.01)
        await asyncio.wait_for(commands.running[0].waited.wait(), HANG_SECONDS)
        shell.runtime.cancel_call(f"{shell.runtime.run_id}-1")
        said = await running
        kept = await shell.call("read_artifact", artifact_id=said.artifacts[0].id)

    assert said.code == "cancelled"
    assert commands.running[0].stopped.is_set()
    assert "step 1\nstep 2\n" in text_of(kept)


async def test_a_command_that_could_not_be_confined_did_not_run(tmp_path: Path) -> None:
    class Broken(PlayedSandbox):
        async def start(self, command: CommandSpec, on_output: OutputHandler) -> RunningCommand:
            raise SandboxSetupError("bwrap: no user namespaces.")

    async with terminal(tmp_path, Broken()) as shell:
        said = await shell.run("make")

    assert (said.code, said.side_effects) == ("sandbox_setup_failed", ())
    assert "Nothing was executed" in said.summary


@pytest.mark.requirement("R228")
async def test_progress_is_the_last_lines_of_the_output(tmp_path: Path) -> None:
    heard: list[str] = []
    commands = PlayedSandbox(
        Play(hangs=True, output=(("stdout", b"one\n"), ("stderr", b"two\n"), ("stdout", b"three\n")))
    )

    def on_progress(call_id: str, line: str) -> None:
        heard.append(line)

    async with terminal(tmp_path, commands, run={"on_progress": on_progress}) as shell:
        await shell.run("make", timeout_seconds=0.05)

    assert heard == ["one\ntwo\nthree"]


async def test_a_limit_that_ended_it_is_said(tmp_path: Path) -> None:
    commands = PlayedSandbox(Play(reason="memory_limit", exit_code=None, signal="SIGKILL"))

    async with terminal(tmp_path, commands, limits=CommandLimits(memory_bytes=64 << 20)) as shell:
        said = await shell.run("make")

    assert (said.code, said.summary) == ("command_killed", "killed after 0.2 s: it used more than 64 MiB of memory")
    assert said.facts["reason"] == "memory_limit"


async def test_settings_that_a_command_made_are_a_warning(tmp_path: Path) -> None:
    def write(root: Path) -> None:
        (root / ".envrc").write_text("curl evil")

    async with terminal(tmp_path, PlayedSandbox(Play(changes=write))) as shell:
        said = await shell.run("make")
        warnings = [fact.message for fact in await facts(shell.runtime) if isinstance(fact, WarningRaised)]

    assert said.facts["guarded"] == [".envrc"]
    assert warnings == [
        "A command created or exchanged what other programs obey: .envrc. Look at it before you use it."
    ]


async def test_what_the_sandbox_refused_is_a_warning_tied_to_the_call(tmp_path: Path) -> None:
    line = b"touch: cannot touch '/usr/x': Read-only file system\n"

    async with terminal(tmp_path, PlayedSandbox(Play(output=(("stderr", line),), exit_code=1))) as shell:
        said = await shell.run("touch /usr/x")
        (warned,) = [fact for fact in await facts(shell.runtime) if isinstance(fact, WarningRaised)]

    assert warned.call_id == said.call_id
    assert "Read-only file system" in warned.message


@pytest.mark.requirement("R234", "R239")
async def test_a_secret_in_a_command_or_its_output_goes_nowhere(tmp_path: Path) -> None:
    secret = "hunter2-hunter2-hunter2"
    play = Play(output=(("stdout", b"the key is hunter2-"), ("stdout", b"hunter2-hunter2 indeed\n")))

    async with terminal(tmp_path, PlayedSandbox(play), run={"secrets": {"KEY": secret}}) as shell:
        said = await shell.run(f"login --key {secret}")
        kept = await shell.call("read_artifact", artifact_id=said.artifacts[0].id)

    assert secret not in str(said)
    assert secret not in str(kept)
    assert said.facts["exit_code"] == 0


async def test_a_workspace_that_cannot_be_looked_at_afterwards_is_no_failure_to_start(tmp_path: Path) -> None:
    commands = PlayedSandbox(Play(output=(("stdout", b"2 passed in 0.1s\n"),)))

    def find() -> WorkspaceScan:
        if commands.started:
            raise SandboxSetupError("too many folders")
        return WorkspaceScan((), ())

    async with terminal(tmp_path, commands, hidden=find) as shell:
        said = await shell.run("pytest")
        (warned,) = [fact for fact in await facts(shell.runtime) if isinstance(fact, WarningRaised)]

    assert (said.ok, said.side_effects) == (True, "unknown")
    assert said.facts["verification"]["workspace"] == "unknown"
    assert "too many folders" in warned.message


# What it verifies.


async def verified(root: Path, script: str, play: Play) -> Observation:
    async with terminal(root, PlayedSandbox(play)) as shell:
        return await shell.run(script)


PASSED = Play(output=(("stdout", b"..                                    [100%]\n2 passed in 0.01s\n"),))
FAILED = Play(
    output=(("stdout", b"F.                                    [100%]\n1 failed, 1 passed in 0.01s\n"),), exit_code=1
)


async def test_a_test_run_is_a_verification_of_the_files_as_they_are(tmp_path: Path) -> None:
    first = await verified(tmp_path, "pytest -q", PASSED)
    again = await verified(tmp_path, "pytest -q", PASSED)
    (tmp_path / "edited.py").touch()
    later = await verified(tmp_path, "pytest -q", PASSED)

    assert (first.kind, first.summary) == ("verification", "pytest passed.")
    proof = first.facts["verification"]
    assert (proof["program"], proof["ok"], proof["counts"]["passed"]) == ("pytest", True, 2)
    assert proof["workspace"] == again.facts["verification"]["workspace"] != later.facts["verification"]["workspace"]


async def test_a_test_run_that_changes_files_says_so(tmp_path: Path) -> None:
    def write(root: Path) -> None:
        (root / "snapshot.txt").touch()

    said = await verified(tmp_path, "pytest", Play(output=PASSED.output, changes=write))

    assert said.facts["verification"]["changed_during"] is True
    assert said.side_effects != ()


@pytest.mark.parametrize(
    ("script", "play", "ok"),
    [
        ("pytest", PASSED, True),
        ("pytest", FAILED, False),
        ("pytest || true", Play(output=FAILED.output), False),
        ("pytest | tail -1", Play(output=PASSED.output), True),
        ("npm test", Play(), True),
        ("npm test || true", Play(), None),
        ("npm test &", Play(), None),
        ("! npm test", Play(), None),
        ("npm test", Play(exit_code=1), False),
        ("npm test", Play(reason="timeout", exit_code=None), False),
    ],
)
async def test_tests_passed_only_when_that_is_sure(tmp_path: Path, script: str, play: Play, ok: bool | None) -> None:
    said = await verified(tmp_path, script, play)

    assert (said.kind, said.facts["verification"]["ok"]) == ("verification", ok)


async def test_a_command_that_tests_nothing_is_no_verification(tmp_path: Path) -> None:
    said = await verified(tmp_path, "echo 2 passed in 0.01s", PASSED)

    assert (said.kind, "verification" in said.facts) == ("tool", False)


@given(st.text(max_size=100), st.text(max_size=20), st.floats() | st.none())
def test_whatever_a_model_sends_is_an_observation(command: str, cwd: str, seconds: float | None) -> None:
    async def sent() -> Observation:
        with TemporaryDirectory() as folder:
            async with terminal(Path(folder), PlayedSandbox()) as shell:
                return await shell.run(command, cwd=cwd, timeout_seconds=seconds)

    assert asyncio.run(sent()).summary
