"""All exceptions that Interlock raises. Outcomes of a call are values; an exception is a bug, an I/O fault or was
requested.

InterlockError
├── ToolDeclarationError     the developer declared a tool that cannot work
│   └── DuplicateToolError
├── ConfigurationError       a rule, a provider or a limit was set up in a way that cannot work
├── ToolError                a call stopped, and the tool or the runtime is configured to raise
│   ├── UnknownToolError
│   ├── ToolValidationError
│   ├── ToolTimeoutError
│   └── ToolExecutionError
├── AgentExecutionError      a fail-safe policy said `fail`
├── LogError                 the log could not be written or read; the run stops here
│   ├── LogWriteError
│   ├── LogFencedError
│   ├── RunClaimedError     another process owns this run
│   └── LogUnreadableError   a run cannot be read; other runs are not affected
│       ├── LogVersionError  a newer version of Interlock wrote it
│       └── LogCorruptError  a stored event differs from what was written
├── SandboxDeniedError       the sandbox refused what a tool tried
├── PreconditionError        a handler found that the call cannot be done now; nothing was done
├── CallFailedError          a handler states the code of its failure
├── SandboxSetupError        a command could not be confined; nothing was executed
├── ModelError               a model gave no answer, or its answer broke off
├── ArtifactError            an artifact could not be stored or found
├── RunSuspendedError        a tool is a child run that waits for a person
├── RunEndedError            the run is over; nothing more can be executed in it
├── RunPausedError           the run waits for an answer; new calls have to wait, too
├── IllegalTransitionError   an event does not fit the state table
└── DecisionConflictError    the question was already answered
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .json import JsonObject
    from .observation import Observation
    from .tool import CheckProblem


#: The code of a `ModelError` and of a failed run: the request is too long for the model.
CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"


class InterlockError(Exception):
    """Base of everything Interlock raises."""


class ToolDeclarationError(InterlockError):
    """A tool was declared in a way that cannot work."""


class DuplicateToolError(ToolDeclarationError):
    """Two tools have the same name."""


class ConfigurationError(InterlockError):
    """A rule, a provider or a limit was set up in a way that cannot work."""


class WorkspaceMismatchError(ConfigurationError):
    """The run works in another folder than the one that it was opened with. Nothing was started."""

    def __init__(self, message: str, workspace: str = "") -> None:
        super().__init__(message)
        #: The folder that the run works in.
        self.workspace = workspace


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
    """A fail-safe policy ended the run, or a result was asked to raise. `observations` are the outcomes in model order:
    of the last batch, or of the whole run.
    """

    def __init__(self, message: str, observations: "tuple[Observation, ...]") -> None:
        super().__init__(message)
        self.observations = observations


class LogError(InterlockError):
    """The event log failed. Nothing more is started; reopen the run, the log decides what happened."""


class LogWriteError(LogError):
    """An append raised, which does not mean that it was not written."""


class LogFencedError(LogError):
    """Another process appended to this run; this process has lost it."""


class RunClaimedError(LogError):
    """Another process owns this run. Nothing was written; the run can be watched and its questions answered."""


class LogUnreadableError(LogError):
    """The log, or a run in it, cannot be read. An unreadable run does not affect other runs."""


class LogVersionError(LogUnreadableError):
    """The log, or a run in it, was written by a newer version of Interlock. It is not damaged; nothing was changed."""


class LogCorruptError(LogUnreadableError):
    """A stored event differs from what was written."""


class SandboxDeniedError(InterlockError):
    """The sandbox refused an operation. Raised by sandboxes and by tools that enforce limits."""

    #: True when the call was refused before anything was done.
    nothing_done = False


class PreconditionError(InterlockError):
    """A handler found, before it did anything, that the call cannot be done now. It carries the message that a check
    would return.
    """

    def __init__(self, problem: "CheckProblem") -> None:
        super().__init__(problem.message)
        self.problem = problem


class CallFailedError(InterlockError):
    """A handler states the code of its failure: for tools that another program executes."""

    def __init__(
        self, code: str, message: str, *, details: "JsonObject | None" = None, nothing_done: bool = False
    ) -> None:
        super().__init__(message)
        self.code = code
        self.details: JsonObject = details or {}
        #: True when nothing was executed.
        self.nothing_done = nothing_done


class SandboxSetupError(InterlockError):
    """A command could not be confined, so nothing of it was executed."""


class ModelError(InterlockError):
    """A model gave no answer, or its answer broke off. `retryable` says whether asking again may help; `code` is
    `context_length_exceeded` when the request was too long for the model, `budget_exceeded` when a budget of the policy
    has not enough left for it, `budget_unavailable` when that cannot be found out, else empty.
    """

    def __init__(
        self, message: str, *, retryable: bool = False, retry_after_seconds: float | None = None, code: str = ""
    ) -> None:
        super().__init__(message)
        self.code = code
        self.retryable = retryable
        self.retry_after_seconds = retry_after_seconds


class ArtifactError(InterlockError):
    """An artifact could not be stored or found."""


class RunSuspendedError(InterlockError):
    """Raised by a tool that is a child run, when that run waits for a person. The call is resumed later."""

    def __init__(self, child_run_id: str) -> None:
        super().__init__(f"{child_run_id} waits for a person")
        self.child_run_id = child_run_id


class RunEndedError(InterlockError):
    """The run is over. Nothing was executed; start a new run."""


class RunPausedError(InterlockError):
    """The run waits for an answer. Nothing was executed; answer the open questions and resume."""


class IllegalTransitionError(InterlockError):
    """An event does not fit the state table; nothing was changed."""


class AnswerRefusedError(InterlockError):
    """The answer does not fit the question, which stays open."""


class DecisionConflictError(InterlockError):
    """The question is already answered, or was never asked.

    Where another answer counts, `status` says what it was (`approved`, `rejected`, `expired`), `by` who gave it, and
    `at` when, in nanoseconds since 1970.
    """

    def __init__(self, message: str, *, status: str = "", by: str = "", at: int = 0) -> None:
        super().__init__(message)
        self.status = status
        self.by = by
        self.at = at


class ConsentError(InterlockError):
    """An OAuth provider cannot be reached, or its response is invalid."""
