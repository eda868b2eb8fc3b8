"""What a file tool itself says about a path before it may start: outside, secret and guarded paths are refused.

The gate takes this opinion beside the rules, so a refusal is a decision with a layer and is in the log. It is not what
holds a path: files may move after it, and `sandbox/workspace/workspace.py` refuses again when the file is opened.
"""

from collections.abc import Callable
from typing import TypeAlias

from ...domain.decision import Decision, Verdict
from ...domain.tool import JsonObject, Reach, Situation
from ...sandbox.workspace.workspace import PathRefused, Workspace

LAYER = "path boundary"
#: Refusals that are for the gate. The others (no such file, not a file) are for the check of the tool.
_FORBIDDEN = frozenset({"outside", "secret", "guarded", "hidden", "link", "malformed"})

Opinion: TypeAlias = Callable[[JsonObject, Situation], Decision | None]


def path_opinion(workspace: Workspace, *, writing: bool, argument: str = "path") -> Opinion:
    """For `authorize`: None where the boundary has nothing to say."""

    def opinion(arguments: JsonObject, situation: Situation) -> Decision | None:
        try:
            workspace.locate(arguments[argument], writing=writing)
        except PathRefused as refused:
            return _deny(refused) if refused.kind in _FORBIDDEN else None
        return None

    return opinion


def _deny(refused: PathRefused) -> Decision:
    return Decision(verdict=Verdict.DENY, reason=str(refused), rule_ids=(f"workspace:{refused.kind}",), layer=LAYER)


_READS = Reach(sandbox="workspace", profile="read-only")
_WRITES = Reach(sandbox="workspace", profile="workspace-write")


def reads_files(arguments: JsonObject, situation: Situation) -> Reach:
    """For `reach` of a tool that goes to files through a `Workspace` and changes none."""
    return _READS


def writes_files(arguments: JsonObject, situation: Situation) -> Reach:
    """The same for one that changes them."""
    return _WRITES
