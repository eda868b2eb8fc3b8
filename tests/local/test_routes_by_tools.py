"""No path that a model gives to a tool, and no file that a command leaves for one, leads to the runtime itself."""

import ctypes
import os
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from interlock import FileArtifacts, SqliteLog
from interlock.sandbox.workspace.file_operands import bind_files

from .host import Host, host_in
from .toolbox import CANARY, Box, box, commands_of, text_of


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with host_in(tmp_path) as made:
        (made.workspace / "out").symlink_to(made.home)
        (made.workspace / "policy.txt").symlink_to(made.home / "policy.yaml")
        (made.workspace / "alias").symlink_to(".interlock")
        (made.workspace / "hooks").symlink_to(".git/hooks")
        (made.workspace / "pipe").symlink_to("/proc/self/environ")
        yield made


@pytest_asyncio.fixture
async def attacked(host: Host) -> AsyncGenerator[Box]:
    async with SqliteLog(host.home / "runs.db") as log:
        artifacts = FileArtifacts(host.home / "artifacts")
        async with box(host.workspace, commands=commands_of("bubblewrap"), log=log, artifacts=artifacts) as made:
            yield made


_READS = [
    ("read_file", {"path": "{home}/policy.yaml"}),
    ("read_file", {"path": "../home/policy.yaml"}),
    ("read_file", {"path": "out/policy.yaml"}),
    ("read_file", {"path": "policy.txt"}),
    ("read_file", {"path": "out/../home/policy.yaml"}),
    ("read_file", {"path": "/proc/self/root{home}/policy.yaml"}),
    ("read_file", {"path": "{workspace}/../home/policy.yaml"}),
    ("read_file", {"path": "file://{home}/policy.yaml"}),
    ("read_file", {"path": "pipe"}),
    ("read_artifact", {"artifact_id": "../policy.yaml"}),
    ("read_artifact", {"artifact_id": "sha256:../../policy.yaml"}),
    ("list_dir", {"path": "{home}"}),
    ("list_dir", {"path": "out"}),
    ("glob", {"pattern": "{home}/**"}),
    ("glob", {"pattern": "../home/*"}),
    ("glob", {"pattern": "out/**"}),
    ("grep", {"pattern": "fish", "path": "{home}"}),
    ("grep", {"pattern": "fish", "path": "out"}),
    ("grep", {"pattern": "fish", "path": "policy.txt"}),
    ("grep", {"pattern": "fish", "glob": "../home/*"}),
    ("grep", {"pattern": "fish", "glob": "out/**"}),
    ("grep", {"pattern": "--pre=cat"}),
    ("grep", {"pattern": "-f{home}/policy.yaml"}),
    ("bash", {"command": "cat policy.yaml", "cwd": "{home}"}),
    ("bash", {"command": "cat policy.yaml", "cwd": "out"}),
    ("bash", {"command": "cat policy.yaml", "cwd": "../home"}),
    ("bash", {"command": "cat policy.txt out/policy.yaml; cp -rL . /tmp/x; tar chf - out | cat"}),
]


@pytest.mark.requirement("P13")
@pytest.mark.parametrize(("tool", "arguments"), _READS)
async def test_a_path_reads_nothing_of_ours(tool: str, arguments: dict[str, Any], attacked: Box, host: Host) -> None:
    said = await attacked.call(tool, **_filled(arguments, host))

    told = await attacked.everything_told(said)
    assert CANARY not in told
    assert "id_ed25519" not in text_of(said)


_WRITES = [
    "{home}/policy.yaml",
    "out/policy.yaml",
    "out/new/evil.txt",
    "policy.txt",
    "../home/policy.yaml",
    ".interlock/policy.yaml",
    ".interlock/new.yaml",
    ".INTERLOCK/policy.yaml",
    "./x/../.interlock/policy.yaml",
    ".interlock./policy.yaml",
    ".inter\u200block/policy.yaml",
    "alias/policy.yaml",
    "alias",
    "hooks/post-checkout",
    ".git/hooks/pre-commit",
    ".git/config",
    ".Git/config",
    "sub/.git/config",
    "sub/.git",
    ".git",
    ".envrc",
    ".vscode/tasks.json",
    ".mcp.json",
]


