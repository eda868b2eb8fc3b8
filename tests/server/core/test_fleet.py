"""The agents of a server, on one log."""

from pathlib import Path

import pytest

from interlock import MemoryArtifacts, MemoryLog
from interlock.domain.decision import FailSafeConfig, FailurePolicy
from interlock.domain.errors import ConfigurationError
from interlock.local import LocalTools
from interlock.oauth.interface import NoConsents
from interlock.server.core.runs.agent_runners import AgentRunners
from interlock.server.core.runs.demo_agents import demo_agents
from interlock.server.core.runs.served_agent import ServedAgent
from tests.runs.support import calls

from .serving import ADA, asked, create, scripted, serving, status


def fleet(*served: ServedAgent) -> AgentRunners:
    return AgentRunners(served, MemoryLog(), MemoryArtifacts(), NoConsents())


def test_a_server_without_agents_or_with_two_of_one_name_is_refused() -> None:
    plain = ServedAgent(agent=scripted("plain", "Hello."))
    with pytest.raises(ConfigurationError, match="at least one agent"):
        fleet()
    with pytest.raises(ConfigurationError, match="two agents called 'plain'"):
        fleet(plain, plain)


@pytest.mark.requirement("D02")
@pytest.mark.parametrize(
    ("own", "on_rejection", "after"),
    [
        (FailSafeConfig(), None, "fail"),
        (FailSafeConfig(tool_failure_policy="fail"), None, "fail"),
        (FailSafeConfig(rejection_policy="continue"), None, "continue"),
        (FailSafeConfig(approval_denial_policy="degrade"), None, "degrade"),
        (FailSafeConfig(rejection_policy="continue"), "degrade", "degrade"),
        (FailSafeConfig(), "continue", "continue"),
    ],
)
def test_a_rejection_fails_a_run_unless_somebody_says_otherwise(
    own: FailSafeConfig, on_rejection: FailurePolicy | None, after: str
) -> None:
    served = ServedAgent(agent=scripted("plain", "Hello.", fail_safe=own), on_rejection=on_rejection)

    assert served.to_server_agent().fail_safe.after_rejection == after


async def test_tools_of_an_agent_cannot_touch_what_the_server_keeps(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "signing.key").write_text("secret")
    agent = scripted(
        "reader", calls(("c1", "read_file", {"path": "state/signing.key"})), "Done.", tools=[LocalTools(tmp_path)]
    )
    together = fleet(ServedAgent(agent=agent))
    together.protect_paths([str(tmp_path / "state")])
    handle = await together.by_agent["reader"].start("Read it.", created_by=ADA.name)
    result = await handle.result()
    await together.close()

    assert [each.ok for each in result.observations] == [False]
    assert "secret" not in str(result)


async def test_the_demo_agents_do_what_they_say(tmp_path: Path) -> None:
    async with serving(tmp_path, *demo_agents()) as service:
        refund = await create(service, "refunds")
        mailing = await create(service, "mailings")
        (row,) = await asked(service, refund)
        assert (row.tool, row.kind) == ("refund", "approval")
        (asked_for,) = await asked(service, mailing)
        assert (asked_for.tool, asked_for.kind) == ("send_mailing", "input")
        await service.approval_service.provide_input(ADA, asked_for.action_id, "everybody")
        await status(service, mailing, "COMPLETED")
