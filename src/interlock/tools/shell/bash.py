"""`bash`: run a script in the workspace, confined by the sandbox; in the foreground, or as a background task.

A `ShellTools` is what all commands of a run share: the workspace, the backend, the limits. The arguments of a call
never choose the sandbox. `bash_outside` is another tool, opt-in for developers: it runs unconfined, and every call
requires approval, whatever rules say.
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from pydantic import Field

from ...changes.store import ChangeStore
from ...domain.decision import Decision, Verdict
from ...domain.egress import EgressRules
from ...domain.errors import PreconditionError
from ...domain.tool import (
    CallContext,
    CheckProblem,
    JsonObject,
    NormalizedOutput,
    PermissionMode,
    SandboxScope,
    ToolContext,
    ToolDefinition,
)
from ...registry.decorator import tool
from ...sandbox.interface import CommandSandbox
from ...sandbox.network.egress import PROXY_PORT, CommandEgress
from ...sandbox.tasks.client import TaskSupervisor
from ...sandbox.workspace.refusals import PathRefusedError
from ..files.path_boundary import make_path_authorizer
from .checkers import DiagnosticsSetting
from .command import MAX_OUTPUT_CHARS, run_command
from .command_effects import CommandRequest
from .command_result import CommandResult, normalize_command
from .diagnostics import FileDiagnostics
from .egress import authorize_hosts, find_egress, find_hosts_problem
from .profile import (
    SANDBOX_LAYER,
    CommandTimeout,
    ProfileName,
    ShellConfig,
    authorize_backend,
    authorize_network,
    choose_environment,
    choose_profile,
    choose_timeout,
    describe_scope,
    has_network,
    is_contained,
    read_recorded_profile,
)
from .task_tools import make_task_tools, normalize_start
from .tasks import BackgroundTasks, TaskRecord, TaskReport
from .trial import CommandTrials

MAX_SCRIPT_BYTES = 100_000
#: For what is done around a command: looking at the workspace, ending it, keeping its output.
_OVERHEAD_SECONDS = 60
_UNSANDBOXED_RISK = (
    "execute",
    "no sandbox: it can read and change every file that you can, also keys and passwords",
    "no sandbox: it can reach every host",
)
_TimeoutSeconds = Annotated[float | None, Field(gt=0)]


class ShellTools:
    """Makes the tools that run commands. `close` ends what this process still runs in the background."""

    def __init__(
        self,
        config: ShellConfig,
        commands: CommandSandbox,
        *,
        changes: ChangeStore | None = None,
        undo: bool = True,
        task_supervisor: TaskSupervisor | None = None,
    ) -> None:
        """
        Args:
            config: What holds for all commands.
            commands: Runs them.
            changes: Where changes of commands are kept, for approval after a trial and for undo. None: neither.
            undo: With `changes`: commands that need no approval can be undone, too.
            task_supervisor: Runs background tasks outside of this process, where it has a folder.
        """
        self._config = config
        self._commands = commands
        self._trials = (
            None
            if changes is None
            else CommandTrials(config.workspace, changes, self._find_trial_obstacle, self._make_trial_request)
        )
        self._undo = undo
        self._tasks = BackgroundTasks(task_supervisor, self._restore_request)
        self._authorize_cwd = make_path_authorizer(config.workspace, writing=False, argument="cwd")

    async def close(self) -> None:
        """Stop the background tasks that this process holds."""
        await self._tasks.close()

    async def end_run(self, run_id: str) -> None:
        """Stop the background tasks of a run that is over."""
        await self._tasks.end_run(run_id)

    def make_diagnose(self, setting: DiagnosticsSetting) -> FileDiagnostics | None:
        """Return the diagnostics of edited files; None when they are off, or cannot be confined."""
        diagnostics = FileDiagnostics(self._config, self._commands, setting)
        return diagnostics if diagnostics.is_on else None

    def task_tools(self) -> tuple[ToolDefinition, ...]:
        """Return the tools for background tasks."""
        return make_task_tools(self._tasks)

    def bash_tool(self) -> ToolDefinition:
        """Return the bash tool."""

        async def bash(  # noqa: PLR0913, PLR0917 they are a model's arguments
            context: ToolContext,
            command: str,
            description: str = "",
            cwd: str = "",
            timeout_seconds: _TimeoutSeconds = None,
            background: bool = False,
            hosts: list[str] = [],  # noqa: B006 - never changed
        ) -> CommandResult | TaskReport:
            """Run a bash script in the workspace, in a sandbox, and return what it printed and its exit code.

            Only the workspace and temporary folders can be written, and there is normally no network. Every call is a
            new shell that starts in the workspace: variables and `cd` do not last. What it leaves running is ended
            with it. A long output is shown as an excerpt; read_artifact reads the rest.

            Args:
                command: The script. There is no terminal and no standard input.
                description: What it is for, in a few words.
                cwd: The folder to start in, from the workspace on.
                timeout_seconds: When to end it; there is a default and a maximum.
                background: Start it and return at once with a task id, for read_task, wait_task and stop_task.
                hosts: Hosts that it must reach and cannot yet, such as `example.com` or `example.com:8443`. A person
                    may be asked. HTTPS_PROXY is set for it.
            """
            most = self._config.max_task_seconds
            seconds = (
                choose_timeout(timeout_seconds, most, most) if background else self._choose_timeout(timeout_seconds)
            )
            request = self._make_request(command, cwd, seconds, context, hosts=hosts)
            order = msgspec.structs.replace(request, background=background)
            if background:
                return await self._tasks.start(order, context)
            if self._trials is not None and context.trial:
                return await self._trials.commit(context.trial, order, context)
            needs_hosts = bool(hosts) or order.config.network or self._config.uses_network(command)
            if self._trials is not None and order.can_write and not needs_hosts and self._can_be_undone():
                return await self._trials.run_and_commit(order, context)
            return await run_command(order, context)

        definition = tool(
            bash,
            risk="execute",
            concurrency="exclusive",
            resources={"command": "command", "cwd": "folder", "hosts": "host"},
            check=self._check,
            authorize=self._authorize,
            reach=self._describe_scope,
            normalize=_normalize_result,
            timeout_seconds=self._config.max_timeout_seconds + _OVERHEAD_SECONDS,
            max_output_chars=MAX_OUTPUT_CHARS,
        )
        is_held = is_contained(self._config, self._commands.confinement)
        return msgspec.structs.replace(definition, contained=is_held, trial=self._trials)

    def bash_outside_tool(self, unconfined: CommandSandbox) -> ToolDefinition:
        """Return `bash_outside`, to be registered only where people may be asked for unconfined commands."""

        async def bash_outside(
            context: ToolContext, command: str, reason: str, cwd: str = "", timeout_seconds: _TimeoutSeconds = None
        ) -> CommandResult:
            """Run a bash script without the sandbox. A person is asked each time. Use bash unless that cannot work.

            Args:
                command: The script.
                reason: Why it cannot be done inside of the sandbox, for the person who is asked.
                cwd: The folder to start in, from the workspace on.
                timeout_seconds: When to end it; there is a default and a maximum.
            """
            seconds = self._choose_timeout(timeout_seconds)
            order = self._make_request(command, cwd, seconds, context, unconfined)
            return await run_command(order, context)

        def authorize(arguments: JsonObject, situation: CallContext) -> Decision | None:
            # Nothing would keep it from writing, so in a read-only run it is denied without a question.
            reads = (
                authorize_backend(unconfined.confinement, situation)
                if situation.mode is PermissionMode.READ_ONLY
                else None
            )
            return reads or self._authorize_unsandboxed(arguments, situation)

        def reach(arguments: JsonObject, situation: CallContext) -> SandboxScope:
            cwd = self._relative_folder(arguments["cwd"])
            scope = describe_scope(self._config, unconfined.confinement, "unconfined", self._absolute_path(cwd))
            return self._with_timeout(scope, arguments)

        return tool(
            bash_outside,
            risk="execute",
            concurrency="exclusive",
            resources={"command": "command", "cwd": "folder"},
            check=self._check,
            authorize=authorize,
            reach=reach,
            normalize=normalize_command,
            timeout_seconds=self._config.max_timeout_seconds + _OVERHEAD_SECONDS,
            max_output_chars=MAX_OUTPUT_CHARS,
        )

    def _can_be_undone(self) -> bool:
        """Return True if a command can run in an overlay. Beside a background task it cannot: both would write."""
        is_alone = not self._tasks.has_running()
        return self._undo and is_alone and "overlay" in self._commands.confinement.capabilities

    def _find_trial_obstacle(self, arguments: JsonObject, situation: CallContext) -> str:
        held = self._commands.confinement
        if arguments.get("background"):
            return "it runs in the background"
        if not is_contained(self._config, held):
            return "the sandbox does not keep all effects of commands in the workspace here"
        if "overlay" not in held.capabilities:
            return "this host has no overlay file systems for commands"
        uses_network = arguments.get("hosts") or self._config.uses_network(arguments["command"])
        return "it needs the network" if uses_network else ""

    def _make_trial_request(self, arguments: JsonObject, context: ToolContext) -> CommandRequest:
        seconds = self._choose_timeout(arguments.get("timeout_seconds"))
        request = self._make_request(arguments["command"], arguments["cwd"], seconds, context)
        # A proxy that reaches no host notes which ones it was asked for.
        closed = CommandEgress(EgressRules(())) if "egress" in self._commands.confinement.capabilities else None
        return msgspec.structs.replace(request, egress=closed, config=self._with_hosts(closed))

    def _make_request(  # noqa: PLR0913, PLR0917 - all that decides about it
        self,
        script: str,
        cwd: str,
        seconds: CommandTimeout,
        context: ToolContext,
        unconfined: CommandSandbox | None = None,
        hosts: Sequence[str] = (),
    ) -> CommandRequest:
        """Repeat the check, because files may have changed, and return the request. `PathRefusedError` propagates."""
        if (problem := self._find_problem(script, cwd)) is not None:
            raise PreconditionError(problem)
        folder = self._approved_folder(cwd, context)
        # The scope stated before the start counts: a link that changed since must not open more than was decided on.
        recorded = read_recorded_profile(context.reach)
        # Only a person who approved exactly that gives a command the network.
        approved = context.bound is not None and not unconfined and has_network(context.bound.sandbox)
        egress = None if unconfined else self._find_egress(hosts, approved=context.bound is not None)
        return CommandRequest(
            script=script,
            cwd=folder,
            timeout=seconds,
            profile="unconfined" if unconfined else recorded or self._choose_profile(script, folder, context.situation),
            config=self._with_hosts(egress, network=approved),
            egress=egress,
            commands=unconfined or self._commands,
            expected_environment=context.bound,
        )

    def _restore_request(self, record: TaskRecord) -> CommandRequest:
        """Return the request of a task that another process started, to find out what it did."""
        return CommandRequest(
            script=record.script,
            cwd=record.cwd,
            timeout=CommandTimeout(record.timeout_seconds, False),
            profile=record.profile,
            config=self._config,
            commands=self._commands,
            background=True,
        )

    def _find_egress(self, hosts: Sequence[str], *, approved: bool) -> CommandEgress | None:
        egress = find_egress(self._config, self._commands.confinement, hosts, approved=approved)
        for secret in () if egress is None else egress.secrets:
            self._config.add_secret(secret)
        return egress

    def _with_hosts(self, egress: CommandEgress | None, *, network: bool = False) -> ShellConfig:
        """Return the configuration of a command with this egress, or else, if `network`, with all of the network."""
        if egress is not None:
            return msgspec.structs.replace(self._config, network=False, egress_port=PROXY_PORT)
        return msgspec.structs.replace(self._config, network=True) if network else self._config

    def _choose_profile(self, script: str, folder: str, situation: CallContext) -> ProfileName:
        held = self._commands.confinement
        return choose_profile(self._config, held, script, self._absolute_path(folder), situation.mode)

    def _relative_folder(self, cwd: str) -> str:
        return self._config.workspace.locate(cwd).relative if cwd else "."

    def _approved_folder(self, cwd: str, context: ToolContext) -> str:
        """Return the folder to start in: the one that was evaluated or approved."""
        if not cwd:
            return "."
        bound = context.bound
        folder = self._config.workspace.locate(cwd, judged=context.judged if bound is None else None).relative
        if bound is not None and bound.cwd != self._absolute_path(folder):
            raise PreconditionError(
                CheckProblem(message=f"cwd {cwd!r} leads to another folder than a person approved.")
            )
        return folder

    def _absolute_path(self, folder: str) -> str:
        root = self._config.workspace.root
        return root if folder == "." else f"{root}/{folder}"

    def _check(self, arguments: JsonObject, context: ToolContext) -> CheckProblem | None:
        if arguments.get("background") and (problem := self._tasks.find_start_problem(context.run_id)) is not None:
            return problem
        if problem := find_hosts_problem(arguments.get("hosts", ()), self._commands.confinement):
            return CheckProblem(message=problem)
        try:
            return self._find_problem(arguments["command"], arguments["cwd"])
        except PathRefusedError:
            return None  # reported by policy

    def _find_problem(self, script: str, cwd: str) -> CheckProblem | None:
        if problem := _find_script_problem(script):
            return CheckProblem(message=problem)
        if not cwd:
            return None
        try:
            place = self._config.workspace.locate(cwd)
        except PathRefusedError as refused:
            if refused.kind in ("outside", "secret", "guarded", "hidden", "malformed"):
                raise
            return CheckProblem(message=str(refused))
        if place.kind != "folder":
            return CheckProblem(message=f"cwd {cwd!r} is not a folder of the workspace.")
        return None

    def _authorize(self, arguments: JsonObject, situation: CallContext) -> Decision | None:
        outside = self._authorize_cwd(arguments, situation) if arguments["cwd"] else None
        held, hosts = self._commands.confinement, arguments.get("hosts", ())
        opened = authorize_hosts(self._config.egress(), hosts, situation)
        if opened is not None and opened.verdict is Verdict.DENY:
            return opened
        if opened is None and find_egress(self._config, held, hosts) is None:
            opened = authorize_network(self._config, held, arguments["command"], situation)
        backend = authorize_backend(held, situation)
        if backend is not None and opened is not None:
            backend = msgspec.structs.replace(backend, reason=f"{backend.reason} {opened.reason}")
        return outside or backend or opened

    def _authorize_unsandboxed(self, arguments: JsonObject, situation: CallContext) -> Decision | None:
        outside = self._authorize_cwd(arguments, situation) if arguments["cwd"] else None
        return outside or Decision(
            verdict=Verdict.ASK,
            reason=f"This would run without the sandbox. The model says why: {arguments['reason'][:300]}",
            rule_ids=("sandbox:outside",),
            layer=SANDBOX_LAYER,
            risk=_UNSANDBOXED_RISK,
            scope="once",
        )

    def _describe_scope(self, arguments: JsonObject, situation: CallContext) -> SandboxScope:
        folder = self._relative_folder(arguments["cwd"])
        name = self._choose_profile(arguments["command"], folder, situation)
        environment = choose_environment(self._config, name, self._config.parse_script(arguments["command"]))
        place = self._absolute_path(folder)
        held = self._commands.confinement
        egress = find_egress(self._config, held, arguments.get("hosts", ()))
        asks = egress is None and authorize_network(self._config, held, arguments["command"], situation) is not None
        config = self._with_hosts(egress, network=asks)
        scope = describe_scope(config, held, name, place, environment)
        return scope if arguments.get("background") else self._with_timeout(scope, arguments)

    def _with_timeout(self, scope: SandboxScope, arguments: JsonObject) -> SandboxScope:
        """Return the scope with the timeout of this command, which is the one in force."""
        timeout = self._choose_timeout(arguments.get("timeout_seconds"))
        return msgspec.structs.replace(scope, timeout_seconds=timeout.seconds)

    def _choose_timeout(self, asked: float | None) -> CommandTimeout:
        return choose_timeout(asked, self._config.default_timeout_seconds, self._config.max_timeout_seconds)


def _find_script_problem(script: str) -> str:
    """Return why bash cannot be given the script. Parsing is up to policy and bash."""
    if not script.strip():
        return "The command is empty."
    if "\0" in script:
        return "A command cannot hold a NUL character."
    if len(script.encode(errors="surrogatepass")) > MAX_SCRIPT_BYTES:
        return f"The command is longer than {MAX_SCRIPT_BYTES:,} bytes. Write it to a file and run that."
    return ""


def _normalize_result(result: CommandResult | TaskReport) -> NormalizedOutput:
    return normalize_start(result) if isinstance(result, TaskReport) else normalize_command(result)
