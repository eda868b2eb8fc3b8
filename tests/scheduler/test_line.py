"""Turns by arrival order: what the line does in the cases people ask about."""

import asyncio
import cProfile
import gc
import weakref

import pytest

from interlock.domain.errors import InterlockError
from interlock.scheduler import Claim, LocalScheduler, Ticket
from tests.patience import HANG_SECONDS

SAFE = Claim("safe")
EXCLUSIVE = Claim("exclusive")


def reads(*keys: str) -> Claim:
    return Claim("keyed", reads=frozenset(keys))


def writes(*keys: str) -> Claim:
    return Claim("keyed", writes=frozenset(keys))


CLAIMS = {"safe": SAFE, "read": reads("a"), "write": writes("a"), "exclusive": EXCLUSIVE}


async def waiting(place: Ticket) -> "asyncio.Future[None]":
    """The place has asked and has to wait."""
    turn = place.turn()
    assert turn is not None
    future = asyncio.ensure_future(turn)
    assert not future.done()
    return future


@pytest.mark.requirement("R220")
async def test_three_reads_proposed_together_all_have_a_turn_at_once() -> None:
    line = LocalScheduler()
    places = [line.enter(name, SAFE) for name in ("a", "b", "c")]

    assert [place.turn() for place in places] == [None, None, None]


@pytest.mark.requirement("R221")
async def test_a_test_command_waits_until_the_edit_before_it_is_done() -> None:
    line = LocalScheduler()
    edit = line.enter("edit", writes("app.py"))
    command = line.enter("test", EXCLUSIVE)
    assert edit.turn() is None
    turn = await waiting(command)

    edit.leave()

    await asyncio.wait_for(turn, HANG_SECONDS)


@pytest.mark.requirement("R222")
async def test_two_edits_of_one_file_take_turns_and_edits_of_two_files_do_not_wait() -> None:
    line = LocalScheduler()
    first = line.enter("first", writes("a.py"))
    second = line.enter("second", writes("a.py"))
    other = line.enter("other", writes("b.py"))
    assert first.turn() is None
    assert other.turn() is None
    turn = await waiting(second)

    first.leave()

    await asyncio.wait_for(turn, HANG_SECONDS)


async def test_readers_of_a_key_overlap_and_a_writer_behind_them_waits_for_all_of_them() -> None:
    line = LocalScheduler()
    readers = [line.enter("r1", reads("a")), line.enter("r2", reads("a"))]
    writer = line.enter("w", writes("a"))
    assert [reader.turn() for reader in readers] == [None, None]
    turn = await waiting(writer)
    assert writer.behind == ("r1", "r2")

    readers[1].leave()
    assert writer.behind == ("r1",)
    readers[0].leave()

    await asyncio.wait_for(turn, HANG_SECONDS)


async def test_a_key_that_is_both_read_and_written_counts_as_written() -> None:
    line = LocalScheduler()
    both = Claim("keyed", reads=frozenset({"a"}), writes=frozenset({"a"}))
    assert line.enter("first", both).turn() is None

    assert line.enter("second", reads("a")).turn() is not None


async def test_a_call_that_has_not_asked_keeps_its_place_and_uses_no_turn() -> None:
    line = LocalScheduler(cap=1)
    person = line.enter("person", writes("a.py"))
    behind_it = line.enter("behind", reads("a.py"))
    beside_it = line.enter("beside", SAFE)
    assert beside_it.turn() is None
    turn = await waiting(behind_it)

    beside_it.leave()
    assert not turn.done()
    assert person.turn() is None
    person.leave()

    await asyncio.wait_for(turn, HANG_SECONDS)


async def test_behind_names_the_conflicting_calls_in_front_in_line_order() -> None:
    line = LocalScheduler()
    for call_id, claim in {"b": writes("b"), "a": writes("a"), "reader": reads("b"), "safe": SAFE}.items():
        line.enter(call_id, claim)

    assert line.enter("last", Claim("keyed", reads("a").reads, frozenset({"b"}))).behind == ("b", "a", "reader")
    assert line.enter("all", EXCLUSIVE).behind == ("b", "a", "reader", "safe", "last")
    assert line.enter("after", SAFE).behind == ("all",)


async def test_a_free_place_is_behind_nobody() -> None:
    line = LocalScheduler()
    place = line.enter("a", SAFE)
    assert place.behind == ()
    place.leave()
    assert place.behind == ()


@pytest.mark.requirement("R097")
async def test_no_more_turns_are_out_than_the_cap_and_the_next_goes_to_who_waited_longest() -> None:
    line = LocalScheduler(cap=2)
    places = [line.enter(str(number), SAFE) for number in range(4)]
    assert [places[0].turn(), places[1].turn()] == [None, None]
    later, earlier = await waiting(places[3]), await waiting(places[2])

    places[0].leave()

    assert later.done()
    assert not earlier.done()


