"""Rules saved with an approval: what may be saved, by whom, for which agents, and the audit log's row.

A rule is added to a policy file, which several agents may use. So saving one needs the permission for every agent that
uses the file, and four eyes apply as for the riskiest call that the rule could allow. Everything is checked before the
approval is recorded; the audit log's row is written before the rule (`pipeline/approval/rules.py` saves it).
"""

import asyncio
from collections.abc import Iterator
from os.path import realpath
from typing import Any

import msgspec

from ....domain.call import Question
from ....domain.errors import ConfigurationError
from ....domain.tool import CallContext, PermissionMode, ToolDefinition
from ....pipeline.parts import RuleChange
from ....policy.engine.compiled_rule import CompiledRule, compile_rule
from ....policy.files.saved_rules import find_rule_problem, load_rule, parse_rule
from ..audit.audit_log import MAX_TEXT_CHARS, AuditLog
from ..errors import ConflictError
from ..identity.guard import AccessGuard
from ..identity.permissions import Operation, RunOwnership, RunOwnershipData, is_allowed
from ..identity.principal import Principal
from ..index.rows import RunRow
from .agent_runners import AgentRunners

_CALL_CONTEXTS = tuple(
    CallContext(run_id="run_rule", mode=mode, interactive=is_interactive)
    for mode in PermissionMode
    for is_interactive in (False, True)
)
#: With the other details of a row this is as much as the audit log takes. A suggested rule is shorter.
_MAX_RULE_PARTS = 9


class RuleTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Where a rule would be saved."""

    #: Empty for a policy that keeps its rules somewhere else than in a file.
    file: str = ""
    #: The other agents that use it, as far as the principal may see them, and how many more there are.
    shared_with: tuple[str, ...] = ()
    hidden_agents: int = 0
    #: Why the principal may not save a rule with this answer; empty when they may.
    denied_reason: str = ""


class RuleKeeper:
    """Checks and records rules that are saved with an approval."""

    def __init__(self, runners: AgentRunners, guard: AccessGuard) -> None:
        self._runners = runners
        self._guard = guard

    def describe_target(self, principal: Principal, run: RunRow, question: Question) -> RuleTarget | None:
        """Return where a rule of this question would be saved; None where none was suggested."""
        if question.kind != "approval" or question.scope != "rule" or not question.suggested_rule:
            return None
        policy = self._get_policy(run)
        others = tuple(self._list_sharing_agents(policy, run.agent))
        seen = tuple(
            name for name in others if is_allowed(principal, Operation.READ_POLICY, RunOwnershipData(agent=name))
        )
        return RuleTarget(
            file=getattr(policy, "kept_in", ""),
            shared_with=seen,
            hidden_agents=len(others) - len(seen),
            denied_reason=self._find_denied_reason(principal, run, others) or _find_obstacle(policy),
        )

    async def check_rule(
        self, principal: Principal, run: RunRow, question: Question, logged_run: RunOwnership, rule: str
    ) -> RuleTarget:
        """Check everything that saving this rule needs, and change nothing.

        Args:
            run: The run that asks, from the index.
            logged_run: The same run, as the log has it.

        Raises:
            ForbiddenError: The rule is not the suggested one or narrower, or they may not save it.
            ConflictError: The policy cannot save it.
        """
        refuse, name = self._guard.record_refusal, question.action_id
        await self._guard.check(principal, Operation.KEEP_RULE, run, name)
        problem = await asyncio.to_thread(find_rule_problem, rule, question.suggested_rule)
        if problem:
            message = f"{problem} Nothing was decided."
            suggested = {"suggested_rule": question.suggested_rule}
            raise await refuse(principal, Operation.KEEP_RULE, name, "rule_not_suggested", message, **suggested)
        policy = self._get_policy(run)
        others = tuple(self._list_sharing_agents(policy, run.agent))
        if denied := self._find_denied_reason(principal, run, others):
            raise await refuse(
                principal, Operation.KEEP_RULE, name, "rule_not_permitted", f"{denied} Nothing was decided."
            )
        await self._guard.require_second_person(
            principal, question, logged_run, self._collect_risks(rule, (run.agent, *others))
        )
        await _check_keepable(policy, rule)
        return RuleTarget(file=getattr(policy, "kept_in", ""), shared_with=others)

    async def record_change(self, audit_log: AuditLog, change: RuleChange) -> None:
        """Write the audit log's row about a rule: before it is saved, or that it was not saved after all."""
        runner = self._runners.by_agent.get(change.agent)
        policy = None if runner is None else runner.app.parts.policy
        detail = {
            "agent": change.agent,
            "run": change.run_id,
            "file": getattr(policy, "kept_in", ""),
            "shared_with": ", ".join(self._list_sharing_agents(policy, change.agent)),
            "before": change.before,
            "after": change.after,
            **({"problem": change.problem} if change.problem else {}),
            **dict(_split_rule(change.rule)),
        }
        outcome = "failed" if change.problem else "done"
        await audit_log.add(change.by, "policy.rule_kept", change.action_id, outcome=outcome, detail=detail)

    def _get_policy(self, run: RunRow) -> Any:
        """Return the policy of a run; None where it is not known here, as for a run inside a call of another one."""
        runner = None if run.parent_run_id else self._runners.by_agent.get(run.agent)
        return None if runner is None else runner.app.parts.policy

    def _list_sharing_agents(self, policy: Any, agent: str) -> Iterator[str]:
        kept_in = getattr(policy, "kept_in", "")
        for name, runner in sorted(self._runners.by_agent.items()):
            other = runner.app.parts.policy
            is_read = kept_in and kept_in in map(realpath, getattr(other, "own_paths", ()))
            if policy is not None and name != agent and (is_read or other is policy):
                yield name

    def _find_denied_reason(self, principal: Principal, run: RunRow, others: tuple[str, ...]) -> str:
        if not is_allowed(principal, Operation.KEEP_RULE, run):
            return f"{principal.name} may not keep rules of the agent {run.agent} ({Operation.KEEP_RULE.value})."
        if self._get_policy(run) is None:
            return "The policy of this run is not served here by itself, so no rule can be kept. Approve without one."
        foreign = [
            name for name in others if not is_allowed(principal, Operation.KEEP_RULE, RunOwnershipData(agent=name))
        ]
        if not foreign:
            return ""
        agents = "another agent" if len(foreign) == 1 else f"{len(foreign)} other agents"
        return (
            f"The policy file is also used by {agents} for which {principal.name} may not keep rules."
            " Approve without a "
            "rule, or ask someone who may."
        )

    def _collect_risks(self, rule: str, agents: tuple[str, ...]) -> set[str]:
        """Return every risk of every tool that the rule could allow a call of."""
        compiled = _try_compile(rule)
        tools = (tool for name in agents for tool in self._runners.by_agent[name].app.registry)
        return {risk.value for tool in tools if compiled is None or _can_match(compiled, tool) for risk in tool.risk}


