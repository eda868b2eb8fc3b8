"""Stage 6: pre-hooks, middleware, handler, post-hooks. The only stage that touches the world.

The whole chain runs in the task of its call, under one deadline, so a hang in any layer is a timeout. An execution
that is stopped gets a bounded time to end; one that ignores that is abandoned: its outcome is recorded without it, and
its late end changes nothing. A failure says what may have happened outside: nothing when the handler did not run or
only reads, else `unknown`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, Literal, TypeAlias, cast

import msgspec

from ..domain.call import Invocation, SuspendedCall, ValidCall
from ..domain.decision import Decision
from ..domain.errors import (
    CallFailedError,
    PreconditionError,
    RunSuspendedError,
    SandboxDeniedError,
    SandboxSetupError,
)
from ..domain.observation import RawResult
from ..domain.outcome import NO_SIDE_EFFECTS, UNKNOWN_SIDE_EFFECTS, Failure, SideEffect, SideEffects
from ..domain.tool import CallNext, Diagnostics, ErrorFormatter, JsonObject, Middleware, ToolContext
from ..rendering.text import describe_error, end_sentence
from ..sandbox.interface import Sandbox, SandboxFullError
from .parts import Clock

#: Validates and evaluates arguments that a hook or middleware changed.
Recheck: TypeAlias = Callable[[ValidCall, JsonObject], Awaitable[tuple[ValidCall, Decision] | Failure]]
#: Who stopped an execution: its deadline, a cancellation of this call, or the end of the run.
Stop: TypeAlias = Literal["", "timeout", "call", "run"]


class _Stopped(Exception):
    """Carries a failure through the developer's middleware."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Execution(msgspec.Struct):
    """One running invocation: its progress, its deadline, and who stopped it."""

    invocation: Invocation
    started_seq: int
    #: The task of the call, which also runs the handler.
    task: "asyncio.Task[None]"
    recheck: Recheck
    #: Called when the execution did not end in the time it was given.
    on_abandoned: "Callable[[Execution], None]"
    drain_seconds: float
    layer: str = "handler"
    stop: Stop = ""
    abandoned: bool = False
    #: Times of the event loop.
    began_at: float = 0.0
    deadline: float = 0.0
    began: int = 0
    duration_ms: float = 0.0
    #: What ran, where a hook changed the arguments, and the decision about that.
    changed: ValidCall | None = None
    decision: Decision | None = None
    #: A refusal that the developer's middleware may not hide.
    refusal: Failure | None = None
    handler_runs: int = 0
    handler_ended: bool = False
    #: It was asked to end by itself: see `finish_soon`.
    finishing: bool = False
    #: What the handler or a hook raised.
    error: BaseException | None = None
    #: The recorded end, where diagnostics follow it; a stop ends only these.
    ended_seq: int = -1
    diagnosis: "asyncio.Future[Diagnostics | None] | None" = None

    def end(self, stop: Stop, now: float) -> None:
        """Request the end of the execution. It has a bounded time to comply."""
        if self.diagnosis is not None:
            self.diagnosis.cancel()
            self.deadline = float("inf")
        elif not self.stop:
            self.stop = stop
            self.invocation.context.cancelled = True
            self.deadline = now + self.drain_seconds
            self.task.cancel()

    def finish_soon(self, now: float) -> None:
        """Let the execution end by itself within the drain time, where that says more than a cancellation: its handler
        has ended and hooks follow, or runs in a thread, which cannot be stopped. End any other.
        """
        if not (self.handler_ended or self.invocation.executor == "thread"):
            self.end("call", now)
        elif not self.stop and not self.finishing:
            self.finishing = True
            self.invocation.context.cancelled = not self.handler_ended
            self.deadline = min(self.deadline, now + self.drain_seconds)

    def overdue(self, now: float) -> None:
        """Handle a passed deadline: the one to finish, or the one to end."""
        if not self.stop:
            self.end("call" if self.finishing else "timeout", now)
        elif not self.abandoned:
            self.abandoned = True
            self.deadline = float("inf")
            self.on_abandoned(self)


