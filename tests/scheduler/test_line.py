"""Turns by arrival order: what the line does in the cases people ask about."""

import asyncio
import cProfile
import gc
import weakref

import pytest

from interlock.domain.errors import InterlockError
from interlock.scheduler import LocalScheduler, LockRequest, Ticket
from tests.patience import HANG_SECONDS

SAFE = LockRequest("safe")
EXCLUSIVE = LockRequest("exclusive")


def reads(*keys: str) -> LockRequest:
    return LockRequest("keyed", reads=frozenset(keys))


def writes(*keys: str) -> LockRequest:
    return LockRequest("keyed", writes=frozenset(keys))


CLAIMS = {"safe": SAFE, "read": reads("a"), "write": writes("a"), "exclusive": EXCLUSIVE}


async def waiting(place: Ticket) -> "asyncio.Future[None]":
    """The place has asked and has to wait."""
    turn = place.acquire()
    assert turn is not None
    future = asyncio.ensure_future(turn)
    assert not future.done()
    return future


@pytest.mark.requirement("R220")
async def test_three_reads_proposed_together_all_have_a_turn_at_once() -> None:
    line = LocalScheduler()
    places = [line.enqueue(name, SAFE) for name in ("a", "b", "c")]

    assert [place.acquire() for place in places] == [None, None, None]


@pytest.mark.requirement("R221")
async def test_a_test_command_waits_until_the_edit_before_it_is_done() -> None:
    line = LocalScheduler()
    edit = line.enqueue("edit", writes("app.py"))
    command = line.enqueue("test", EXCLUSIVE)
    assert edit.acquire() is None
    turn = await waiting(command)

    edit.release()

    await asyncio.wait_for(turn, HANG_SECONDS)


@pytest.mark.requirement("R222")
async def test_two_edits_of_one_file_take_turns_and_edits_of_two_files_do_not_wait() -> None:
    line = LocalScheduler()
    first = line.enqueue("first", writes("a.py"))
    second = line.enqueue("second", writes("a.py"))
    other = line.enqueue("other", writes("b.py"))
    assert first.acquire() is None
    assert other.acquire() is None
    turn = await waiting(second)

    first.release()

    await asyncio.wait_for(turn, HANG_SECONDS)


async def test_readers_of_a_key_overlap_and_a_writer_behind_them_waits_for_all_of_them() -> None:
    line = LocalScheduler()
    readers = [line.enqueue("r1", reads("a")), line.enqueue("r2", reads("a"))]
    writer = line.enqueue("w", writes("a"))
    assert [reader.acquire() for reader in readers] == [None, None]
    turn = await waiting(writer)
    assert writer.blockers == ("r1", "r2")

    readers[1].release()
    assert writer.blockers == ("r1",)
    readers[0].release()

    await asyncio.wait_for(turn, HANG_SECONDS)


async def test_a_key_that_is_both_read_and_written_counts_as_written() -> None:
    line = LocalScheduler()
    both = LockRequest("keyed", reads=frozenset({"a"}), writes=frozenset({"a"}))
    assert line.enqueue("first", both).acquire() is None

    assert line.enqueue("second", reads("a")).acquire() is not None


async def test_a_call_that_has_not_asked_keeps_its_place_and_uses_no_turn() -> None:
    line = LocalScheduler(cap=1)
    person = line.enqueue("person", writes("a.py"))
    behind_it = line.enqueue("behind", reads("a.py"))
    beside_it = line.enqueue("beside", SAFE)
    assert beside_it.acquire() is None
    turn = await waiting(behind_it)

    beside_it.release()
    assert not turn.done()
    assert person.acquire() is None
    person.release()

    await asyncio.wait_for(turn, HANG_SECONDS)


async def test_behind_names_the_conflicting_calls_in_front_in_line_order() -> None:
    line = LocalScheduler()
    for call_id, claim in {"b": writes("b"), "a": writes("a"), "reader": reads("b"), "safe": SAFE}.items():
        line.enqueue(call_id, claim)

    assert line.enqueue("last", LockRequest("keyed", reads("a").reads, frozenset({"b"}))).blockers == (
        "b",
        "a",
        "reader",
    )
    assert line.enqueue("all", EXCLUSIVE).blockers == ("b", "a", "reader", "safe", "last")
    assert line.enqueue("after", SAFE).blockers == ("all",)


async def test_a_free_place_is_behind_nobody() -> None:
    line = LocalScheduler()
    place = line.enqueue("a", SAFE)
    assert place.blockers == ()
    place.release()
    assert place.blockers == ()


@pytest.mark.requirement("R097")
async def test_no_more_turns_are_out_than_the_cap_and_the_next_goes_to_who_waited_longest() -> None:
    line = LocalScheduler(cap=2)
    places = [line.enqueue(str(number), SAFE) for number in range(4)]
    assert [places[0].acquire(), places[1].acquire()] == [None, None]
    later, earlier = await waiting(places[3]), await waiting(places[2])

    places[0].release()

    assert later.done()
    assert not earlier.done()