def _split_rule(rule: str) -> Iterator[tuple[str, str]]:
    """Split the rule: the audit log cuts long values."""
    for at in range(min(_MAX_RULE_PARTS, -(-len(rule) // MAX_TEXT_CHARS))):
        yield f"rule.{at + 1}" if at else "rule", rule[at * MAX_TEXT_CHARS : (at + 1) * MAX_TEXT_CHARS]


async def _check_keepable(policy: Any, rule: str) -> None:
    preview, problem = getattr(policy, "preview_keep", None), _find_obstacle(policy)
    try:
        if preview is not None and not problem:
            await asyncio.to_thread(preview, rule)
    except ConfigurationError as error:
        problem = f"The rule cannot be kept: {error}"
    if problem:
        raise ConflictError("rule_not_kept", f"{problem} Nothing was decided. Approve without a rule.")


def _find_obstacle(policy: Any) -> str:
    """Return why no rule at all can be kept by this policy; empty when some can."""
    if hasattr(policy, "keep") and getattr(policy, "kept_in", "elsewhere"):
        return ""
    return "This policy has no file that rules can be kept in."


def _try_compile(rule: str) -> CompiledRule | None:
    """Return the rule to be matched; None where it is in the words of another policy engine."""
    try:
        return compile_rule(load_rule(parse_rule(rule)))
    except ConfigurationError:
        return None


def _can_match(rule: CompiledRule, tool: ToolDefinition) -> bool:
    """Return True if it could allow a call of this tool, in any mode."""
    return any(rule.matches_tool(tool, context) for context in _CALL_CONTEXTS)
