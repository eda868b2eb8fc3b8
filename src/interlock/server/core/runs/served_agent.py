"""Agents as served by a server: their declaration, and how their runs are treated."""

from collections.abc import Mapping

import msgspec

from ....agent.agent import Agent
from ....domain.decision import FailSafeConfig, FailurePolicy
from ....domain.errors import ConfigurationError
from ....domain.tool import PermissionMode


class ServedAgent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent with its server settings."""

    agent: Agent
    #: What people read about it.
    description: str = ""
    #: What a rejection, or an answer that does not come in time, does to a run. None: what the agent says, and it
    #: fails where the agent says nothing.
    on_rejection: FailurePolicy | None = None
    mode: PermissionMode = PermissionMode.DEFAULT
    #: The folder that it works in, for agents without tools that say so themselves.
    workspace: str = ""
    #: The queue of its runs in a log that many hosts share. Workers that serve it continue them.
    queue: str = "default"
    secrets: Mapping[str, str] = {}

    @property
    def name(self) -> str:
        """Name of the agent."""
        return self.agent.name

    def to_server_agent(self) -> Agent:
        """Return the agent with the fail-safe rules of a server: a rejection ends the run, unless configured
        otherwise.
        """
        own = self.agent.fail_safe
        rejection_policy = self.on_rejection or own.rejection_policy
        if rejection_policy is None and own.approval_denial_policy == FailSafeConfig().approval_denial_policy:
            rejection_policy = "fail"
        return msgspec.structs.replace(
            self.agent, fail_safe=msgspec.structs.replace(own, rejection_policy=rejection_policy)
        )


def map_by_name(served: "list[ServedAgent]") -> dict[str, ServedAgent]:
    """Map agents by name. Raise `ConfigurationError` if a name is not unique."""
    found: dict[str, ServedAgent] = {}
    for each in served:
        if each.name in found:
            raise ConfigurationError(f"There are two agents called {each.name!r}. Give one another name.")
        found[each.name] = each
    return found