async def test_a_writer_that_gives_up_lets_the_readers_behind_it_join_those_in_front() -> None:
    line = LocalScheduler()
    assert line.enqueue("front", SAFE).acquire() is None
    exclusive = line.enqueue("exclusive", EXCLUSIVE)
    turns = [await waiting(line.enqueue(str(number), SAFE)) for number in range(3)]

    exclusive.release()

    await asyncio.wait_for(asyncio.gather(*turns), HANG_SECONDS)


async def test_a_writer_that_gives_up_between_two_writers_frees_nobody() -> None:
    line = LocalScheduler()
    first = line.enqueue("first", EXCLUSIVE)
    assert first.acquire() is None
    second, third = line.enqueue("second", EXCLUSIVE), line.enqueue("third", SAFE)
    turn = await waiting(third)

    second.release()
    assert third.blockers == ("first",)
    assert not turn.done()
    first.release()

    await asyncio.wait_for(turn, HANG_SECONDS)


async def test_a_cancelled_wait_passes_its_turn_on_when_its_place_is_left() -> None:
    line = LocalScheduler(cap=1)
    holder, loser, winner = (line.enqueue(name, SAFE) for name in ("holder", "loser", "winner"))
    assert holder.acquire() is None
    lost, won = await waiting(loser), await waiting(winner)

    lost.cancel()
    holder.release()
    loser.release()

    await asyncio.wait_for(won, HANG_SECONDS)


async def test_a_task_cancelled_in_the_moment_its_turn_is_given_passes_it_on() -> None:
    line = LocalScheduler(cap=1)
    holder, loser, winner = (line.enqueue(name, SAFE) for name in ("holder", "loser", "winner"))
    assert holder.acquire() is None
    both_wait = asyncio.Barrier(3)

    async def take_turn(place: Ticket) -> None:
        try:
            turn = await waiting(place)
            await both_wait.wait()
            await turn
        finally:
            place.release()

    losing, winning = asyncio.create_task(take_turn(loser)), asyncio.create_task(take_turn(winner))
    await both_wait.wait()
    holder.release()
    losing.cancel()

    await asyncio.wait_for(winning, HANG_SECONDS)
    assert losing.cancelled()


async def test_a_cancelled_wait_can_be_asked_for_again() -> None:
    line = LocalScheduler(cap=1)
    holder, place = line.enqueue("holder", SAFE), line.enqueue("place", SAFE)
    assert holder.acquire() is None
    (await waiting(place)).cancel()
    again = await waiting(place)

    holder.release()

    await asyncio.wait_for(again, HANG_SECONDS)
    assert place.acquire() is None


async def test_leaving_while_somebody_waits_for_the_turn_wakes_them_cancelled() -> None:
    line = LocalScheduler(cap=1)
    line.enqueue("holder", SAFE).acquire()
    place = line.enqueue("place", SAFE)
    turn = await waiting(place)

    place.release()

    assert turn.cancelled()


async def test_leaving_twice_is_fine_and_gives_one_turn_back() -> None:
    line = LocalScheduler(cap=1)
    place = line.enqueue("a", SAFE)
    assert place.acquire() is None
    place.release()
    place.release()

    assert line.enqueue("b", SAFE).acquire() is None
    assert line.enqueue("c", SAFE).acquire() is not None


async def test_a_place_that_was_left_cannot_have_a_turn() -> None:
    place = LocalScheduler().enqueue("a", SAFE)
    place.release()

    with pytest.raises(InterlockError, match="call a has left the line"):
        place.acquire()


def test_a_cap_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="cap is 0"):
        LocalScheduler(cap=0)


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
async def test_a_finished_place_is_forgotten_even_while_others_stay(claim: LockRequest) -> None:
    line = LocalScheduler(cap=1)
    before, place, after = line.enqueue("before", claim), line.enqueue("place", claim), line.enqueue("after", claim)
    gone = weakref.ref(place)
    assert before.acquire() is None
    assert place.acquire() is not None
    place.release()
    gc.collect()
    gc.disable()
    try:
        del place
        assert gone() is None
    finally:
        gc.enable()
    before.release()
    after.release()


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
async def test_the_cost_of_a_call_does_not_grow_with_the_line(claim: LockRequest) -> None:
    assert _calls_per_place(claim, 5_000) <= _calls_per_place(claim, 500) * 1.05


def _calls_per_place(claim: LockRequest, count: int) -> float:
    line = LocalScheduler(cap=8)
    profile = cProfile.Profile()
    with profile:
        places = [line.enqueue(str(number), claim) for number in range(count)]
        for place in places:
            place.acquire()
        for place in places:
            place.release()
    return sum(entry.callcount for entry in profile.getstats()) / count
