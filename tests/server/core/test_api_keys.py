"""Keys of programs: made once, checked on every request, and gone at once when revoked."""

import asyncio
import re
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.server.core.audit.audit_log import AuditLog
from interlock.server.core.database.interface import Connection, Database
from interlock.server.core.identity.api_keys import ApiKey, ApiKeys, NewApiKey
from interlock.server.core.identity.principal import IdentityProblem, Principal, Role
from tests.patience import HANG_SECONDS

from .people import MINUTE, SECOND, FakeClock, everything_kept, opened

OPERATOR = frozenset({Role.OPERATOR})
AGENT = frozenset({Role.AGENT})
BILLING = frozenset({"billing"})


@pytest.fixture
def database(tmp_path: Path, database_backend: str) -> Iterator[Database]:
    with opened(tmp_path / "server.db") as database:
        yield database


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def keys(database: Database, clock: FakeClock) -> ApiKeys:
    return ApiKeys(database, clock)


async def made(keys: ApiKeys, name: str = "bot", expires_at: int = 0) -> NewApiKey:
    new = await keys.create(name, roles=AGENT, agents=BILLING, expires_at=expires_at, by="user:root")
    assert isinstance(new, NewApiKey)
    return new


async def test_a_key_says_who_its_holder_is(keys: ApiKeys) -> None:
    new = await made(keys)

    assert await keys.authenticate(new.secret) == Principal(name="key:bot", kind="key", roles=AGENT, agents=BILLING)
    assert re.fullmatch(r"ik_[0-9a-f]{8}_[A-Za-z0-9_-]{43}", new.secret)
    assert len(urlsafe_b64decode(new.secret[12:] + "=")) == 32


async def test_only_the_hash_of_the_secret_is_in_the_files(keys: ApiKeys, tmp_path: Path) -> None:
    secret = (await made(keys)).secret
    await keys.authenticate(secret)

    kept = everything_kept(tmp_path)
    assert sha256(secret[12:].encode()).digest() in kept
    assert secret[12:].encode() not in kept


@pytest.mark.parametrize("asked_before", [False, True])
async def test_any_other_secret_is_nobodys(keys: ApiKeys, asked_before: bool) -> None:
    secret = (await made(keys)).secret
    other = (await made(keys, "other")).secret
    if asked_before:
        await keys.authenticate(secret)

    for text in (
        secret[:-1],
        secret + "A",
        secret[:12] + other[12:],
        other[:12] + secret[12:],
        secret.upper(),
        "",
        "ik_",
    ):
        assert await keys.authenticate(text) is None


@given(st.text())
async def test_any_text_is_judged(text: str) -> None:
    with opened() as database:
        keys = ApiKeys(database)
        assert await keys.authenticate(text) is None
        assert await keys.get(text) is None
        assert isinstance(await keys.revoke(text, by="cli"), IdentityProblem)


async def test_a_revoked_key_is_nobodys_at_once_and_can_be_revoked_again(keys: ApiKeys, clock: FakeClock) -> None:
    key, secret = await made(keys)
    assert await keys.authenticate(secret)
    revoked = await keys.revoke(key.key_id, by="user:root")

    assert await keys.authenticate(secret) is None
    assert isinstance(revoked, ApiKey)
    assert revoked.revoked_at == clock.at
    clock.at += MINUTE
    again = await keys.revoke(key.key_id, by="user:root")
    assert isinstance(again, ApiKey)
    assert again.revoked_at == revoked.revoked_at


