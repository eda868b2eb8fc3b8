"""Random interleavings of calls with effect keys, crashes and answers: every effect beyond the first was approved."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Any, Literal, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock import CallbackInteractionProvider, MemoryLog, Question, ToolRuntime, tool
from interlock.domain.errors import LogError, PreconditionError
from interlock.domain.tool import CheckProblem
from interlock.storage.event_log import EffectClaim
from tests.support import call

from .scene import ALLOW, MortalLog

#: What becomes of a call that starts: paid and recorded, paid and killed, killed after its claim, refused by the bank.
Fate: TypeAlias = Literal["pay", "paid and killed", "claimed and killed", "refused"]
FATES: tuple[Fate, ...] = ("pay", "paid and killed", "claimed and killed", "refused")
#: The run, the order, the fate, and the answer of the person who is asked.
Proposal: TypeAlias = tuple[int, int, Fate, bool]
PROPOSALS = st.tuples(st.integers(0, 3), st.integers(0, 1), st.sampled_from(FATES), st.booleans())
ROUNDS = st.lists(st.lists(PROPOSALS, min_size=1, max_size=3, unique_by=lambda each: each[0]), min_size=1, max_size=5)


class Turns:
    """Lets the calls of several processes take turns at the log, in an order that the seed chooses."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._waiting: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        asyncio.get_running_loop().call_soon(self._next)
        await turn

    def _next(self) -> None:
        self._waiting.pop(self._random.randrange(len(self._waiting))).set_result(None)


class ProcessLog(MortalLog):
    """The log as one process uses it: its turns come when they come, and it may die."""

    def __init__(self, inner: MemoryLog, turns: Turns, *, dies_after_claim: bool) -> None:
        super().__init__(inner)
        self._turns, self._dies_after_claim = turns, dies_after_claim
        self.claim_effect = self._claim_effect
        self.effect_claims = self._effect_claims

    async def _claim_effect(self, effect: str, claim: EffectClaim, after: int) -> bool:
        await self._turns.wait()
        is_claimed = await self._inner.claim_effect(effect, claim, after)
        self.is_dead = self.is_dead or (is_claimed and self._dies_after_claim)
        await self._turns.wait()
        return is_claimed

    async def _effect_claims(self, effect: str, limit: int) -> list[EffectClaim]:
        await self._turns.wait()
        return await self._inner.effect_claims(effect, limit)

    async def read(self, run_id: str, after_seq: int = -1, limit: int | None = None) -> Any:
        await self._turns.wait()
        return await super().read(run_id, after_seq, limit)


class World:
    """One log, and what was paid and approved."""

    def __init__(self, seed: int) -> None:
        self._log, self._turns = MemoryLog(), Turns(seed)
        self.paid: Counter[int] = Counter()
        self.approved: Counter[int] = Counter()

    async def propose(self, proposal: Proposal, call_id: str) -> None:
        run, order, fate, answer = proposal
        log = ProcessLog(self._log, self._turns, dies_after_claim=fate == "claimed and killed")

        @tool(risk="network", effect="refund:{order}")
        async def refund(order: int) -> str:
            if fate == "refused":
                raise PreconditionError(CheckProblem(message="The bank is closed."))
            self.paid[order] += 1
            log.is_dead = fate == "paid and killed"
            return "paid"

        def ask(question: Question) -> bool:
            assert question.needs_person
            self.approved[order] += answer
            return answer

        people = CallbackInteractionProvider(ask)
        with suppress(LogError):
            async with ToolRuntime(
                tools=[refund], policy=ALLOW, interaction=people, log=log, run_id=f"run_{run}"
            ) as runtime:
                await runtime.execute([call(call_id, "refund", order=order)])


async def live(rounds: Sequence[Sequence[Proposal]], seed: int) -> World:
    world = World(seed)
    for number, proposals in enumerate(rounds):
        calls = enumerate(proposals)
        await asyncio.gather(*(world.propose(proposal, f"c{number}_{index}") for index, proposal in calls))
    return world


@pytest.mark.requirement("P16")
@given(ROUNDS, st.integers(0, 2**32))
async def test_every_effect_beyond_the_first_was_approved(rounds: list[list[Proposal]], seed: int) -> None:
    world = await live(rounds, seed)

    for order, times in world.paid.items():
        assert times <= 1 + world.approved[order]


async def test_first_call_starts_silently_in_any_order() -> None:
    for seed in range(20):
        world = await live([[(run, 0, "pay", False) for run in range(3)]], seed)
        assert world.paid == {0: 1}
