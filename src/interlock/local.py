"""The built-in tools for one folder: `LocalTools` chooses their parts and joins them.

    runtime = ToolRuntime(tools=LocalTools("project"), policy=policy)

Files are reached through one `Workspace`, commands run in the best sandbox that this host allows, and what the policy
denies to every tool is hidden from both.
"""

from asyncio import to_thread
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from os import PathLike, fspath
from os.path import join, realpath

import msgspec

from .changes.store import ChangeStore
from .domain.egress import EgressRule, compile_egress_rule
from .domain.errors import ConfigurationError
from .domain.tool import Mask, ToolDefinition
from .policy.analysis.masks import MaskMatcher
from .policy.engine.call_parts import is_read_only_script, list_script_commands, uses_network
from .registry.interface import Toolbox
from .sandbox.commands.probe import choose_sandbox
from .sandbox.commands.unconfined import UnconfinedSandbox
from .sandbox.host.programs import find_program_problems, find_ripgrep, is_inside, python_folders
from .sandbox.interface import CommandLimits, CommandSandbox, Confinement
from .sandbox.tasks.client import DEFAULT_IDLE_SECONDS, TaskSupervisor
from .sandbox.tasks.sandboxes import CoordinatedSandbox
from .sandbox.workspace.frozen_paths import FrozenPaths
from .sandbox.workspace.hidden_files import HiddenFileScanner, WorkspaceScan
from .sandbox.workspace.protected_names import is_secret
from .sandbox.workspace.workspace import Workspace
from .tools.files.edit_file import edit_file_tool
from .tools.files.list_dir import list_dir_tool
from .tools.files.read_file import read_file_tool
from .tools.files.write_file import write_file_tool
from .tools.search.glob import glob_tool
from .tools.search.grep import grep_tool
from .tools.shell.bash import ShellTools
from .tools.shell.checkers import DiagnosticsSetting
from .tools.shell.profile import ShellConfig

_EVERY_TOOL, _SHELL = "", "bash"
_LIMITS = CommandLimits()


