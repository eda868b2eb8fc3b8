"""What an adapter brings to its conformance suite: an agent of the framework behind a gate, with a scripted model.

Run as a program, it starts such an agent in a process that is killed inside a tool:
`python -m interlock.testing.adapters.harness my_tests.adapter:HARNESS FOLDER`.
"""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec

from ...domain.errors import ConfigurationError
from ...gate.gate import Gate
from ...policy.engine.rule import Rule
from ...policy.engine.rule_policy import RulePolicy
from ...policy.interface import PolicyEvent

DONE = "All done."
#: The conversation of every test.
THREAD = "thread"
#: More is refused by the policy of the suite.
MAX_AMOUNT = 100
#: How long a tool waits for its others before the test fails.
_HANG_SECONDS = 50


class ScriptedCall(NamedTuple):
    """A call that the model makes."""

    call_id: str
    tool: str
    amount: Any


#: The turns of the model, each with its calls. After the last it answers `DONE`. Which turn it is follows from how many
#: of its own messages the model is shown.
Script: TypeAlias = tuple[tuple[ScriptedCall, ...], ...]


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """How far an agent came: it is done, or it is paused."""

    #: Its answer; empty while it is paused.
    text: str = ""
    #: What another process needs to continue it.
    saved: str = ""
    #: What the model was shown of each call, by call id.
    read: Mapping[str, str] = {}


class SampleTools:
    """The tools of the agent, and what they did: `look` reads, `pay` has an effect, `meet` waits for 19 others."""

    def __init__(self, folder: Path, *, dies: bool = False) -> None:
        self.folder = folder
        self._effects = folder / "effects.txt"
        #: Whether `pay` kills the process.
        self.dies = dies
        self._met: asyncio.Barrier | None = None
        self._met_in_threads = threading.Barrier(20)

    def look(self, amount: int) -> str:
        """Look at an amount."""
        self._record(f"look {amount}")
        return f"saw {amount}"

    def pay(self, amount: int) -> str:
        """Pay an amount."""
        self._record(f"pay {amount}")
        if self.dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return f"paid {amount}"

    async def meet(self, amount: int) -> str:
        """Return when twenty calls run at the same time."""
        if self._met is None:
            self._met = asyncio.Barrier(20)
        async with asyncio.timeout(_HANG_SECONDS):
            await self._met.wait()
        return "met"

    def meet_in_threads(self, amount: int) -> str:
        """Return when twenty calls run at the same time, for frameworks with threads."""
        self._met_in_threads.wait(_HANG_SECONDS)
        return "met"

    @property
    def effects(self) -> list[str]:
        """What the tools did, in order."""
        return self._effects.read_text().splitlines() if self._effects.exists() else []

    @property
    def paid(self) -> list[int]:
        """The amounts that were paid."""
        return [int(line.split()[1]) for line in self.effects if line.startswith("pay ")]

    def _record(self, line: str) -> None:
        with self._effects.open("a") as file:
            file.write(f"{line}\n")


class AdapterHarness(Protocol):
    """Runs an agent of one framework behind a gate."""

    #: The name of the framework, as it is recorded.
    framework: str
    #: The place of this object, such as `my_tests.adapter:HARNESS`, for processes that are killed.
    reference: str
    #: What does not apply to the framework, by the name of the test, and why.
    not_applicable: Mapping[str, str]
    #: The run that the conversation `THREAD` is recorded as.
    run_id: str

    async def start(self, gate: Gate, script: Script, tools: SampleTools) -> Turn:
        """Start the agent with these tools, until it is done or paused."""
        ...

    async def resume(
        self, gate: Gate, script: Script, tools: SampleTools, saved: str, *, approve: bool = False
    ) -> Turn:
        """Continue it, with a new agent, as another process would. `approve`: say yes with the framework's own means,
        as if a person had approved there.
        """
        ...

    async def recover(self, gate: Gate, script: Script, tools: SampleTools) -> Turn:
        """Continue it after its process was killed."""
        ...

    def alter(self, saved: str, call_id: str, amount: int, tools: SampleTools) -> str:
        """Change the arguments of a call in the saved state, and return the changed state."""
        ...

    async def start_nested(self, gate: Gate, tools: SampleTools) -> Turn:
        """Start an agent whose tool `delegate` (call `outer`) runs another agent, which calls `pay` with 5 (call
        `inner`).
        """
        ...

    async def resume_nested(self, gate: Gate, tools: SampleTools, saved: str) -> Turn:
        """Continue that one."""
        ...

    async def check_control_flow(self, gate: Gate, tools: SampleTools) -> None:
        """Assert that what a tool raises or returns to talk to its framework arrives there as it is."""
        ...

    async def check_provider_tools(self, gate: Gate) -> None:
        """Assert that tools which the provider runs are refused or listed: the gate never sees their calls."""
        ...


def make_policy() -> RulePolicy:
    """Return the policy of the suite: payments above a limit are refused, `allowed` ones need no question."""

    def is_too_much(event: PolicyEvent) -> bool:
        amount = event.arguments.get("amount")
        return isinstance(amount, int) and amount > MAX_AMOUNT

    return RulePolicy([Rule(id="limit", verdict="deny", tools="pay", when=is_too_much, reason="Above the limit.")])


def open_gate(folder: Path, *, policy: RulePolicy | None = None, risk: Mapping[str, str] | None = None) -> Gate:
    """Open a gate over the state in a folder."""
    known = {"look": "read", "meet": "read", "meet_in_threads": "read", "delegate": "read"}
    return Gate(folder / "state", policy=policy or make_policy(), risk=known if risk is None else risk)


def load_harness(reference: str) -> AdapterHarness:
    """Return the object at `module:name`."""
    module, _, name = reference.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"There is no harness {reference!r}: {error}") from error


async def _start_and_die(reference: str, folder: Path) -> None:
    allow = RulePolicy([Rule(id="allow", verdict="allow", tools="pay")])
    async with open_gate(folder, policy=allow) as gate:
        script = ((ScriptedCall("c1", "pay", 5),),)
        await load_harness(reference).start(gate, script, SampleTools(folder, dies=True))


if __name__ == "__main__":
    asyncio.run(_start_and_die(sys.argv[1], Path(sys.argv[2])))