async def execute(execution: Execution, sandbox: Sandbox, clock: Clock) -> RawResult | SuspendedCall | Failure:
    """Run the handler of a call with its hooks. Errors and stops become failures."""
    invocation, tool = execution.invocation, execution.invocation.tool
    execution.began = clock.elapsed()
    failure = value = None
    try:
        if tool.pre_hooks or tool.middleware or tool.post_hooks:
            value = await _chain(execution, sandbox)
        else:
            value = await sandbox.start(tool, invocation.valid.checked, invocation.context)
    except asyncio.CancelledError:
        return stopped(execution, clock)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        suspended = isinstance(error, RunSuspendedError)
        failure = SuspendedCall(error.child_run_id) if suspended else _failure_of(error, execution)
    execution.duration_ms = (clock.elapsed() - execution.began) / 1e6
    if execution.stop:
        return stopped(execution, clock)
    if execution.refusal is not None:
        return execution.refusal
    if failure is not None:
        return failure
    match value:
        case BaseException():
            return _failed(execution, value)
        case _:
            effects = _said(invocation.context) if invocation.context.effects else ()
            return RawResult(invocation, value, effects, execution.duration_ms)


def _said(context: ToolContext) -> tuple[SideEffect, ...]:
    """Return the side effects that the call reported. Its context was accessible to the developer's code."""
    effects = cast(object, context.effects)
    if not isinstance(effects, list):
        return ()
    return tuple(effect for effect in cast(list[object], effects) if isinstance(effect, SideEffect))


def _failure_of(error: BaseException, execution: Execution) -> Failure:
    match error:
        case _Stopped():
            execution.error = error.__cause__
            return error.failure
        case CallFailedError() | PreconditionError() | SandboxFullError() | SandboxSetupError() | SandboxDeniedError():
            return _stated_failure(error, execution)
        case _:
            execution.error = error
            return _failed(execution, error)


_StatedError: TypeAlias = (
    CallFailedError | PreconditionError | SandboxFullError | SandboxSetupError | SandboxDeniedError
)


def _stated_failure(error: _StatedError, execution: Execution) -> Failure:
    """Return the failure for an error that says what has happened."""
    match error:
        case SandboxFullError():
            return Failure.from_code("no_capacity", f"{error} Nothing was executed.")
        case PreconditionError(problem=problem):
            return Failure.from_code(problem.code, f"{end_sentence(problem.message)} Nothing was changed.")
        case CallFailedError():
            effects = NO_SIDE_EFFECTS if error.nothing_done else _effects(execution)
            return Failure.from_code(error.code, str(error), side_effects=effects, details=error.details)
        case SandboxSetupError():
            message = end_sentence(str(error))
            told = "" if "nothing was executed" in message.lower() else " Nothing was executed."
            return Failure.from_code("sandbox_setup_failed", f"{message}{told} `interlock doctor` says more.")
        case SandboxDeniedError():
            effects = NO_SIDE_EFFECTS if error.nothing_done else _effects(execution)
            told = " Nothing was executed." if error.nothing_done else ""
            return Failure.from_code("sandbox_denied", f"{end_sentence(str(error))}{told}", side_effects=effects)


def stopped(execution: Execution, clock: Clock) -> Failure:
    """Return the failure of a stopped execution. The end of the run is not an outcome of the call and is raised
    instead.
    """
    execution.duration_ms = (clock.elapsed() - execution.began) / 1e6
    if execution.stop == "run" or execution.abandoned:
        raise asyncio.CancelledError
    if execution.stop:
        execution.task.uncancel()
    return outcome_of_stop(execution)


def outcome_of_stop(execution: Execution) -> Failure:
    """Build the failure of a call that was stopped."""
    if execution.stop == "timeout":
        return _timed_out(execution)
    return Failure.from_code("cancelled", "The call was cancelled while it ran.", side_effects=_effects(execution))


async def _chain(execution: Execution, sandbox: Sandbox) -> Any:
    invocation, tool = execution.invocation, execution.invocation.tool
    context = invocation.context

    async def core(arguments: JsonObject, context: ToolContext) -> Any:
        """Run the handler with validated and evaluated arguments: those permitted, or checked again here."""
        valid = await _agreed(execution, arguments)
        permitted = invocation.permitted
        changed = execution.decision if valid is execution.changed else None
        context.judged = permitted.evaluated_paths if changed is None else frozenset(changed.paths)
        execution.layer, execution.handler_ended = "handler", False
        output = await sandbox.start(tool, valid.checked, context)
        execution.handler_ended = True
        return output

    execution.layer = "pre-hook"
    arguments = invocation.valid.copy_arguments()
    for hook in tool.pre_hooks:
        arguments = await _pre_hook(hook, arguments, context, sandbox)
    execution.layer = "middleware" if tool.middleware else "handler"
    output = await _wrapped(tool.middleware, core)(arguments, context)
    execution.layer = "post-hook"
    for hook in tool.post_hooks:
        output = await _post_hook(hook, output, invocation, sandbox)
    return output


