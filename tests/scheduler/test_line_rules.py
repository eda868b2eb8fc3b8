"""Rules that hold in every line: random scripts against a slow, obvious model of who may run."""

import asyncio
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from interlock.scheduler import LocalScheduler, LockRequest, Ticket

KEYS = st.frozensets(st.sampled_from("abc"), max_size=2)
CLAIMS = st.one_of(
    st.just(LockRequest("safe")),
    st.just(LockRequest("exclusive")),
    st.builds(LockRequest, st.just("keyed"), KEYS, KEYS),
)
INDEX = st.integers(0, 11)


def conflict(one: LockRequest, other: LockRequest) -> bool:
    """The rule as a person would say it."""
    if "exclusive" in (one.concurrency, other.concurrency):
        return True
    if "safe" in (one.concurrency, other.concurrency):
        return False
    return bool(one.writes & (other.reads | other.writes) or other.writes & one.reads)


class Member(msgspec.Struct):
    """Somebody in line, as the model sees them."""

    call_id: str
    claim: LockRequest
    place: Ticket
    running: bool = False
    turn: "asyncio.Future[None] | None" = None

    @property
    def has_turn(self) -> bool:
        return self.running or (self.turn is not None and self.turn.done() and not self.turn.cancelled())

    @property
    def asks(self) -> bool:
        return self.turn is not None and not self.turn.done()


class LineRules(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.line: list[Member] = []
        self.cap = 1
        self.entered = 0

    @initialize(cap=st.integers(1, 4))
    def open(self, cap: int) -> None:
        self.scheduler = LocalScheduler(cap)
        self.cap = cap

    @rule(claim=CLAIMS)
    def enter(self, claim: LockRequest) -> None:
        self.entered += 1
        call_id = f"call_{self.entered}"
        self.line.append(Member(call_id, claim, self.scheduler.enqueue(call_id, claim)))

    @rule(index=INDEX)
    def ask(self, index: int) -> None:
        if index < len(self.line):
            self._ask(self.line[index])

    @rule(index=INDEX)
    def stop_asking(self, index: int) -> None:
        if index < len(self.line) and self.line[index].asks:
            turn = self.line[index].turn
            assert turn is not None
            turn.cancel()

    @rule(index=INDEX)
    def leave(self, index: int) -> None:
        if index < len(self.line):
            self.line.pop(index).place.release()

    def _ask(self, member: Member) -> None:
        async def ask() -> None:
            turn = member.place.acquire()
            member.running = member.running or turn is None
            member.turn = member.turn if turn is None else asyncio.ensure_future(turn)

        self.loop.run_until_complete(ask())

    def _in_front(self, member: Member) -> Iterator[Member]:
        for other in self.line:
            if other is member:
                return
            if conflict(other.claim, member.claim):
                yield other

    @invariant()
    def never_two_conflicting_calls_run_at_once(self) -> None:
        running = [member for member in self.line if member.has_turn]
        pairs = [(one, two) for index, one in enumerate(running) for two in running[:index]]
        assert not [pair for pair in pairs if conflict(pair[0].claim, pair[1].claim)]

    @invariant()
    def never_more_turns_are_out_than_the_cap(self) -> None:
        assert sum(member.has_turn for member in self.line) <= self.cap

    @invariant()
    def conflicting_calls_run_in_the_order_they_came(self) -> None:
        assert not [member for member in self.line if member.has_turn and list(self._in_front(member))]

    @invariant()
    def nobody_waits_who_could_run(self) -> None:
        if sum(member.has_turn for member in self.line) < self.cap:
            assert not [member for member in self.line if member.asks and not list(self._in_front(member))]

    @invariant()
    def everybody_is_behind_exactly_the_conflicting_calls_in_front(self) -> None:
        for member in self.line:
            assert member.place.blockers == tuple(other.call_id for other in self._in_front(member))

    def teardown(self) -> None:
        self.everybody_gets_a_turn_once_those_in_front_leave()
        self.loop.close()

    def everybody_gets_a_turn_once_those_in_front_leave(self) -> None:
        for member in self.line:
            self._ask(member)
        while self.line:
            done = [member for member in self.line if member.has_turn]
            assert done, "nobody in line can move"
            for member in done:
                self.line.remove(member)
                member.place.release()
                self.never_two_conflicting_calls_run_at_once()


@pytest.mark.requirement("R097", "R221", "R222")
class TestLineRules(LineRules.TestCase):
    settings = settings(stateful_step_count=40)
