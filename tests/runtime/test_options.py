"""What a runtime is told when it is made: a word that it does not know is refused, never passed over."""

from typing import Any

import pytest

from interlock import ConfigurationError, PermissionMode, RulePolicy, ToolRuntime
from tests.support import call


def test_an_option_with_a_slip_of_the_pen_is_refused_and_does_not_leave_the_default_in_force() -> None:
    options: dict[str, Any] = {"plicy": RulePolicy(default="deny")}

    with pytest.raises(ConfigurationError, match="There is no option plicy"):
        ToolRuntime(**options)


@pytest.mark.parametrize("enter", [False, True])
def test_a_mode_that_does_not_exist_is_refused(enter: bool) -> None:
    with pytest.raises(ConfigurationError, match="The modes are read_only, default, accept_edits, trusted"):
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
