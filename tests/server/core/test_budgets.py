"""Budgets of the served agents: who sees what was used of which."""

from pathlib import Path
from typing import Any

import pytest

from interlock import RulePolicy
from interlock.policy import BudgetRule
from interlock.server.core.errors import ForbiddenError
from interlock.server.core.identity.principal import Principal, Role
from interlock.server.core.service import Service
from interlock.storage.budgets import BudgetUsage
from interlock.testing import FakeClock

from .serving import ADA, BOT, World, create, serving, status

CLOCK = FakeClock()
CALLS = BudgetRule(id="changes", tools=("change",), per=("requester",), limit=4)
TOTAL = BudgetRule(id="total", limit=3, then="ask", layer="user rule")


def policy(*budgets: BudgetRule) -> RulePolicy:
    return RulePolicy(default="allow", budgets=budgets)


def person(name: str, *agents: str) -> Principal:
    return Principal(
        name=f"user:{name}", kind="person", roles=frozenset({Role.OPERATOR}), agents=frozenset(agents) or None
    )


async def run(service: Service, agent: str, **wish: Any) -> None:
    await status(service, await create(service, agent, **wish), "COMPLETED")


async def shown(service: Service, principal: Principal) -> list[tuple[str, tuple[str, ...], dict[str, str], float]]:
    rows = await service.budgets.list_budgets(principal, CLOCK.now())
    return [(row.usage.id, row.agents, dict(row.usage.subject), row.usage.used) for row in rows]


async def test_use_is_listed_the_most_used_first(tmp_path: Path) -> None:
    world = World()
    two = world.two(policy=policy(CALLS, TOTAL))
    async with serving(tmp_path, two, now=CLOCK.now) as service:
        await run(service, "two")

        total, changes = await service.budgets.list_budgets(ADA, CLOCK.now())

    assert total.usage == BudgetUsage(
        id="total",
        about="at most 3 calls a day, tools *",
        subject={},
        used=2,
        limit=3,
        unit="calls",
        window="day",
        then="ask",
        began_at=1_799_971_200_000_000_000,
        resets_at=1_800_057_600_000_000_000,
    )
    assert (changes.usage.subject, changes.usage.used, changes.agents) == ({"requester": "user:ada"}, 2, ("two",))


async def test_only_budgets_of_seen_agents_are_listed(tmp_path: Path) -> None:
    world = World()
    one, two = world.one(policy=policy(CALLS)), world.two(policy=policy(TOTAL))
    async with serving(tmp_path, one, two, now=CLOCK.now) as service:
        assert await shown(service, person("olga", "one")) == [("changes", ("one",), {}, 0)]
        assert await shown(service, person("olga", "two")) == [("total", ("two",), {}, 0)]
        assert await shown(service, Principal(name="user:sam", kind="person")) == []
        with pytest.raises(ForbiddenError):
            await shown(service, BOT)


async def test_names_of_others_are_not_shown(tmp_path: Path) -> None:
    """The agents share the budget: who sees one of them sees no requesters of the other."""
    world = World()
    by_agent = BudgetRule(id="by-agent", per=("agent",), limit=9)
    shared = policy(CALLS, by_agent)
    agents = world.one(policy=shared), world.two(policy=shared)
    async with serving(tmp_path, *agents, now=CLOCK.now) as service:
        await run(service, "two", who=ADA)
        await run(service, "one", who=person("olga"))

        partly = await shown(service, person("olga", "one"))
        everything = await shown(service, ADA)

    assert partly == [("changes", ("one",), {"requester": "user:olga"}, 1), ("by-agent", ("one",), {"agent": "one"}, 1)]
    assert [row[2:] for row in everything] == [
        ({"requester": "user:ada"}, 2),
        ({"requester": "user:olga"}, 1),
        ({"agent": "two"}, 2),
        ({"agent": "one"}, 1),
    ]


async def test_budgets_count_for_named_agents_only(tmp_path: Path) -> None:
    world = World()
    shared = policy(BudgetRule(id="ones", agents=("o*",), limit=9))
    agents = world.one(policy=shared), world.two(policy=shared)
    async with serving(tmp_path, *agents, now=CLOCK.now) as service:
        await run(service, "two")
        assert await shown(service, ADA) == [("ones", ("one",), {}, 0)]


async def test_policy_page_knows_budgets(tmp_path: Path) -> None:
    world = World()
    async with serving(tmp_path, world.one(policy=policy(CALLS, TOTAL)), now=CLOCK.now) as service:
        await run(service, "one")
        details = await service.policy_service.show(ADA, "one")
        text = "version: 1\ndefault: allow\nbudgets: [{id: none, max: 0, tools: change}, {id: t, of: tokens, max: 9}]\n"
        report = await service.policy_service.backtest(ADA, "one", text)

    assert [(rule.id, rule.verdict, rule.layer) for rule in details.budgets] == [
        ("changes", "deny", "project rule"),
        ("total", "ask", "user rule"),
    ]
    assert [flip.now_rules for flip in report.result.flips] == [("budget:none",)]
    assert [(trial.id, trial.counted, trial.exceeded) for trial in report.result.budgets] == [
        ("none", 0, 1),
        ("t", 2, 0),
    ]
