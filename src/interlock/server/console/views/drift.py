"""What of a question is different now from when it was asked: the tool, its files, the policy, its surroundings.

An approval is checked against all of this again right before the call starts, whatever is shown here. This is for the
person: a yes to something that has changed meanwhile would be void, and they would be asked again.
"""

import asyncio
from os.path import abspath

from ....app import App
from ....domain.call import Question
from ....domain.errors import InterlockError
from ....domain.payload import Change, bind, changes
from ....domain.tool import Mode, Situation
from ...core.runs.runners import Fleet

_SECONDS = 5.0


async def drift(question: Question, fleet: Fleet) -> tuple[Change, ...] | None:
    """None: it cannot be told here, because nobody here knows the agent, or it takes too long."""
    runner = fleet.runners.get(question.agent)
    if runner is None or question.kind != "approval":
        return None
    situation = _situation(question, runner.app, fleet.served[question.agent].workspace)
    try:
        async with asyncio.timeout(_SECONDS):
            return await asyncio.to_thread(_changed, question, runner.app, situation)
    except (InterlockError, OSError, TimeoutError, ValueError):
        return None


def _situation(question: Question, app: App, workspace: str) -> Situation:
    """As the run has it."""
    return Situation(
        run_id=question.run_id,
        agent=question.agent,
        mode=Mode(question.bound.mode),
        interactive=app.parts.interaction.interactive,
        workspace=next((box.root for box in app.toolboxes), abspath(workspace) if workspace else ""),
        requester=question.bound.requester,
    )


def _changed(question: Question, app: App, situation: Situation) -> tuple[Change, ...]:
    tool = app.parts.registry.find(question.tool_name)
    if tool is None:
        return (Change("tool", "there", "gone"),)
    paths = [file.path for file in question.bound.surroundings.files]
    around = app.parts.sandbox.surroundings(tool, question.arguments, situation, paths)
    policy = str(getattr(app.parts.policy, "digest", ""))
    return changes(question.bound, bind(tool, policy, situation, around))
