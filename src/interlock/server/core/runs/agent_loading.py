"""Agents by their names: from the configuration, from what is named at the start, and from installed packages.

A package offers agents as entry points of the group `interlock.agents`. Whatever is named may be an `Agent`, a
`ServedAgent`, or a function without parameters that makes one. One that was given no name is called what it was asked
for as. Modules of the current folder are found after those that are installed, so that nothing there replaces them.
"""

import os
import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

import msgspec

from ....agent.agent import Agent
from ....domain.errors import ConfigurationError
from ..settings import AgentTable
from .served_agent import ServedAgent

ENTRY_POINT_GROUP = "interlock.agents"
#: The default name of an agent.
_DEFAULT_AGENT_NAME = "agent"


def load_agents(tables: Mapping[str, AgentTable], references: Iterable[str]) -> list[ServedAgent]:
    """Return the agents named by configuration and command. Where none are named: those of installed packages."""
    _append_current_folder_to_path()
    found = [_apply_table(_load_agent(table.object), name, table) for name, table in tables.items()]
    found += [
        _apply_default_name(_load_agent(reference), reference.replace(":", ".").rpartition(".")[2])
        for reference in references
    ]
    return found or [
        _apply_default_name(_load_agent(point.value), point.name) for point in entry_points(group=ENTRY_POINT_GROUP)
    ]


def _load_agent(reference: str) -> ServedAgent:
    module, colon, name = reference.partition(":")
    if not (module and colon and name):
        raise ConfigurationError(
            f"{reference!r} names no agent: it has to be like `package.module:name`. Nothing was started."
        )
    try:
        loaded: Any = import_module(module)
        for part in name.split("."):
            loaded = getattr(loaded, part)
    except Exception as error:  # the module is user code, and runs here
        raise _build_loading_error(reference, error, _describe_shadowing(module)) from error
    return _to_served_agent(loaded, reference)


def _to_served_agent(loaded: Any, reference: str) -> ServedAgent:
    if callable(loaded) and not isinstance(loaded, Agent | ServedAgent):
        try:
            loaded = loaded()
        except Exception as error:
            raise _build_loading_error(reference, error) from error
    if isinstance(loaded, Agent):
        return ServedAgent(agent=loaded)
    if isinstance(loaded, ServedAgent):
        return loaded
    raise ConfigurationError(
        f"{reference!r} is a {type(loaded).__name__}, and has to be an Agent. Nothing was started."
    )


def _build_loading_error(reference: str, error: Exception, hint: str = "") -> ConfigurationError:
    cause = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return ConfigurationError(f"The agent {reference!r} cannot be loaded: {cause}.{hint} Nothing was started.")


def _apply_table(served: ServedAgent, name: str, table: AgentTable) -> ServedAgent:
    """Apply the settings of an agent. Its name in the configuration is the one that runs, keys and lists use."""
    configured = {
        "description": table.description,
        "on_rejection": table.on_rejection,
        "mode": table.mode,
        "workspace": table.workspace,
        "queue": table.queue,
    }
    changes: dict[str, Any] = {key: value for key, value in configured.items() if value}
    agent = msgspec.structs.replace(served.agent, name=name)
    if table.window_tokens is not None:
        context = msgspec.structs.replace(agent.context, window_tokens=table.window_tokens)
        agent = msgspec.structs.replace(agent, context=context)
    return msgspec.structs.replace(served, agent=agent, **changes)


def _apply_default_name(served: ServedAgent, name: str) -> ServedAgent:
    if served.name != _DEFAULT_AGENT_NAME:
        return served
    return msgspec.structs.replace(served, agent=msgspec.structs.replace(served.agent, name=name))


def _append_current_folder_to_path() -> None:
    """Let modules of the current folder be found, after all others: a `json.py` there replaces nothing."""
    here = os.getcwd()
    sys.path[:] = [*(entry for entry in sys.path if entry and entry != here), here]


def _describe_shadowing(module: str) -> str:
    """Say that a module of the current folder was not taken, where an installed one of its name was."""
    first = module.partition(".")[0]
    found = getattr(sys.modules.get(first), "__file__", None) or ""
    own = [path for path in (os.path.abspath(f"{first}.py"), os.path.abspath(first)) if os.path.exists(path)]
    if not own or not found or found.startswith(own[0]):
        return ""
    return f" The module {first!r} is {found}, which comes before {own[0]}: give yours another name."
