"""Start the programs of MCP servers in the command sandbox.

By default a server sees the workspace read-only, without the files that are hidden from commands, and has no network
and no home. `write` and `network` of its configuration open what they name. A host without a sandbox starts only
servers that are configured to run without one.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from functools import lru_cache
from hashlib import file_digest
from os.path import expanduser, isabs, join, realpath
from typing import TYPE_CHECKING

import msgspec

from ...domain.egress import EgressRule, EgressRules
from ...domain.errors import ConfigurationError, SandboxSetupError
from ...domain.tool import JsonObject, Mask
from ...policy.analysis.masks import MaskMatcher
from ...sandbox.commands.probe import choose_sandbox
from ...sandbox.commands.unconfined import UnconfinedSandbox
from ...sandbox.host.programs import is_inside, python_folders
from ...sandbox.interface import (
    CommandExit,
    CommandLimits,
    CommandSandbox,
    CommandSpec,
    OutputHandler,
    RunningCommand,
    SandboxProfile,
)
from ...sandbox.network.egress import PROXY_PORT, CommandEgress
from ...sandbox.workspace.frozen_paths import FrozenPaths
from ...sandbox.workspace.hidden_files import HiddenFileScanner, WorkspaceScan
from ...sandbox.workspace.protected_names import is_secret
from ...sandbox.workspace.toolchain import Toolchain, detect_toolchain
from ...sandbox.workspace.workspace import Workspace
from ...tools.shell.profile import ShellConfig, build_profile
from .servers_file import ServerConfig, ServerSandbox

if TYPE_CHECKING:
    from ...sandbox.network.proxy import EgressProxy

#: What the sandbox must do for a server.
_REQUIRED = frozenset(("files", "read_only", "write_only_workspace", "network_off", "kill_tree"))
#: What it prints are messages, each of which is bounded.
_LIMITS = CommandLimits(output_bytes=1 << 62)
#: Of a server without a sandbox, as the SDK has it.
_INHERITED = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")


class ServerReach(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a server that runs here can access, for the record."""

    #: `bubblewrap`, ...; `none`: it can access what this process can.
    sandbox: str
    write: tuple[str, ...] = ()
    network: tuple[str, ...] = ()
    read: tuple[str, ...] = ()


