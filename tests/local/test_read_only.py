"""A run that only reads, and a command that was let through because it only reads: the kernel holds both."""

import os
from pathlib import Path

import pytest

from interlock import CallbackInteractionProvider, Rule, RulePolicy

from .toolbox import box, commands_of, snapshot, text_of

ALLOWED = RulePolicy([Rule(id="all", verdict="allow", tools=["bash", "wait_task", "read_task"])])
_WRITES = """
touch new; echo evil > old; rm -f old; mv old other; ln old hard; mkdir d; chmod 777 old; truncate -s 0 old
sed -i s/old/evil/ old; cp /bin/true here; git init; dd if=/dev/zero of=old count=1; setfattr -n user.x -v y old
python3 -c "open('p', 'w')"; mount -o remount,rw .; umount .; : > old
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "old").write_text("old")
    return tmp_path / "workspace"


@pytest.mark.requirement("R233")
@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
async def test_no_command_of_a_read_only_run_writes_in_the_workspace(workspace: Path, backend: str) -> None:
    before = snapshot(workspace)
    # Rules can let a command through that nobody has proved to only read.
    async with box(workspace, commands=commands_of(backend), mode="read_only", policy=ALLOWED) as run:
        said = await run.bash(_WRITES)
        task = await run.bash(_WRITES, background=True)
        if "task" in task.facts:
            await run.call("wait_task", task_id=task.facts["task"]["id"])

    assert said.code in ("policy_denied", "command_failed", "ok")
    assert snapshot(workspace) == before


@pytest.mark.parametrize(
    "script",
    [
        "cat old",
        "cat() { touch evil; }; cat old",
        "alias cat='touch evil'\ncat old",
        "ls; touch evil",
        "ls $(touch evil)",
        "cat old > evil",
        "PATH=.:$PATH; ls",
        "cd d && ls; touch ../evil",
        "find . -exec touch evil ';'",
        "sort -o evil old",
        "git -c core.fsmonitor='touch evil' status",
        "wc -l <(touch evil)",
        "[[ 'a[$(touch evil)0]' -eq 0 ]]",
        "tar -cf /dev/null --checkpoint=1 --checkpoint-action=exec='touch evil' old",
    ],
)
async def test_what_runs_without_a_question_cannot_write(workspace: Path, script: str) -> None:
    asked: list[str] = []
    interaction = CallbackInteractionProvider(lambda question: bool(asked.append(question.tool_name)))
    (workspace / "d").mkdir()
    (workspace / "ls").write_text("#!/bin/sh\ntouch evil\n")
    (workspace / "ls").chmod(0o755)

    async with box(workspace, commands=commands_of("bubblewrap"), mode="default", interaction=interaction) as run:
        said = await run.bash(script)

    assert asked or said.facts["profile"] == "read-only"
    assert not (workspace / "evil").exists()


async def test_a_command_that_only_reads_leaves_nothing_in_temporary_folders(workspace: Path) -> None:
    async with box(workspace, commands=commands_of("bubblewrap"), mode="read_only", policy=ALLOWED) as run:
        await run.bash("echo left > /tmp/left; echo left > ~/left; echo left > /dev/shm/left")
        said = await run.bash("cat /tmp/left ~/left /dev/shm/left; ls -A /tmp ~ /dev/shm")

    assert "left\n" not in text_of(said).split("[stderr]")[0]


async def test_a_folder_that_becomes_a_link_does_not_move_a_command_out(workspace: Path) -> None:
    (workspace / "d").mkdir()
    async with box(workspace, commands=commands_of("bubblewrap"), mode="trusted") as run:
        await run.bash("rmdir d; ln -s /etc d")
        said = await run.bash("pwd; ls", cwd="d")

    assert not said.ok
    assert "passwd" not in text_of(said)


async def test_a_run_cannot_be_talked_out_of_reading_only(workspace: Path) -> None:
    async with box(workspace, commands=commands_of("bubblewrap"), mode="read_only") as run:
        said = [
            await run.call("write_file", path="new", content="x"),
            await run.call("edit_file", path="old", old_string="old", new_string="new"),
            await run.bash("touch new", mode="trusted"),
            await run.bash("touch new", sandbox=False),
        ]

    assert [one.ok for one in said] == [False] * 4
    assert os.listdir(workspace) == ["old"]
