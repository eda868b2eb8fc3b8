"""One call, climbing the stages. Each type can only be made from the one before it."""

from typing import Any, Literal, Required, TypeAlias, TypedDict

import msgspec
from pydantic import BaseModel

from .decision import ApprovalScope, Decision
from .json import validate_fields
from .payload import ApprovalBinding, BindingChange
from .tool import JsonObject, SandboxScope, ToolContext, ToolDefinition


class ToolIntent(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What the model asked for. Untrusted: `arguments` is JSON text as the model wrote it, or what a client parsed."""

    call_id: str
    tool_name: str
    arguments: Any
    #: Why the model wants it. Recorded, never used to decide.
    reason: str = ""


class AcceptedCall(msgspec.Struct, frozen=True, gc=False):
    """An intent seen for the first time, with sane JSON arguments."""

    intent: ToolIntent
    arguments: JsonObject
    arguments_json: bytes


class KnownCall(msgspec.Struct, frozen=True, gc=False):
    """The tool exists and is visible in this run."""

    accepted: AcceptedCall
    tool: ToolDefinition


class ValidCall(msgspec.Struct, frozen=True, gc=False):
    """The input is well formed and doable now. `arguments` is what was checked, with defaults, as plain JSON."""

    known: KnownCall
    call_id: str
    tool: ToolDefinition
    checked: BaseModel
    arguments: JsonObject

    def copy_arguments(self) -> JsonObject:
        """The arguments for a developer's code, which may do with them what it likes."""
        return type(self.checked).__pydantic_serializer__.to_python(self.checked, mode="json", by_alias=True)


class PermittedCall(msgspec.Struct, frozen=True, gc=False):
    """Allowed by policy, or by a person: then `action_id` names the approval that its start consumes."""

    valid: ValidCall
    decision: Decision
    #: The `seq` of the event that permitted it.
    cause: int | None = None
    action_id: str = ""
    #: The calls in line that it had to wait for.
    waited_for: tuple[str, ...] = ()
    #: With an approval: the hash of what runs, what that is bound to, who edited it, and the rule to keep.
    payload_hash: str = ""
    bound: ApprovalBinding = ApprovalBinding()
    edited_by: str = ""
    keep: str = ""

    @property
    def evaluated_paths(self) -> frozenset[str]:
        """Where its path arguments led when it was judged, or when a person was asked."""
        if not self.action_id:
            return frozenset(self.decision.paths)
        return frozenset(file.path for file in self.bound.surroundings.files)


QuestionKind: TypeAlias = Literal["approval", "input", "consent"]


class Question(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """What a person is asked before a call may start."""

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
    #: The widest scope that a yes may have.
    scope: ApprovalScope = "once"
    #: The rule that would let this very call through next time, as a line of a policy file; empty when none could.
    suggested_rule: str = ""
    #: With `consent`: where the user that the run acts for has to give it, and to what.
    provider: str = ""
    scopes: tuple[str, ...] = ()
    #: When it was asked before: what changed since, and the question that this one replaces.
    changes: tuple[BindingChange, ...] = ()
    replaces: str = ""
    #: Who wrote the arguments, where a person edited them and a second one has to approve the result.
    edited_by: str = ""


class Answer(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """What a person said. With `kind="input"`, `value` becomes the argument that was asked for."""

    approved: bool
    reason: str = ""
    value: Any = None
    by: str = ""
    #: True when nobody answered in time and the fallback speaks.
    expired: bool = False
    scope: ApprovalScope = "once"
    #: With the scope `window`: until when, in nanoseconds since 1970.
    until: int = 0
    #: With the scope `rule`: the rule to keep, as it was shown to the person or edited by them.
    rule: str = ""
    #: What to run instead: arguments that the person edited.
    arguments: JsonObject | None = None

    def __post_init__(self) -> None:
        validate_fields(self)


class AnswerFields(TypedDict, total=False):
    """An answer to a question, as `Answer` has it."""

    approved: Required[bool]
    reason: str
    by: str
    #: What was asked for, with a question for a value.
    value: Any
    #: How far a yes reaches: `once`, `run`, `window` with `until`, or `rule` with the `rule` to keep.
    scope: ApprovalScope
    until: int
    rule: str
    #: What to run instead: validated, judged and hashed again, and the model is told.
    arguments: JsonObject | None
    payload_hash: str


class WaitingCall(msgspec.Struct, frozen=True, gc=False):
    """Paused until a person answers, or until the waiting call in front of it is done."""

    valid: ValidCall
    decision: Decision
    question: Question | None
    behind: str = ""


class SuspendedCall(msgspec.Struct, frozen=True, gc=False):
    """The call started and goes on later: the run inside it waits for a person."""

    child_run_id: str


class Invocation(msgspec.Struct, frozen=True, gc=False):
    """A permitted call holding its turn, its limits and its executor."""

    invocation_id: str
    permitted: PermittedCall
    valid: ValidCall
    tool: ToolDefinition
    context: ToolContext
    executor: str
    timeout_seconds: float
    reach: SandboxScope
