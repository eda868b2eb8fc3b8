"""Running one command in a sandbox, under the short names that the tests of sandboxes use."""

import pytest

from interlock.sandbox.commands import probe
from interlock.sandbox.commands.probe import SandboxBackend
from interlock.sandbox.interface import CommandSandbox
from interlock.testing.commands import CommandOutcome as Outcome
from interlock.testing.commands import OutputRecorder as Printed
from interlock.testing.commands import find_successful as works
from interlock.testing.commands import make_command as a_command
from interlock.testing.commands import run_command as run

__all__ = ["Outcome", "Printed", "a_command", "run", "usable", "works"]


def usable(backend: SandboxBackend) -> CommandSandbox:
    """A backend that works here; the test is skipped where it does not."""
    finding = next(each for each in probe.probe_backends() if each.backend == backend)
    if not finding.works:
        pytest.skip(f"{backend} does not work here: {finding.why_not}")
    return probe.choose_sandbox(backend)
