"""Stage 2: does the tool exist, at which version, and is it visible now?

Asked for every intent: the model may have been shown an older catalog, or made the name up.
"""

from ..domain.call import AcceptedCall, KnownCall
from ..domain.outcome import Failure
from ..domain.tool import CallContext
from ..registry.interface import Registry, find_hidden_reason

_MAX_NAMES = 50


def lookup(accepted: AcceptedCall, registry: Registry, situation: CallContext) -> KnownCall | Failure:
    """Find the tool of a call. Fail if it is unknown or not visible here."""
    name = accepted.intent.tool_name
    tool = registry.find(name)
    if tool is None:
        return _refused("unknown_tool", f"There is no tool {name!r}.", registry, situation)
    if tool.quarantine:
        return _refused("tool_quarantined", tool.quarantine, registry, situation)
    if tool.visible is not None or situation.mode == "read_only":
        hidden = find_hidden_reason(tool, situation)
        if hidden:
            return _refused("tool_not_visible", hidden, registry, situation)
    return KnownCall(accepted, tool)


def _refused(code: str, message: str, registry: Registry, situation: CallContext) -> Failure:
    names = [tool.name for tool in registry.list_visible(situation)]
    shown = ", ".join(names[:_MAX_NAMES]) or "none"
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return Failure.from_code(
        code,
        f"{message} Nothing was executed. Available tools: {shown}{more}.",
        details={"available_tools": names[:_MAX_NAMES]},
    )