async def _agreed(execution: Execution, arguments: JsonObject) -> ValidCall:
    """Return what the handler may run with, or a refusal that middleware cannot swallow."""
    valid, tool = execution.invocation.valid, execution.invocation.tool
    execution.handler_runs += 1
    if execution.handler_runs > 1 and not (tool.read_only or tool.idempotent):
        message = f"Middleware called {tool.name} again; a call that may have effects runs once."
        execution.refusal = Failure.from_code("hook_failed", message, side_effects=UNKNOWN_SIDE_EFFECTS)
        raise _Stopped(execution.refusal)
    if arguments == valid.arguments:
        return valid
    again = await execution.recheck(valid, arguments)
    if isinstance(again, Failure):
        execution.refusal = again
        raise _Stopped(again)
    execution.changed, execution.decision = again
    return again[0]


async def _pre_hook(
    hook: Callable[..., Any], arguments: JsonObject, context: ToolContext, sandbox: Sandbox
) -> JsonObject:
    try:
        changed = await _call(hook, arguments, context, sandbox)
    except Exception as error:
        raise _Stopped(_hook_failed(f"A pre-hook failed: {describe_error(error)}.")) from error
    if not isinstance(changed, dict):
        raise _Stopped(_hook_failed(f"A pre-hook returned {type(changed).__name__}, not a dict of arguments."))
    return cast(JsonObject, changed)


async def _post_hook(hook: Callable[..., Any], output: Any, invocation: Invocation, sandbox: Sandbox) -> Any:
    context = invocation.context
    try:
        return await _call(hook, {"output": output, "tool_name": context.tool_name}, context, sandbox)
    except Exception as error:
        effects = NO_SIDE_EFFECTS if invocation.tool.read_only else UNKNOWN_SIDE_EFFECTS
        message = f"The tool ran, then a post-hook failed: {describe_error(error)}."
        raise _Stopped(Failure.from_code("post_hook_failed", message, side_effects=effects)) from error


async def _call(hook: Callable[..., Any], value: Any, context: ToolContext, sandbox: Sandbox) -> Any:
    """Call a hook, in a thread when it is not asynchronous: it may block."""
    if iscoroutinefunction(hook):
        return await hook(value, context)
    return await sandbox.run_blocking(partial(hook, value, context))


def _wrapped(middleware: tuple[Middleware, ...], core: CallNext) -> CallNext:
    """Wrap the handler in middleware. The first declared is the outermost."""
    call = core
    for layer in reversed(middleware):
        call = _layer(layer, call)
    return call


def _layer(layer: Middleware, call_next: CallNext) -> CallNext:
    async def call(arguments: JsonObject, context: ToolContext) -> Any:
        return await layer(call_next, arguments, context)

    return call


def _effects(execution: Execution) -> SideEffects:
    """Return what an unsuccessful execution may have done."""
    return (
        NO_SIDE_EFFECTS
        if execution.layer == "pre-hook" or execution.invocation.tool.read_only
        else UNKNOWN_SIDE_EFFECTS
    )


def _hook_failed(message: str) -> Failure:
    return Failure.from_code("hook_failed", f"{message} The handler did not run.")


def _timed_out(execution: Execution) -> Failure:
    invocation, tool = execution.invocation, execution.invocation.tool
    effects = _effects(execution)
    message = f"{tool.name} did not finish in {invocation.timeout_seconds:g} s (in its {execution.layer})."
    if effects == UNKNOWN_SIDE_EFFECTS:
        message += " It may have had effects, and it is not run again."
    message = _own_words(tool.timeout_error_function, invocation.context, TimeoutError(message), message)
    return Failure.from_code("timed_out", message, side_effects=effects, details={"layer": execution.layer})


def _failed(execution: Execution, error: BaseException) -> Failure:
    invocation, tool = execution.invocation, execution.invocation.tool
    plain = f"{tool.name} failed: {describe_error(error)}"
    message = _own_words(tool.failure_error_function, invocation.context, error, plain)
    details = {"error_type": type(error).__name__}
    return Failure.from_code("tool_failed", message, side_effects=_effects(execution), details=details)


def _own_words(words: ErrorFormatter | None, context: ToolContext, error: BaseException, plain: str) -> str:
    """Return the message in the tool's own wording, where it has any."""
    if words is None:
        return plain
    try:
        return str(words(context, error))
    except Exception as broken:
        return f"{plain} (and its own error text failed: {describe_error(broken)})"