@pytest.mark.requirement("P13")
@pytest.mark.parametrize("path", _WRITES)
async def test_a_path_writes_nothing_that_we_or_other_programs_obey(path: str, attacked: Box, host: Host) -> None:
    before = host.held()
    names = sorted(os.listdir(host.workspace))
    path = _filled({"path": path}, host)["path"]

    written = await attacked.call("write_file", path=path, content="evil: 1\n")
    edited = await attacked.call("edit_file", path=path, old_string="version", new_string="evil")

    assert not written.ok
    assert not edited.ok
    assert host.held() == before
    assert sorted(os.listdir(host.workspace)) == names


@pytest.mark.requirement("P13")
async def test_a_link_that_a_command_planted_leads_no_tool_outside(attacked: Box, host: Host) -> None:
    before = host.held()
    await attacked.call("read_file", path="main.py")
    await attacked.bash(f"ln -sf {host.home}/policy.yaml main.py; mkdir d; ln -s {host.home} d/e; ln -s .interlock i")

    written = [
        await attacked.call("edit_file", path="main.py", old_string="hello", new_string="evil"),
        await attacked.call("write_file", path="main.py", content="evil"),
        await attacked.call("write_file", path="d/e/policy.yaml", content="evil"),
        await attacked.call("write_file", path="d/e/new/x", content="evil"),
        await attacked.call("write_file", path="i/policy.yaml", content="evil"),
    ]

    assert [said.ok for said in written] == [False] * 5
    assert host.held() == before


@pytest.mark.requirement("P13")
async def test_a_pipe_or_a_link_to_one_holds_no_tool_up(attacked: Box, host: Host) -> None:
    made = await attacked.bash("mkfifo p; ln -s p l; mkdir -p .git/refs/x; mkfifo .git/refs/x/y; mkfifo .env .envrc")
    reads = [await attacked.call("read_file", path=path) for path in ("p", "l")]
    listed = await attacked.call("list_dir", path=".")
    ran = await attacked.bash("cat < main.py > copy.py", timeout_seconds=5)

    assert made.ok
    assert [read.ok for read in reads] == [False, False]
    assert (listed.ok, ran.ok) == (True, True)


@pytest.mark.parametrize("name", [".gitignore", ".ignore"])
async def test_a_pipe_in_the_place_of_an_ignore_file_does_not_end_all_searching(attacked: Box, name: str) -> None:
    await attacked.bash(f"mkfifo {name}")

    found = await attacked.call("grep", pattern="hello")

    assert "main.py" in text_of(found)


def test_asking_about_a_call_does_not_open_what_is_no_plain_file(tmp_path: Path) -> None:
    """Opening is an act: a pipe wakes its writer, a tape rewinds, a watchdog starts to count."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("plain")

    with _opens_in(tmp_path) as opens:
        bound = bind_files(["file", "pipe"], str(tmp_path))
        names = opens()

    assert [operand.unbound for operand in bound] == ["", "not a plain file"]
    assert names == {b"file"}


@contextmanager
def _opens_in(folder: Path) -> Generator[Callable[[], set[bytes]]]:
    """Asks the kernel which files of a folder were opened meanwhile."""
    libc = ctypes.CDLL(None)
    watcher = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    libc.inotify_add_watch(watcher, os.fsencode(folder), 0x20)
    try:
        yield lambda: {name for name in os.read(watcher, 4096).split(b"\0") if name in (b"file", b"pipe")}
    finally:
        os.close(watcher)


def _filled(arguments: dict[str, Any], host: Host) -> dict[str, Any]:
    words = {"{home}": str(host.home), "{workspace}": str(host.workspace)}

    def fill(value: str) -> str:
        for word, real in words.items():
            value = value.replace(word, real)
        return value

    return {name: fill(value) for name, value in arguments.items()}
