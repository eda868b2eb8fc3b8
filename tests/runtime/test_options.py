"""What a runtime is told when it is made: a word that it does not know is refused, never passed over."""

import inspect
import re
from typing import Any

import pytest

from interlock import ConfigurationError, MemoryLog, PermissionMode, RulePolicy, Runner, ToolRuntime
from interlock.redaction.redactor import SecretRedactor
from interlock.sandbox.handlers.executor import HandlerExecutor
from interlock.scheduler import LocalScheduler
from interlock.telemetry.otel import OtelTelemetry
from tests.each import each
from tests.support import call


def test_an_option_with_a_slip_of_the_pen_is_refused_and_does_not_leave_the_default_in_force() -> None:
    options: dict[str, Any] = {"plicy": RulePolicy(default="deny")}

    with pytest.raises(ConfigurationError, match=r"Unknown option `plicy`. Did you mean `policy`\?"):
        ToolRuntime(**options)


@pytest.mark.parametrize("enter", [False, True])
def test_a_mode_that_does_not_exist_is_refused(enter: bool) -> None:
    with pytest.raises(ConfigurationError, match="Known: read_only, default, accept_edits, contained, trusted"):
        ToolRuntime().switch_mode(mode="wild") if enter else ToolRuntime(mode="wild")


class FalsyPolicy(RulePolicy):
    def __bool__(self) -> bool:
        return False


async def test_a_policy_counts_whatever_it_is_worth_as_a_truth_value() -> None:
    def work() -> str:
        return "done"

    runtime = ToolRuntime(tools=[work], policy=FalsyPolicy(default="deny"), mode=PermissionMode.DEFAULT)

    result = await runtime.execute([call("c1", "work")])

    assert result.observations[0].code == "policy_denied"


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "a function instead of a list": ({"tools": print}, r"tools is of type \w+. Give something like \[search\]"),
    "text instead of a tool": ({"tools": ["search"]}, "tools has something of type str. Give functions"),
    "a path instead of a policy": ({"policy": "policy.yaml"}, r'policy is of type str.*load_policy\("policy.yaml"\)'),
    "a class instead of a log": ({"log": MemoryLog}, "log is the class MemoryLog. Give something like SqliteLog"),
    "text instead of secrets": ({"secrets": "s3cret"}, "secrets is of type str"),
    "a number instead of limits": ({"limits": 3}, "limits is of type int. Give something like Limits"),
    "no turn": ({"max_concurrency": 0}, "max_concurrency is 0, and has to be a number from 1 on"),
    "an unknown way": ({"missing_tool": "rais"}, r"Unknown missing_tool `rais`. Did you mean `raise`\?"),
    "a number instead of a workspace": ({"workspace": 3}, "workspace is of type int"),
    "scheduler and concurrency": ({"scheduler": LocalScheduler(1), "max_concurrency": 1}, "not both"),
    "redactor and secrets": ({"redactor": SecretRedactor(), "secrets": {}}, "Give redactor= or secrets=, not both"),
    "no sandbox": ({"sandbox": True}, "sandbox is of type bool"),
}


@each("name", MISTAKES)
def test_wrong_option_is_refused_with_suggestion(name: str) -> None:
    options, message = MISTAKES[name]
    with pytest.raises(ConfigurationError, match=message):
        ToolRuntime(**options)


def test_signatures_name_every_option() -> None:
    for declared in (ToolRuntime, Runner):
        parameters = inspect.signature(declared).parameters.values()
        assert not [each for each in parameters if each.kind in (each.VAR_KEYWORD, each.VAR_POSITIONAL)]
        arguments = (declared.__init__.__doc__ or "").partition("Raises:")[0]
        documented = re.findall(r"^ {12}(\w+): ", arguments, re.MULTILINE)
        assert sorted(documented) == sorted(each.name for each in parameters)


async def test_parts_are_replaceable() -> None:
    used: list[str] = []

    class Sandbox(HandlerExecutor):
        def start(self, tool: Any, checked: Any, context: Any) -> Any:
            used.append("sandbox")
            return super().start(tool, checked, context)

        async def close(self) -> None:
            used.append("closed")

    class Scheduler(LocalScheduler):
        def enqueue(self, call_id: str, request: Any) -> Any:
            used.append("scheduler")
            return super().enqueue(call_id, request)

    class Redactor(SecretRedactor):
        def redact(self, text: str) -> str:
            return super().redact(text).replace("done", "[done]")

    class Telemetry(OtelTelemetry):
        def batch_finished(self, call_count: int, failure_count: int, latency_ms: float) -> None:
            used.append("telemetry")

    def work() -> str:
        return "done"

    async with ToolRuntime(
        tools=[work], sandbox=Sandbox(), scheduler=Scheduler(), redactor=Redactor(), telemetry=Telemetry()
    ) as runtime:
        result = await runtime.execute([call("c1", "work")])

    assert result.tool_executions[0].output == "[done]"
    assert sorted(used) == ["sandbox", "scheduler", "telemetry"]
