"""The events of a run. Frozen, one class per event type, appended once and never edited.

An `Event` is a fact with its position in the run: dense `seq`, time, what it belongs to (`correlation_id`, a call or
the run) and what caused it (`causation_id`, the `seq` of an earlier event). Times are nanoseconds since 1970, for
display; the order is `seq`.
"""

from hashlib import sha256
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from .call import Answer, Question
from .decision import Decision
from .errors import LogCorruptError, LogVersionError
from .json import escape_surrogates, lazy_decoder
from .messages import MessagePart, Usage
from .observation import ExitStatus, Observation
from .outcome import SideEffects
from .payload import BindingChange
from .tool import PermissionMode, ToolOrigin


class _Fact(
    msgspec.Struct,
    frozen=True,
    gc=False,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag_field="type",
):
    pass


class RunStarted(_Fact, frozen=True, gc=False, tag="run.started"):
    """The run began."""

    #: The version of this vocabulary. A reader that does not know it refuses the run with a message.
    schema: int
    agent: str = ""
    #: The workspace, and the user that the run acts for.
    workspace: str = ""
    requester: str = ""
    #: Who created it, where that is not the requester: a program with a key, a schedule, a colleague.
    created_by: str = ""
    #: The permission mode at the start.
    mode: PermissionMode = PermissionMode.DEFAULT
    #: For a child run: the parent run and its call.
    parent_run_id: str = ""
    parent_call_id: str = ""
    #: For a fork: the source run and the last `seq` that was copied from it.
    forked_from: str = ""
    forked_at: int = -1
    #: What the program that started the run needs to resume it as it was, such as the model. Not used to decide.
    settings: dict[str, str] = {}

    @property
    def is_session(self) -> bool:
        """True for the session of a client, which makes calls one by one: no agent of ours decides what comes next."""
        return self.settings.get("session") == "true"

    @property
    def is_chat(self) -> bool:
        """True for a conversation: a final answer does not end the run, and the next message continues it."""
        return self.settings.get("chat") == "true"


class RunPaused(_Fact, frozen=True, gc=False, tag="run.paused"):
    """The run waits for a person."""

    kind: Literal["approval", "consent", "input"]
    waiting: tuple[str, ...]
    #: The trace context (W3C) in which it paused, for the span that continues it.
    traceparent: str = ""


class RunResumed(_Fact, frozen=True, gc=False, tag="run.resumed"):
    """The run continues after a pause."""


class RunCompleted(_Fact, frozen=True, gc=False, tag="run.completed"):
    """The run reached its final answer."""

    message: str = ""


class RunDegraded(_Fact, frozen=True, gc=False, tag="run.degraded"):
    """The run ended without completing its task, as its fail-safe policy allows."""

    message: str


class RunFailed(_Fact, frozen=True, gc=False, tag="run.failed"):
    """The run failed."""

    message: str
    #: Why, for programs: `context_length_exceeded`, or the code of the call that ended it, such as `user_denied`.
    #: Empty: there is none.
    code: str = ""


class RunCancelled(_Fact, frozen=True, gc=False, tag="run.cancelled"):
    """The run was cancelled."""

    message: str = ""
    by: str = ""


class ToolsOffered(_Fact, frozen=True, gc=False, tag="model.menu"):
    """The tool catalog offered to the model. Recorded when it changes; batches refer to it by digest."""

    digest: str
    versions: dict[str, str]
    #: The full catalog: names, descriptions, schemas.
    artifact_id: str


class McpServerConnected(_Fact, frozen=True, gc=False, tag="mcp.server.connected"):
    """An MCP server that the run uses was connected."""

    server: str
    #: The id of this connection.
    connection: str
    #: The program with its arguments, or the address.
    command: tuple[str, ...] = ()
    url: str = ""
    #: The program as it was found, and the digest of its file.
    executable: str = ""
    executable_sha256: str = ""
    #: The version of the protocol, and what the server says of itself.
    protocol: str = ""
    server_name: str = ""
    server_version: str = ""
    #: What it can access: its sandbox, the folders that it may write, the hosts that it reaches.
    reach: dict[str, Any] = {}


