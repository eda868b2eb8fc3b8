"""An agent as it is declared: who it is, which model proposes, what it may use, and how far it may go. Data only."""

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import msgspec

from ..domain.decision import FailSafeConfig
from ..domain.tool import Guardrail, Situation, ToolDefinition
from ..models.interface import ModelProvider, ToolChoice
from ..policy.interface import PolicyEngine
from ..registry.interface import Toolbox
from .declared import check_fields, handoffs_of, tools_of
from .steps import Budgets

Instructions: TypeAlias = str | Callable[[Situation], str]


class Agent(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    provider: ModelProvider
    #: As the provider names it; empty takes the provider's own choice.
    model: str = ""
    name: str = "agent"
    instructions: Instructions = ""
    #: Functions, definitions, toolboxes such as `LocalTools`, and other agents: see `as_tool`.
    tools: "Iterable[ToolDefinition | Callable[..., Any] | Toolbox | AgentTool] | Toolbox" = ()
    #: Agents that this one may hand the run to. They work under the same policy.
    handoffs: "Iterable[Agent]" = ()
    #: What other agents are told about it, where they may hand the run over.
    handoff_description: str = ""
    #: Default: no rules, so a tool's declared risk decides.
    policy: PolicyEngine | None = None
    fail_safe: FailSafeConfig = FailSafeConfig()
    budgets: Budgets = Budgets()
    tool_choice: ToolChoice = "auto"
    #: A choice that forces a tool is lifted once this agent has used one; else the model could never end.
    reset_tool_choice: bool = True
    #: What the final answer must be, as a type that pydantic knows; None is text.
    output_type: Any = None
    #: Is what the final answer claims about tests and checks held against the facts?
    check_claims: bool = True
    max_output_tokens: int | None = None
    temperature: float | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        msgspec.structs.force_setattr(self, "tools", tools_of(self))
        msgspec.structs.force_setattr(self, "handoffs", handoffs_of(self))

    def as_tool(
        self,
        name: str = "",
        description: str = "",
        *,
        policy: PolicyEngine | None = None,
        input_guardrails: tuple[Guardrail, ...] = (),
        output_guardrails: tuple[Guardrail, ...] = (),
    ) -> "AgentTool":
        """This agent as a tool of another one. Every call of it is a run of its own, with its own loop, approvals and
        state; what was approved for the other agent covers nothing in it."""
        return AgentTool(
            agent=self,
            name=name or f"ask_{self.name}",
            description=description or f"Give a task to the agent {self.name}. It answers when it is done.",
            policy=policy,
            input_guardrails=input_guardrails,
            output_guardrails=output_guardrails,
        )


class AgentTool(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    agent: Agent
    name: str
    description: str
    #: Default: the agent's own, else that of the run around it.
    policy: PolicyEngine | None = None
    #: Of the task that it is given, and of its answer. Those of other tools do not cover it.
    input_guardrails: tuple[Guardrail, ...] = ()
    output_guardrails: tuple[Guardrail, ...] = ()
