"""How often one may try to sign in, on a clock that is moved by hand."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.server.core.database.interface import Database
from interlock.server.core.identity.login_throttle import (
    FREE_FAILURES_PER_ACCOUNT,
    MAX_WAIT_SECONDS,
    LoginThrottle,
)

from .people import opened


class FakeClock:
    def __init__(self) -> None:
        self.at = 1_000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def database(tmp_path: Path, database_backend: str) -> Iterator[Database]:
    with opened(tmp_path / "server.db") as database:
        yield database


async def fail(attempts: LoginThrottle, times: int, name: str = "ada", address: str = "192.0.2.1") -> list[float]:
    return [await attempts.start_attempt(name, address) for _ in range(times)]


async def test_five_failures_are_free_and_the_sixth_has_to_wait(database: Database) -> None:
    assert await fail(LoginThrottle(database, FakeClock()), 7) == [0, 0, 0, 0, 0, 15, 15]


async def test_many_tries_at_once_gain_nothing(database: Database) -> None:
    assert (await fail(LoginThrottle(database, FakeClock()), 100)).count(0) == 5


async def test_each_further_failure_waits_twice_as_long_up_to_fifteen_minutes(database: Database) -> None:
    clock = FakeClock()
    attempts = LoginThrottle(database, clock)
    await fail(attempts, 5)
    waits: list[float] = []
    for _ in range(9):
        waits.append(await attempts.start_attempt("ada", "192.0.2.1"))
        clock.at += waits[-1]
        assert await attempts.start_attempt("ada", "192.0.2.1") == 0

    assert waits == [15, 30, 60, 120, 240, 480, 900, 900, 900]


async def test_five_failures_in_more_than_five_minutes_do_not_wait(database: Database) -> None:
    clock = FakeClock()
    attempts = LoginThrottle(database, clock)
    for _ in range(20):
        assert await attempts.start_attempt("ada", "192.0.2.1") == 0
        clock.at += 76


async def test_five_quiet_minutes_after_the_wait_forgive_all(database: Database) -> None:
    clock = FakeClock()
    attempts = LoginThrottle(database, clock)
    await fail(attempts, 5)
    clock.at += 15 + 301

    assert await fail(attempts, 6) == [0, 0, 0, 0, 0, 15]


async def test_only_the_address_that_failed_has_to_wait(database: Database) -> None:
    attempts = LoginThrottle(database, FakeClock())
    await fail(attempts, 5)

    assert await attempts.start_attempt("ada", "198.51.100.7") == 0
    assert await attempts.start_attempt("bob", "192.0.2.1") == 15
    assert await attempts.start_attempt("bob", "198.51.100.7") == 0


async def test_one_stranger_never_makes_the_owner_wait(database: Database) -> None:
    """However long somebody fails on purpose from one address."""
    clock = FakeClock()
    attempts = LoginThrottle(database, clock)
    for _ in range(100):
        await attempts.start_attempt("ada", "192.0.2.1")
        clock.at += 1
        assert await fail(attempts, 1, address="198.51.100.7") == [0]
        await attempts.record_success("ada", "198.51.100.7")


async def test_many_addresses_do_not_make_the_owner_wait(database: Database) -> None:
    clock = FakeClock()
    attempts = LoginThrottle(database, clock)
    await attempts.start_attempt("ada", "198.51.100.7")
    await attempts.record_success("ada", "198.51.100.7")
    for number in range(100):
        await attempts.start_attempt("ada", f"10.0.{number >> 8}.{number & 255}")

    assert await attempts.start_attempt("ada", "203.0.113.9") > 0
    assert await fail(attempts, 6, address="198.51.100.7") == [0, 0, 0, 0, 0, 15]


async def test_guesses_from_many_addresses_are_bounded(database: Database) -> None:
    """Two hours of guessing from a new address every five seconds; the owner signs in every hour."""
    clock = FakeClock()
    attempts = LoginThrottle(database, clock)
    guesses = 0
    for second in range(0, 2 * 3_600, 5):
        guesses += await attempts.start_attempt("ada", f"10.{second >> 16}.{second >> 8 & 255}.{second & 255}") == 0
        if second % 3_600 == 0 and await attempts.start_attempt("ada", "198.51.100.7") == 0:
            await attempts.record_success("ada", "198.51.100.7")
        clock.at += 5

    assert guesses < FREE_FAILURES_PER_ACCOUNT + 2 * 3_600 / MAX_WAIT_SECONDS + 20


async def test_neighbours_in_one_ipv6_network_are_one_address(database: Database) -> None:
    attempts = LoginThrottle(database, FakeClock())
    for number in range(5):
        await attempts.start_attempt(f"user{number}", f"2001:db8::{number}")

    assert await attempts.start_attempt("bob", "2001:db8::ffff") == 15
    assert await attempts.start_attempt("bob", "2001:db8:0:1::1") == 0


async def test_an_ipv4_address_is_the_same_inside_ipv6(database: Database) -> None:
    attempts = LoginThrottle(database, FakeClock())
    await fail(attempts, 5)

    assert await attempts.start_attempt("bob", "::ffff:192.0.2.1") == 15


async def test_a_sign_in_forgives_the_name_all_of_its_failures(database: Database) -> None:
    attempts = LoginThrottle(database, FakeClock(), free_per_address=1_000)
    for _ in range(20):
        await fail(attempts, 4)
        await attempts.record_success("ada", "192.0.2.1")


async def test_signing_in_oneself_does_not_buy_more_guesses_at_others(database: Database) -> None:
    clock = FakeClock()
    attempts = LoginThrottle(database, clock)
    guesses = 0
    for _ in range(200):
        if await attempts.start_attempt("mallory", "192.0.2.1") == 0:
            await attempts.record_success("mallory", "192.0.2.1")
        guesses += await attempts.start_attempt(f"victim{guesses}", "192.0.2.1") == 0
        clock.at += 1

    assert guesses == 5 + 3  # the waits of 15, 30 and 60 seconds ended within these


async def test_people_who_sign_in_rightly_never_wait(database: Database) -> None:
    attempts = LoginThrottle(database, FakeClock())
    for number in range(100):
        assert await attempts.start_attempt(f"user{number}", "192.0.2.1") == 0
        await attempts.record_success(f"user{number}", "192.0.2.1")


async def test_memory_is_bounded_and_the_least_recent_go_first(database: Database) -> None:
    clock = FakeClock()
    attempts = LoginThrottle(database, clock, max_entries=20)
    await fail(attempts, 4)
    for number in range(20):
        clock.at += 1
        await attempts.start_attempt(f"name{number}", f"10.0.0.{number}")
        await fail(attempts, 1)

    assert await attempts.count() == 20
    assert await attempts.start_attempt("ada", "192.0.2.1") > 0


async def test_a_success_that_was_forgotten_meanwhile_changes_nothing(database: Database) -> None:
    attempts = LoginThrottle(database, FakeClock())
    await attempts.record_success("ada", "192.0.2.1")
    await attempts.start_attempt("ada", "192.0.2.1")
    for _ in range(3):
        await attempts.record_success("ada", "192.0.2.1")

    assert await fail(attempts, 6) == [0, 0, 0, 0, 0, 15]


@given(st.lists(st.tuples(st.text(max_size=100), st.text(max_size=100), st.booleans()), max_size=8))
def test_any_text_is_a_name_and_an_address(tries: list[tuple[str, str, bool]]) -> None:
    async def attempt(attempts: LoginThrottle) -> None:
        for name, address, is_right in tries:
            wait = await attempts.start_attempt(name, address)
            assert 0 <= wait <= MAX_WAIT_SECONDS
            if is_right and not wait:
                await attempts.record_success(name, address)

    with opened() as database:
        asyncio.run(attempt(LoginThrottle(database, FakeClock())))


async def test_servers_that_share_a_database_count_together(database: Database, tmp_path: Path) -> None:
    clock = FakeClock()
    with opened(tmp_path / "server.db") as other:
        here, there = LoginThrottle(database, clock), LoginThrottle(other, clock)
        waits = [await (here, there)[number % 2].start_attempt("ada", "192.0.2.1") for number in range(7)]

    assert waits == [0, 0, 0, 0, 0, 15, 15]


async def test_a_wait_of_a_clock_that_was_wrong_is_forgotten(database: Database) -> None:
    clock = FakeClock()
    clock.at += 100_000
    attempts = LoginThrottle(database, clock)
    await fail(attempts, 5)
    clock.at -= 100_000

    assert (await fail(attempts, 3))[0] == 0


async def test_a_name_with_characters_that_texts_cannot_have_is_counted(database: Database) -> None:
    attempts = LoginThrottle(database, FakeClock())

    assert await fail(attempts, 6, "a\0da\ud800") == [0, 0, 0, 0, 0, 15]
