"""Everything Interlock raises. Outcomes of a call are values; what is here is a bug, an I/O fault or asked for.

InterlockError
├── ToolDeclarationError     the developer declared a tool that cannot work
│   └── DuplicateToolError
├── ConfigurationError       a rule, a provider or a limit was set up in a way that cannot work
├── ToolError                a call stopped, and the tool or the runtime was told to raise
│   ├── UnknownToolError
│   ├── ToolValidationError
│   ├── ToolTimeoutError
│   └── ToolExecutionError
├── AgentExecutionError      a fail-safe policy said `fail`
├── LogError                 the log could not be written or read; the run stops here
│   ├── LogWriteError
│   ├── LogFencedError
│   ├── RunClaimedError     another process moves this run on
│   └── LogCorruptError
├── SandboxDeniedError       the sandbox refused what a tool tried
├── PreconditionError        a handler found that the call cannot be done now; nothing was done
├── SandboxSetupError        a command could not be confined; nothing was executed
├── ModelError               a model gave no answer, or its answer broke off
├── ArtifactError            an artifact could not be kept or found
├── RunSuspendedError        a tool is a run of its own, and that one waits for a person
├── RunEndedError            the run is over; nothing more can be executed in it
├── RunPausedError           the run waits for an answer; new calls have to wait, too
├── IllegalTransitionError   a fact does not fit the state table
└── DecisionConflictError    the question was already answered
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .observation import Observation
    from .tool import CheckProblem


class InterlockError(Exception):
    """Base of everything Interlock raises."""


class ToolDeclarationError(InterlockError):
    """A tool was declared in a way that cannot work."""


class DuplicateToolError(ToolDeclarationError):
    """Two tools have the same name."""


class ConfigurationError(InterlockError):
    """A rule, a provider or a limit was set up in a way that cannot work."""


class ToolError(InterlockError):
    """A call stopped and was configured to raise. `observation` says where, why and what happened."""

    def __init__(self, observation: "Observation") -> None:
        failure = observation.failure
        super().__init__(failure.message if failure else observation.summary)
        self.observation = observation


class UnknownToolError(ToolError):
    """The tool does not exist or is not visible now. Nothing was executed."""


class ToolValidationError(ToolError):
    """The arguments do not fit the tool. Nothing was executed."""


class ToolTimeoutError(ToolError):
    """The tool did not finish in time. It may have had effects."""


class ToolExecutionError(ToolError):
    """The tool, one of its hooks or its normalisation failed. It may have had effects."""


class AgentExecutionError(InterlockError):
    """A fail-safe policy ended the run. `observations` are the outcomes of its last batch, in model order."""

    def __init__(self, message: str, observations: "tuple[Observation, ...]") -> None:
        super().__init__(message)
        self.observations = observations


class LogError(InterlockError):
    """The event log failed. Nothing more is started; reopen the run, the log decides what happened."""


class LogWriteError(LogError):
    """An append raised, which does not mean that it was not written."""


class LogFencedError(LogError):
    """Somebody else appended to this run; this process lost it."""


class RunClaimedError(LogError):
    """Another process moves this run on. Nothing was written; it can be watched, and its questions answered."""


class LogCorruptError(LogError):
    """A stored event is not what was written."""


class SandboxDeniedError(InterlockError):
    """The sandbox refused what a tool tried. Raised by sandboxes and by tools that have limits of their own."""

    #: Was it refused before anything was done?
    nothing_done = False


class PreconditionError(InterlockError):
    """A handler found, before it did anything, that the call cannot be done now. It says what a check would say."""

    def __init__(self, problem: "CheckProblem") -> None:
        super().__init__(problem.message)
        self.problem = problem


class SandboxSetupError(InterlockError):
    """A command could not be confined, so nothing of it was executed."""


class ModelError(InterlockError):
    """A model gave no answer, or its answer broke off. `retryable` says whether asking again may help."""

    def __init__(self, message: str, *, retryable: bool = False, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after_seconds = retry_after_seconds


class ArtifactError(InterlockError):
    """An artifact could not be kept or found."""


class RunSuspendedError(InterlockError):
    """Raised by a tool that is a run of its own, when that run waits for a person: the call goes on later."""

    def __init__(self, child_run_id: str) -> None:
        super().__init__(f"{child_run_id} waits for a person")
        self.child_run_id = child_run_id


class RunEndedError(InterlockError):
    """The run is over. Nothing was executed; start a new run."""


class RunPausedError(InterlockError):
    """The run waits for an answer. Nothing was executed; answer the open questions and resume."""


class IllegalTransitionError(InterlockError):
    """A fact does not fit the state table; nothing was changed."""


class AnswerRefusedError(InterlockError):
    """This cannot be the answer to the question, which stays open."""


class DecisionConflictError(InterlockError):
    """The question has an answer already, or was never asked."""


class ConsentError(InterlockError):
    """A provider of access for tools cannot be reached, or says something that makes no sense."""