class Launcher:
    """Starts servers for one workspace."""

    def __init__(self, workspace: str | None) -> None:
        """Set it up. Without a workspace, servers work in an empty folder of their own."""
        self._private = tempfile.mkdtemp(prefix="interlock-mcp-") if workspace is None else ""
        self._frozen = FrozenPaths(realpath(workspace or self._private))
        self._workspace = Workspace(workspace or self._private, frozen=self._frozen)
        self._root_folder = self._workspace.open_root()
        self._files = HiddenFileScanner(self._root_folder.fd, self._is_hidden, self._is_read_only, frozen=self._frozen)
        self._masks: Callable[[str], tuple[Mask, ...]] = lambda tool: ()
        self._policy_egress: Callable[[], tuple[EgressRule, ...]] = lambda: ()
        self._mask = MaskMatcher((), "")
        self._commands: CommandSandbox | None = None
        self._is_closed = False

    @property
    def root(self) -> str:
        """The folder that servers work in."""
        return self._workspace.root

    def set_masks(self, masks: Callable[[str], tuple[Mask, ...]]) -> None:
        """Set the function that returns the denied paths."""
        self._masks = masks

    def set_egress(self, rules: Callable[[], tuple[EgressRule, ...]]) -> None:
        """Set the function that returns the egress rules of the policy: a host that one denies stays closed."""
        self._policy_egress = rules

    def protect_paths(self, paths: Iterable[str]) -> None:
        """Hide files of the runtime itself."""
        self._frozen.add_own_paths(paths)
        self._files.clear_cache()

    def close(self) -> None:
        """Remove the folder of servers without a workspace."""
        if self._is_closed:
            return
        self._is_closed = True
        self._root_folder.close()
        self._workspace.close()
        if self._private:
            shutil.rmtree(self._private, ignore_errors=True)

    async def start(self, config: ServerConfig, input_fd: int, on_output: OutputHandler) -> RunningCommand:
        """Start a server. Raise `SandboxSetupError` or `ConfigurationError`: then nothing was executed."""
        variables = config.read_environment()
        if config.sandbox is None:
            return await self._start_unconfined(config, variables, input_fd, on_output)
        commands = await asyncio.to_thread(self._choose_sandbox, config)
        toolchain = await asyncio.to_thread(detect_toolchain, self.root, os.environ)
        egress = self._find_egress(config.sandbox)
        shell = self._describe_shell(config.sandbox, toolchain, has_hosts=egress is not None)
        profile = await asyncio.to_thread(self._build_profile, config, shell, commands)
        argv = (_find_program(config, toolchain, (*shell.readable, self.root)), *config.command[1:])
        proxy = None if egress is None else egress.make_proxy()
        command = CommandSpec(
            profile=profile,
            argv=argv,
            environment={**toolchain.environment, **({} if egress is None else egress.environment), **variables},
            is_still_valid=lambda: self._build_profile(config, shell, commands) == profile,
            on_listener=None if proxy is None else proxy.serve_from_thread,
            files={} if egress is None else egress.files,
            input_fd=input_fd,
        )
        try:
            running = await commands.start(command, on_output)
        except BaseException:
            if proxy is not None:
                await proxy.close()
            raise
        return running if proxy is None else _CommandWithProxy(running, proxy)

    def describe(self, config: ServerConfig) -> JsonObject:
        """Return what is started, and what it can access, for the record. Reads the program: call it in a thread."""
        sandbox = config.sandbox
        reach = ServerReach(sandbox="none")
        if sandbox is not None:
            backend = self._choose_sandbox(config).confinement.backend
            reach = ServerReach(sandbox=backend, write=sandbox.write, network=sandbox.network, read=sandbox.read)
            program = detect_toolchain(self.root, os.environ).find_program(config.command[0]) or config.command[0]
        else:
            program = shutil.which(config.command[0]) or config.command[0]
        return {"reach": msgspec.to_builtins(reach), "executable": realpath(program), "sha256": _hash_file(program)}

    async def _start_unconfined(
        self, config: ServerConfig, variables: dict[str, str], input_fd: int, on_output: OutputHandler
    ) -> RunningCommand:
        program = shutil.which(config.command[0])
        if program is None:
            raise ConfigurationError(f"there is no program {config.command[0]!r} on PATH")
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        profile = SandboxProfile(workspace=self.root, writable=True, network=True, limits=_LIMITS)
        command = CommandSpec(
            profile=profile,
            argv=(program, *config.command[1:]),
            environment={**inherited, **variables},
            input_fd=input_fd,
        )
        return await UnconfinedSandbox().start(command, on_output)

    def _choose_sandbox(self, config: ServerConfig) -> CommandSandbox:
        if self._commands is None:
            self._commands = choose_sandbox()
        confinement = self._commands.confinement
        if missing := _REQUIRED.difference(confinement.capabilities):
            raise SandboxSetupError(
                f"The sandbox of this host ({confinement.backend}) lacks {', '.join(sorted(missing))}, so the server "
                f'{config.name} is not started. `interlock doctor` says more. With sandbox = "off" it runs without one.'
            )
        if config.sandbox is not None and config.sandbox.network and "egress" not in confinement.capabilities:
            raise SandboxSetupError(f"The sandbox {confinement.backend} cannot open single hosts.")
        return self._commands

    def _find_egress(self, sandbox: ServerSandbox) -> CommandEgress | None:
        if not sandbox.network:
            return None
        allowed = EgressRule(verdict="allow", hosts=sandbox.network, id="mcp server")
        denied = (rule for rule in self._policy_egress() if rule.verdict == "deny")
        return CommandEgress(EgressRules((*denied, allowed)))

    def _describe_shell(self, sandbox: ServerSandbox, toolchain: Toolchain, *, has_hosts: bool) -> ShellConfig:
        extra = (realpath(expanduser(path)) for path in sandbox.read)
        return ShellConfig(
            workspace=self._workspace,
            is_read_only=lambda script, cwd: False,
            hidden=self._find_hidden,
            readable=tuple(dict.fromkeys((*python_folders(), *toolchain.folders, *extra))),
            limits=_LIMITS,
            egress_port=PROXY_PORT if has_hosts else 0,
        )

    def _build_profile(self, config: ServerConfig, shell: ShellConfig, commands: CommandSandbox) -> SandboxProfile:
        sandbox = config.sandbox or ServerSandbox()
        profile = build_profile(shell, commands.confinement, "workspace-write" if sandbox.write else "read-only")
        if not sandbox.write or sandbox.write == (".",):
            return profile
        folder = realpath(join(self.root, sandbox.write[0]))
        if not is_inside(folder, self.root) or not os.path.isdir(folder):
            raise ConfigurationError(f"sandbox.write: {sandbox.write[0]!r} is no folder of the workspace")
        return msgspec.structs.replace(
            profile,
            workspace=folder,
            identity=(),
            readable=(*profile.readable, self.root),
            read_only=tuple(path for path in profile.read_only if is_inside(path, folder)),
        )

    def _find_hidden(self) -> WorkspaceScan:
        masks = self._masks("")
        mask = MaskMatcher(masks, self.root)
        if masks or self._mask is not mask:
            self._mask = mask
            self._files.clear_cache()
        return self._files.scan()

    def _is_hidden(self, relative_path: str) -> bool:
        return (
            is_secret(relative_path) or self._frozen.is_own_path(relative_path) or self._mask.is_hidden(relative_path)
        )

    def _is_read_only(self, relative_path: str) -> bool:
        return self._mask.is_read_only(relative_path)


class _CommandWithProxy:
    """A server with the proxy that it reaches hosts through."""

    def __init__(self, running: RunningCommand, proxy: "EgressProxy") -> None:
        self._running = running
        self._proxy = proxy

    async def wait(self, timeout_seconds: float | None = None) -> CommandExit:
        try:
            return await self._running.wait(timeout_seconds)
        finally:
            await self._proxy.close()

    async def stop(self) -> CommandExit:
        try:
            return await self._running.stop()
        finally:
            await self._proxy.close()


def _find_program(config: ServerConfig, toolchain: Toolchain, readable: tuple[str, ...]) -> str:
    """Return the program as the sandbox shows it."""
    name = config.command[0]
    if isabs(name):
        return name
    if "/" in name:
        return join(toolchain.workspace, name)
    if found := toolchain.find_program(name):
        return found
    outside = shutil.which(name)
    if outside is None:
        raise ConfigurationError(f"there is no program {name!r} on PATH")
    if any(is_inside(realpath(outside), folder) for folder in readable):
        return outside
    raise ConfigurationError(
        f"the program {name!r} is {outside}, which the sandbox does not show. Add its folder to sandbox.read."
    )


def _hash_file(path: str) -> str:
    try:
        found = os.stat(path)
    except OSError:
        return ""
    return _hash_version(realpath(path), found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=64)
def _hash_version(path: str, changed_at: int, size: int) -> str:
    try:
        with open(path, "rb") as file:
            return file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""