class McpToolsListed(_Fact, frozen=True, gc=False, tag="mcp.tools.listed"):
    """The tools that an MCP server defines, as the run first saw them."""

    server: str
    #: The digest of each definition, by the name of the tool here.
    versions: dict[str, str]
    #: Those that may not be called until a person accepts their definition.
    quarantined: tuple[str, ...] = ()
    #: The definitions as the server sent them.
    artifact_id: str = ""


class McpToolsChanged(_Fact, frozen=True, gc=False, tag="mcp.tools.changed"):
    """The tools of an MCP server are no longer what the run knew."""

    server: str
    #: The digest of each new definition, by the name of the tool here.
    added: dict[str, str] = {}
    changed: dict[str, str] = {}
    removed: tuple[str, ...] = ()
    #: All that may not be called until a person accepts their definition.
    quarantined: tuple[str, ...] = ()
    #: What is different, in lines.
    diff: str = ""
    artifact_id: str = ""


class McpServerLost(_Fact, frozen=True, gc=False, tag="mcp.server.lost"):
    """The connection to an MCP server was lost. It is made again with growing pauses."""

    server: str
    reason: str = ""


class UserMessageReceived(_Fact, frozen=True, gc=False, tag="user.message"):
    """A user sent a message to the run."""

    text: str
    by: str = ""
    #: Images and files in it.
    parts: tuple[MessagePart, ...] = ()
    #: Of the request that sent it, where it had one: the same request again is the same message.
    key: str = ""


class ModelRequested(_Fact, frozen=True, gc=False, tag="model.request"):
    """A request is about to be sent to the model: the conversation so far, these instructions, and the tool catalog
    that was recorded last.
    """

    menu_digest: str
    message_count: int
    agent: str = ""
    provider: str = ""
    model: str = ""
    tool_choice: str = "auto"
    #: Active time of the run so far, without waiting for people.
    active_ms: float = 0.0
    #: The instructions in full, where they are not those of the request before.
    instructions_artifact_id: str = ""
    #: `summary`: the model is asked to summarize older messages, without tools.
    purpose: Literal["", "summary"] = ""
    #: Estimated size of the whole request, where the window of the model is known.
    estimated_tokens: int = 0


class ModelResponded(_Fact, frozen=True, gc=False, tag="model.response"):
    """The model's response. Its calls follow as intents in the same commit; `call_count` is their number."""

    text: str = ""
    call_count: int = 0
    finish: str = "stop"
    usage: Usage = Usage()
    #: What the provider wants back with this answer; long ones are an artifact.
    private: str = ""
    private_artifact_id: str = ""
    duration_ms: float = 0.0


class ModelFailed(_Fact, frozen=True, gc=False, tag="model.failed"):
    """The model gave no usable response."""

    message: str
    retryable: bool = False
    #: `context_length_exceeded`: the request was too long. Then also the estimated size of its messages.
    code: str = ""
    estimated_tokens: int = 0


class ContextTrimmed(_Fact, frozen=True, gc=False, tag="context.trimmed"):
    """Older tool outputs are left out of what the model sees. A line with the artifact replaces each."""

    #: The artifact of each output, by call id.
    outputs: dict[str, str]
    #: The events of the first and the last message that changed.
    first_seq: int
    last_seq: int


class ContextCompacted(_Fact, frozen=True, gc=False, tag="context.compacted"):
    """The messages from `first_seq` to `last_seq` are replaced by a summary that the model wrote."""

    summary: str
    first_seq: int
    last_seq: int
    #: The replaced messages as text.
    artifact_id: str
    usage: Usage = Usage()
    duration_ms: float = 0.0


class FinalAnswerRejected(_Fact, frozen=True, gc=False, tag="model.refused"):
    """The final answer does not fit the required output; the model is informed."""

    message: str


class ClaimContradicted(_Fact, frozen=True, gc=False, tag="verification.conflict"):
    """The final answer makes a claim that the recorded facts contradict."""

    claim: str
    status: str
    message: str
    #: True when the model was informed, so that it can try again.
    told: bool = False


class BatchStarted(_Fact, frozen=True, gc=False, tag="tool.batch.started"):
    """The calls of one model turn begin."""

    call_count: int
    menu_digest: str = ""
    #: The permission mode, and whether a person was available.
    mode: PermissionMode = PermissionMode.DEFAULT
    interactive: bool = False


