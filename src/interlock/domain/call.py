"""The stages of one call. Each type can only be built from the one before it."""

from typing import TYPE_CHECKING, Any, Literal, Required, TypeAlias, TypedDict

import msgspec

from .. import lazy_module
from .decision import RECOVERY_LAYER, ApprovalScope, Approver, Decision
from .effect import Effect
from .json import validate_fields
from .payload import ApprovalBinding, BindingChange
from .tool import JsonObject, SandboxScope, ToolContext, ToolDefinition
from .trial import Trial

if TYPE_CHECKING:
    import pydantic
else:
    pydantic = lazy_module("pydantic")


class ToolIntent(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A tool call as proposed by the model. Untrusted: `arguments` is JSON text as the model wrote it, or an object
    parsed by a client.
    """

    call_id: str
    tool_name: str
    arguments: Any
    #: The model's stated reason. Recorded, never used to decide.
    reason: str = ""


class AcceptedCall(msgspec.Struct, frozen=True, gc=False):
    """An intent that was received for the first time and has well-formed JSON arguments."""

    intent: ToolIntent
    arguments: JsonObject
    arguments_json: bytes


class KnownCall(msgspec.Struct, frozen=True, gc=False):
    """An accepted call whose tool exists and is visible in this run."""

    accepted: AcceptedCall
    tool: ToolDefinition


class ValidCall(msgspec.Struct, frozen=True, gc=False):
    """A call whose arguments fit the schema and whose checks passed. `arguments` is plain JSON, with defaults."""

    known: KnownCall
    call_id: str
    tool: ToolDefinition
    checked: "pydantic.BaseModel"
    arguments: JsonObject

    def copy_arguments(self) -> JsonObject:
        """Return a copy of the arguments that handlers and hooks may modify."""
        return type(self.checked).__pydantic_serializer__.to_python(self.checked, mode="json", by_alias=True)


class PermittedCall(msgspec.Struct, frozen=True, gc=False):
    """A call allowed by policy, or by a person: then `action_id` names the approval that its start consumes."""

    valid: ValidCall
    decision: Decision
    #: The `seq` of the event that permitted it.
    cause: int | None = None
    action_id: str = ""
    #: The queued calls that it had to wait for.
    waited_for: tuple[str, ...] = ()
    #: With an approval: the hash of what runs, what that is bound to, who edited it, and the rule to save. A call that
    #: had no effect in its trial is bound to that alone.
    payload_hash: str = ""
    bound: ApprovalBinding = ApprovalBinding()
    edited_by: str = ""
    keep: str = ""

    @property
    def evaluated_paths(self) -> frozenset[str]:
        """The resolved path arguments at the time of the policy evaluation or the question."""
        if not self.action_id:
            return frozenset(self.decision.paths)
        return frozenset(file.path for file in self.bound.surroundings.files)


class KeyFact(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A value of a call that people look at first, as text that can be shown."""

    name: str
    value: str


QuestionKind: TypeAlias = Literal["approval", "input", "consent"]


class Question(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A question to a person that must be answered before a call may start."""

    action_id: str
    run_id: str
    call_id: str
    tool_name: str
    kind: QuestionKind
    prompt: str
    arguments: JsonObject
    payload_hash: str
    risk: tuple[str, ...] = ()
    rule_ids: tuple[str, ...] = ()
    #: Who asks, and why: `user rule`, `permission mode`, `default`, ...
    layer: str = ""
    reason: str = ""
    target_arg: str = ""
    asked_at: int = 0
    #: When the question is no longer open; 0 is never.
    expires_at: int = 0
    #: What the approval is bound to beside the arguments; the payload hash is over both.
    bound: ApprovalBinding = ApprovalBinding()
    agent: str = ""
    #: The operation, as operators know it: the tool and the main thing that it acts on.
    capability: str = ""
    #: What it is about, in one line, and the values to look at first. Both are made from the arguments, which the
    #: approval is bound to, by the policy or the definition that it is bound to; secrets and anything invisible are
    #: left out. Empty in older logs.
    title: str = ""
    key_facts: tuple[KeyFact, ...] = ()
    #: The widest scope that an approval may have.
    scope: ApprovalScope = "once"
    #: Whether the claim of a client counts as an answer.
    approver: Approver = "person"
    #: The rule that would allow calls of this kind next time, as a line of a policy file; empty when none could.
    suggested_rule: str = ""
    #: With `consent`: where the user that the run acts for has to give it, and to what.
    provider: str = ""
    scopes: tuple[str, ...] = ()
    #: When it was asked before: what changed since, and the question that this one replaces.
    changes: tuple[BindingChange, ...] = ()
    replaces: str = ""
    #: Who wrote the arguments, where a person edited them and a second one has to approve the result.
    edited_by: str = ""
    #: The effect of the call, and the earlier call that may have had it.
    effect: Effect | None = None
    #: What the call did in its trial. An approval applies exactly that.
    trial: Trial | None = None

    @property
    def headline(self) -> str:
        """The title; in older logs the operation, or the tool."""
        return self.title or self.capability or self.tool_name

    @property
    def needs_person(self) -> bool:
        """True when only a person can approve it: something may happen twice."""
        return self.layer == RECOVERY_LAYER or (self.effect is not None and bool(self.effect.earlier_call_id))


#: Where an answer was given. Empty: no person answered, or it is not known.
Channel: TypeAlias = Literal[
    "", "terminal", "cli", "console", "rest", "slack", "callback", "elicitation", "hook", "framework"
]
#: `claimed`: the client that requested the call says that its user answered. `proved`: it came another way, which that
#: client does not control.
Assurance: TypeAlias = Literal["proved", "claimed"]
#: Channels in the hands of the client that requested the call.
CLIENT_CHANNELS: frozenset[Channel] = frozenset({"elicitation", "hook", "framework"})


class Answer(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The answer of a person. To a question of the kind `input`, `value` is the argument that was asked for."""

    approved: bool
    reason: str = ""
    value: Any = None
    by: str = ""
    #: True when the question timed out and the fallback applies.
    expired: bool = False
    scope: ApprovalScope = "once"
    #: With the scope `window`: until when, in nanoseconds since 1970.
    until: int = 0
    #: With the scope `rule`: the rule to save, as it was shown to the person or edited by them.
    rule: str = ""
    #: What to run instead: arguments that the person edited.
    arguments: JsonObject | None = None
    channel: Channel = ""
    assurance: Assurance = "proved"

    @property
    def is_qualified(self) -> bool:
        """True when it is known where it was given. Older logs do not say so."""
        return bool(self.channel) or self.assurance == "claimed"

    @property
    def is_from_client(self) -> bool:
        """True when it came through the client that requested the call: no person is known to have seen it."""
        return self.assurance == "claimed" or self.channel in CLIENT_CHANNELS

    def __post_init__(self) -> None:
        validate_fields(self)


class AnswerFields(TypedDict, total=False):
    """The fields of `Answer`, as a typed dictionary."""

    approved: Required[bool]
    reason: str
    by: str
    #: What was asked for, with a question for a value.
    value: Any
    #: Scope of an approval: `once`, `run`, `window` with `until`, or `rule` with the `rule` to save.
    scope: ApprovalScope
    until: int
    rule: str
    #: What to run instead: validated, evaluated and hashed again; the model is informed.
    arguments: JsonObject | None
    payload_hash: str
    #: Where it was given, and whether a person proved it or a client claims it.
    channel: Channel
    assurance: Assurance


class WaitingCall(msgspec.Struct, frozen=True, gc=False):
    """A call paused until a person answers, or until the waiting call in front of it is done."""

    valid: ValidCall
    decision: Decision
    question: Question | None
    behind: str = ""
    #: It is tried before the question is asked.
    is_to_try: bool = False


class SuspendedCall(msgspec.Struct, frozen=True, gc=False):
    """A started call whose child run waits for a person. It is resumed later."""

    child_run_id: str


class Invocation(msgspec.Struct, frozen=True, gc=False):
    """A permitted call with its turn, its limits and its executor."""

    invocation_id: str
    permitted: PermittedCall
    valid: ValidCall
    tool: ToolDefinition
    context: ToolContext
    executor: str
    timeout_seconds: float
    reach: SandboxScope
