"""Commands with odd scripts, folders and ends; and tasks that nobody asked about for long."""

from pathlib import Path

import pytest

from tests.local.toolbox import box, commands_of, text_of

#: Script, exit code, text.
_SCRIPTS = [
    ("cat <<'E'\n$x `y`\nE", 0, "$x `y`"),
    ("set -e; false; echo no", 1, ""),
    ("trap 'echo bye' EXIT; cd /tmp; exit 3", 3, "bye"),
    ("trap 'cd /; exit 9' EXIT; true", 9, ""),
    ("exec sh -c 'exit 5'", 5, ""),
    ("(exit 4); echo $?", 0, "4"),
    ("(sleep 30; echo late) & echo now", 0, "now"),
    ("setsid sleep 30 & disown; printf x", 0, "x"),
    ("cat; read x; echo [$x] $?", 0, "[] 1"),
    ("exec 1>&- 2>&-; exit 2", 2, ""),
    ("printf() { echo evil; }; pwd() { echo evil; }; builtin() { echo evil; }; exit 6", 6, ""),
    ("kill -9 $$", None, ""),
    (r"printf '\xc3'; sleep 0.05; printf '\xa9 \xf0\x9f'; sleep 0.05; printf '\x98\x80'", 0, "é 😀"),
]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "workspace").mkdir()
    return tmp_path / "workspace"


@pytest.mark.parametrize(("script", "code", "text"), _SCRIPTS)
async def test_a_script_ends_as_bash_would_end_it(workspace: Path, script: str, code: int | None, text: str) -> None:
    async with box(workspace, commands=commands_of("bubblewrap")) as run:
        said = await run.bash(script, timeout_seconds=10)

    assert (said.exit_code, text_of(said)) == (code, text)


@pytest.mark.parametrize("cwd", ["with space", "two\nlines", "ü", "-dash", "x" * 120 + "/" + "y" * 120])
async def test_a_shell_that_stayed_in_its_folder_is_not_said_to_have_moved(workspace: Path, cwd: str) -> None:
    (workspace / cwd).mkdir(parents=True)
    async with box(workspace, commands=commands_of("bubblewrap")) as run:
        said = await run.bash("true", cwd=cwd)

    assert said.ok
    assert text_of(said) == ""


@pytest.mark.parametrize("name", ["with space", "qu'o\"te", "two\nlines", "ü", "$HOME", "-dash", "a:b", "*", "b\\s"])
async def test_a_workspace_may_have_any_name(tmp_path: Path, name: str) -> None:
    root = tmp_path / name
    root.mkdir()
    (root / ".env").write_text("KEY=canary")
    (root / "f").write_text("one\n")
    async with box(root, commands=commands_of("bubblewrap")) as run:
        ran = await run.bash("cat f .env; mkdir d; cd d")
        found = await run.call("grep", pattern="one|canary")
        listed = await run.call("glob", pattern="*")

    assert (text_of(ran).splitlines()[0], ran.facts["cwd"]) == ("one", "d")
    assert "canary" not in text_of(ran) + text_of(found)
    assert (text_of(found).splitlines()[0], text_of(listed)) == ("f:1: one", "f")


async def test_a_task_that_ended_unseen_is_not_forgotten(workspace: Path) -> None:
    """The process holds the last ones only; what became of an older one has to be known all the same."""
    async with box(workspace, commands=commands_of("bubblewrap")) as run:
        tasks: list[str] = []
        for number in range(18):
            started = await run.bash(f"echo out; touch done{number}; exit 3", background=True)
            tasks.append(started.facts["task"]["id"])
            await run.bash(f"until [ -e done{number} ]; do sleep 0.01; done; sleep 0.1")
        said = await run.call("read_task", task_id=tasks[0])
        again = await run.call("read_task", task_id=tasks[0])

    assert (said.facts["task"]["status"], said.exit_code) == ("exited", 3)
    assert "output in artifact" in text_of(said)
    assert text_of(again).endswith("\nout\n")


async def test_a_broken_sandbox_says_once_that_nothing_ran(workspace: Path) -> None:
    (workspace / "d").mkdir(mode=0)
    async with box(workspace, commands=commands_of("bubblewrap")) as run:
        said = await run.bash("touch evil", cwd="d")
        alive = await run.bash("echo alive")
    (workspace / "d").chmod(0o755)

    assert (said.code, text_of(alive)) == ("sandbox_setup_failed", "alive")
    assert not (workspace / "d" / "evil").exists()
    assert "SandboxSetupError" not in said.summary
    assert "Nothing was executed. The command did not run." not in said.summary
