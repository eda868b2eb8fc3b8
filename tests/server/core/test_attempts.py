"""How often one may try to sign in, on a clock that is moved by hand."""

from hypothesis import given
from hypothesis import strategies as st

from interlock.server.core.identity.login_throttle import (
    FREE_FAILURES_PER_ACCOUNT,
    MAX_ENTRIES,
    MAX_WAIT_SECONDS,
    LoginThrottle,
)


class FakeClock:
    def __init__(self) -> None:
        self.at = 1_000.0

    def __call__(self) -> float:
        return self.at


def fail(attempts: LoginThrottle, times: int, name: str = "ada", address: str = "192.0.2.1") -> list[float]:
    return [attempts.start_attempt(name, address) for _ in range(times)]


def test_five_failures_are_free_and_the_sixth_has_to_wait() -> None:
    assert fail(LoginThrottle(FakeClock()), 7) == [0, 0, 0, 0, 0, 15, 15]


def test_many_tries_at_once_gain_nothing() -> None:
    assert fail(LoginThrottle(FakeClock()), 100).count(0) == 5


def test_each_further_failure_waits_twice_as_long_up_to_fifteen_minutes() -> None:
    clock = FakeClock()
    attempts = LoginThrottle(clock)
    fail(attempts, 5)
    waits: list[float] = []
    for _ in range(9):
        waits.append(attempts.start_attempt("ada", "192.0.2.1"))
        clock.at += waits[-1]
        assert attempts.start_attempt("ada", "192.0.2.1") == 0

    assert waits == [15, 30, 60, 120, 240, 480, 900, 900, 900]


def test_five_failures_in_more_than_five_minutes_do_not_wait() -> None:
    clock = FakeClock()
    attempts = LoginThrottle(clock)
    for _ in range(20):
        assert attempts.start_attempt("ada", "192.0.2.1") == 0
        clock.at += 76


def test_five_quiet_minutes_after_the_wait_forgive_all() -> None:
    clock = FakeClock()
    attempts = LoginThrottle(clock)
    fail(attempts, 5)
    clock.at += 15 + 301

    assert fail(attempts, 6) == [0, 0, 0, 0, 0, 15]


def test_only_the_address_that_failed_has_to_wait() -> None:
    attempts = LoginThrottle(FakeClock())
    fail(attempts, 5)

    assert attempts.start_attempt("ada", "198.51.100.7") == 0
    assert attempts.start_attempt("bob", "192.0.2.1") == 15
    assert attempts.start_attempt("bob", "198.51.100.7") == 0


def test_one_stranger_never_makes_the_owner_wait() -> None:
    """However long somebody fails on purpose from one address."""
    clock = FakeClock()
    attempts = LoginThrottle(clock)
    for _ in range(5_000):
        attempts.start_attempt("ada", "192.0.2.1")
        clock.at += 1
        assert fail(attempts, 1, address="198.51.100.7") == [0]
        attempts.record_success("ada", "198.51.100.7")


def test_many_addresses_do_not_make_the_owner_wait() -> None:
    clock = FakeClock()
    attempts = LoginThrottle(clock)
    attempts.start_attempt("ada", "198.51.100.7")
    attempts.record_success("ada", "198.51.100.7")
    for number in range(1_000):
        attempts.start_attempt("ada", f"10.0.{number >> 8}.{number & 255}")

    assert attempts.start_attempt("ada", "203.0.113.9") > 0
    assert fail(attempts, 6, address="198.51.100.7") == [0, 0, 0, 0, 0, 15]


def test_guesses_from_many_addresses_are_bounded() -> None:
    """A day of guessing from a new address every second; the owner signs in every hour."""
    clock = FakeClock()
    attempts = LoginThrottle(clock)
    guesses = 0
    for second in range(24 * 3_600):
        guesses += attempts.start_attempt("ada", f"10.{second >> 16}.{second >> 8 & 255}.{second & 255}") == 0
        if second % 3_600 == 0 and attempts.start_attempt("ada", "198.51.100.7") == 0:
            attempts.record_success("ada", "198.51.100.7")
        clock.at += 1

    assert guesses < FREE_FAILURES_PER_ACCOUNT + 24 * 3_600 / MAX_WAIT_SECONDS + 20


def test_neighbours_in_one_ipv6_network_are_one_address() -> None:
    attempts = LoginThrottle(FakeClock())
    for number in range(5):
        attempts.start_attempt(f"user{number}", f"2001:db8::{number}")

    assert attempts.start_attempt("bob", "2001:db8::ffff") == 15
    assert attempts.start_attempt("bob", "2001:db8:0:1::1") == 0


def test_an_ipv4_address_is_the_same_inside_ipv6() -> None:
    attempts = LoginThrottle(FakeClock())
    fail(attempts, 5)

    assert attempts.start_attempt("bob", "::ffff:192.0.2.1") == 15


def test_a_sign_in_forgives_the_name_all_of_its_failures() -> None:
    attempts = LoginThrottle(FakeClock(), free_per_address=1_000)
    for _ in range(20):
        fail(attempts, 4)
        attempts.record_success("ada", "192.0.2.1")


def test_signing_in_oneself_does_not_buy_more_guesses_at_others() -> None:
    clock = FakeClock()
    attempts = LoginThrottle(clock)
    guesses = 0
    for _ in range(200):
        if attempts.start_attempt("mallory", "192.0.2.1") == 0:
            attempts.record_success("mallory", "192.0.2.1")
        guesses += attempts.start_attempt(f"victim{guesses}", "192.0.2.1") == 0
        clock.at += 1

    assert guesses == 5 + 3  # the waits of 15, 30 and 60 seconds ended within these


def test_people_who_sign_in_rightly_never_wait() -> None:
    attempts = LoginThrottle(FakeClock())
    for number in range(100):
        assert attempts.start_attempt(f"user{number}", "192.0.2.1") == 0
        attempts.record_success(f"user{number}", "192.0.2.1")


def test_memory_is_bounded_and_the_least_recent_go_first() -> None:
    attempts = LoginThrottle(FakeClock())
    for number in range(MAX_ENTRIES):
        attempts.start_attempt(f"name{number}", f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
        fail(attempts, 1)

    assert len(attempts) == MAX_ENTRIES
    assert attempts.start_attempt("ada", "192.0.2.1") > 0


def test_a_success_that_was_forgotten_meanwhile_changes_nothing() -> None:
    attempts = LoginThrottle(FakeClock())
    attempts.record_success("ada", "192.0.2.1")
    attempts.start_attempt("ada", "192.0.2.1")
    for _ in range(3):
        attempts.record_success("ada", "192.0.2.1")

    assert fail(attempts, 6) == [0, 0, 0, 0, 0, 15]


@given(st.lists(st.tuples(st.text(max_size=100), st.text(max_size=100), st.booleans()), max_size=40))
def test_any_text_is_a_name_and_an_address(tries: list[tuple[str, str, bool]]) -> None:
    attempts = LoginThrottle(FakeClock())
    for name, address, is_right in tries:
        wait = attempts.start_attempt(name, address)
        assert 0 <= wait <= MAX_WAIT_SECONDS
        if is_right and not wait:
            attempts.record_success(name, address)
