"""What every event log promises about claims of effects."""

import asyncio

from ...storage.event_log import EffectClaim, EventLog
from .suite import ConformanceSuite


def make_claim(call_id: str, run_id: str = "run", at: int = 1) -> EffectClaim:
    """Return the claim of a call, not stored yet."""
    return EffectClaim(0, run_id, call_id, at)


class EffectClaimConformance(ConformanceSuite):
    """Part of `EventLogConformance`."""

    async def test_claims_are_returned_newest_first(self, log: EventLog) -> None:
        assert await log.effect_claims("refund", 10) == []
        for number, call_id in enumerate(("c1", "c2", "c3")):
            known = await log.effect_claims("refund", 1)
            after = known[0].number if known else 0
            assert await log.claim_effect("refund", make_claim(call_id, f"run_{number}", at=number), after)

        claims = await log.effect_claims("refund", 10)

        assert [(claim.run_id, claim.call_id, claim.at) for claim in claims] == [
            ("run_2", "c3", 2),
            ("run_1", "c2", 1),
            ("run_0", "c1", 0),
        ]
        assert [claim.number for claim in claims] == sorted({claim.number for claim in claims}, reverse=True)
        assert claims[-1].number > 0
        assert await log.effect_claims("refund", 2) == claims[:2]

    async def test_claim_needs_every_earlier_claim(self, log: EventLog) -> None:
        assert await log.claim_effect("refund", make_claim("c1"), 0)

        assert not await log.claim_effect("refund", make_claim("c2"), 0)
        assert not await log.claim_effect("refund", make_claim("c1", "other"), 0)

        (only,) = await log.effect_claims("refund", 10)
        assert (only.run_id, only.call_id) == ("run", "c1")
        assert await log.claim_effect("refund", make_claim("c2"), only.number)

    async def test_call_can_claim_again(self, log: EventLog) -> None:
        assert await log.claim_effect("refund", make_claim("c1"), 0)
        assert await log.claim_effect("refund", make_claim("c1", at=2), 0)

        assert len({claim.number for claim in await log.effect_claims("refund", 10)}) == 2

    async def test_effects_do_not_share_claims(self, log: EventLog) -> None:
        assert await log.claim_effect("refund", make_claim("c1"), 0)
        assert await log.claim_effect("Refund", make_claim("c2"), 0)

        assert [claim.call_id for claim in await log.effect_claims("refund", 10)] == ["c1"]

    async def test_one_of_many_concurrent_claims_succeeds(self, log: EventLog) -> None:
        claims = (log.claim_effect("refund", make_claim(f"c{number}"), 0) for number in range(16))

        assert sum(await asyncio.gather(*claims)) == 1
        assert len(await log.effect_claims("refund", 100)) == 1
