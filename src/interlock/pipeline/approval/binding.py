"""What an approval is bound to, as it is now: the payload, its one canonical form, and its hash."""

from collections.abc import Iterable
from os.path import expanduser, join

import msgspec

from ...domain.call import Question, ValidCall
from ...domain.decision import Decision, Verdict
from ...domain.json import InvalidJsonError, encode
from ...domain.outcome import Failure
from ...domain.payload import (
    ApprovalBinding,
    BindingChange,
    ExecutionEnvironment,
    Payload,
    build_binding,
    canonical_payload,
    compute_grant_key,
    diff_bindings,
    hash_payload,
    read_canonical_arguments,
)
from ...domain.tool import JsonObject, Risk, ToolDefinition, declared_paths
from ..context import RunContext
from ..refusals import inexact_payload
from ..validate import validate


def apply_grants(valid: ValidCall, decision: Decision, run: RunContext) -> Decision:
    """Return the decision after grants: what policy asks about is allowed where a person approved exactly this for the
    run.
    """
    if decision.verdict is not Verdict.ASK or decision.scope == "once":
        return decision
    try:
        key = compute_grant_key(
            valid.tool.name, valid.arguments, bind_approval(valid, decision, run), decision.rule_ids
        )
    except InvalidJsonError:
        return decision
    grant = run.ledger.grants.get(key)
    if grant is None or (grant.until and run.parts.clock.now() >= grant.until):
        return decision
    reason = f"A person said yes to exactly this before, for more than once ({grant.action_id})."
    return msgspec.structs.replace(decision, verdict=Verdict.ALLOW, reason=reason, layer="standing approval")


def detect_drift(question: Question, run: RunContext) -> tuple[BindingChange, ...]:
    """Return what the question is bound to and differs now; the arguments are compared by their hash."""
    tool = run.parts.registry.find(question.tool_name)
    if tool is None:
        return (BindingChange("tool", "there", "gone"),)
    was = question.bound.surroundings
    around = _environment(tool, question.arguments, [file.path for file in was.files], run)
    now = build_binding(tool, _policy_version(run), run.situation, around)
    # Whether the tried effect still fits is asked of the tool itself.
    now = msgspec.structs.replace(now, trial=question.bound.trial)
    changed = diff_bindings(question.bound, now)
    if question.expires_at and run.parts.clock.now() >= question.expires_at:
        changed = (*changed, BindingChange("time", "open", "over"))
    return changed


def payload_matches(question: Question) -> bool:
    """Return True if the question shows the payload of its hash. One with secrets is not in the log and cannot be
    compared.
    """
    if question.arguments.keys() == {"redacted"}:
        return True
    try:
        return hash_payload(_canonical(question, question.arguments)) == question.payload_hash
    except InvalidJsonError:
        return False


def canonicalize(valid: ValidCall, question: Question) -> tuple[ValidCall, str] | Failure:
    """Return the call as read from its canonical bytes, and their hash. A failure when it has no canonical form."""
    try:
        approved = _canonical(question, valid.arguments)
        again = validate(valid.known, encode(read_canonical_arguments(approved)))
        if isinstance(again, Failure) or _canonical(question, again.arguments) != approved:
            return inexact_payload(valid, "reading it again gives something else")
    except InvalidJsonError as error:
        return inexact_payload(valid, str(error))
    return again, hash_payload(approved)


def bind_approval(valid: ValidCall, decision: Decision, run: RunContext) -> ApprovalBinding:
    """Return what an approval of the call would be bound to, as of now."""
    tool = valid.tool
    around = _environment(tool, valid.arguments, {*decision.paths, *declared_paths(tool, valid.arguments)}, run)
    unnamed_code = Risk.EXECUTE in tool.risk and not decision.names_all_code
    return build_binding(
        tool, _policy_version(run), run.situation, msgspec.structs.replace(around, unnamed_code=unnamed_code)
    )


def _environment(
    tool: ToolDefinition, arguments: JsonObject, paths: Iterable[str], run: RunContext
) -> ExecutionEnvironment:
    """Return the execution environment. Paths are relative to the workspace, wherever the call starts."""
    situation = run.situation
    cwd = run.parts.sandbox.describe_scope(tool, arguments, situation).cwd
    if situation.workspace and cwd not in ("", situation.workspace):
        paths = [join(situation.workspace, expanduser(path)) for path in paths]
    return run.parts.sandbox.describe_environment(tool, arguments, situation, paths)


def _canonical(question: Question, arguments: JsonObject) -> bytes:
    return canonical_payload(
        Payload(question.run_id, question.call_id, question.tool_name, arguments, question.bound, question.expires_at)
    )


def _policy_version(run: RunContext) -> str:
    """Return the digest of the policy in force. Changes of a policy without a digest cannot be detected."""
    return str(getattr(run.parts.policy, "digest", ""))