class CallProposed(_Fact, frozen=True, gc=False, tag="tool.intent"):
    """The model proposed a tool call."""

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
    """The arguments of a call were validated."""

    call_id: str
    ok: bool
    errors: tuple[str, ...] = ()


class PolicyEvaluated(_Fact, frozen=True, gc=False, tag="tool.permission"):
    """The policy was evaluated for a call."""

    call_id: str
    tool: str
    decision: Decision


class CallTried(_Fact, frozen=True, gc=False, tag="tool.trial"):
    """The call ran where its effects are kept apart. Nothing of it stays unless it is applied."""

    call_id: str
    #: Identifies the effect. The question about it has the details.
    digest: str
    outcome: str
    change_count: int = 0
    #: Hosts that it tried to reach.
    hosts: tuple[str, ...] = ()
    duration_ms: float = 0.0


class ApprovalRequested(_Fact, frozen=True, gc=False, tag="approval.requested"):
    """A person is asked to approve a call."""

    call_id: str
    question: Question


class ApprovalGranted(_Fact, frozen=True, gc=False, tag="approval.granted"):
    """A person approved a call."""

    call_id: str
    action_id: str
    answer: Answer
    #: With a scope wider than `once`: the key that identifies the same call later.
    grant_key: str = ""
    #: Hash of the arguments that the person wrote; the answer has them without secrets.
    written_hash: str = ""


class ApprovalRejected(_Fact, frozen=True, gc=False, tag="approval.rejected"):
    """A person rejected a call."""

    call_id: str
    action_id: str
    answer: Answer


class ApprovalExpired(_Fact, frozen=True, gc=False, tag="approval.expired"):
    """An approval was not answered in time."""

    call_id: str
    action_id: str
    answer: Answer


class InputRequested(_Fact, frozen=True, gc=False, tag="input.requested"):
    """A person is asked for the value of an argument."""

    call_id: str
    question: Question


class InputProvided(_Fact, frozen=True, gc=False, tag="input.provided"):
    """A person gave the requested value."""

    call_id: str
    action_id: str
    answer: Answer
    #: Hash of the value that the person gave.
    written_hash: str = ""


class InputRefused(_Fact, frozen=True, gc=False, tag="input.refused"):
    """A person declined to give the requested value."""

    call_id: str
    action_id: str
    answer: Answer


class InputExpired(_Fact, frozen=True, gc=False, tag="input.expired"):
    """A requested value was not given in time."""

    call_id: str
    action_id: str
    answer: Answer


class ConsentRequested(_Fact, frozen=True, gc=False, tag="consent.requested"):
    """The user that the run acts for is asked to consent."""

    call_id: str
    question: Question


class ConsentGranted(_Fact, frozen=True, gc=False, tag="consent.granted"):
    """The user consented."""

    call_id: str
    action_id: str
    answer: Answer


class ConsentRefused(_Fact, frozen=True, gc=False, tag="consent.refused"):
    """The user refused consent."""

    call_id: str
    action_id: str
    answer: Answer


class ConsentExpired(_Fact, frozen=True, gc=False, tag="consent.expired"):
    """The user did not consent in time."""

    call_id: str
    action_id: str
    answer: Answer


class ApprovalVoided(_Fact, frozen=True, gc=False, tag="approval.voided"):
    """A question is no longer valid, for example because its binding changed."""

    call_id: str
    action_id: str
    reason: str
    #: What changed since the question was asked.
    changes: tuple[BindingChange, ...] = ()


class InvocationStarted(_Fact, frozen=True, gc=False, tag="tool.invocation.started"):
    """The handler is about to run. Committed before an effectful handler runs; consumes the approval it names."""

    invocation_id: str
    call_id: str
    tool: str
    executor: str
    tool_version: str
    timeout_seconds: float
    #: Where the tool comes from: this program, or the server, skill or extension that is named.
    origin: ToolOrigin = "local"
    source: str = ""
    #: The sandbox, its profile, and what that enforces on this host.
    sandbox: str = "none"
    profile: str = ""
    capabilities: tuple[str, ...] = ()
    cwd: str = ""
    action_id: str = ""
    #: The calls that it waited behind, the last few of them; `cap` when the concurrency limit was reached.
    waited_for: tuple[str, ...] = ()
    #: With an approval or a value given: the hash of what runs.
    payload_hash: str = ""
    #: What runs, where it is not what the model wrote: defaults, a person's value.
    arguments: Any = None
    #: The key of its effect; as a digest where it is long or holds a secret.
    effect: str = ""
    #: The digest of the tried effect that it applies.
    trial: str = ""