async def test_a_revocation_during_a_look_up_is_not_forgotten(
    keys: ApiKeys, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, secret = await made(keys)
    was_read, may_go_on = asyncio.Event(), Event()
    loop, read_now = asyncio.get_running_loop(), database.read_now

    def slow(query: Callable[[Connection], object]) -> object:
        result = read_now(query)
        if isinstance(result, ApiKey) and not result.revoked_at:
            loop.call_soon_threadsafe(was_read.set)
            assert may_go_on.wait(HANG_SECONDS)
        return result

    monkeypatch.setattr(database, "read_now", slow)
    asked = asyncio.create_task(keys.authenticate(secret))
    await asyncio.wait_for(was_read.wait(), HANG_SECONDS)
    await keys.revoke(key.key_id, by="user:root")
    may_go_on.set()
    await asked

    assert await keys.authenticate(secret) is None


async def test_another_process_s_revocation_counts_after_a_few_seconds(
    keys: ApiKeys, database: Database, clock: FakeClock
) -> None:
    key, secret = await made(keys)
    assert await keys.authenticate(secret)
    await ApiKeys(database, clock).revoke(key.key_id, by="cli")
    clock.at += 6 * SECOND

    assert await keys.authenticate(secret) is None


async def test_a_key_ends_on_time_even_while_it_is_remembered(
    keys: ApiKeys, database: Database, clock: FakeClock
) -> None:
    secret = (await made(keys, expires_at=clock.at + SECOND)).secret
    assert await keys.authenticate(secret)
    clock.at += SECOND

    assert await keys.authenticate(secret) is None
    assert await ApiKeys(database, clock).authenticate(secret) is None


async def test_most_requests_ask_no_database(
    keys: ApiKeys, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = (await made(keys)).secret
    await keys.authenticate(secret)
    monkeypatch.setattr(database, "run_now", None)

    assert all([await keys.authenticate(secret) for _ in range(100)])


async def test_a_clock_that_jumps_back_remembers_nothing(keys: ApiKeys, database: Database, clock: FakeClock) -> None:
    key, secret = await made(keys)
    await keys.authenticate(secret)
    await ApiKeys(database, clock).revoke(key.key_id, by="cli")
    clock.at -= MINUTE

    assert await keys.authenticate(secret) is None


async def test_when_it_was_used_is_kept_to_the_minute(keys: ApiKeys, clock: FakeClock) -> None:
    key, secret = await made(keys)
    used: list[int] = []
    start = clock.at
    for seconds in (0, 30, 54, 61, 90):
        clock.at = start + seconds * SECOND
        await keys.authenticate(secret)
        await keys.authenticate(secret[:-1] + ("A" if secret[-1] != "A" else "B"))
        row = await keys.get(key.key_id)
        used.append((row.last_used_at - start) // SECOND if row else -1)

    assert used == [0, 0, 0, 61, 61]


async def test_a_wrong_secret_is_no_use_of_the_key(keys: ApiKeys) -> None:
    key, secret = await made(keys)
    await keys.authenticate(secret[:12] + "A" * 43)

    assert await keys.get(key.key_id) == key


@pytest.mark.parametrize(
    ("name", "roles", "agents", "field"),
    [
        ("Bot", OPERATOR, None, "name"),
        ("bot", frozenset[Role](), None, "roles"),
        ("bot", AGENT | OPERATOR, BILLING, "roles"),
        ("bot", AGENT | {Role.ADMIN}, BILLING, "roles"),
        ("bot", AGENT, None, "agents"),
        ("bot", AGENT, frozenset[str](), "agents"),
        ("bot", OPERATOR, frozenset({"bad\nname"}), "agents"),
        ("bot", OPERATOR, frozenset({"\ud800"}), "agents"),
        ("bot", OPERATOR, frozenset(map(str, range(1_001))), "agents"),
    ],
)
async def test_what_cannot_be_a_key_is_refused_by_its_field(
    keys: ApiKeys, name: str, roles: frozenset[Role], agents: frozenset[str] | None, field: str
) -> None:
    refused = await keys.create(name, roles=roles, agents=agents, by="user:root")

    assert isinstance(refused, IdentityProblem)
    assert (refused.field, refused.kind) == (field, "invalid")
    assert await keys.list() == ()


async def test_an_id_is_given_once(keys: ApiKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = iter(("00000001", "00000001", "00000001", "00000002"))

    def next_id(_: int) -> str:
        return next(ids)

    monkeypatch.setattr("interlock.server.core.identity.api_keys.token_hex", next_id)
    one, other = await made(keys), await made(keys, "other")

    assert (one.key.key_id, other.key.key_id) == ("00000001", "00000002")
    assert [who and who.name for who in [await keys.authenticate(new.secret) for new in (one, other)]] == [
        "key:bot",
        "key:other",
    ]


async def test_there_are_only_so_many_living_keys(keys: ApiKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.server.core.identity.api_keys.MAX_ACTIVE_KEYS", 1)
    await made(keys)

    refused = await keys.create("other", roles=OPERATOR, by="user:root")
    assert refused == IdentityProblem("name", "there are 1 living keys, and can be no more", "conflict")


async def test_only_so_many_keys_are_remembered_and_all_are_known(
    keys: ApiKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.server.core.identity.api_keys._MAX_CACHED_KEYS", 2)
    secrets = [(await made(keys, f"bot{number}")).secret for number in range(5)]

    assert all([await keys.authenticate(secret) for secret in secrets * 2])


@pytest.mark.parametrize("expires_at", [1, -1, 2**63])
async def test_a_key_that_is_over_before_it_begins_is_refused(keys: ApiKeys, expires_at: int) -> None:
    refused = await keys.create("bot", roles=OPERATOR, expires_at=expires_at, by="user:root")

    assert refused == IdentityProblem("expires_at", "must lie in the future")


async def test_a_name_is_unique_among_living_keys_and_free_after(keys: ApiKeys, clock: FakeClock) -> None:
    first = await made(keys)
    refused = await keys.create("bot", roles=OPERATOR, by="user:root")
    assert isinstance(refused, IdentityProblem)
    assert refused.kind == "conflict"

    await keys.revoke(first.key.key_id, by="user:root")
    second = await made(keys, expires_at=clock.at + SECOND)
    clock.at += SECOND
    third = await made(keys)

    assert [key.key_id for key in await keys.list()] == [third.key.key_id, second.key.key_id, first.key.key_id]


async def test_making_and_revoking_are_in_the_journal_with_who_did_it(keys: ApiKeys, database: Database) -> None:
    key, secret = await made(keys)
    for _ in range(2):
        await keys.revoke(key.key_id, by="user:ada")

    entries = await AuditLog(database).read()
    assert [(entry.by, entry.action, entry.target, entry.detail["key_id"]) for entry in entries] == [
        ("user:root", "key.created", "key:bot", key.key_id),
        ("user:ada", "key.revoked", "key:bot", key.key_id),
    ]
    assert secret[12:] not in repr(entries)
