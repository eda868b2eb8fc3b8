"""The decision of a file tool about a path before it starts: outside, secret and guarded paths are denied.

The policy stage uses this decision beside the rules, so a refusal has a layer and is in the log. It does not enforce
anything: files may move after it, and `sandbox/workspace/workspace.py` refuses again when the file is opened.
"""

from collections.abc import Callable
from typing import TypeAlias

from ...domain.decision import Decision, Verdict
from ...domain.tool import CallContext, JsonObject, SandboxScope
from ...sandbox.workspace.refusals import PathRefusedError
from ...sandbox.workspace.workspace import Workspace

PATH_BOUNDARY_LAYER = "path boundary"
#: Refusals that are policy decisions. The others (no such file, not a file) are for the check of the tool.
_DENIED_KINDS = frozenset({"outside", "secret", "guarded", "hidden", "link", "malformed"})

Authorizer: TypeAlias = Callable[[JsonObject, CallContext], Decision | None]


def make_path_authorizer(workspace: Workspace, *, writing: bool, argument: str = "path") -> Authorizer:
    """Return the function for `authorize`: None where the path is inside the boundary."""

    def opinion(arguments: JsonObject, situation: CallContext) -> Decision | None:
        try:
            workspace.locate(arguments[argument], writing=writing)
        except PathRefusedError as refused:
            return deny_path(refused) if refused.kind in _DENIED_KINDS else None
        return None

    return opinion


def deny_path(refused: PathRefusedError) -> Decision:
    """Return the decision that a path is refused."""
    return Decision(
        verdict=Verdict.DENY, reason=str(refused), rule_ids=(f"workspace:{refused.kind}",), layer=PATH_BOUNDARY_LAYER
    )


_READ_SCOPE = SandboxScope(sandbox="workspace", profile="read-only")
_WRITE_SCOPE = SandboxScope(sandbox="workspace", profile="workspace-write")


def describe_read_scope(arguments: JsonObject, situation: CallContext) -> SandboxScope:
    """Return the scope of a tool that reads files through a `Workspace` and changes none."""
    return _READ_SCOPE


def describe_write_scope(arguments: JsonObject, situation: CallContext) -> SandboxScope:
    """Return the scope of a tool that changes files through a `Workspace`."""
    return _WRITE_SCOPE
