"""Stage 5: whose turn is it? What a call needs to itself, and the invocation it becomes when it has its turn."""

from ..domain.call import Invocation, PermittedCall, ValidCall
from ..domain.tool import ResourceKeys, ToolContext
from ..sandbox.interface import Sandbox
from ..scheduler import LockRequest

_SAFE = LockRequest("safe")
_CHILD_RUN = LockRequest("safe", takes_slot=False)
_EXCLUSIVE = LockRequest("exclusive")


def resource_claim(valid: ValidCall) -> LockRequest:
    """Return the locks of this call: what must not run beside it. Keys that cannot be computed claim everything."""
    tool = valid.tool
    match tool.concurrency:
        case "safe":
            return _CHILD_RUN if tool.resumes else _SAFE
        case "exclusive":
            return _EXCLUSIVE
        case "keyed":
            try:
                reads = _keys(tool.read_keys, valid)
                writes = _keys(tool.write_keys, valid)
            except Exception:
                return _EXCLUSIVE
            return LockRequest("keyed", reads, writes)


def schedule(permitted: PermittedCall, context: ToolContext, sandbox: Sandbox, invocation_id: str) -> Invocation:
    """Return the invocation of a call that has its turn."""
    valid, tool = permitted.valid, permitted.valid.tool
    reach = sandbox.unconfined_scope
    if tool.reach is not None:
        context.reach = reach = sandbox.describe_scope(tool, valid.arguments, context.situation)
    return Invocation(
        invocation_id,
        permitted,
        valid,
        tool,
        context,
        sandbox.executor_name(tool),
        tool.timeout_seconds,
        reach,
    )


def _keys(keys: ResourceKeys | None, valid: ValidCall) -> frozenset[str]:
    return keys(valid.copy_arguments()) if keys is not None else frozenset()
