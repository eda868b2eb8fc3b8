"""The policy interface: decides whether a call may start."""

from collections.abc import Awaitable
from os import getcwd
from os.path import isabs, join, normpath, realpath
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from .. import lazy_module
from ..domain.budget import BudgetRule
from ..domain.decision import Decision
from ..domain.tool import CallContext, JsonObject, ToolDefinition

if TYPE_CHECKING:
    import pydantic
else:
    pydantic = lazy_module("pydantic")


class PolicyEvent(msgspec.Struct, frozen=True, gc=False):
    """The event that a policy evaluates: a valid call that would run next."""

    call_id: str
    tool: ToolDefinition
    checked: "pydantic.BaseModel"
    situation: CallContext
    event_type: Literal["tool_before_execute"] = "tool_before_execute"
    #: Absolute paths that were resolved for this decision, with their real paths.
    real_paths: dict[str, str] = {}

    @property
    def arguments(self) -> JsonObject:
        """The arguments as plain JSON: a copy, made on demand."""
        return self.tool.args_model.__pydantic_serializer__.to_python(self.checked, mode="json", by_alias=True)

    def real_path(self, path: str) -> str:
        """Resolve a path, relative to the workspace, once for this decision.

        File tools open only what it resolved to here: a policy that resolves paths on its own may evaluate another
        file.
        """
        absolute = path if isabs(path) else join(self.folder, path)
        if absolute not in self.real_paths:
            self.real_paths[absolute] = realpath(absolute)
        return self.real_paths[absolute]

    @property
    def folder(self) -> str:
        """The folder that relative paths of the call start in."""
        return normpath(self.situation.workspace or getcwd())

    @property
    def tool_name(self) -> str:
        """Name of the called tool."""
        return self.tool.name


class PolicyEngine(Protocol):
    """Decide whether a call may run. Implement `evaluate` for a policy of your own, or use `RulePolicy`."""

    def evaluate(self, event: PolicyEvent) -> Decision | Awaitable[Decision]:
        """Decide. An exception, or anything that is not a `Decision`, counts as deny.

        A synchronous function is called in a thread, also in several at once, and has `Limits.check_seconds`.
        """
        ...


class BudgetSource(Protocol):
    """A policy with budgets: an engine that has this attribute. It may change when the policy is loaded again."""

    @property
    def budgets(self) -> tuple[BudgetRule, ...]: ...