class InvocationCompleted(_Fact, frozen=True, gc=False, tag="tool.invocation.completed"):
    """The handler ended."""

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
    """The call is suspended: its child run waits for a person."""

    invocation_id: str
    call_id: str
    child_run_id: str


class CallObserved(_Fact, frozen=True, gc=False, tag="tool.observation"):
    """The observation of a call was recorded."""

    observation_id: str
    observation: Observation
    invocation_id: str = ""


class WarningRaised(_Fact, frozen=True, gc=False, tag="warning"):
    """Something people should know that did not stop the call."""

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
    | McpServerConnected
    | McpToolsListed
    | McpToolsChanged
    | McpServerLost
    | UserMessageReceived
    | ModelRequested
    | ModelResponded
    | ModelFailed
    | ContextTrimmed
    | ContextCompacted
    | FinalAnswerRejected
    | ClaimContradicted
    | BatchStarted
    | CallProposed
    | CallValidated
    | PolicyEvaluated
    | CallTried
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

#: The version of the event types and their fields. A reader refuses what is newer (`LogVersionError`), and never drops
#: a field that it does not know. A change that adds a type or a field raises it and names it in `NEWER`.
SCHEMA_VERSION = 8

_EFFECT = ((b'"effect":', 2), (b'"effect_rule":', 2))
_TRIAL = (b'"trial":', 5)
_ASK = (b'"ask":', 5)
_APPROVER = (b'"approver":', 6)
_TITLE = (b'"title":', 7)
_KEY_FACTS = (b'"key_facts":', 7)
_BUDGETS = (b'"budgets":', 8)
_CHANNEL = ((b'"channel":', 6), (b'"assurance":', 6))

#: What was added after version 1, by event type: the field as it is written, at whatever depth, and its version. For a
#: new event type that is empty, which every event has. An event that has it carries that version as its `schema`, so
#: that older code recognizes it, also in a run that older code began.
NEWER: dict[type, tuple[tuple[bytes, int], ...]] = {
    RunStarted: ((b'"settings":', 3),),
    UserMessageReceived: ((b'"parts":', 4), (b'"key":', 7)),
    PolicyEvaluated: (*_EFFECT, _ASK, _APPROVER, _TITLE, _BUDGETS),
    CallTried: ((b"", 5),),
    InvocationStarted: (_EFFECT[0], _TRIAL),
    InvocationCompleted: (*_EFFECT, _ASK, _APPROVER, _TITLE, _BUDGETS),
    ApprovalRequested: (*_EFFECT, _TRIAL, _APPROVER, _TITLE, _KEY_FACTS),
    InputRequested: (*_EFFECT, _TRIAL, _APPROVER, _TITLE, _KEY_FACTS),
    ConsentRequested: (*_EFFECT, _TRIAL, _APPROVER, _TITLE, _KEY_FACTS),
    ApprovalGranted: _CHANNEL,
    ApprovalRejected: _CHANNEL,
    ApprovalExpired: _CHANNEL,
    InputProvided: _CHANNEL,
    InputRefused: _CHANNEL,
    InputExpired: _CHANNEL,
    ConsentGranted: _CHANNEL,
    ConsentRefused: _CHANNEL,
    ConsentExpired: _CHANNEL,
    RunPaused: ((b'"traceparent":', 8),),
    RunFailed: ((b'"code":', 3),),
    ModelRequested: ((b'"purpose":', 3), (b'"estimated_tokens":', 3)),
    ModelFailed: ((b'"code":', 3), (b'"estimated_tokens":', 3)),
    ContextTrimmed: ((b"", 3),),
    ContextCompacted: ((b"", 3),),
    McpServerConnected: ((b"", 6),),
    McpToolsListed: ((b"", 6),),
    McpToolsChanged: ((b"", 6),),
    McpServerLost: ((b"", 6),),
}


