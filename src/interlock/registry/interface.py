"""Interface of the registry: the single source of truth for which tools exist."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol, TypeAlias

from ..domain.egress import EgressRule
from ..domain.event import Fact
from ..domain.state.ledger import ToolSourceEntry
from ..domain.tool import CallContext, Mask, ToolCatalog, ToolDefinition

#: Removes the tools of these names and adds others, in one step. Raises `DuplicateToolError` and changes nothing when a
#: name is taken.
ReplaceTools: TypeAlias = Callable[[Iterable[str], Iterable[ToolDefinition]], None]


class SourceFact(NamedTuple):
    """Something that a run that uses the tools has to record."""

    fact: Fact
    #: Stored as the artifact of the fact, where there is any.
    content: bytes = b""


class Toolbox(ABC):
    """Tools with shared state, which get the policy's masks and are closed together. Iterating yields the tools."""

    #: True when its tools come and go: then it is started when a run is opened, and records what it learned.
    is_dynamic = False

    @property
    @abstractmethod
    def root(self) -> str:
        """The absolute path of their folder. Empty: they work in none."""

    @property
    def own_paths(self) -> Iterable[str]:
        """Absolute paths of its own files, which no tool may read or write."""
        return ()

    @abstractmethod
    def __iter__(self) -> Iterator[ToolDefinition]: ...

    @abstractmethod
    def set_masks(self, masks: Callable[[str], tuple[Mask, ...]]) -> None:
        """Set the function that returns the denied paths, for every tool or for one: called before every call."""

    def set_egress(  # noqa: B027 - for those that run commands
        self, rules: Callable[[], tuple[EgressRule, ...]], add_secret: Callable[[str], None]
    ) -> None:
        """Set the functions that return the egress rules, called before every command, and that declare a secret which
        a proxy adds to requests.
        """

    @abstractmethod
    def protect_paths(self, paths: Iterable[str]) -> None:
        """Protect absolute paths of the runtime itself: no tool reads or writes them."""

    def set_registry(self, replace: ReplaceTools) -> None:
        """Set the function that changes the tools of a registry, for tools that come and go."""
        return

    async def start(self) -> None:
        """Make the tools available. Called when a run is opened; starting again changes nothing."""
        return

    def sync(self) -> int:
        """Take over what changed outside since the last time, and return a number that changes with every fact."""
        return 0

    def list_facts(self, recorded: Mapping[str, ToolSourceEntry]) -> list[SourceFact]:
        """Return what a run has to record of its tools' sources, given what it has recorded, in order."""
        return []

    async def refresh(self, tool_name: str) -> None:
        """Look again whether a tool is what it was. Called right before an approved call starts."""
        return

    def use_task_folder(self, folder: str) -> None:
        """Keep what runs in the background in this private folder, where the tools can and have none yet."""
        return

    async def end_run(self, run_id: str) -> None:
        """Stop what runs in the background for a run that is over."""
        return

    @abstractmethod
    async def close(self) -> None: ...


class Registry(Protocol):
    """Finds tools."""

    def find(self, name: str) -> ToolDefinition | None: ...

    def list_visible(self, situation: CallContext) -> list[ToolDefinition]:
        """Return the tools available in this context, by name."""
        ...

    def catalog(self, situation: CallContext) -> ToolCatalog:
        """Return the catalog offered to a model now."""
        ...


def find_hidden_reason(tool: ToolDefinition, situation: CallContext) -> str:
    """Return why the tool is not available in this context; empty when it is. A failing check hides it."""
    if tool.quarantine:
        return tool.quarantine
    # A shell tool is evaluated command by command: it may be called for one that only reads.
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
