"""Tool declarations: data and the developer's functions, nothing that executes them."""

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, cast

import msgspec

from .. import lazy_module
from .attachments import Attachment
from .errors import ArtifactError
from .json import JsonObject, validate_fields
from .outcome import ArtifactRef, NextTool, OutputSize, SideEffect
from .trial import TrialRunner

if TYPE_CHECKING:
    import pydantic
else:
    pydantic = lazy_module("pydantic")


class Consent(msgspec.Struct, frozen=True, kw_only=True):
    """The consent that a tool declares. Its calls wait until the user they act for has consented to all scopes."""

    #: As the server's configuration names it.
    provider: str
    scopes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        validate_fields(self)


class ConsentBinding(msgspec.Struct, frozen=True, kw_only=True):
    """What a consent is bound to. It is valid for no other user, agent, tool or definition of the tool."""

    user: str
    #: The agent whose tool it is; for one inside others, with the agents around it: `support > mailer`.
    agent: str
    tool: str
    #: The digest of everything that the tool declares.
    definition: str


def agent_path(names: Sequence[str]) -> str:
    """Return the names of nested agents as one, outermost first. No two lists give the same text."""
    return " > ".join(name.replace("\\", "\\\\").replace(">", "\\>") for name in names)


if TYPE_CHECKING:
    from .payload import ExecutionEnvironment


class Risk(StrEnum):
    """What a tool may do. It decides where no rule of the policy does."""

    READ = "read"
    WRITE = "write"
    EXECUTE = "execute"
    NETWORK = "network"
    DELEGATE = "delegate"


class PermissionMode(StrEnum):
    """What a run may do without asking a person. Rules of the policy are stricter or more permissive."""

    READ_ONLY = "read_only"
    DEFAULT = "default"
    ACCEPT_EDITS = "accept_edits"
    CONTAINED = "contained"
    TRUSTED = "trusted"


Concurrency: TypeAlias = Literal["safe", "keyed", "exclusive"]
Isolation: TypeAlias = Literal["thread", "process"]
ToolOrigin: TypeAlias = Literal["local", "mcp", "skill", "extension"]
TimeoutBehavior: TypeAlias = Literal["error_as_result", "raise_exception"]
OutputFormat: TypeAlias = Literal["text", "json", "diff", "image", "artifact_ref"]
#: `verification`: it states whether a goal was reached, so claims about it can be checked.
ObservationKind: TypeAlias = Literal["tool", "verification"]
#: What an argument names: a file or folder, a host (or a URL), a script for bash (or a list of words to execute), the
#: folder that its commands start in.
ResourceKind: TypeAlias = Literal["path", "host", "command", "folder"]
#: What happens to a call whose effect happened before: it is refused, a person is asked, or it runs.
Repeat: TypeAlias = Literal["deny", "ask", "allow"]


#: Resolved path arguments, relative to the workspace, as evaluated. None: not evaluated yet.
EvaluatedPaths: TypeAlias = frozenset[str] | None

#: Prefix of tool state names that are reserved for the runtime.
RESERVED_STATE_PREFIX = "interlock:"


class CallContext(msgspec.Struct, frozen=True, kw_only=True):
    """The context in which a call is proposed: what visibility, checks and policies may depend on."""

    run_id: str
    agent: str = ""
    mode: PermissionMode = PermissionMode.DEFAULT
    #: The phase of the task, in the agent's own words.
    task_phase: str = ""
    interactive: bool = False
    #: The workspace of the run, absolute; relative paths start there. Empty: none was given.
    workspace: str = ""
    #: The user that the run acts for.
    requester: str = ""
    #: Who created it, where that is not the requester.
    created_by: str = ""
    #: For a child run: the parent call, and the parent agents, outermost first.
    parent_run_id: str = ""
    parent_call_id: str = ""
    parent_agents: tuple[str, ...] = ()


class ByteFilter(Protocol):
    """Redacts secrets in a stream of bytes: input comes out later, and the rest at the end."""

    def feed(self, chunk: bytes) -> bytes: ...

    def end(self) -> bytes: ...


class RunArtifacts(Protocol):
    """The artifacts of one run. Raises `ArtifactError` for any other, and where one cannot be stored."""

    def read(self, artifact_id: str, start: int = 0, size_bytes: int | None = None) -> bytes: ...

    def size_bytes(self, artifact_id: str) -> int: ...

    def keep(self, content: bytes, kind: str) -> ArtifactRef:
        """Store the content with secrets redacted."""
        ...

    def keep_stream(self, chunks: Iterable[bytes], kind: str) -> ArtifactRef:
        """Store chunks that went through a `redaction_filter`."""
        ...

    def redaction_filter(self) -> ByteFilter: ...


