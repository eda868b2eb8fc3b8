"""What changed since a question was asked: the tool, its files, the policy, its environment.

An approval is checked against all of this again right before the call starts, whatever is shown here. This is for the
person: approving something that has changed would be void, and they would be asked again.
"""

import asyncio
from os.path import abspath

from ....app import App
from ....domain.call import Question
from ....domain.errors import InterlockError
from ....domain.payload import BindingChange, build_binding, diff_bindings
from ....domain.tool import CallContext, PermissionMode
from ...core.runs.agent_runners import AgentRunners

_TIMEOUT_SECONDS = 5.0


async def detect_question_drift(question: Question, runners: AgentRunners) -> tuple[BindingChange, ...] | None:
    """Return the changes; None: unknown, because the agent is not served here, or it takes too long."""
    runner = runners.by_agent.get(question.agent)
    if runner is None or question.kind != "approval":
        return None
    context = _build_call_context(question, runner.app, runners.served_agents[question.agent].workspace)
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            return await asyncio.to_thread(_compare_bindings, question, runner.app, context)
    except (InterlockError, OSError, TimeoutError, ValueError):
        return None


def _build_call_context(question: Question, app: App, workspace: str) -> CallContext:
    """Build the context that the run has."""
    return CallContext(
        run_id=question.run_id,
        agent=question.agent,
        mode=PermissionMode(question.bound.mode),
        interactive=app.parts.interaction.interactive,
        workspace=next(filter(None, (box.root for box in app.toolboxes)), abspath(workspace) if workspace else ""),
        requester=question.bound.requester,
    )


def _compare_bindings(question: Question, app: App, context: CallContext) -> tuple[BindingChange, ...]:
    tool = app.parts.registry.find(question.tool_name)
    if tool is None:
        return (BindingChange("tool", "there", "gone"),)
    paths = [file.path for file in question.bound.surroundings.files]
    environment = app.parts.sandbox.describe_environment(tool, question.arguments, context, paths)
    policy = str(getattr(app.parts.policy, "digest", ""))
    return diff_bindings(question.bound, build_binding(tool, policy, context, environment))
