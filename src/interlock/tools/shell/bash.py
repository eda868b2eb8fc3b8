"""`bash`: a script in the workspace, held back by the sandbox; in the foreground, or as a task in the background.

A `Shell` is what all commands of a run share: the workspace, the backend, the limits. Nothing in the arguments of a
call chooses the sandbox. `bash_outside` is another tool, for developers who want it: it runs without any, and every
single call is a question to a person, whatever rules say.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Required, TypedDict, Unpack

import msgspec
from pydantic import Field

from ...domain.decision import Decision, Verdict
from ...domain.errors import PreconditionError
from ...domain.tool import JsonObject, Mode, Normalized, Problem, Reach, Situation, ToolContext, ToolDefinition
from ...registry.decorator import tool
from ...sandbox.interface import CommandLimits, CommandSandbox
from ...sandbox.workspace.workspace import PathRefused, Workspace
from ..files.boundary import path_opinion
from .command import MAX_OUTPUT_CHARS, Order, Words, run_command
from .command_result import CommandResult, normalized
from .profile import (
    LAYER,
    ProfileName,
    Protected,
    Seconds,
    ShellRules,
    opinion_on,
    profile_name,
    reach_of,
    recorded_name,
    seconds_for,
)
from .task_tools import normalized_start, task_tools
from .tasks import TaskReport, Tasks

MAX_SCRIPT_BYTES = 100_000
#: For what is done around a command: looking at the workspace, ending it, keeping its output.
_AROUND_SECONDS = 60
_OUTSIDE_RISK = (
    "execute",
    "no sandbox: it can read and change every file that you can, also keys and passwords",
    "no sandbox: it can reach every host",
)
_TimeoutSeconds = Annotated[float | None, Field(gt=0)]


class ShellOptions(TypedDict, total=False):
    #: The words of each simple command of a script; None when it cannot be read.
    words: Required[Words]
    #: Was all of a script, started in that absolute folder, proved to only read?
    is_read_only: Required[Callable[[str, str], bool]]
    #: What commands see empty, and what they cannot change.
    hidden: Required[Callable[[], Protected]]
    #: What commands can read beside the workspace and the system.
    readable: tuple[str, ...]
    environment: Mapping[str, str]
    limits: CommandLimits
    network: bool
    default_timeout_seconds: float
    max_timeout_seconds: float
    #: For commands in the background.
    max_task_seconds: float


class Shell:
    """Makes the tools that run commands. `close` ends what still runs in the background."""

    def __init__(self, workspace: Workspace, commands: CommandSandbox, **options: Unpack[ShellOptions]) -> None:
        self._rules = ShellRules(
            workspace=workspace,
            is_read_only=options["is_read_only"],
            hidden=options["hidden"],
            readable=options.get("readable", ()),
            environment=options.get("environment", {}),
            limits=options.get("limits", CommandLimits()),
            network=options.get("network", False),
        )
        self._commands = commands
        self._words = options["words"]
        self._tasks = Tasks()
        self._default_seconds = options.get("default_timeout_seconds", 120.0)
        self._max_seconds = options.get("max_timeout_seconds", 600.0)
        self._max_task_seconds = options.get("max_task_seconds", 3_600.0)
        self._cwd_opinion = path_opinion(workspace, writing=False, argument="cwd")

    async def close(self) -> None:
        await self._tasks.close()

    def tasks(self) -> tuple[ToolDefinition, ...]:
        return task_tools(self._tasks)

    def bash(self) -> ToolDefinition:
        async def bash(  # noqa: PLR0913, PLR0917 they are a model's arguments
            context: ToolContext,
            command: str,
            description: str = "",
            cwd: str = "",
            timeout_seconds: _TimeoutSeconds = None,
            background: bool = False,
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
            """
            most = self._max_task_seconds if background else self._max_seconds
            seconds = seconds_for(timeout_seconds, most if background else self._default_seconds, most)
            order = msgspec.structs.replace(self._order(command, cwd, seconds, context), background=background)
            return await (self._tasks.start(order, context) if background else run_command(order, context))

        return tool(
            bash,
            risk="execute",
            concurrency="exclusive",
            resources={"command": "command", "cwd": "folder"},
            check=self._check,
            authorize=self._authorize,
            reach=self._reach,
            normalize=_normalized,
            timeout_seconds=self._max_seconds + _AROUND_SECONDS,
            max_output_chars=MAX_OUTPUT_CHARS,
        )

    def outside(self, unconfined: CommandSandbox) -> ToolDefinition:
        """`bash_outside`, to be registered only where people are to be asked for such a thing at all."""

        async def bash_outside(
            context: ToolContext,
            command: str,
            reason: str,
            cwd: str = "",
            timeout_seconds: _TimeoutSeconds = None,
        ) -> CommandResult:
            """Run a bash script without the sandbox. A person is asked each time. Use bash unless that cannot work.

            Args:
                command: The script.
                reason: Why it cannot be done inside of the sandbox, for the person who is asked.
                cwd: The folder to start in, from the workspace on.
                timeout_seconds: When to end it; there is a default and a maximum.
            """
            seconds = seconds_for(timeout_seconds, self._default_seconds, self._max_seconds)
            order = self._order(command, cwd, seconds, context, unconfined)
            return await run_command(order, context)

        def authorize(arguments: JsonObject, situation: Situation) -> Decision | None:
            # Nothing would keep it from writing, so in a run that only reads nobody is even asked.
            reads = opinion_on(unconfined.confinement, situation) if situation.mode is Mode.READ_ONLY else None
            return reads or self._authorize_outside(arguments, situation)

        def reach(arguments: JsonObject, situation: Situation) -> Reach:
            cwd = self._folder(arguments["cwd"])
            return reach_of(self._rules, unconfined.confinement, "unconfined", self._absolute(cwd))

        return tool(
            bash_outside,
            risk="execute",
            concurrency="exclusive",
            resources={"command": "command", "cwd": "folder"},
            check=self._check,
            authorize=authorize,
            reach=reach,
            normalize=normalized,
            timeout_seconds=self._max_seconds + _AROUND_SECONDS,
            max_output_chars=MAX_OUTPUT_CHARS,
        )

    def _order(
        self,
        script: str,
        cwd: str,
        seconds: Seconds,
        context: ToolContext,
        unconfined: CommandSandbox | None = None,
    ) -> Order:
        """The files may have changed since the check, so it is done again. `PathRefused` goes up as it is."""
        if (problem := self._problem(script, cwd)) is not None:
            raise PreconditionError(problem)
        folder = self._judged_folder(cwd, context)
        # What was said before the start counts: a link that changed since must not open more than was decided on.
        recorded = recorded_name(context.reach)
        return Order(
            script=script,
            cwd=folder,
            seconds=seconds,
            profile="unconfined" if unconfined else recorded or self._profile_name(script, folder, context.situation),
            rules=self._rules,
            commands=unconfined or self._commands,
            words=self._words,
            bound=context.bound,
        )

    def _profile_name(self, script: str, folder: str, situation: Situation) -> ProfileName:
        held = self._commands.confinement
        return profile_name(self._rules, held, script, self._absolute(folder), situation.mode)

    def _folder(self, cwd: str) -> str:
        return self._rules.workspace.locate(cwd).relative if cwd else "."

    def _judged_folder(self, cwd: str, context: ToolContext) -> str:
        """The folder to start in, which is the one that was judged or that a person approved."""
        if not cwd:
            return "."
        bound = context.bound
        folder = self._rules.workspace.locate(cwd, judged=context.judged if bound is None else None).relative
        if bound is not None and bound.cwd != self._absolute(folder):
            raise PreconditionError(Problem(message=f"cwd {cwd!r} leads to another folder than a person approved."))
        return folder

    def _absolute(self, folder: str) -> str:
        root = self._rules.workspace.root
        return root if folder == "." else f"{root}/{folder}"

    def _check(self, arguments: JsonObject, context: ToolContext) -> Problem | None:
        if arguments.get("background") and (problem := self._tasks.problem(context.run_id)) is not None:
            return problem
        try:
            return self._problem(arguments["command"], arguments["cwd"])
        except PathRefused:
            return None  # for the gate

    def _problem(self, script: str, cwd: str) -> Problem | None:
        if fault := _fault_in(script):
            return Problem(message=fault)
        if not cwd:
            return None
        try:
            place = self._rules.workspace.locate(cwd)
        except PathRefused as refused:
            if refused.kind in ("outside", "secret", "guarded", "hidden", "malformed"):
                raise
            return Problem(message=str(refused))
        if place.kind != "folder":
            return Problem(message=f"cwd {cwd!r} is not a folder of the workspace.")
        return None

    def _authorize(self, arguments: JsonObject, situation: Situation) -> Decision | None:
        outside = self._cwd_opinion(arguments, situation) if arguments["cwd"] else None
        return outside or opinion_on(self._commands.confinement, situation)

    def _authorize_outside(self, arguments: JsonObject, situation: Situation) -> Decision | None:
        outside = self._cwd_opinion(arguments, situation) if arguments["cwd"] else None
        return outside or Decision(
            verdict=Verdict.ASK,
            reason=f"This would run without the sandbox. The model says why: {arguments['reason'][:300]}",
            rule_ids=("sandbox:outside",),
            layer=LAYER,
            risk=_OUTSIDE_RISK,
            scope="once",
        )

    def _reach(self, arguments: JsonObject, situation: Situation) -> Reach:
        folder = self._folder(arguments["cwd"])
        name = self._profile_name(arguments["command"], folder, situation)
        return reach_of(self._rules, self._commands.confinement, name, self._absolute(folder))


def _fault_in(script: str) -> str:
    """What bash could not even be given. Whether it can be read is for the policy, and for bash itself."""
    if not script.strip():
        return "The command is empty."
    if "\0" in script:
        return "A command cannot hold a NUL character."
    if len(script.encode(errors="surrogatepass")) > MAX_SCRIPT_BYTES:
        return f"The command is longer than {MAX_SCRIPT_BYTES:,} bytes. Write it to a file and run that."
    return ""


def _normalized(result: CommandResult | TaskReport) -> Normalized:
    return normalized_start(result) if isinstance(result, TaskReport) else normalized(result)
