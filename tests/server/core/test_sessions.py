"""Sign-ins to the console: how long they last, and what ends them at once."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.server.core.audit.audit_log import AuditLog
from interlock.server.core.database.interface import Database
from interlock.server.core.identity.accounts import Accounts
from interlock.server.core.identity.principal import Principal, Role
from interlock.server.core.identity.sessions import (
    MAX_SESSIONS_PER_PERSON,
    NewSession,
    Sessions,
    derive_csrf_token,
    is_valid_csrf_token,
)

from .people import HOUR, MINUTE, PASSWORD, FakeClock, everything_kept, opened

OPERATOR = frozenset({Role.OPERATOR})
ADA = Principal(name="user:ada", kind="person", roles=OPERATOR, agents=None)


@pytest.fixture
def database(tmp_path: Path, database_backend: str) -> Iterator[Database]:
    with opened(tmp_path / "server.db") as database:
        yield database


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def accounts(database: Database, clock: FakeClock) -> Accounts:
    """With Ada in it, who comes from a provider: no password, so no time for its hash."""
    accounts = Accounts(database, clock)
    await accounts.link_identity("https://login.example.com", "sub-1", "ada", roles=OPERATOR)
    return accounts


@pytest.fixture
def sessions(database: Database, clock: FakeClock, accounts: Accounts) -> Sessions:
    return Sessions(database, clock)


async def started(sessions: Sessions) -> NewSession:
    new = await sessions.start("ada")
    assert new
    return new


async def is_in(sessions: Sessions, new: NewSession) -> bool:
    return await sessions.authenticate(new.token) is not None


async def test_the_token_says_who_is_signed_in(sessions: Sessions) -> None:
    new = await started(sessions)
    who = await sessions.authenticate(new.token)

    assert who
    assert (who.principal, who.session_id, who.csrf) == (ADA, new.session_id, new.csrf)
    assert new.token not in repr(new)


async def test_only_a_hash_of_the_token_is_in_the_files(sessions: Sessions, tmp_path: Path) -> None:
    new = await started(sessions)
    await sessions.authenticate(new.token)

    kept = everything_kept(tmp_path)
    assert new.session_id.encode() in kept
    assert new.token.encode() not in kept
    assert new.csrf.encode() not in kept


async def test_an_hour_without_a_request_ends_it(sessions: Sessions, clock: FakeClock) -> None:
    new = await started(sessions)
    clock.at += HOUR - 1
    assert await is_in(sessions, new)
    clock.at += HOUR

    assert not await is_in(sessions, new)
    assert await sessions.list_by_account("ada") == ()


async def test_twelve_hours_end_it_however_much_it_is_used(sessions: Sessions, clock: FakeClock) -> None:
    new = await started(sessions)
    for _ in range(23):
        clock.at += 30 * MINUTE
        assert await is_in(sessions, new)
    clock.at += 30 * MINUTE

    assert not await is_in(sessions, new)


async def test_a_changed_role_counts_with_the_next_request(sessions: Sessions, accounts: Accounts) -> None:
    new = await started(sessions)
    await accounts.set_roles("ada", {Role.AUDITOR}, frozenset({"billing"}), by="user:root")
    who = await sessions.authenticate(new.token)

    assert who
    assert (who.principal.roles, who.principal.agents) == ({Role.AUDITOR}, {"billing"})


async def test_a_disabled_account_is_out_at_once_and_stays_out_when_enabled(
    sessions: Sessions, accounts: Accounts
) -> None:
    new = await started(sessions)
    await accounts.disable("ada", by="user:root")
    assert not await is_in(sessions, new)
    assert await sessions.start("ada") is None
    await accounts.enable("ada", by="user:root")

    assert not await is_in(sessions, new)
    assert await is_in(sessions, await started(sessions))


async def test_a_new_password_ends_all_sign_ins(sessions: Sessions, accounts: Accounts) -> None:
    await accounts.create("bob", PASSWORD, by="cli")
    bobs, adas = await sessions.start("bob"), await started(sessions)
    await accounts.set_password("bob", "a completely new one", by="user:bob")

    assert bobs
    assert not await is_in(sessions, bobs)
    assert await is_in(sessions, adas)


async def test_one_sign_in_can_be_ended_and_all_of_a_person(sessions: Sessions) -> None:
    first, second, third = [await started(sessions) for _ in range(3)]

    assert await sessions.end(first.session_id, by="user:ada")
    assert not await sessions.end(first.session_id, by="user:ada")
    assert [await is_in(sessions, new) for new in (first, second, third)] == [False, True, True]
    assert await sessions.end_all("ada", by="user:root") == 2
    assert [await is_in(sessions, new) for new in (first, second, third)] == [False, False, False]


async def test_the_oldest_sign_in_gives_way_when_there_are_too_many(sessions: Sessions, clock: FakeClock) -> None:
    many: list[NewSession] = []
    for _ in range(MAX_SESSIONS_PER_PERSON + 1):
        many.append(await started(sessions))
        clock.at += 1

    assert [await is_in(sessions, new) for new in many] == [False] + [True] * MAX_SESSIONS_PER_PERSON
    assert len(await sessions.list_by_account("ada")) == MAX_SESSIONS_PER_PERSON


async def test_what_is_over_is_swept_by_the_next_sign_in(
    sessions: Sessions, database: Database, clock: FakeClock
) -> None:
    for _ in range(5):
        await started(sessions)
    clock.at += 13 * HOUR
    await started(sessions)

    count = await database.run(lambda connection: connection.execute("SELECT count(*) FROM sessions").fetchone()[0])
    assert count == 1


async def test_nobody_without_an_account_is_signed_in(sessions: Sessions) -> None:
    for name in ("nobody", "", "\ud800"):
        assert await sessions.start(name) is None
        assert await sessions.list_by_account(name) == ()
        assert await sessions.end_all(name, by="cli") == 0


async def test_signing_in_and_out_are_in_the_journal(sessions: Sessions, database: Database) -> None:
    new = await sessions.start("ada", detail={"address": "192.0.2.1"})
    assert new
    await sessions.end(new.session_id, by="user:ada")

    entries = (await AuditLog(database).read())[1:]
    assert [(entry.by, entry.action, dict(entry.detail)) for entry in entries] == [
        ("user:ada", "session.started", {"address": "192.0.2.1"}),
        ("user:ada", "session.ended", {}),
    ]
    assert new.token not in repr(entries)


async def test_the_token_against_forged_requests_belongs_to_one_session(sessions: Sessions) -> None:
    one, other = await started(sessions), await started(sessions)

    assert is_valid_csrf_token(one.csrf, derive_csrf_token(one.token))
    assert not is_valid_csrf_token(one.csrf, other.csrf)
    assert one.token not in one.csrf


@given(st.text())
async def test_any_text_is_judged(text: str) -> None:
    assert not is_valid_csrf_token(derive_csrf_token("token"), text)
    with opened() as database:
        assert await Sessions(database).authenticate(text) is None
        assert not await Sessions(database).end(text, by="cli")
