"""Reading the policy of a running gateway again, when its process gets SIGHUP."""

import asyncio
import os
import signal
from collections.abc import Generator
from contextlib import contextmanager

from ...policy.files.policy_files import PolicyFiles
from ..display.output import echo


@contextmanager
def reload_on_hangup(policy: PolicyFiles) -> Generator[None]:
    """Read the policy files again on SIGHUP. In a terminal it keeps its usual meaning: the terminal was closed."""
    loop = asyncio.get_running_loop()
    if os.isatty(2):
        yield
        return
    loop.add_signal_handler(signal.SIGHUP, _reload, policy)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)


def _reload(policy: PolicyFiles) -> None:
    problems = policy.reload()
    if not problems:
        echo("The policy files were read again, and are in force.", error=True)
        return
    echo("The policy files are invalid. The policy that was read before stays in force:", error=True)
    for problem in problems:
        echo(f"  {problem}", error=True)
