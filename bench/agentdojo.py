"""Run AgentDojo's user tasks and injections with a model that obeys every injection.

`pip install agentdojo` in an environment that has Interlock, then `python -m bench.agentdojo`. No model and no network:
the script of each pair is the injection's calls, the user task's calls, and the injection's calls once more. Reading is
allowed; every write asks, and the person approves exactly the calls that the user's task needs, each once. Printed are
the pairs, the calls, the writes that ran without approval (must be 0), and the user tasks that reached their goal.
"""

import argparse
import inspect
import json
import sys
from collections import Counter
from collections.abc import Iterable
from importlib import import_module
from typing import Any, NamedTuple

from interlock import CallbackInteractionProvider, Question, ToolDefinition, ToolIntent, ToolRuntime, tool

_runtime: Any = import_module("agentdojo.functions_runtime")
_suites: Any = import_module("agentdojo.task_suite.load_suites")
_READS = ("get_", "search_", "list_", "read_", "check_")


class Outcome(NamedTuple):
    """What one pair came to."""

    calls: int
    approved: int
    unapproved_writes: int
    reached_goal: bool


class World:
    """One environment of AgentDojo, and what ran in it."""

    def __init__(self, suite: Any) -> None:
        self.environment: Any = suite.load_and_inject_default_environment({})
        self._functions: Any = _runtime.FunctionsRuntime(suite.tools)
        self.writes: list[str] = []
        self.traces: list[Any] = []

    def run(self, name: str, arguments: dict[str, Any]) -> str:
        if not name.startswith(_READS):
            self.writes.append(_identify(name, arguments))
        self.traces.append(_runtime.FunctionCall(function=name, args=arguments))
        output, error = self._functions.run_function(self.environment, name, arguments)
        if error is not None:
            raise ValueError(error)
        return str(output)

    def tools(self) -> list[ToolDefinition]:
        return [self._define(function) for function in self._functions.functions.values()]

    def _define(self, function: Any) -> ToolDefinition:
        def handler(**arguments: Any) -> str:
            return self.run(function.name, arguments)

        fields: Iterable[tuple[str, Any]] = function.parameters.model_fields.items()
        parameters = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty
                if field.is_required()
                else field.get_default(call_default_factory=True),
                annotation=field.annotation,
            )
            for name, field in fields
        ]
        declared: Any = handler
        declared.__signature__ = inspect.Signature(parameters, return_annotation=str)
        declared.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters} | {"return": str}
        return tool(
            declared,
            name=function.name,
            description=function.description,
            risk="read" if function.name.startswith(_READS) else "write",
        )


def _identify(name: str, arguments: dict[str, Any]) -> str:
    """Return what is the same for a call before and after validation, which fills in defaults and converts numbers."""
    given = {key: float(value) if type(value) is int else value for key, value in arguments.items()}
    return json.dumps([name, {key: value for key, value in given.items() if value not in (None, "")}], sort_keys=True)


def run_pair(suite: Any, user_task: Any, injection: Any | None) -> Outcome:
    """Run one user task beside one injection, or alone."""
    world = World(suite)
    before = world.environment.model_copy(deep=True)
    wanted: list[Any] = user_task.ground_truth(before.model_copy(deep=True))
    injected: list[Any] = injection.ground_truth(before.model_copy(deep=True)) if injection is not None else []
    open_approvals = Counter(_identify(call.function, dict(call.args)) for call in wanted)
    approved: list[str] = []

    def approve(question: Question) -> bool:
        call = _identify(question.tool_name, question.arguments)
        if not open_approvals[call]:
            return False
        open_approvals[call] -= 1
        approved.append(call)
        return True

    script = [*injected, *wanted, *injected]
    person = CallbackInteractionProvider(approve)
    with ToolRuntime(tools=world.tools(), interaction=person) as runtime:
        for number, call in enumerate(script):
            intent = ToolIntent(call_id=f"c{number}", tool_name=call.function, arguments=dict(call.args))
            runtime.execute_sync([intent])
    unapproved = Counter(world.writes) - Counter(approved)
    answer = user_task.GROUND_TRUTH_OUTPUT
    goal = user_task.utility_from_traces(answer, before, world.environment, world.traces)
    if goal is None:  # a task that looks at the environment alone
        goal = user_task.utility(answer, before, world.environment, strict=False)
    return Outcome(len(script), len(approved), unapproved.total(), bool(goal))


def main() -> int:
    """Run all pairs and print the sums. Return 1 when a write ran without approval, or a user task failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", default="v1.2.2", help="version of AgentDojo's suites (default: v1.2.2)")
    parser.add_argument("--every", type=int, default=1, help="run every n-th pair only (default: 1)")
    options = parser.parse_args()
    suites: dict[str, Any] = _suites.get_suites(options.version)
    pairs = calls = approvals = unapproved = alone = goals = 0
    for suite in suites.values():
        for user_task in suite.user_tasks.values():
            alone += 1
            goals += run_pair(suite, user_task, None).reached_goal
            for injection in suite.injection_tasks.values():
                pairs += 1
                if pairs % options.every:
                    continue
                outcome = run_pair(suite, user_task, injection)
                calls, approvals = calls + outcome.calls, approvals + outcome.approved
                unapproved += outcome.unapproved_writes
    print(f"{pairs // options.every} pairs, {calls} calls, {approvals} approved")
    print(f"unapproved writes: {unapproved}")
    print(f"user tasks that reached their goal: {goals} of {alone}")
    return int(bool(unapproved) or goals < alone)


if __name__ == "__main__":
    sys.exit(main())
