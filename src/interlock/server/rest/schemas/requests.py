"""REST schemas of request bodies: exactly these fields, each with its bounds."""

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from ..body import RequestModel

_Name = Annotated[str, Meta(min_length=1, max_length=256)]
_Reason = Annotated[str, Meta(max_length=2_000)]
_Hash = Annotated[str, Meta(max_length=200, examples=["sha256:9f86d081884c7d65..."])]
_Password = Annotated[str, Meta(min_length=1, max_length=1_024)]
_Roles = Annotated[list[Literal["operator", "auditor", "admin"]], Meta(max_length=4)]
_KeyRoles = Annotated[list[Literal["agent", "operator", "auditor", "admin"]], Meta(min_length=1, max_length=4)]
_Agents = Annotated[list[_Name], Meta(max_length=1_000)]
_Time = Annotated[str, Meta(max_length=40, examples=["2030-01-31T12:00:00Z"])]


class InvokeAgentRequest(RequestModel, frozen=True, kw_only=True):
    """The task of a new run."""

    task: Annotated[str, Meta(min_length=1, max_length=100_000, examples=["Refund order 1234."])]
    #: The person it acts for, where a program creates it.
    on_behalf_of: Annotated[str, Meta(max_length=80, examples=["ada"])] = ""
    #: Whether it is a conversation: an answer does not end it, and messages continue it until it is cancelled.
    chat: bool = False


class CreateRunRequest(InvokeAgentRequest, frozen=True, kw_only=True):
    """The agent and task of a new run."""

    agent: _Name


class SendMessageRequest(RequestModel, frozen=True, kw_only=True):
    """The next message of a conversation."""

    text: Annotated[str, Meta(min_length=1, max_length=100_000, examples=["And order 1235?"])]


class CancelRunRequest(RequestModel, frozen=True, kw_only=True):
    """Why a run is cancelled."""

    reason: _Reason = ""


class UndoRunRequest(RequestModel, frozen=True, kw_only=True):
    """An undo of exactly what the preview with this digest showed."""

    digest: Annotated[str, Meta(min_length=1, max_length=200)]
    #: As in the preview: only this call, or only what happened after this event.
    call: Annotated[str, Meta(max_length=1_000)] = ""
    after: Annotated[int, Meta(ge=-1, le=2**53 - 1)] | None = None


class AcceptToolsRequest(RequestModel, frozen=True, kw_only=True):
    """Definitions of MCP tools to accept, exactly as they were shown with this digest."""

    digest: Annotated[str, Meta(min_length=1, max_length=200)]
    #: Names of tools in quarantine. Null: all of them.
    tools: Annotated[list[Annotated[str, Meta(max_length=200)]], Meta(min_length=1, max_length=1_000)] | None = None


class StopAgentRequest(RequestModel, frozen=True, kw_only=True):
    """Why an agent is stopped."""

    reason: Annotated[str, Meta(min_length=1, max_length=2_000)]


class SwitchOffRequest(StopAgentRequest, frozen=True, kw_only=True):
    """Why an agent is switched off, and whether its runs are cancelled."""

    #: False: its runs are held where they are, until it is switched on.
    cancel_runs: bool = True


class SwitchRequest(RequestModel, frozen=True, kw_only=True):
    """Why something is switched on, paused or resumed."""

    reason: Annotated[str, Meta(min_length=1, max_length=2_000)]


class ApproveRequest(RequestModel, frozen=True, kw_only=True):
    """An approval of exactly the payload with this hash."""

    payload_hash: _Hash
    reason: _Reason = ""
    #: Scope: this call; the same again in this run; the same until a time; a saved rule.
    scope: Literal["once", "run", "window", "rule"] = "once"
    #: With `window`.
    until: _Time | None = None
    #: With `rule`: empty is the suggested one; another one has to be provably narrower.
    rule: Annotated[str, Meta(max_length=10_000)] = ""
    #: What to run instead: validated, evaluated and hashed again.
    arguments: dict[str, Any] | None = None


class RejectRequest(RequestModel, frozen=True, kw_only=True):
    """A rejection."""

    reason: Annotated[str, Meta(min_length=1, max_length=2_000)]
    payload_hash: _Hash = ""


class AnswerRequest(RequestModel, frozen=True, kw_only=True):
    """The requested value."""

    value: Any
    payload_hash: _Hash = ""


class RejectConsentRequest(RequestModel, frozen=True, kw_only=True):
    """Why the consent is rejected."""

    reason: _Reason = ""


class ForwardRunRequest(RequestModel, frozen=True, kw_only=True):
    """The destination of a run's events."""

    destination: _Name


class ExplainPolicyRequest(RequestModel, frozen=True, kw_only=True):
    """A hypothetical call to explain."""

    tool: _Name
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    mode: Literal["read_only", "default", "accept_edits", "contained", "trusted"] | None = None
    requester: Annotated[str, Meta(max_length=80)] = ""


class BacktestPolicyRequest(RequestModel, frozen=True, kw_only=True):
    """The policy of a backtest, and the number of runs."""

    #: YAML; empty: the policy that is in force.
    policy: Annotated[str, Meta(max_length=128 << 10)] = ""
    runs: Annotated[int, Meta(ge=1, le=500)] = 500


class CreateKeyRequest(RequestModel, frozen=True, kw_only=True):
    """A new API key."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    roles: _KeyRoles
    #: Null: all of them. A key of an agent names its own.
    agents: _Agents | None = None
    expires_at: _Time | None = None


class CreateAccountRequest(RequestModel, frozen=True, kw_only=True):
    """A new account."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    password: _Password
    roles: _Roles | None = None
    agents: _Agents | None = None


class UpdateAccountRequest(RequestModel, frozen=True, kw_only=True):
    """Changes of an account. Missing fields are unchanged."""

    roles: _Roles | None = None
    #: With `roles`: null is all of them.
    agents: _Agents | None = None
    password: _Password | None = None
    disabled: bool | None = None


class SignInRequest(RequestModel, frozen=True, kw_only=True):
    """Name and password."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    password: _Password


class ChangePasswordRequest(RequestModel, frozen=True, kw_only=True):
    """The current and the new password."""

    current: _Password
    new: _Password


class BeginPasskeyRequest(RequestModel, frozen=True, kw_only=True):
    """The password, before a passkey is added."""

    password: _Password


class CreatePasskeyRequest(RequestModel, frozen=True, kw_only=True):
    """A new passkey, and what its owner calls it."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    #: `PublicKeyCredential` as JSON.
    credential: dict[str, Any]


class PasskeySignInRequest(RequestModel, frozen=True, kw_only=True):
    """The answer of a passkey."""

    #: `PublicKeyCredential` as JSON.
    credential: dict[str, Any]
