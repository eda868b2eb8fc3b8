"""The single source of truth for which tools exist."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from ..domain.tool import CallContext, Mask, ToolCatalog, ToolDefinition


class Toolbox(ABC):
    """Tools that share something which must be told the policy, and closed. Iterating gives the tools."""

    @property
    @abstractmethod
    def root(self) -> str:
        """The folder that they work in, absolute."""

    @abstractmethod
    def __iter__(self) -> Iterator[ToolDefinition]: ...

    @abstractmethod
    def set_masks(self, masks: Callable[[str], tuple[Mask, ...]]) -> None:
        """What the policy denies to every tool, or to the one that is named: to be asked for before every call."""

    @abstractmethod
    def protect_paths(self, paths: Iterable[str]) -> None:
        """Files and folders of the runtime itself, absolute: no tool reads or writes them, wherever they are."""

    @abstractmethod
    async def close(self) -> None: ...


class Registry(Protocol):
    def find(self, name: str) -> ToolDefinition | None: ...

    def list_visible(self, situation: CallContext) -> list[ToolDefinition]:
        """The tools available in this situation, by name."""
        ...

    def catalog(self, situation: CallContext) -> ToolCatalog:
        """What a model is shown now."""
        ...


def find_hidden_reason(tool: ToolDefinition, situation: CallContext) -> str:
    """Why the tool is not available in this situation; empty when it is. A tool that cannot tell is not."""
    # What runs commands is judged command by command: it may be asked for one that only reads.
    if situation.mode == "read_only" and not tool.read_only and "command" not in tool.resources.values():
        return f"Tool {tool.name} is not available in read-only mode."
    if tool.visible is None:
        return ""
    try:
        answer = tool.visible(situation)
    except Exception:
        answer = False
    if answer is True:
        return ""
    return answer if isinstance(answer, str) and answer else f"Tool {tool.name} is not available now."
