"""The parts a call passes through, chosen once in `app.py`, and the limits that hold for every call."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from inspect import iscoroutinefunction
from time import perf_counter_ns, time_ns
from typing import Any, Literal, TypeAlias, cast

import msgspec

from ..domain.decision import FailSafeConfig, FourEyes
from ..interaction.interface import InteractionProvider
from ..models.interface import ModelEvent
from ..oauth.interface import ConsentProvider
from ..policy.interface import BudgetSource, PolicyEngine
from ..redaction.interface import Redactor
from ..registry.interface import Registry, Toolbox
from ..sandbox.interface import Sandbox
from ..scheduler import Scheduler
from ..storage.artifacts import ArtifactStore
from ..storage.budgets import BudgetLedger
from ..telemetry.interface import Telemetry
from .artifacts import KnownArtifacts


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of every call: sizes, time for checks, and time for people to answer."""

    max_argument_bytes: int = 256 * 1024
    max_calls_per_batch: int = 4096
    #: Larger arguments are kept as an artifact; the event carries digest and reference.
    max_event_input_bytes: int = 4 * 1024
    #: How long a cancelled handler may take to end before it is left behind.
    drain_seconds: float = 2.0
    #: How long a check, policy, guardrail or other function that decides something may take.
    check_seconds: float = 30.0
    #: Questions that may be open in a run at once. None: no limit.
    max_open_questions: int | None = None
    #: How long people may take to answer, where policy does not say. None: no limit.
    approval_seconds: float | None = None
    #: How long a user may take to consent. None: no limit.
    consent_seconds: float | None = None
    #: Also refuse early, before a person is asked. Guardrails always run again right before the start.
    guardrails_before_approval: bool = True
    #: Which calls a person who edited their arguments may not approve alone.
    four_eyes: FourEyes = "off"


class Clock(msgspec.Struct, frozen=True, kw_only=True):
    """The clocks of a run: wall time and elapsed time."""

    #: Nanoseconds since 1970, for people.
    now: Callable[[], int] = time_ns
    #: Nanoseconds for durations.
    elapsed: Callable[[], int] = perf_counter_ns


class RuleChange(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that a person saves with an approval."""

    run_id: str
    agent: str
    action_id: str
    by: str
    rule: str
    #: Digests of the policy without and with the rule; empty where the policy does not say.
    before: str = ""
    after: str = ""
    #: Why it was not saved.
    problem: str = ""


async def _record_nowhere(change: RuleChange) -> None:
    """Record nothing: the approval in the run's log is the record."""


def _compare_nothing(rule: str, suggested: str) -> str:
    return "" if suggested and rule == suggested else "Only the suggested rule can be kept here."


def is_user_code(function: object) -> bool:
    """Return True unless the function is one of this package, which never blocks."""
    return not str(getattr(function, "__module__", "")).startswith("interlock.")


class ToolProgress(msgspec.Struct, frozen=True):
    """What a handler reports while it runs."""

    call_id: str
    message: str


class RunOutput(msgspec.Struct, frozen=True):
    """What a run says while it runs: the stream of its model, as the model sends it, or the progress of a tool."""

    run_id: str
    #: The last event that was recorded before.
    seq: int
    said: ModelEvent | ToolProgress
    #: For the text of a model, which may have secrets in it.
    redactor: Redactor


OutputListener: TypeAlias = Callable[[RunOutput], None]


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """The components of the pipeline, chosen once."""

    registry: Registry
    policy: PolicyEngine
    #: Whether deciding runs code of the developer, which may block.
    policy_may_block: bool = True
    #: Whether synchronous checks of the developer run in threads. A replay runs them in its own order.
    checks_in_threads: bool = True
    interaction: InteractionProvider
    #: Makes the queue of a run that is opened.
    new_scheduler: Callable[[], Scheduler]
    sandbox: Sandbox
    artifacts: ArtifactStore
    #: What every run of this process stores.
    known_artifacts: KnownArtifacts = msgspec.field(default_factory=KnownArtifacts)
    redactor: Redactor
    telemetry: Telemetry
    consents: ConsentProvider
    clock: Clock = Clock()
    limits: Limits = Limits()
    fail_safe: FailSafeConfig = FailSafeConfig()
    #: What a call to an unknown tool becomes: an observation, or an exception as well.
    missing_tool: Literal["observe", "raise"] = "observe"
    #: Called with a rule and the suggested one. Returns why it may not be saved; empty when it may.
    find_rule_problem: Callable[[str, str], str] = _compare_nothing
    #: Called before a rule is saved, and again with the problem if it was not. An error means that it is not saved.
    record_rule: Callable[[RuleChange], Awaitable[None]] = _record_nowhere
    #: Called with progress of a running handler: call id and message.
    on_progress: Callable[[str, str], None]
    on_output: OutputListener | None = None
    #: The policy, where it has budgets; None where it cannot have any.
    budget_source: BudgetSource | None = None
    #: What runs use of budgets.
    budget_ledger: BudgetLedger
    #: Toolboxes whose tools come and go.
    tool_sources: tuple[Toolbox, ...] = ()

    async def check(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a developer's function that decides something, for at most `check_seconds`. A synchronous one runs in a
        thread: it may block.
        """
        seconds = self.limits.check_seconds
        deadline = asyncio.timeout(seconds)
        try:
            async with deadline:
                in_thread = self.checks_in_threads and is_user_code(function) and not iscoroutinefunction(function)
                if in_thread:
                    result: Any = await self.sandbox.run_blocking(partial(function, *arguments))
                else:
                    result = function(*arguments)
                return cast(object, await result) if isinstance(result, Awaitable) else result
        except TimeoutError:
            if deadline.expired():
                raise TimeoutError(f"it took longer than {seconds:g} s") from None
            raise
