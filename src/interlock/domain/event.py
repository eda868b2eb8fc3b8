"""The facts we keep. Frozen, one class per fact, appended once and never edited.

An `Event` is a fact with its place in the run: dense `seq`, time, what it belongs to (`correlation_id`, a call or the
run) and what caused it (`causation_id`, the `seq` of an earlier event). Times are nanoseconds since 1970, for people;
order is `seq`.
"""

from hashlib import sha256
from typing import Any, Literal, TypeAlias

import msgspec

from .call import Answer, Question
from .decision import Decision
from .errors import LogCorruptError
from .json import escape_surrogates
from .messages import Usage
from .observation import ExitStatus, Observation
from .outcome import SideEffects
from .payload import BindingChange
from .tool import PermissionMode, ToolOrigin


class _Fact(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag_field="type"):
    pass


class RunStarted(_Fact, frozen=True, gc=False, tag="run.started"):
    #: The version of this vocabulary. A reader that does not know it refuses the run in words.
    schema: int
    agent: str = ""
    #: The folder that it works in, and who it acts for.
    workspace: str = ""
    requester: str = ""
    #: Who made it, where that is somebody else: a program with a key, a schedule, a colleague.
    created_by: str = ""
    #: The permission mode that it began in.
    mode: PermissionMode = PermissionMode.DEFAULT
    #: A run inside another one: the call of that run which it answers.
    parent_run_id: str = ""
    parent_call_id: str = ""
    #: A run that goes on from another one: its events up to that `seq` are the first events of this one, retold.
    forked_from: str = ""
    forked_at: int = -1


class RunPaused(_Fact, frozen=True, gc=False, tag="run.paused"):
    kind: Literal["approval", "consent", "input"]
    waiting: tuple[str, ...]


class RunResumed(_Fact, frozen=True, gc=False, tag="run.resumed"):
    pass


class RunCompleted(_Fact, frozen=True, gc=False, tag="run.completed"):
    message: str = ""


class RunDegraded(_Fact, frozen=True, gc=False, tag="run.degraded"):
    message: str


class RunFailed(_Fact, frozen=True, gc=False, tag="run.failed"):
    message: str


class RunCancelled(_Fact, frozen=True, gc=False, tag="run.cancelled"):
    message: str = ""
    by: str = ""


class ToolsOffered(_Fact, frozen=True, gc=False, tag="model.menu"):
    """The tools a model was shown. Recorded when it changes; batches name it by digest."""

    digest: str
    versions: dict[str, str]
    #: The full menu: names, descriptions, schemas.
    artifact_id: str


class UserMessageReceived(_Fact, frozen=True, gc=False, tag="user.message"):
    text: str
    by: str = ""


class ModelRequested(_Fact, frozen=True, gc=False, tag="model.request"):
    """The model is about to be asked. What it sees is the conversation up to here, under these instructions, with the
    menu that was recorded last."""

    menu_digest: str
    message_count: int
    agent: str = ""
    provider: str = ""
    model: str = ""
    tool_choice: str = "auto"
    #: How long the run has been moved on so far, without waiting for people.
    active_ms: float = 0.0
    #: The instructions in full, where they are not those of the request before.
    instructions_artifact_id: str = ""


class ModelResponded(_Fact, frozen=True, gc=False, tag="model.response"):
    """What the model said. Its calls follow as intents, in the same commit: so many of them."""

    text: str = ""
    call_count: int = 0
    finish: str = "stop"
    usage: Usage = Usage()
    #: What the provider wants back with this answer; long ones are an artifact.
    private: str = ""
    private_artifact_id: str = ""
    duration_ms: float = 0.0


class ModelFailed(_Fact, frozen=True, gc=False, tag="model.failed"):
    message: str
    retryable: bool = False


class FinalAnswerRejected(_Fact, frozen=True, gc=False, tag="model.refused"):
    """The final answer is not what it has to be; the model is told so."""

    message: str


class ClaimContradicted(_Fact, frozen=True, gc=False, tag="verification.conflict"):
    """The final answer says something that the facts contradict."""

    claim: str
    status: str
    message: str
    #: Was the model told, so that it can do better?
    told: bool = False


