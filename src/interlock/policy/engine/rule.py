"""One rule, as declared in code or read from a policy file. `rule_policy.py` applies them.

A rule matches a call when everything that it names fits. Rules that deny or ask match widely, rules that allow match
narrowly: a deny of `.env` also means `.ENV` and a link to it, an allow of `npm test` means exactly that.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from ...domain.decision import ApprovalScope, Approver
from ...domain.tool import Access, PermissionMode, Repeat, ResourceKind, ToolOrigin
from ...domain.trial import AskTime
from ..interface import PolicyEvent

DefaultVerdict: TypeAlias = Literal["risk", "allow", "ask", "deny"]
RuleCondition: TypeAlias = Callable[[PolicyEvent], bool]


class CommandPattern(msgspec.Struct, frozen=True):
    """The first words of a command, or with `exact` all of them. A word `*` is any one word."""

    words: tuple[str, ...]
    exact: bool = False


class ArgumentIs(msgspec.Struct, frozen=True, tag="is"):
    """The exact value of an argument."""

    value: Any


class ArgumentGlob(msgspec.Struct, frozen=True, tag="glob"):
    """The whole text, with `*`, `?` and `[abc]`."""

    pattern: str


class ArgumentRegex(msgspec.Struct, frozen=True, tag="regex"):
    """RE2, found anywhere in the text unless it is anchored."""

    pattern: str


ArgumentTest: TypeAlias = ArgumentIs | ArgumentGlob | ArgumentRegex


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Allow, ask about or deny calls that match every condition given.

    Rule(id="no-secrets", verdict="deny", path=".env")
    """

    id: str
    #: A `Verdict`; also `defer` and `request_approval` for ask, `request_user_input` for request_input.
    verdict: str
    #: Names of tools, with `*`, `?` and `[abc]`.
    tools: str | Collection[str] = "*"
    #: Tools that have any of these risks. `allow` is narrower: tools that have risks, and none but these.
    risk: str | Collection[str] | None = None
    origin: ToolOrigin | None = None
    #: Where a tool comes from: the MCP server, skill folder or extension. Globs. With it, `tools` may also be the names
    #: that the server itself gives to its tools.
    server: str | Collection[str] | None = None

    #: By dotted name of the argument.
    arguments: Mapping[str, ArgumentTest] = {}
    #: Globs of paths that the call names, from the workspace on, as in a `.gitignore`.
    path: str | Collection[str] | None = None
    #: With `path`: only what reads there, or only what may write there.
    access: Access | None = None
    #: Words that a command of the call begins with: `git push`. Patterns where a string does not say it.
    command: str | Collection[str | CommandPattern] | None = None
    #: Hosts that the call names: `example.com`, or `*.example.com` for it and everything under it.
    host: str | Collection[str] | None = None

    agent: str | Collection[str] | None = None
    #: Only in these workspaces: absolute folders, as they are written.
    workspace: str | Collection[str] | None = None
    mode: PermissionMode | str | Collection[PermissionMode | str] | None = None
    interactive: bool | None = None
    when: RuleCondition | None = None
    #: `when` as it was written, where it was written as text.
    when_source: str = ""

    #: For the person who is asked or refused.
    reason: str = ""
    layer: str = "project rule"
    prompt: str = ""
    #: With ask and request_input: the title of the question, a template over the arguments.
    title: str = ""
    suggested_rule: str = ""
    #: For the model: what to do instead.
    advice: str = ""
    #: With request_input: the argument that the person's value becomes.
    target_arg: str = ""
    #: With ask: the widest scope that an approval may have.
    scope: ApprovalScope = "run"
    #: With ask: whether a person sees the call before it runs, or its effect after a trial, where that is possible.
    ask: AskTime = "before"
    #: With ask and request_input: how long the question stays open.
    answer_within_seconds: float | None = None
    #: With ask and request_input: `client` also accepts what a client claims its user answered.
    approver: Approver = "person"
    #: When the rule ends, in nanoseconds since 1970; 0 is never.
    expires_at: int = 0


#: The fields that narrow a rule, beside `tools`. Each is empty or None where the rule says nothing about it.
CONDITION_FIELDS = (
    *("risk", "origin", "server", "path", "access", "command", "host"),
    *("arguments", "agent", "workspace", "mode", "interactive", "when_source"),
)


class EffectDeclaration(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of third-party tools, and what happens when it would happen again.

    EffectDeclaration(tools="stripe__refund", key="refund:{charge}", repeat="deny")
    """

    #: A glob of tool names.
    tools: str
    #: A template over the arguments. Empty: the tools' own keys.
    key: str = ""
    #: What happens to a call whose effect happened before. The stricter of this and the tool's counts.
    repeat: Repeat = "ask"
    #: After this time the effect may happen again. None: it never counts as new.
    repeat_after_seconds: float | None = None


class ResourceDeclaration(msgspec.Struct, frozen=True):
    """What the arguments of third-party tools name, where the tools do not declare it."""

    tools: str
    arguments: Mapping[str, ResourceKind]