class Event(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """A fact with its position, time and causes in the log of one run."""

    seq: int
    run_id: str
    at: int
    correlation_id: str
    causation_id: int | None
    fact: Fact
    #: The version that a reader has to know.
    schema: int = 1

    @property
    def type(self) -> str:
        """Type of the event, as in the log."""
        return event_type(self.fact)


#: Every type under which a fact is logged.
EVENT_TYPES = frozenset(str(kind.__struct_config__.tag) for kind in get_args(Fact))


def event_type(fact: Fact) -> str:
    """Return the type under which a fact is logged."""
    return str(fact.__struct_config__.tag)


_encode = msgspec.json.Encoder().encode
_decoder = lazy_decoder(Event)

#: Line breaks to some readers and not to others; escaped so that one event is one line for every reader.
_LINE_BREAKS = ((b"\xc2\x85", b"\\u0085"), (b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"))


class LogEntry(msgspec.Struct, frozen=True, gc=False):
    """An event as stored: its position, its exact bytes and the chain hash up to and including it."""

    run_id: str
    seq: int
    body: bytes
    hash: bytes


def genesis_hash(run_id: str) -> bytes:
    """Return the hash that the first event of a run is chained to."""
    return sha256(b"interlock/log/v1\n" + run_id.encode()).digest()


def next_hash(previous: bytes, body: bytes) -> bytes:
    """Return the hash of an event body chained to the previous hash."""
    return sha256(previous + body).digest()


def encode_event(event: Event) -> bytes:
    """Return the bytes of an event: one line of ASCII or UTF-8. Lone surrogates are escaped."""
    try:
        body = _encode(event)
    except UnicodeEncodeError:
        body = _encode(escape_surrogates(msgspec.to_builtins(event)))
    if type(event.fact) in NEWER and (schema := required_schema(event.fact, body)) > event.schema:
        return encode_event(msgspec.structs.replace(event, schema=schema))
    return escape_line_breaks(body)


def required_schema(fact: Fact, body: bytes) -> int:
    """Return the version that a reader of this event has to know."""
    return max((version for field, version in NEWER.get(type(fact), ()) if field in body), default=1)


def escape_line_breaks(body: bytes) -> bytes:
    """Escape the characters that some readers take for line breaks."""
    for raw, escaped in _LINE_BREAKS:
        if raw in body:
            body = body.replace(raw, escaped)
    return body


class _Written(msgspec.Struct):
    """What every version of an event has."""

    schema: int = 1


_decode_schema = msgspec.json.Decoder(_Written).decode


def decode_event(entry: LogEntry) -> Event:
    """Decode an event. Raise `LogVersionError` for one of a newer version, and `LogCorruptError` for one that no
    version has written.
    """
    try:
        event = _decoder.decode(entry.body)
    except RecursionError:
        raise LogCorruptError(
            f"event {entry.seq} of {entry.run_id} cannot be read: it is nested too deep (nested_too_deep)"
        ) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        _check_version(entry)
        raise LogCorruptError(f"event {entry.seq} of {entry.run_id} cannot be read: {error}") from None
    if event.schema > SCHEMA_VERSION:
        raise version_error(f"event {entry.seq} of {entry.run_id}", event.schema)
    if event.seq != entry.seq or event.run_id != entry.run_id:
        raise LogCorruptError(f"event {entry.seq} of {entry.run_id} says it is {event.seq} of {event.run_id}")
    return event


def _check_version(entry: LogEntry) -> None:
    """Raise `LogVersionError` if the event says that it is of a newer version."""
    try:
        schema = _decode_schema(entry.body).schema
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return
    if schema > SCHEMA_VERSION:
        raise version_error(f"event {entry.seq} of {entry.run_id}", schema)


def version_error(what: str, schema: int) -> LogVersionError:
    """Build the error for data of a newer schema."""
    return LogVersionError(
        f"{what} was written by a newer version of Interlock: its schema is {schema}, and this version reads up to "
        f"{SCHEMA_VERSION}. It is not damaged. Use a newer Interlock"
    )
