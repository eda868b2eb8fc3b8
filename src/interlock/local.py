"""The built-in tools for one folder: `LocalTools` chooses their parts and joins them.

    runtime = ToolRuntime(tools=LocalTools("project"), policy=policy)

Files are reached through one `Workspace`, commands run in the best sandbox that this host allows, and what the policy
denies to every tool is hidden from both.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from os import PathLike
from os.path import join, realpath

import msgspec

from .domain.errors import ConfigurationError
from .domain.resources import Mask
from .domain.tool import ToolDefinition
from .policy.engine.masking import Masked
from .policy.shell.scripts import commands_in, only_reads
from .registry.interface import Toolbox
from .sandbox.commands.unconfined import UnconfinedSandbox
from .sandbox.host.probe import choose
from .sandbox.host.programs import find_ripgrep, program_problems, python_folders
from .sandbox.interface import CommandLimits, CommandSandbox, Confinement
from .sandbox.workspace.frozen import FrozenPlaces
from .sandbox.workspace.hidden import Found, HiddenFiles
from .sandbox.workspace.protected import is_secret
from .sandbox.workspace.workspace import Workspace
from .tools.files.edit_file import edit_file
from .tools.files.list_dir import list_dir
from .tools.files.read_file import read_file
from .tools.files.write_file import write_file
from .tools.search.glob import glob
from .tools.search.grep import grep
from .tools.shell.bash import Shell

_EVERY_TOOL, _SHELL = "", "bash"
_LIMITS = CommandLimits()


class LocalTools(Toolbox):
    """Read, write, edit, grep, glob, list and bash in one folder. Iterating gives the tools."""

    def __init__(  # noqa: PLR0913 - one for each thing that may be chosen
        self,
        workspace: str | PathLike[str],
        *,
        commands: CommandSandbox | None = None,
        readable: Iterable[str] = (),
        environment: Mapping[str, str] | None = None,
        network: bool = False,
        limits: CommandLimits = _LIMITS,
        outside: bool = False,
    ) -> None:
        """
        Args:
            commands: Where commands run. Default: the best that this host allows.
            readable: Folders beside the workspace that commands may read, absolute.
            environment: Variables for commands, beside the few that every command gets. Nothing is inherited.
            network: Commands may reach hosts. Off by default.
            limits: What a command may use.
            outside: Also offer `bash_outside`, which runs without a sandbox and asks a person every time.
        """
        self._masks: Callable[[str], tuple[Mask, ...]] = _unclaimed
        self._masked: dict[str, tuple[tuple[Mask, ...], Masked]] = {}
        #: What holds for commands, as it was when they were last looked for.
        self._hiding = Masked((), "")
        self._frozen = FrozenPlaces(realpath(workspace))
        self._workspace = Workspace(workspace, extra_hidden=self._refuses, frozen=self._frozen)
        self._root = self._workspace.open_root()
        self._files = HiddenFiles(self._root.fd, self._hides, self._freezes, frozen=self._frozen)
        self._commands = choose() if commands is None else commands
        self._shell = Shell(
            self._workspace,
            self._commands,
            words=commands_in,
            is_read_only=lambda script, cwd: only_reads(script, cwd, self.root),
            hidden=self._find,
            readable=(*python_folders(), *readable),
            environment=environment or {},
            limits=limits,
            network=network,
        )
        self.definitions = self._define(outside)

    @property
    def root(self) -> str:
        """The real, absolute path of the folder."""
        return self._workspace.root

    @property
    def confinement(self) -> Confinement:
        """What holds commands back here."""
        return self._commands.confinement

    def __iter__(self) -> Iterator[ToolDefinition]:
        return iter(self.definitions)

    def hide(self, masks: Callable[[str], tuple[Mask, ...]]) -> None:
        """What a policy denies to every tool, or to the one that is named: asked for before every call."""
        if self._masks is not _unclaimed:
            raise ConfigurationError("These tools belong to another runtime, whose policy they keep to.")
        self._masks = masks

    def keep_off(self, paths: Iterable[str]) -> None:
        """Refused with `ConfigurationError` when the whole workspace lies in one of them."""
        self._frozen.keep_off(paths)
        self._files.forget()

    async def close(self) -> None:
        """Stop the tasks in the background."""
        await self._shell.close()
        self._root.close()
        self._workspace.close()

    def _define(self, outside: bool) -> tuple[ToolDefinition, ...]:
        workspace, commands, rg = self._workspace, self._commands, _ripgrep()
        tools = (
            read_file(workspace),
            write_file(workspace),
            edit_file(workspace),
            grep(workspace, commands, rg, self._unsearched),
            glob(workspace, commands, rg),
            list_dir(workspace),
            self._shell.bash(),
            *self._shell.tasks(),
            *([self._shell.outside(UnconfinedSandbox())] if outside else []),
        )
        return tuple(msgspec.structs.replace(tool, toolbox=self) for tool in tools)

    def _find(self) -> Found:
        """What commands must not see or not change, as paths from the workspace on."""
        before, now = self._hiding, self._mask(_SHELL)
        if now is not before:
            self._hiding = now
            self._files.forget()
        return self._files.find()

    def _unsearched(self) -> tuple[str, ...]:
        return tuple(join(self.root, path) for path in self._find().hidden)

    def _mask(self, tool: str) -> Masked:
        """The masks of now, compiled when they change."""
        masks, known = self._masks(tool), self._masked.get(tool)
        if known is None or known[0] != masks:
            self._masked[tool] = known = masks, Masked(masks, self.root)
        return known[1]

    def _refuses(self, relative_path: str, writing: bool) -> bool:
        mask = self._mask(_EVERY_TOOL)
        return (
            self._frozen.is_own(relative_path) or mask.hides(relative_path) or (writing and mask.freezes(relative_path))
        )

    def _hides(self, relative_path: str) -> bool:
        return is_secret(relative_path) or self._frozen.is_own(relative_path) or self._hiding.hides(relative_path)

    def _freezes(self, relative_path: str) -> bool:
        return self._hiding.freezes(relative_path)


def _ripgrep() -> str:
    found = find_ripgrep()
    if found is None:
        problem = next((each for each in program_problems() if "ripgrep" in each), "")
        raise ConfigurationError(f"The tools for files need ripgrep: {problem or 'install interlock[local]'}.")
    return found.path


def _unclaimed(tool: str) -> tuple[Mask, ...]:
    raise ConfigurationError("These tools belong to no runtime yet, so nobody said what is hidden from them.")
