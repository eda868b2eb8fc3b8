"""A server may offer tools without end, and rename them: decisions stay right, and what is remembered stays bounded."""

import msgspec

from interlock.domain.tool import CallContext
from interlock.policy.engine.example_event import example_event
from interlock.policy.engine.rule import Rule
from interlock.policy.engine.rule_policy import RulePolicy


def test_after_thousands_of_tools_every_one_is_still_judged_as_at_first() -> None:
    policy = RulePolicy([Rule(id="odd", verdict="deny", tools="*1")])
    situation = CallContext(run_id="run_1")
    event = example_event("tool", {}, situation)
    spec = event.tool.spec
    tools = [
        msgspec.structs.replace(event.tool, spec=msgspec.structs.replace(spec, name=f"tool_{number}"))
        for number in range(5_000)
    ]
    events = [msgspec.structs.replace(event, tool=tool) for tool in tools]

    first = [policy.evaluate(each).verdict for each in events]
    again = [policy.evaluate(each).verdict for each in events]

    assert first == again == ["deny" if tool.name.endswith("1") else "allow" for tool in tools]