class BatchStarted(_Fact, frozen=True, gc=False, tag="tool.batch.started"):
    call_count: int
    menu_digest: str = ""
    #: The permission mode, and whether a person was there.
    mode: PermissionMode = PermissionMode.DEFAULT
    interactive: bool = False


class CallProposed(_Fact, frozen=True, gc=False, tag="tool.intent"):
    call_id: str
    tool: str
    #: The arguments as they came: JSON where they parse, else text. Large ones are an artifact.
    raw_input: Any = None
    raw_artifact_id: str = ""
    raw_bytes: int = 0
    digest: str = ""
    tool_version: str = ""
    reason: str = ""
    #: True when the same call came before: it is answered from the log, not executed.
    duplicate: bool = False


class CallValidated(_Fact, frozen=True, gc=False, tag="tool.validation"):
    call_id: str
    ok: bool
    errors: tuple[str, ...] = ()


class PolicyEvaluated(_Fact, frozen=True, gc=False, tag="tool.permission"):
    call_id: str
    tool: str
    decision: Decision


class ApprovalRequested(_Fact, frozen=True, gc=False, tag="approval.requested"):
    call_id: str
    question: Question


class ApprovalGranted(_Fact, frozen=True, gc=False, tag="approval.granted"):
    call_id: str
    action_id: str
    answer: Answer
    #: With a scope wider than once: what the same call is known by when it comes again.
    grant_key: str = ""
    #: Of the arguments that the person wrote; the answer has them as far as they could be written down.
    written_hash: str = ""


class ApprovalRejected(_Fact, frozen=True, gc=False, tag="approval.rejected"):
    call_id: str
    action_id: str
    answer: Answer


class ApprovalExpired(_Fact, frozen=True, gc=False, tag="approval.expired"):
    call_id: str
    action_id: str
    answer: Answer


class InputRequested(_Fact, frozen=True, gc=False, tag="input.requested"):
    call_id: str
    question: Question


class InputProvided(_Fact, frozen=True, gc=False, tag="input.provided"):
    call_id: str
    action_id: str
    answer: Answer
    #: Of the value that the person gave.
    written_hash: str = ""


class InputRefused(_Fact, frozen=True, gc=False, tag="input.refused"):
    call_id: str
    action_id: str
    answer: Answer


class InputExpired(_Fact, frozen=True, gc=False, tag="input.expired"):
    call_id: str
    action_id: str
    answer: Answer


class ConsentRequested(_Fact, frozen=True, gc=False, tag="consent.requested"):
    call_id: str
    question: Question


class ConsentGranted(_Fact, frozen=True, gc=False, tag="consent.granted"):
    call_id: str
    action_id: str
    answer: Answer


class ConsentRefused(_Fact, frozen=True, gc=False, tag="consent.refused"):
    call_id: str
    action_id: str
    answer: Answer


class ConsentExpired(_Fact, frozen=True, gc=False, tag="consent.expired"):
    call_id: str
    action_id: str
    answer: Answer


class ApprovalVoided(_Fact, frozen=True, gc=False, tag="approval.voided"):
    call_id: str
    action_id: str
    reason: str
    #: What it was bound to and is different now.
    changes: tuple[BindingChange, ...] = ()


class InvocationStarted(_Fact, frozen=True, gc=False, tag="tool.invocation.started"):
    """Committed before an effectful handler runs. It consumes the approval it names."""

    invocation_id: str
    call_id: str
    tool: str
    executor: str
    tool_version: str
    timeout_seconds: float
    #: Where the tool comes from: this program, or the server, skill or extension that is named.
    origin: ToolOrigin = "local"
    source: str = ""
    #: What holds it back, in which profile, and what that does on this host.
    sandbox: str = "none"
    profile: str = ""
    capabilities: tuple[str, ...] = ()
    cwd: str = ""
    action_id: str = ""
    #: The calls that it waited behind, the last few of them; `cap` when all turns were out.
    waited_for: tuple[str, ...] = ()
    #: With an approval or a value given: the hash of what runs.
    payload_hash: str = ""
    #: What runs, where it is not what the model wrote: defaults, a person's value.
    arguments: Any = None


