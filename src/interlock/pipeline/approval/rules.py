"""Save the rule that a person attached to their approval."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from ...domain.call import PermittedCall
from ...domain.errors import ConfigurationError
from ...domain.event import WarningRaised
from ...domain.redaction import redact_line
from ...rendering.text import describe_error
from ..context import RunContext
from ..parts import RuleChange


async def keep_rule(permitted: PermittedCall, run: RunContext) -> None:
    """Save the rule that a person attached to their approval. All ways to answer use this.

    It holds from the next call on; this one started with the approval itself. It is recorded before it is kept. When
    it cannot be recorded or saved, the log says so, and the call continues: it was approved.
    """
    parts, policy, call_id = run.parts, run.parts.policy, permitted.valid.call_id
    action = run.ledger.actions[permitted.action_id]
    change = RuleChange(
        run_id=run.ledger.run_id,
        agent=run.situation.agent,
        action_id=permitted.action_id,
        by=action.answer.by if action.answer is not None else "",
        rule=permitted.keep,
        before=str(getattr(policy, "digest", "")),
    )
    recorded = False
    try:
        problem = parts.find_rule_problem(change.rule, action.question.suggested_rule)
        keep = getattr(policy, "keep", None)
        if problem or keep is None:
            raise ConfigurationError(problem or "this policy keeps no rules")
        preview = getattr(policy, "preview_keep", None)
        if preview is not None:
            change = msgspec.structs.replace(change, after=await _run_policy_work(preview, change.rule, run))
        await parts.record_rule(change)
        recorded = True
        known = run.executions.kept_rules
        known |= {(first, change.after) for first, then in known if then == change.before}
        known.add((change.before, change.after))
        await _run_policy_work(keep, change.rule, run)
    except Exception as error:
        problem = redact_line(describe_error(error), parts.redactor.redact)
        message = f"The call was approved once, but its rule was not kept: {problem}."
        run.recorder.add(WarningRaised(message=message, call_id=call_id), call_id)
        if recorded:
            with suppress(Exception):  # it is recorded in the run's log
                await parts.record_rule(msgspec.structs.replace(change, problem=problem))


async def _run_policy_work(work: Callable[[str], Any], rule: str, run: RunContext) -> Any:
    """Run file I/O of the policy in a thread, with a timeout."""
    return await asyncio.wait_for(run.parts.sandbox.run_blocking(partial(work, rule)), run.parts.limits.check_seconds)
