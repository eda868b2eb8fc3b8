"""The agent that a recorded run is held against: the one of `interlock run` as it would be now, or somebody's own. It
has no model: what that said is in the record."""

import os
import sys
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from ..agent.agent import Agent
from ..agent.steps import Budgets
from ..domain.errors import ConfigurationError
from ..domain.fail_safe import FailSafeConfig
from ..domain.tool import ToolDefinition
from ..local import LocalTools
from ..models.scripted import ScriptedProvider
from ..tools.skills import skills
from .agent import INSTRUCTIONS, NAME, PROJECT_SKILLS
from .places import Places, find_places
from .policy_files import in_order, policy_here
from .settings import Settings, load_settings
from .trust import files_of_project
from .trusted import Trusted

_BUDGETS = ("max_model_calls", "max_tool_calls", "max_tokens", "max_cost")


@asynccontextmanager
async def usual_agent(workspace: Path) -> AsyncGenerator[Agent]:
    """As `run` would have it in this folder. Nobody is asked: a project that is not trusted brings nothing."""
    places = find_places()
    project = files_of_project(workspace, places, ask=False)
    settings = load_settings(places, project, os.environ, {}).settings
    policy = in_order(policy_here(settings, places, project, str(workspace)))
    tools = LocalTools(
        workspace,
        readable=list(map(os.path.expanduser, settings.readable)),
        network=settings.network,
        outside=settings.outside,
    )
    try:
        yield Agent(
            provider=ScriptedProvider(()),
            name=NAME,
            instructions=INSTRUCTIONS,
            tools=[*tools, *_skills(places, project)],
            policy=policy,
            fail_safe=FailSafeConfig(model_failure_policy="keep"),
            budgets=_budgets(settings),
        )
    finally:
        await tools.close()


def named_agent(place: str) -> Agent:
    """Made by a function. What is imported is what this Python finds, not what lies in a project."""
    module, _, function = place.partition(":")
    try:
        made: Any = getattr(import_module(module), function)()
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise ConfigurationError(
            f"{place[:80]!r} does not name an agent: {error}. It is package.module:function, where {sys.executable} "
            "finds the package."
        ) from None
    if not isinstance(made, Agent):
        raise ConfigurationError(f"{place[:80]!r} makes {type(made).__name__}, not an Agent.")
    return made


def _budgets(settings: Settings) -> Budgets:
    """Without time: it is not the same on two days."""
    return Budgets(max_steps=settings.max_model_calls, **{name: getattr(settings, name) for name in _BUDGETS})


def _skills(places: Places, project: Trusted) -> Iterable[ToolDefinition]:
    if places.config is not None and places.skills.is_dir():
        yield from skills(places.skills)
    if any(file.path.startswith(f"{PROJECT_SKILLS}/") for file in project.files):
        yield from skills(os.path.join(project.root, PROJECT_SKILLS))