class InvocationCompleted(_Fact, frozen=True, gc=False, tag="tool.invocation.completed"):
    invocation_id: str
    call_id: str
    exit: ExitStatus
    duration_ms: float
    code: str = "ok"
    side_effects: SideEffects = ()
    #: What ran, where a hook changed it, and the decision about that.
    arguments: Any = None
    decision: Decision | None = None


class InvocationSuspended(_Fact, frozen=True, gc=False, tag="tool.invocation.suspended"):
    """The call goes on later: the run inside it waits for a person."""

    invocation_id: str
    call_id: str
    child_run_id: str


class CallObserved(_Fact, frozen=True, gc=False, tag="tool.observation"):
    observation_id: str
    observation: Observation
    invocation_id: str = ""


class WarningRaised(_Fact, frozen=True, gc=False, tag="warning"):
    message: str
    call_id: str = ""


Fact: TypeAlias = (
    RunStarted
    | RunPaused
    | RunResumed
    | RunCompleted
    | RunDegraded
    | RunFailed
    | RunCancelled
    | ToolsOffered
    | UserMessageReceived
    | ModelRequested
    | ModelResponded
    | ModelFailed
    | FinalAnswerRejected
    | ClaimContradicted
    | BatchStarted
    | CallProposed
    | CallValidated
    | PolicyEvaluated
    | ApprovalRequested
    | ApprovalGranted
    | ApprovalRejected
    | ApprovalExpired
    | InputRequested
    | InputProvided
    | InputRefused
    | InputExpired
    | ConsentRequested
    | ConsentGranted
    | ConsentRefused
    | ConsentExpired
    | ApprovalVoided
    | InvocationStarted
    | InvocationCompleted
    | InvocationSuspended
    | CallObserved
    | WarningRaised
)

#: After one of these nothing follows.
TERMINAL_EVENTS = (RunCompleted, RunDegraded, RunFailed, RunCancelled)

SCHEMA_VERSION = 1


class Event(msgspec.Struct, frozen=True, gc=False):
    seq: int
    run_id: str
    at: int
    correlation_id: str
    causation_id: int | None
    fact: Fact

    @property
    def type(self) -> str:
        return event_type(self.fact)


def event_type(fact: Fact) -> str:
    return str(fact.__struct_config__.tag)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Event).decode

#: Line breaks to some readers and not to others; escaped so that one event is one line for everybody.
_LINE_BREAKS = ((b"\xc2\x85", b"\\u0085"), (b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"))


class LogEntry(msgspec.Struct, frozen=True, gc=False):
    """An event as it is stored: its place, its exact bytes and the chain's hash up to and with it."""

    run_id: str
    seq: int
    body: bytes
    hash: bytes


def genesis_hash(run_id: str) -> bytes:
    return sha256(b"interlock/log/v1\n" + run_id.encode()).digest()


def next_hash(previous: bytes, body: bytes) -> bytes:
    return sha256(previous + body).digest()


def encode_event(event: Event) -> bytes:
    """The bytes of an event: one line of ASCII or UTF-8. What cannot be UTF-8 is written as escapes."""
    try:
        body = _encode(event)
    except UnicodeEncodeError:
        body = _encode(escape_surrogates(msgspec.to_builtins(event)))
    return escape_line_breaks(body)


def escape_line_breaks(body: bytes) -> bytes:
    for raw, escaped in _LINE_BREAKS:
        if raw in body:
            body = body.replace(raw, escaped)
    return body


def decode_event(entry: LogEntry) -> Event:
    try:
        event = _decode(entry.body)
    except RecursionError:
        raise LogCorruptError(
            f"event {entry.seq} of {entry.run_id} cannot be read: it is nested too deep (nested_too_deep)"
        ) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise LogCorruptError(f"event {entry.seq} of {entry.run_id} cannot be read: {error}") from None
    if event.seq != entry.seq or event.run_id != entry.run_id:
        raise LogCorruptError(f"event {entry.seq} of {entry.run_id} says it is {event.seq} of {event.run_id}")
    return event
