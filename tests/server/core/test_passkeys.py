"""A passkey opens its account, to the person it verified, at this server's address, once for each challenge."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.server.core.audit.audit_log import AuditLog
from interlock.server.core.database.interface import Connection, Database
from interlock.server.core.identity import passkeys as passkeys_module
from interlock.server.core.identity.account_rows import Account, insert_account
from interlock.server.core.identity.accounts import Accounts
from interlock.server.core.identity.passkeys import CHALLENGE_SECONDS, Passkey, Passkeys
from interlock.server.core.identity.principal import IdentityProblem

from .authenticator import ORIGIN, PRESENT, Authenticator
from .people import SECOND, FakeClock, opened

BROWSER = "browser:1"


@pytest.fixture
def db(tmp_path: Path, database_backend: str) -> Iterator[Database]:
    with opened(tmp_path / "server.db") as database:
        yield database


async def add_account(db: Database, name: str = "ada") -> None:
    account = Account(name=name, created_at=1, has_password=True)
    await db.run(lambda connection: insert_account(connection, account, "hash", "test"))


async def registered(db: Database, clock: FakeClock) -> tuple[Passkeys, Authenticator]:
    await add_account(db)
    passkeys, device = Passkeys(db, f"{ORIGIN}/interlock", clock), Authenticator()
    credential = device.create(await passkeys.begin_registration("ada", "session"))
    added = await passkeys.register("ada", "session", " My phone ", credential)
    assert added == Passkey(credential_id=device.id, name="My phone", created_at=clock.at, used_at=0)
    return passkeys, device


async def test_passkey_signs_in_again_and_again(db: Database) -> None:
    clock = FakeClock()
    passkeys, device = await registered(db, clock)
    clock.at += SECOND
    for _ in range(2):
        answer = device.get(await passkeys.begin_sign_in(BROWSER))
        assert await passkeys.find_account(answer) == "ada"
        assert await passkeys.authenticate(answer, BROWSER) == "ada"
    (listed,) = await passkeys.list("ada")
    assert listed.used_at == clock.at
    assert await passkeys.remove("ada", device.id, by="user:ada")
    assert not await passkeys.remove("ada", device.id, by="user:ada")
    assert await passkeys.authenticate(device.get(await passkeys.begin_sign_in(BROWSER)), BROWSER) == ""
    journal = [(each.action, dict(each.detail)) for each in (await AuditLog(db).read())[1:]]
    assert journal == [("passkey.added", {"name": "My phone"}), ("passkey.removed", {"name": "My phone"})]


async def test_challenge_is_used_once_by_its_browser_in_time(db: Database) -> None:
    clock = FakeClock()
    passkeys, device = await registered(db, clock)
    answer = device.get(await passkeys.begin_sign_in(BROWSER))
    assert await passkeys.authenticate(answer, "browser:2") == ""
    assert await passkeys.authenticate(answer, BROWSER) == "ada"
    assert await passkeys.authenticate(answer, BROWSER) == ""
    late = device.get(await passkeys.begin_sign_in(BROWSER))
    clock.at += CHALLENGE_SECONDS * SECOND
    assert await passkeys.authenticate(late, BROWSER) == ""
    of_session = device.get(await passkeys.begin_registration("ada", "session"))
    assert await passkeys.authenticate(of_session, BROWSER) == ""


@pytest.mark.parametrize(
    "wrong",
    [{"flags": PRESENT}, {"origin": "https://agents.example.com.evil.example"}, {"host": "evil.example"}],
    ids=["not verified", "another origin", "another host"],
)
async def test_answer_has_to_be_verified_and_for_here(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with opened(tmp_path / "server.db") as db:
        passkeys, device = await registered(db, FakeClock())
        for name, value in wrong.items():
            setattr(device, name, value)
        assert await passkeys.authenticate(device.get(await passkeys.begin_sign_in(BROWSER)), BROWSER) == ""
        other = Authenticator(b"passkey-2")
        for name, value in wrong.items():
            setattr(other, name, value)
        created = other.create(await passkeys.begin_registration("ada", "session"))
        assert isinstance(await passkeys.register("ada", "session", "x", created), IdentityProblem)


async def test_copied_authenticator_is_noticed_by_its_count(tmp_path: Path) -> None:
    with opened(tmp_path / "server.db") as db:
        passkeys, device = await registered(db, FakeClock())
        device.count = 7
        assert await passkeys.authenticate(device.get(await passkeys.begin_sign_in(BROWSER)), BROWSER) == "ada"
        device.count = 3
        assert await passkeys.authenticate(device.get(await passkeys.begin_sign_in(BROWSER)), BROWSER) == ""


async def test_another_key_under_the_same_id_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "server.db") as db:
        passkeys, _ = await registered(db, FakeClock())
        thief = Authenticator()
        assert await passkeys.authenticate(thief.get(await passkeys.begin_sign_in(BROWSER)), BROWSER) == ""
        created = thief.create(await passkeys.begin_registration("eve", "session"))
        taken = await passkeys.register("eve", "session", "mine", created)
        assert taken == IdentityProblem("credential", "is a passkey of an account already", "conflict")


async def test_disabled_account_has_no_passkeys(tmp_path: Path) -> None:
    with opened(tmp_path / "server.db") as db:
        passkeys, device = await registered(db, FakeClock())
        await Accounts(db).disable("ada", by="user:root")
        answer = device.get(await passkeys.begin_sign_in(BROWSER))
        assert (await passkeys.find_account(answer), await passkeys.authenticate(answer, BROWSER)) == ("", "")


async def test_open_challenges_and_passkeys_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passkeys_module, "MAX_CHALLENGES", 3)
    monkeypatch.setattr(passkeys_module, "MAX_PASSKEYS", 1)
    with opened(tmp_path / "server.db") as db:
        passkeys, device = await registered(db, FakeClock())
        options = [await passkeys.begin_sign_in(BROWSER) for _ in range(10)]

        def count(connection: Connection) -> int:
            return int(connection.execute("SELECT count(*) FROM passkey_challenges").fetchone()[0])

        assert await db.read(count) == 3
        assert await passkeys.authenticate(device.get(options[-1]), BROWSER) == "ada"
        created = Authenticator(b"passkey-2").create(await passkeys.begin_registration("ada", "session"))
        refused = await passkeys.register("ada", "session", "two", created)
        assert isinstance(refused, IdentityProblem)
        assert refused.kind == "conflict"


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=20), inner, max_size=3),
    max_leaves=8,
)
_NAMES = st.sampled_from(
    ["id", "rawId", "type", "response", "clientDataJSON", "authenticatorData", "signature", "attestationObject"]
)


@given(st.dictionaries(_NAMES, _JSON | st.dictionaries(_NAMES, _JSON, max_size=4), max_size=5))
async def test_nonsense_is_refused_and_never_raises(credential: dict[str, Any]) -> None:
    with opened() as db:
        passkeys = Passkeys(db, ORIGIN)
        assert await passkeys.find_account(credential) == ""
        assert await passkeys.authenticate(credential, BROWSER) == ""
        assert isinstance(await passkeys.register("ada", "session", "x", credential), IdentityProblem)


@given(st.sampled_from(["clientDataJSON", "authenticatorData", "signature", "attestationObject"]), _JSON)
async def test_damaged_answers_are_refused(part: str, value: object) -> None:
    with opened() as db:
        passkeys, device = await registered(db, FakeClock())
        answer = device.get(await passkeys.begin_sign_in(BROWSER))
        other = Authenticator(b"passkey-2").create(await passkeys.begin_registration("ada", "session"))
        for credential in (answer, other):
            if part in credential["response"]:
                credential["response"][part] = value
        if part in answer["response"]:
            assert await passkeys.authenticate(answer, BROWSER) == ""
        if part in other["response"]:
            assert isinstance(await passkeys.register("ada", "session", "x", other), IdentityProblem)


@pytest.mark.parametrize(
    ("url", "is_available"),
    [
        ("https://agents.example.com", True),
        ("https://agents.example.com/interlock", True),
        ("http://localhost:8420", True),
        ("http://agents.example.com", False),
        ("https://192.0.2.1", False),
        ("https://[::1]:8420", False),
    ],
)
def test_passkeys_need_a_name_and_tls(url: str, is_available: bool) -> None:
    with opened() as db:
        assert Passkeys(db, url).is_available is is_available
