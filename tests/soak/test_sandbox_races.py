"""A command in the background exchanges names all the time while other commands, searches and file tools work."""

import asyncio
import os
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from itertools import count, cycle
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from interlock import LocalTools, RulePolicy, ToolRuntime
from interlock.domain.errors import SandboxSetupError
from interlock.domain.payload import ExecutionEnvironment
from interlock.sandbox.interface import CommandSandbox, OutputStream
from interlock.sandbox.workspace.file_operands import bind_files
from tests.sandbox.commands import a_command, run, usable
from tests.sandbox.ordinary_user import pytest_as_ordinary_user
from tests.support import call

from .budget import SECONDS

pytestmark = pytest.mark.soak

CANARY = "outside, and not to be read"
#: Names that are hidden or read-only for later commands: by turns files, folders, and links to the outside.
_FLIPPER = """
import ctypes, os, sys
outside, names = sys.argv[1], sys.argv[2:]
libc = ctypes.CDLL(None)
targets = [outside + "/file", outside + "/missing", outside]
print("up", flush=True)
for number in range(10**12):
    for name in names:
        try:
            os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
            if not os.path.lexists(name):
                os.mkdir(name) if number % 3 == 0 else open(name, "w").close()
            if not os.path.lexists(name + "~"):
                os.symlink(targets[number % 3], name + "~")
            libc.renameat2(-100, name.encode(), -100, (name + "~").encode(), 2)
            if number % 50 == 0:
                os.unlink(name + "~") if os.path.islink(name + "~") else None
        except OSError:
            pass
"""
_NAMES = (".env", "inner/.env", "inner/deep/.npmrc", ".git/config", ".git/hooks", ".vscode", "f")
_SWAPPER = """
import os
print("up", flush=True)
while True:
    for text in ("echo good", "echo evil"):
        with open("other", "w") as file:
            file.write(text)
        os.rename("other", "script")
"""


@pytest.fixture(params=["bubblewrap", "landlock"])
def sandbox(request: pytest.FixtureRequest) -> CommandSandbox:
    return usable(request.param)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    workspace, outside = tmp_path.resolve() / "ws", tmp_path.resolve() / "out"
    (workspace / "inner").mkdir(parents=True)
    (outside / "deep").mkdir(parents=True)
    for file in (outside / "file", outside / "deep/file"):
        file.write_text(CANARY)
    return workspace, outside


def content(folder: Path) -> dict[str, str]:
    return {str(path): path.read_text() if path.is_file() else "folder" for path in sorted(folder.rglob("*"))}


class Up:
    def __init__(self) -> None:
        self.seen = asyncio.Event()

    def __call__(self, stream: OutputStream, chunk: bytes) -> None:
        self.seen.set()


def _calls() -> Iterator[tuple[str, dict[str, Any]]]:
    names = " ".join(_NAMES)
    return cycle(
        (
            ("grep", {"pattern": "out.ide"}),
            ("bash", {"command": f"cat {names} 2>&1 | head -c 2000"}),
            ("bash", {"command": "for f in .env .git/config f; do echo x >> $f; done; true"}),
            ("bash", {"command": "pwd -P; ls -a", "cwd": "inner"}),
            ("glob", {"pattern": "**"}),
            ("read_file", {"path": "f", "again": True}),
            ("write_file", {"path": "inner/new", "content": "x"}),
            ("list_dir", {"path": "inner"}),
        )
    )


@pytest.mark.requirement("P19")
async def test_nothing_of_the_host_is_touched(sandbox: CommandSandbox, folders: tuple[Path, Path]) -> None:
    workspace, outside = folders
    before, met, ids, up = content(outside), Counter[tuple[str, str]](), count(), Up()
    (workspace / "flipper.py").write_text(_FLIPPER)
    words = f"python3 flipper.py {outside} {' '.join(_NAMES)}"
    flipper = await sandbox.start(a_command(words, workspace), up)
    await asyncio.wait_for(up.seen.wait(), 50)
    tools, end = LocalTools(workspace, commands=sandbox), monotonic() + SECONDS
    approve: dict[str, Any] = {"mode": "trusted", "policy": RulePolicy()}
    async with ToolRuntime(tools=tools, **approve) as runtime:
        for tool_name, arguments in _calls():
            if monotonic() > end:
                break
            result = await runtime.execute([call(f"c{next(ids)}", tool_name, **arguments)])
            met[tool_name, result.observations[0].code] += 1
        told = (await runtime.export()).decode()
    await flipper.stop()

    assert content(outside) == before
    assert CANARY not in told
    assert sum(met.values()) > 10, met


@pytest.mark.requirement("P20")
async def test_what_runs_is_what_was_hashed(sandbox: CommandSandbox, folders: tuple[Path, Path]) -> None:
    workspace, up, met = folders[0], Up(), Counter[str]()
    (workspace / "swapper.py").write_text(_SWAPPER)
    swapper = await sandbox.start(a_command("python3 swapper.py", workspace), up)
    await asyncio.wait_for(up.seen.wait(), 50)
    words = {sha256(f"echo {word}".encode()).hexdigest(): word for word in ("good", "evil")}
    end = monotonic() + SECONDS
    while monotonic() < end:
        bound = ExecutionEnvironment(cwd=str(workspace), files=bind_files(["script"], str(workspace)))
        approved = words.get(bound.files[0].sha256)
        try:
            outcome = await run(sandbox, "bash script", workspace, expected_environment=bound, exclusive_until="end")
        except SandboxSetupError:
            met["refused"] += 1
        else:
            met["ran"] += 1
            assert outcome.stdout == (f"{approved}\n" if approved else "")
    await swapper.stop()

    assert met["ran"] > 0
    assert met["refused"] > 0


@pytest.mark.skipif(os.geteuid() != 0, reason="it is one already")
@pytest.mark.timeout(8 * SECONDS + 400)
def test_all_of_this_holds_for_an_ordinary_user() -> None:
    pytest_as_ordinary_user(__file__, "-m", "soak", f"--timeout={2 * SECONDS + 200}")