class _NoArtifacts:
    def read(self, artifact_id: str, start: int = 0, size_bytes: int | None = None) -> bytes:
        raise ArtifactError("there are no artifacts here")

    def size_bytes(self, artifact_id: str) -> int:
        raise ArtifactError("there are no artifacts here")

    def keep(self, content: bytes, kind: str) -> ArtifactRef:
        raise ArtifactError("there are no artifacts here")

    def keep_stream(self, chunks: Iterable[bytes], kind: str) -> ArtifactRef:
        raise ArtifactError("there are no artifacts here")

    def redaction_filter(self) -> ByteFilter:
        raise ArtifactError("there are no artifacts here")


_NO_ARTIFACTS = _NoArtifacts()
_NO_STATE: Mapping[str, Any] = {}


class ToolContext:
    """What a handler, hook or guardrail knows about its call, with methods to report while it runs.

    A handler in a thread may use all of it.
    """

    __slots__ = (
        "_on_progress",
        "access_token",
        "artifacts",
        "bound",
        "call_id",
        "cancelled",
        "effects",
        "judged",
        "kept",
        "reach",
        "run_id",
        "situation",
        "state",
        "tool_name",
        "trial",
        "warnings",
    )

    def __init__(
        self,
        situation: CallContext,
        call_id: str,
        tool_name: str,
        on_progress: Callable[[str, str], None],
        artifacts: RunArtifacts = _NO_ARTIFACTS,
    ) -> None:
        self.situation = situation
        self.run_id = situation.run_id
        self.call_id = call_id
        self.tool_name = tool_name
        #: True once the call timed out or was cancelled. A thread cannot be stopped: a long loop should check this.
        self.cancelled = False
        #: Side effects reported by this call.
        self.effects: list[SideEffect] = []
        #: Warnings reported by this call.
        self.warnings: list[str] = []
        self.artifacts = artifacts
        #: Artifacts stored by this call.
        self.kept: list[ArtifactRef] = []
        #: The resolved path arguments when the call was evaluated or approved: a tool opens nothing else.
        self.judged: EvaluatedPaths = None
        #: The scope that the tool stated right before the start. None: not stated.
        self.reach: SandboxScope | None = None
        #: Where an approved call runs, and the files that the approval is bound to. None: it was not approved.
        self.bound: ExecutionEnvironment | None = None
        #: The digest of the tried effect that this call applies. Empty: it was not tried.
        self.trial = ""
        #: For a tool that declares `consent`: the access token for the user. Never shown.
        self.access_token = ""
        #: State from earlier calls: see `NormalizedOutput.state`. Not available in a separate process.
        self.state = _NO_STATE
        self._on_progress = on_progress

    @property
    def idempotency_key(self) -> str:
        """A key for providers that run a request once: the same for every start of this call, in any process, and
        different for every other call.
        """
        return "il_" + sha256(f"{self.run_id}\n{self.call_id}".encode(errors="surrogatepass")).hexdigest()[:40]

    def progress(self, message: str) -> None:
        """Report progress to listeners. Not recorded, not shown to the model."""
        self._on_progress(self.call_id, str(message))

    def warn(self, message: str) -> None:
        """Record a warning for people. The call continues."""
        self.warnings.append(str(message))

    def keep(self, content: bytes, kind: str) -> ArtifactRef:
        """Store evidence with secrets redacted. The observation refers to it."""
        kept = self.artifacts.keep(content, kind)
        self.kept.append(kept)
        return kept

    def keep_stream(self, chunks: Iterable[bytes], kind: str) -> ArtifactRef:
        """Store chunks that went through `artifacts.redaction_filter()`."""
        kept = self.artifacts.keep_stream(chunks, kind)
        self.kept.append(kept)
        return kept

    def side_effect(self, kind: str, target: str, detail: str = "") -> None:
        """Record a change that this call made outside the runtime."""
        self.effects.append(SideEffect(kind=kind, target=target, detail=detail))


class NormalizedOutput(msgspec.Struct, frozen=True, kw_only=True):
    """The return value of a tool's `normalize`: its result in the form shared by all tools."""

    ok: bool = True
    code: str = "ok"
    summary: str = ""
    #: What the model reads; None takes the raw value as text or JSON.
    text: str | None = None
    #: The one line a person reads; empty takes the summary.
    user_text: str = ""
    format: OutputFormat = "text"
    exit_code: int | None = None
    side_effects: tuple[SideEffect, ...] | None = None
    retryable: bool = True
    #: Structured facts for the log.
    facts: JsonObject = {}
    #: Where the text is less than what was produced: how much of it is shown, and how to read on.
    size: OutputSize | None = None
    next_hint: str = ""
    next_tool: NextTool | None = None
    kind: ObservationKind = "tool"
    #: State for later calls of this run, by name; None removes it. It is folded from the log, so it is
    #: still there after a restart, and `ToolContext.state` has it.
    state: JsonObject = {}
    #: Images and files that the model is shown beside the text.
    attachments: tuple[Attachment, ...] = ()

    def __post_init__(self) -> None:
        validate_fields(self)