async def test_a_writer_that_gives_up_lets_the_readers_behind_it_join_those_in_front() -> None:
    line = LocalScheduler()
    assert line.enter("front", SAFE).turn() is None
    exclusive = line.enter("exclusive", EXCLUSIVE)
    turns = [await waiting(line.enter(str(number), SAFE)) for number in range(3)]

    exclusive.leave()

    await asyncio.wait_for(asyncio.gather(*turns), HANG_SECONDS)


async def test_a_writer_that_gives_up_between_two_writers_frees_nobody() -> None:
    line = LocalScheduler()
    first = line.enter("first", EXCLUSIVE)
    assert first.turn() is None
    second, third = line.enter("second", EXCLUSIVE), line.enter("third", SAFE)
    turn = await waiting(third)

    second.leave()
    assert third.behind == ("first",)
    assert not turn.done()
    first.leave()

    await asyncio.wait_for(turn, HANG_SECONDS)


async def test_a_cancelled_wait_passes_its_turn_on_when_its_place_is_left() -> None:
    line = LocalScheduler(cap=1)
    holder, loser, winner = (line.enter(name, SAFE) for name in ("holder", "loser", "winner"))
    assert holder.turn() is None
    lost, won = await waiting(loser), await waiting(winner)

    lost.cancel()
    holder.leave()
    loser.leave()

    await asyncio.wait_for(won, HANG_SECONDS)


async def test_a_task_cancelled_in_the_moment_its_turn_is_given_passes_it_on() -> None:
    line = LocalScheduler(cap=1)
    holder, loser, winner = (line.enter(name, SAFE) for name in ("holder", "loser", "winner"))
    assert holder.turn() is None
    both_wait = asyncio.Barrier(3)

    async def take_turn(place: Ticket) -> None:
        try:
            turn = await waiting(place)
            await both_wait.wait()
            await turn
        finally:
            place.leave()

    losing, winning = asyncio.create_task(take_turn(loser)), asyncio.create_task(take_turn(winner))
    await both_wait.wait()
    holder.leave()
    losing.cancel()

    await asyncio.wait_for(winning, HANG_SECONDS)
    assert losing.cancelled()


async def test_a_cancelled_wait_can_be_asked_for_again() -> None:
    line = LocalScheduler(cap=1)
    holder, place = line.enter("holder", SAFE), line.enter("place", SAFE)
    assert holder.turn() is None
    (await waiting(place)).cancel()
    again = await waiting(place)

    holder.leave()

    await asyncio.wait_for(again, HANG_SECONDS)
    assert place.turn() is None


async def test_leaving_while_somebody_waits_for_the_turn_wakes_them_cancelled() -> None:
    line = LocalScheduler(cap=1)
    line.enter("holder", SAFE).turn()
    place = line.enter("place", SAFE)
    turn = await waiting(place)

    place.leave()

    assert turn.cancelled()


async def test_leaving_twice_is_fine_and_gives_one_turn_back() -> None:
    line = LocalScheduler(cap=1)
    place = line.enter("a", SAFE)
    assert place.turn() is None
    place.leave()
    place.leave()

    assert line.enter("b", SAFE).turn() is None
    assert line.enter("c", SAFE).turn() is not None


async def test_a_place_that_was_left_cannot_have_a_turn() -> None:
    place = LocalScheduler().enter("a", SAFE)
    place.leave()

    with pytest.raises(InterlockError, match="call a has left the line"):
        place.turn()


def test_a_cap_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="cap is 0"):
        LocalScheduler(cap=0)


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
async def test_a_finished_place_is_forgotten_even_while_others_stay(claim: Claim) -> None:
    line = LocalScheduler(cap=1)
    before, place, after = line.enter("before", claim), line.enter("place", claim), line.enter("after", claim)
    gone = weakref.ref(place)
    assert before.turn() is None
    assert place.turn() is not None
    place.leave()
    gc.collect()
    gc.disable()
    try:
        del place
        assert gone() is None
    finally:
        gc.enable()
    before.leave()
    after.leave()


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
async def test_the_cost_of_a_call_does_not_grow_with_the_line(claim: Claim) -> None:
    assert _calls_per_place(claim, 5_000) <= _calls_per_place(claim, 500) * 1.05


def _calls_per_place(claim: Claim, count: int) -> float:
    line = LocalScheduler(cap=8)
    profile = cProfile.Profile()
    with profile:
        places = [line.enter(str(number), claim) for number in range(count)]
        for place in places:
            place.turn()
        for place in places:
            place.leave()
    return sum(entry.callcount for entry in profile.getstats()) / count
