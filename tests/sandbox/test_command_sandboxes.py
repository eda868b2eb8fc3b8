"""Our sandboxes pass the conformance suite, as root and as an ordinary user."""

import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from interlock.domain.errors import SandboxSetupError
from interlock.sandbox.commands import probe
from interlock.sandbox.host.process_tree import list_descendants
from interlock.sandbox.interface import CAPABILITIES, CommandSandbox
from interlock.testing.conformance.sandbox import DAEMON, UNSTARTABLE, CommandSandboxConformance
from tests.patience import HANG_SECONDS

from .commands import run, works
from .ordinary_user import ROOT, pytest_as_ordinary_user

IS_ROOT = os.geteuid() == 0
#: Landlock is not for root.
BACKENDS = ["bubblewrap", "none"] if IS_ROOT else ["bubblewrap", "landlock", "none"]
CLAIMS: dict[str, set[str]] = {
    "bubblewrap": set(CAPABILITIES),
    "landlock": set(CAPABILITIES) - {"egress", "processes", "metadata", "overlay"},
    "none": {"kill_tree"},
}

HARNESS = """
import asyncio, sys
from pathlib import Path
from interlock.sandbox.commands.probe import choose_sandbox
from interlock.testing.commands import make_command

async def main():
    command = make_command(sys.argv[3], Path(sys.argv[2]))
    sandbox = choose_sandbox(sys.argv[1])
    await (await sandbox.start(command, lambda stream, chunk: print("begun", flush=True))).wait()

asyncio.run(main())
"""


@pytest.mark.requirement("R224", "R225", "R232", "R234", "R237")
class TestCommandSandboxes(CommandSandboxConformance):
    @pytest.fixture(params=BACKENDS)
    def sandbox(self, request: pytest.FixtureRequest) -> CommandSandbox:
        finding = next(each for each in probe.probe_backends() if each.backend == request.param)
        if not finding.works:
            # Only a cause that is known to be the host's excuses it.
            assert finding.advice, finding.why_not
            pytest.skip(f"{finding.backend} does not work here: {finding.why_not}")
        return probe.choose_sandbox(request.param)

    def test_backend_claims_its_capabilities(self, sandbox: CommandSandbox) -> None:
        confinement = sandbox.confinement

        assert set(confinement.capabilities) == CLAIMS[confinement.backend]
        assert confinement.degraded == (confinement.backend != "bubblewrap")

    @pytest.mark.parametrize(("script", "options"), UNSTARTABLE)
    async def test_error_says_that_nothing_was_executed(
        self, sandbox: CommandSandbox, workspace: Path, script: str | tuple[str, ...], options: dict[str, Any]
    ) -> None:
        with pytest.raises(SandboxSetupError, match=r"[Nn]othing was executed"):
            await run(sandbox, script, workspace, **options)

    async def test_error_names_a_missing_workspace(self, sandbox: CommandSandbox, workspace: Path) -> None:
        with pytest.raises(SandboxSetupError, match=r"gone.* (gone or cannot be read|executed)\."):
            await run(sandbox, "true", workspace / "gone")

    def test_killing_our_process_ends_daemons(
        self, sandbox: CommandSandbox, workspace: Path, alive: int, temporary: Path
    ) -> None:
        script = f"{DAEMON} echo x > $TMPDIR/file; echo ready; sleep 1000"
        words = [sys.executable, "-c", HARNESS, sandbox.confinement.backend, str(workspace), script]
        environment = {**os.environ, "TMPDIR": str(temporary)}
        with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=ROOT, env=environment) as harness:
            assert harness.stdout is not None
            assert harness.stdout.readline() == b"begun\n"
            below = [os.pidfd_open(pid) for pid in list_descendants(harness.pid)]

            harness.kill()

            for process in below:
                assert select.select([process], [], [], HANG_SECONDS)[0]
                os.close(process)
        assert os.read(alive, 1) == b""

    async def test_landlock_supervisor_cannot_be_signalled(self, sandbox: CommandSandbox, workspace: Path) -> None:
        if sandbox.confinement.backend != "landlock":
            pytest.skip("only Landlock runs a supervisor beside the command")

        assert await works(sandbox, ["kill -0 $PPID", "prlimit --cpu=9999 --pid $PPID"], workspace) == []


@pytest.mark.parametrize("asked", [{"writable": False}, {"hidden": ("/etc/hostname",)}])
async def test_without_a_sandbox_what_cannot_be_kept_is_refused(tmp_path: Path, asked: dict[str, Any]) -> None:
    with pytest.raises(SandboxSetupError, match=r"no sandbox.*Nothing was executed"):
        await run(probe.choose_sandbox("none"), "touch ran", tmp_path, **asked)

    assert not (tmp_path / "ran").exists()


@pytest.mark.skipif(not IS_ROOT, reason="this is an ordinary user already")
def test_all_of_this_holds_for_an_ordinary_user() -> None:
    pytest_as_ordinary_user(__file__)
