"""Stage 5: whose turn is it? What a call needs to itself, and the invocation it becomes when it has its turn."""

from ..domain.call import Invocation, PermittedCall, ValidCall
from ..domain.event import InvocationStarted
from ..domain.redaction import redact_json, redact_line
from ..domain.tool import ResourceKeys, ToolContext
from ..scheduler import LockRequest
from .parts import Parts

SAFE = LockRequest("safe")
_CHILD_RUN = LockRequest("safe", takes_slot=False)
_EXCLUSIVE = LockRequest("exclusive")


def resource_claim(valid: ValidCall) -> LockRequest:
    """Return the locks of this call: what must not run beside it. Keys that cannot be computed claim everything."""
    tool = valid.tool
    match tool.concurrency:
        case "safe":
            return _CHILD_RUN if tool.resumes else SAFE
        case "exclusive":
            return _EXCLUSIVE
        case "keyed":
            try:
                reads = _keys(tool.read_keys, valid)
                writes = _keys(tool.write_keys, valid)
            except Exception:
                return _EXCLUSIVE
            return LockRequest("keyed", reads, writes)


def schedule(
    permitted: PermittedCall, context: ToolContext, parts: Parts, invocation_id: str
) -> tuple[Invocation, InvocationStarted]:
    """Return the invocation of a call that has its turn, and the event that it starts."""
    valid, sandbox, effect = permitted.valid, parts.sandbox, permitted.decision.effect
    tool, reach, arguments = valid.tool, sandbox.unconfined_scope, None
    if tool.reach is not None:
        context.reach = reach = sandbox.describe_scope(tool, valid.arguments, context.situation)
    if valid.arguments != valid.known.accepted.arguments:
        arguments = redact_json(valid.arguments, parts.redactor.redact) or valid.arguments
    executor, profile = sandbox.executor_name(tool), reach.profile
    fact = InvocationStarted(
        invocation_id=invocation_id,
        call_id=valid.call_id,
        tool=tool.spec.name,
        executor=executor,
        tool_version=tool.version,
        origin=tool.origin,
        source=tool.source,
        timeout_seconds=reach.timeout_seconds or tool.timeout_seconds,
        sandbox=reach.sandbox,
        profile=profile if reach.sandbox != "unknown" else redact_line(profile, parts.redactor.redact),
        capabilities=reach.capabilities,
        cwd=reach.cwd,
        action_id=permitted.action_id,
        waited_for=permitted.waited_for,
        payload_hash=permitted.payload_hash,
        arguments=arguments,
        effect=effect.key if effect is not None else "",
        trial=context.trial,
    )
    return Invocation(invocation_id, permitted, valid, tool, context, executor, tool.timeout_seconds, reach), fact


def _keys(keys: ResourceKeys | None, valid: ValidCall) -> frozenset[str]:
    return keys(valid.copy_arguments()) if keys is not None else frozenset()
