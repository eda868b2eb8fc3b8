"""Runs handlers unrestricted, in this process or in a separate one: only the process boundary confines them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from copy import deepcopy
from os import getcwd
from typing import Any

from pydantic import BaseModel

from ...domain.egress import EgressRule, EgressRules
from ...domain.errors import PreconditionError
from ...domain.payload import ExecutionEnvironment
from ...domain.tool import CallContext, CheckProblem, JsonObject, SandboxScope, ToolContext, ToolDefinition
from ...rendering.text import describe_error
from ..commands.workspace_lease import acquire_workspace
from ..network.egress import CommandEgress
from ..workspace.file_operands import bind_files, describe_change
from .process import run_in_process
from .threads import ThreadPool


class HandlerExecutor:
    """Implementation of `Sandbox`: coroutines in the loop, functions in threads, killable tools in processes."""

    unconfined_scope = SandboxScope(sandbox="none")

    def __init__(self, max_threads: int = 512) -> None:
        self._threads = ThreadPool(max_threads)
        self._egress: Callable[[], tuple[EgressRule, ...]] = tuple

    def set_egress(self, rules: Callable[[], tuple[EgressRule, ...]]) -> None:
        """Set the function that returns the egress rules of the policy, for tools that keep to them."""
        self._egress = rules

    def executor_name(self, tool: ToolDefinition) -> str:
        """Return how a tool is executed: in a process, in a thread or on the event loop."""
        if tool.isolation == "process":
            return "process"
        return "async" if tool.is_async else "thread"

    def describe_scope(self, tool: ToolDefinition, arguments: JsonObject, situation: CallContext) -> SandboxScope:
        """Describe what the handler can reach, as the tool itself states it."""
        if tool.reach is None:
            return self.unconfined_scope
        try:
            return tool.reach(deepcopy(arguments), situation)
        except Exception as error:
            # The tool restricts itself; what it cannot describe cannot be bound.
            return SandboxScope(sandbox="unknown", profile=describe_error(error))

    def describe_environment(
        self, tool: ToolDefinition, arguments: JsonObject, situation: CallContext, paths: Iterable[str]
    ) -> ExecutionEnvironment:
        """Describe where a call would run: folder, environment, sandbox and the state of its files."""
        reach = self.describe_scope(tool, arguments, situation)
        cwd = reach.cwd or situation.workspace or _current_folder()
        return ExecutionEnvironment(
            cwd=cwd,
            environment=reach.environment,
            sandbox=f"{reach.sandbox}/{reach.profile or self.executor_name(tool)}",
            files=bind_files(paths, cwd),
        )

    def start(self, tool: ToolDefinition, checked: BaseModel, context: ToolContext) -> Awaitable[Any]:
        """Start the handler of a tool, in a process or thread if it needs one."""
        # A tool that states its scope checks its files itself.
        if context.bound is not None and tool.reach is None and context.bound.can_change:
            return self._start_exclusive(tool, checked, context, context.bound)
        if tool.isolation == "process":
            egress = CommandEgress(EgressRules(self._egress())) if tool.egress else None
            return run_in_process(tool, checked, context, egress)
        arguments = {tool.args_parameter: checked} if tool.args_parameter else checked.__dict__
        if tool.context_parameter:
            arguments = {**arguments, tool.context_parameter: context}
        if tool.is_async:
            return tool.handler(**arguments)
        return self._threads.run(tool.handler, arguments)

    async def _start_exclusive(
        self, tool: ToolDefinition, checked: BaseModel, context: ToolContext, expected: ExecutionEnvironment
    ) -> Any:
        """Run an approved call while no command can change the files that the approval is bound to."""
        lease = await acquire_workspace(expected.cwd, "end")
        try:
            if problem := await asyncio.to_thread(describe_change, expected):
                raise PreconditionError(CheckProblem(message=problem, code="stale_file_baseline"))
            context.bound = None
            return await self.start(tool, checked, context)
        finally:
            lease.release()

    def run_blocking(self, function: Callable[[], Any]) -> Awaitable[Any]:
        """Run a function in a worker thread."""
        return self._threads.run(function, {})

    async def close(self) -> None:
        """Stop the worker threads."""
        self._threads.close()


def _current_folder() -> str:
    try:
        return getcwd()
    except OSError:  # it was deleted
        return ""