class Diagnostics(msgspec.Struct, frozen=True, kw_only=True):
    """What checkers report about the files that a call changed: the return value of a tool's `diagnose`."""

    #: What the model reads after the output of the call. Untrusted, like all output.
    text: str
    #: For the one line that a person reads.
    summary: str = ""
    #: For the log, under `diagnostics`.
    facts: list[JsonObject] = []


class SandboxScope(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """What a running call can access: for the record, and as part of the approval binding."""

    #: The sandbox.
    sandbox: str
    profile: str = ""
    #: What the sandbox enforces on this host.
    capabilities: tuple[str, ...] = ()
    cwd: str = ""
    #: Variables that are set or changed for it.
    environment: dict[str, str] = {}
    #: When the tool itself ends this call. 0: the timeout of its definition is the one in force.
    timeout_seconds: float = 0.0

    def __post_init__(self) -> None:
        validate_fields(self)


class CheckProblem(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a runtime check when the call cannot be done now."""

    message: str
    code: Literal["runtime_precondition_failed", "ambiguous_target", "stale_file_baseline"] = (
        "runtime_precondition_failed"
    )

    def __post_init__(self) -> None:
        validate_fields(self)


#: True, or the reason why the tool is not available.
Visibility: TypeAlias = Callable[[CallContext], bool | str]
RuntimeCheck: TypeAlias = Callable[[JsonObject, ToolContext], CheckProblem | Awaitable[CheckProblem | None] | None]
ResourceKeys: TypeAlias = Callable[[JsonObject], frozenset[str]]
#: PreHook: `(args)` or `(args, ctx)`, returns the arguments to use.
PreHook: TypeAlias = Callable[..., Any]
CallNext: TypeAlias = Callable[[JsonObject, ToolContext], Awaitable[Any]]
Middleware: TypeAlias = Callable[[CallNext, JsonObject, ToolContext], Awaitable[Any]]
#: PostHook: `({"output": ..., "tool_name": ...})` or the same and `ctx`, returns the output to use.
PostHook: TypeAlias = Callable[..., Any]
#: Guardrails return None, or the reason why they refuse.
Guardrail: TypeAlias = Callable[..., str | Awaitable[str | None] | None]
#: What happened to a call that started and has no recorded end: True it happened, False it did not, None unknown.
Reconcile: TypeAlias = Callable[[JsonObject], bool | Awaitable[bool | None] | None]
#: Called with the arguments and the facts of a successful call that changed something. None: nothing to report.
Diagnose: TypeAlias = Callable[[JsonObject, JsonObject, ToolContext], Awaitable[Diagnostics | None]]
#: A template over the arguments (`refund:{order}`), or a function of them that returns the key, or None for no key.
EffectKey: TypeAlias = str | Callable[[JsonObject], str | Awaitable[str | None] | None]
ErrorFormatter: TypeAlias = Callable[[ToolContext, BaseException], str]


#: The name of an argument in a declared capability.
CAPABILITY_ARGUMENT = re.compile(r"\{(\w+)\}")


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a tool for the model."""

    name: str
    description: str
    parameters_schema: JsonObject


class ToolDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as the runtime knows it. Make one with `@tool`; see its options there."""

    spec: ToolSpec
    #: Given by the developer, or a digest of what the tool declares.
    version: str
    handler: Callable[..., Any]
    is_async: bool
    #: The handler's parameters: checked arguments as one object under this name, or one by one.
    args_model: "type[pydantic.BaseModel]"
    args_parameter: str = ""
    context_parameter: str = ""

    risk: frozenset[Risk] = frozenset()
    read_only: bool = False
    idempotent: bool = False
    #: A call that started and has no recorded end can be resumed: it is a child run with its own log.
    resumes: bool = False
    #: It hands the run to another agent: only such a tool may set reserved state names.
    hands_over: bool = False
    concurrency: Concurrency = "safe"
    read_keys: ResourceKeys | None = None
    write_keys: ResourceKeys | None = None
    timeout_seconds: float = 60.0
    max_output_chars: int = 30_000
    isolation: Isolation = "thread"
    #: With `isolation="process"`: its process reaches only hosts that egress rules of the policy allow.
    egress: bool = False
    origin: ToolOrigin = "local"
    #: The MCP server, skill folder or extension that it comes from.
    source: str = ""
    #: Its name at that server, where it is another one here.
    source_name: str = ""
    #: What that server calls it for people, which the description begins with. Used in titles of questions only.
    label: str = ""
    #: Why it may not be called until a person accepts its definition. Empty: it may.
    quarantine: str = ""
    #: The operation for questions, such as `POST /refunds/{order}`. Empty: the name and the main thing it acts on.
    capability: str = ""
    #: The title of questions about its calls, a template over the arguments: `Refund {amount} for {order}`. Empty: made
    #: from its name and the arguments.
    title: str = ""
    #: The arguments to show first in a question, by dotted name. Empty: the first short ones.
    key_facts: tuple[str, ...] = ()
    #: Which arguments name resources, so that rules about paths, hosts and commands hold for this tool too.
    #: A dotted name reaches into objects, and into every object of a list.
    resources: Mapping[str, ResourceKind] = {}
    #: A sandbox keeps its effects in the workspace, without a network: the mode `contained` allows its calls.
    contained: bool = False
    #: The consent it needs from the user. A call waits until they consented.
    consent: Consent | None = None
    #: What a call with these arguments can access, for tools that restrict themselves.
    reach: Callable[[JsonObject, CallContext], SandboxScope] | None = None

    #: What identifies the effect of a call, so that it happens once, however often and wherever it is proposed.
    effect: EffectKey | None = None
    #: What happens to a call whose effect happened before.
    repeat: Repeat = "ask"

    #: How its calls are tried where policy asks `after`. A call that was tried applies that effect: `context.trial`.
    trial: TrialRunner | None = None

    #: What it shares with other tools: see `registry.interface.Toolbox`.
    toolbox: Any = None

    visible: Visibility | None = None
    check: RuntimeCheck | None = None
    #: The tool's decision on whether a call may start; the strictest decision wins.
    authorize: Callable[[JsonObject, CallContext], Any] | None = None
    normalize: Callable[[Any], NormalizedOutput] | None = None
    reconcile: Reconcile | None = None
    #: Reports on what a successful call changed, when its end is recorded. It cannot fail the call.
    diagnose: Diagnose | None = None
    pre_hooks: tuple[PreHook, ...] = ()
    middleware: tuple[Middleware, ...] = ()
    post_hooks: tuple[PostHook, ...] = ()
    input_guardrails: tuple[Guardrail, ...] = ()
    output_guardrails: tuple[Guardrail, ...] = ()

    raise_on_error: bool = False
    #: Raise what the handler raised, and nothing else.
    propagate_errors: bool = False
    failure_error_function: ErrorFormatter | None = None
    timeout_behavior: TimeoutBehavior = "error_as_result"
    timeout_error_function: ErrorFormatter | None = None

    @property
    def name(self) -> str:
        """Name of the tool."""
        return self.spec.name


class ToolCatalog(msgspec.Struct, frozen=True, kw_only=True):
    """The tools offered to a model: names, versions and schemas, under one digest."""

    digest: str
    tools: tuple[ToolSpec, ...]
    versions: Mapping[str, str]


Access: TypeAlias = Literal["read", "write"]


class Mask(msgspec.Struct, frozen=True):
    """A path that a sandbox must hide or keep read-only, because a rule denies it for every tool."""

    rule_id: str
    pattern: str
    access: Access | None = None


def values_at(value: Any, names: list[str]) -> Iterator[Any]:
    """Yield all values under a dotted name. Lists on the way contribute their elements."""
    if not names:
        yield value
    elif isinstance(value, list):
        for item in cast(list[Any], value):
            yield from values_at(item, names)
    elif isinstance(value, dict) and names[0] in value:
        yield from values_at(value[names[0]], names[1:])


def flatten(value: Any) -> Iterator[Any]:
    """Yield a value, or the values in nested lists."""
    if isinstance(value, list):
        for item in cast(list[Any], value):
            yield from flatten(item)
    else:
        yield value


def relative_to_any(absolute: str, roots: Iterable[str]) -> str | None:
    """Return a normalized absolute path relative to one of these folders, "." for the folder itself; None when it is in
    none.
    """
    for root in roots:
        if absolute == root:
            return "."
        if absolute.startswith(root.rstrip("/") + "/"):
            return absolute[len(root.rstrip("/")) + 1 :]
    return None


def declared_paths(
    tool: ToolDefinition, arguments: JsonObject, kinds: tuple[ResourceKind, ...] = ("path",)
) -> list[str]:
    """List the paths in the arguments that the tool declared as resources."""
    return [
        path
        for name, kind in tool.resources.items()
        if kind in kinds
        for value in values_at(arguments, name.split("."))
        for path in flatten(value)
        if isinstance(path, str)
    ]