class LocalTools(Toolbox):
    """Tools for one folder: read, write, edit, list, glob, grep and bash, with a sandbox around commands.

    Agent(provider=..., tools=LocalTools("project"))
    """

    def __init__(  # noqa: PLR0913 - one for each thing that may be chosen
        self,
        workspace: str | PathLike[str],
        *,
        commands: CommandSandbox | None = None,
        extra_read_paths: Iterable[str] = (),
        environment: Mapping[str, str] | None = None,
        network: bool = False,
        egress: Iterable[EgressRule] = (),
        limits: CommandLimits = _LIMITS,
        allow_unsandboxed: bool = False,
        diagnostics: DiagnosticsSetting = "off",
        changes: str | PathLike[str] | None = None,
        undo_commands: bool = True,
        task_folder: str | PathLike[str] | None = None,
        task_idle_seconds: float = DEFAULT_IDLE_SECONDS,
    ) -> None:
        """
        Args:
            workspace: The folder.
            commands: Where commands run. Default: the best that this host allows.
            extra_read_paths: Folders beside the workspace that commands may read, absolute.
            environment: Variables for commands, beside the few that every command gets. Nothing is inherited.
            network: Commands may access the network. Off by default.
            egress: Hosts that commands can reach through a proxy, beside those of the policy.
            limits: What a command may use.
            allow_unsandboxed: Also offer `bash_outside`, which runs without a sandbox and asks a person every time.
            diagnostics: What checks a file after `edit_file` and `write_file`, in the sandbox: `off`, `auto` (the
                checkers that the project is configured for), or a list of `ruff`, `pyright`, `tsc` and commands such as
                `*.js: eslint --format unix {file}`.
            changes: A private folder, outside of the workspace, where changes of commands and edits are kept. With it,
                what would be asked about is tried first, and a person approves its effect; and what a run changed can
                be undone. Without it, neither.
            undo_commands: With `changes`: what commands change without a question can be undone, too. They write to
                the workspace when they end, not while they run.
            task_folder: A private folder outside of the workspace. With it, background tasks outlive this process: a
                supervisor runs them, and a run that is resumed finds them again. Default: they end with this process.
            task_idle_seconds: How long such a task continues while no process of its run is connected to it.
        """
        self._own_egress = tuple(map(compile_egress_rule, egress))
        if network and self._own_egress:
            raise ConfigurationError("network=True opens every host; leave it out where egress names the hosts.")
        self._policy_egress: Callable[[], tuple[EgressRule, ...]] = lambda: ()
        self._add_secret: Callable[[str], None] = lambda value: None
        self._known_secrets: set[str] = set()
        self._masks: Callable[[str], tuple[Mask, ...]] = _masks_not_set
        self._compiled_masks: dict[str, tuple[tuple[Mask, ...], MaskMatcher]] = {}
        #: What holds for commands, as it was when they were last looked for.
        self._shell_mask = MaskMatcher((), "")
        self._frozen = FrozenPaths(realpath(workspace))
        self._workspace = Workspace(workspace, extra_hidden=self._is_refused, frozen=self._frozen)
        self._root = self._workspace.open_root()
        self._files = HiddenFileScanner(self._root.fd, self._is_hidden, self._is_read_only, frozen=self._frozen)
        self._commands = choose_sandbox() if commands is None else commands
        self._changes = None if changes is None else _open_change_store(changes, self.root)
        self._task_idle_seconds = task_idle_seconds
        self._supervisor = TaskSupervisor(self.root, self._workspace.identity, self._commands)
        if self._supervisor.is_possible:
            self._commands = CoordinatedSandbox(self._commands, self._supervisor)
        self._readable = tuple(dict.fromkeys((*python_folders(), *extra_read_paths)))
        if task_folder is not None:
            self._keep_tasks(fspath(task_folder))
        shell_config = ShellConfig(
            workspace=self._workspace,
            parse_script=list_script_commands,
            is_read_only=lambda script, cwd: is_read_only_script(script, cwd, self.root),
            hidden=self._find_hidden,
            uses_network=uses_network,
            readable=self._readable,
            environment=environment or {},
            limits=limits,
            network=network,
            egress=lambda: (*self._policy_egress(), *self._own_egress),
            add_secret=self._declare_secret,
        )
        self._shell = ShellTools(
            shell_config,
            self._commands,
            changes=self._changes,
            undo=undo_commands,
            task_supervisor=self._supervisor,
        )
        self._diagnose = self._shell.make_diagnose(diagnostics)
        self.definitions = self._build_definitions(allow_unsandboxed)

    @property
    def root(self) -> str:
        """The real, absolute path of the folder."""
        return self._workspace.root

    @property
    def changes_folder(self) -> str | None:
        """The folder where changes are kept, for undo. None: none are kept."""
        return None if self._changes is None else self._changes.folder

    @property
    def confinement(self) -> Confinement:
        """How commands are confined here."""
        return self._commands.confinement

    def __iter__(self) -> Iterator[ToolDefinition]:
        return iter(self.definitions)

    def set_masks(self, masks: Callable[[str], tuple[Mask, ...]]) -> None:
        """Set the function that returns the denied paths, for every tool or for one: called before every call."""
        if self._masks is not _masks_not_set:
            raise ConfigurationError("These tools belong to another runtime, whose policy they keep to.")
        self._masks = masks

    def set_egress(self, rules: Callable[[], tuple[EgressRule, ...]], add_secret: Callable[[str], None]) -> None:
        """Set the function that returns the egress rules of the policy, and the one that declares a secret."""
        self._policy_egress, self._add_secret = rules, add_secret

    def protect_paths(self, paths: Iterable[str]) -> None:
        """Protect these paths. Raise `ConfigurationError` when the whole workspace is in one of them."""
        self._frozen.add_own_paths(paths)
        self._files.clear_cache()

    def use_task_folder(self, folder: str | PathLike[str]) -> None:
        """Keep background tasks in this folder, unless there is one. One that commands could reach is not used."""
        if not self._supervisor.is_enabled:
            with suppress(ConfigurationError):
                self._keep_tasks(fspath(folder))

    async def end_run(self, run_id: str) -> None:
        """Stop the background tasks of a run that is over."""
        await self._shell.end_run(run_id)

    async def close(self) -> None:
        """Stop the background tasks that this process holds."""
        await self._shell.close()
        if self._changes is not None:
            await to_thread(self._changes.collect_daily)
            self._changes.close()
        self._root.close()
        self._workspace.close()

    def _build_definitions(self, allow_unsandboxed: bool) -> tuple[ToolDefinition, ...]:
        workspace, commands, rg = self._workspace, self._commands, _require_ripgrep()
        tools = (
            read_file_tool(workspace),
            write_file_tool(workspace, self._diagnose, self._changes),
            edit_file_tool(workspace, self._diagnose, self._changes),
            grep_tool(workspace, commands, rg, self._unsearchable_paths),
            glob_tool(workspace, commands, rg),
            list_dir_tool(workspace),
            self._shell.bash_tool(),
            *self._shell.task_tools(),
            *([self._shell.bash_outside_tool(self._make_unconfined())] if allow_unsandboxed else []),
        )
        return tuple(msgspec.structs.replace(tool, toolbox=self) for tool in tools)

    def _keep_tasks(self, folder: str) -> None:
        self._supervisor.use_folder(folder, self._task_idle_seconds, self._readable)
        self.protect_paths([realpath(folder)])

    def _make_unconfined(self) -> CommandSandbox:
        return CoordinatedSandbox(UnconfinedSandbox(), self._supervisor)

    def _declare_secret(self, value: str) -> None:
        if value not in self._known_secrets:
            self._known_secrets.add(value)
            self._add_secret(value)

    def _find_hidden(self) -> WorkspaceScan:
        """Find the paths in the workspace that commands must not see or change."""
        before, now = self._shell_mask, self._compiled_mask(_SHELL)
        if now is not before:
            self._shell_mask = now
            self._files.clear_cache()
        return self._files.scan()

    def _unsearchable_paths(self) -> tuple[str, ...]:
        return tuple(join(self.root, path) for path in self._find_hidden().hidden)

    def _compiled_mask(self, tool: str) -> MaskMatcher:
        """Return the current masks of a tool, compiled again when they change."""
        masks, known = self._masks(tool), self._compiled_masks.get(tool)
        if known is None or known[0] != masks:
            self._compiled_masks[tool] = known = masks, MaskMatcher(masks, self.root)
        return known[1]

    def _is_refused(self, relative_path: str, writing: bool) -> bool:
        mask = self._compiled_mask(_EVERY_TOOL)
        return (
            self._frozen.is_own_path(relative_path)
            or mask.is_hidden(relative_path)
            or (writing and mask.is_read_only(relative_path))
        )

    def _is_hidden(self, relative_path: str) -> bool:
        return (
            is_secret(relative_path)
            or self._frozen.is_own_path(relative_path)
            or self._shell_mask.is_hidden(relative_path)
        )

    def _is_read_only(self, relative_path: str) -> bool:
        return self._shell_mask.is_read_only(relative_path)


def _open_change_store(folder: str | PathLike[str], root: str) -> ChangeStore:
    place = realpath(folder)
    if is_inside(place, root) or is_inside(root, place):
        raise ConfigurationError(
            f"The folder for changes, {place}, must be outside of the workspace, and not around it."
        )
    store = ChangeStore(place)
    store.recover()  # what a killed process left half done
    return store


def _require_ripgrep() -> str:
    found = find_ripgrep()
    if found is None:
        problem = next((each for each in find_program_problems() if "ripgrep" in each), "")
        raise ConfigurationError(f"The tools for files need ripgrep: {problem or 'install interlock[local]'}.")
    return found.path


def _masks_not_set(tool: str) -> tuple[Mask, ...]:
    raise ConfigurationError(
        "These tools belong to no runtime yet, so it is not known which files are hidden from them."
    )
