"""What the tools for files can reach, for the record and for questions: the workspace, and nothing beside it."""

from ..domain.tool import JsonObject, Reach, Situation

_READS = Reach(sandbox="workspace", profile="read-only")
_WRITES = Reach(sandbox="workspace", profile="workspace-write")


def reads_files(arguments: JsonObject, situation: Situation) -> Reach:
    """For `reach` of a tool that goes to files through a `Workspace` and changes none."""
    return _READS


def writes_files(arguments: JsonObject, situation: Situation) -> Reach:
    """The same for one that changes them."""
    return _WRITES
