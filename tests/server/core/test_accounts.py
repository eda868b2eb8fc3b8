"""Accounts of people: who they are, what they are trusted with, and that nobody can read a password back."""

import asyncio
import hmac
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from interlock.server.core.audit.audit_log import AuditLog
from interlock.server.core.database.interface import Database
from interlock.server.core.identity import passwords
from interlock.server.core.identity.accounts import Account, Accounts
from interlock.server.core.identity.passwords import DUMMY_HASH, find_password_problem, hash_password, verify_password
from interlock.server.core.identity.principal import IdentityProblem, Principal, Role

from .people import PASSWORD, FakeClock, everything_kept, opened

OPERATOR = frozenset({Role.OPERATOR})
ADMIN = frozenset({Role.ADMIN})


@pytest.fixture
def database(tmp_path: Path, database_backend: str) -> Iterator[Database]:
    with opened(tmp_path / "server.db") as database:
        yield database


@pytest.fixture
def accounts(database: Database) -> Accounts:
    return Accounts(database, FakeClock())


async def deeds(database: Database) -> list[tuple[str, str, str]]:
    return [(entry.by, entry.action, entry.target) for entry in await AuditLog(database).read()]


async def test_whoever_knows_the_password_is_that_person(accounts: Accounts) -> None:
    await accounts.create("ada", PASSWORD, roles=OPERATOR, agents=frozenset({"billing"}), by="cli")

    assert await accounts.authenticate("ada", PASSWORD) == Principal(
        name="user:ada", kind="person", roles=OPERATOR, agents=frozenset({"billing"})
    )
    assert await accounts.authenticate("ada", PASSWORD + "!") is None
    assert await accounts.authenticate("bob", PASSWORD) is None


async def test_the_password_is_nowhere_in_the_files(accounts: Accounts, tmp_path: Path) -> None:
    await accounts.create("ada", PASSWORD, by="cli")
    await accounts.authenticate("ada", PASSWORD)
    await accounts.authenticate("ada", "a wrong secret phrase")

    kept = everything_kept(tmp_path)
    assert b"scrypt$32768$8$1$" in kept
    assert PASSWORD.encode() not in kept
    assert b"a wrong secret phrase" not in kept


async def test_a_name_that_nobody_has_costs_one_hash_like_any_other(
    accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    await accounts.create("ada", PASSWORD, by="cli")
    checked: list[str] = []

    def counted(password: str, kept: str) -> bool:
        checked.append(kept[:17])
        return verify_password(password, kept)

    monkeypatch.setattr("interlock.server.core.identity.accounts.verify_password", counted)
    for name in ("ada", "nobody", "\ud800", "x" * 10_000, ""):
        assert await accounts.authenticate(name, "not the password") is None

    assert checked == ["scrypt$32768$8$1$"] * 5


async def test_hashes_are_compared_in_equal_time(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, compared = hash_password(PASSWORD), 0

    def counted(one: bytes, other: bytes) -> bool:
        nonlocal compared
        compared += 1
        return hmac.compare_digest(one, other)

    monkeypatch.setattr(passwords, "hmac", type("fake", (), {"compare_digest": staticmethod(counted)}))

    assert verify_password(PASSWORD, kept)
    assert not verify_password(PASSWORD, DUMMY_HASH)
    assert compared == 2


@pytest.mark.parametrize(
    ("name", "password", "field"),
    [
        ("", PASSWORD, "name"),
        ("Ada", PASSWORD, "name"),
        ("..", PASSWORD, "name"),
        ("a/b", PASSWORD, "name"),
        ("ada\n", PASSWORD, "name"),
        ("\ud800", PASSWORD, "name"),
        ("x" * 65, PASSWORD, "name"),
        ("ada", "short", "password"),
        ("ada", "x" * 1_025, "password"),
        ("ada", "ü" * 600, "password"),
        ("ada.of.accounting", "Ada.of.Accounting", "password"),
    ],
)
async def test_what_cannot_be_an_account_is_refused_by_its_field(
    accounts: Accounts, name: str, password: str, field: str
) -> None:
    refused = await accounts.create(name, password, by="cli")

    assert isinstance(refused, IdentityProblem)
    assert (refused.field, refused.kind) == (field, "invalid")
    assert await accounts.list() == ()


async def test_a_person_is_not_an_agent(accounts: Accounts) -> None:
    refused = await accounts.create("ada", PASSWORD, roles={Role.AGENT}, by="cli")

    assert refused == IdentityProblem("roles", "`agent` is for keys: a person is not an agent")


async def test_the_same_is_refused_when_an_account_is_changed(accounts: Accounts) -> None:
    made = await accounts.create("ada", PASSWORD, by="cli")

    assert isinstance(await accounts.set_password("ada", "short", by="cli"), IdentityProblem)
    assert isinstance(await accounts.set_roles("ada", {Role.AGENT}, None, by="cli"), IdentityProblem)
    assert await accounts.list() == (made,)


async def test_there_are_only_so_many_accounts(accounts: Accounts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.server.core.identity.account_rows.MAX_ACCOUNTS", 1)
    await accounts.link_identity(ISSUER, "sub-1", "ada")

    refused = await accounts.link_identity(ISSUER, "sub-2", "bob")
    assert refused == IdentityProblem("name", "there are 1 accounts, and can be no more", "conflict")


async def test_a_name_is_given_once(accounts: Accounts) -> None:
    first = await accounts.create("ada", PASSWORD, by="cli")
    second = await accounts.create("ada", "another password", by="cli")

    assert isinstance(first, Account)
    assert second == IdentityProblem("name", "there is an account `ada` already", "conflict")
    assert await accounts.list() == (first,)


async def test_a_new_password_replaces_the_old_one(accounts: Accounts) -> None:
    await accounts.create("ada", PASSWORD, by="cli")
    await accounts.set_password("ada", "a completely new one", by="user:ada")

    assert await accounts.authenticate("ada", PASSWORD) is None
    assert await accounts.authenticate("ada", "a completely new one")


async def test_whoever_is_disabled_is_let_in_no_more_until_enabled(accounts: Accounts) -> None:
    made = await accounts.create("ada", PASSWORD, by="cli")
    assert isinstance(made, Account)

    assert await accounts.disable("ada", by="user:root") == replace(made, disabled=True)
    assert await accounts.authenticate("ada", PASSWORD) is None
    assert await accounts.enable("ada", by="user:root") == made
    assert await accounts.authenticate("ada", PASSWORD)


async def test_disabling_during_a_sign_in_refuses_it(accounts: Accounts, monkeypatch: pytest.MonkeyPatch) -> None:
    await accounts.create("ada", PASSWORD, by="cli")
    loop = asyncio.get_running_loop()

    def disabled_meanwhile(password: str, kept: str) -> bool:
        asyncio.run_coroutine_threadsafe(accounts.disable("ada", by="user:root"), loop).result(10)
        return True

    monkeypatch.setattr("interlock.server.core.identity.accounts.verify_password", disabled_meanwhile)

    assert await accounts.authenticate("ada", PASSWORD) is None


async def test_the_last_admin_of_all_agents_stays_one(accounts: Accounts) -> None:
    root = await accounts.create("root", PASSWORD, roles=ADMIN, by="cli")
    for refused in (
        await accounts.disable("root", by="user:root"),
        await accounts.set_roles("root", OPERATOR, None, by="user:root"),
        await accounts.set_roles("root", ADMIN, frozenset({"billing"}), by="user:root"),
    ):
        assert isinstance(refused, IdentityProblem)
        assert (refused.problem, refused.kind) == ("would leave the server without an admin of all agents", "conflict")

    assert await accounts.get("root") == root
    await accounts.create("second", PASSWORD, roles=ADMIN, by="cli")
    assert isinstance(await accounts.disable("root", by="user:second"), Account)


async def test_every_change_is_in_the_journal_with_who_did_it_and_once(accounts: Accounts, database: Database) -> None:
    await accounts.create("ada", PASSWORD, by="cli")
    for _ in range(2):
        await accounts.set_roles("ada", OPERATOR, frozenset({"billing"}), by="user:root")
        await accounts.disable("ada", by="user:root")
    await accounts.set_password("ada", "a completely new one", by="user:ada")

    assert await deeds(database) == [
        ("cli", "account.created", "user:ada"),
        ("user:root", "account.roles_changed", "user:ada"),
        ("user:root", "account.disabled", "user:ada"),
        ("user:ada", "account.password_changed", "user:ada"),
    ]


@pytest.mark.parametrize("name", ["nobody", "\ud800", "a/../b"])
async def test_an_account_that_is_not_there_is_unknown(accounts: Accounts, name: str) -> None:
    unknown = IdentityProblem("name", "there is no such account", "unknown")

    assert await accounts.get(name) is None
    assert await accounts.disable(name, by="cli") == unknown
    assert await accounts.set_roles(name, OPERATOR, None, by="cli") == unknown
    assert await accounts.set_password(name, PASSWORD, by="cli") == unknown


ISSUER = "https://login.example.com"


async def test_whoever_comes_from_a_provider_gets_an_account_without_a_password(accounts: Accounts) -> None:
    made = await accounts.link_identity(ISSUER, "sub-1", "ada", roles=OPERATOR)

    assert isinstance(made, Account)
    assert (made.issuer, made.subject, made.has_password, made.roles) == (ISSUER, "sub-1", False, OPERATOR)
    assert await accounts.find_by_subject(ISSUER, "sub-1") == made
    assert await accounts.find_by_subject("https://evil.example.com", "sub-1") is None
    assert await accounts.authenticate("ada", "") is None
    refused = await accounts.set_password("ada", PASSWORD, by="user:ada")
    assert isinstance(refused, IdentityProblem)


async def test_nobody_gets_the_account_of_another_by_its_name(accounts: Accounts) -> None:
    local = await accounts.create("ada", PASSWORD, roles=ADMIN, by="cli")
    await accounts.link_identity(ISSUER, "sub-2", "bob")

    for name in ("ada", "bob"):
        refused = await accounts.link_identity(ISSUER, "sub-1", name, roles=OPERATOR)
        assert isinstance(refused, IdentityProblem)
        assert refused.kind == "conflict"
    assert await accounts.get("ada") == local


async def test_what_the_provider_says_of_roles_counts_and_the_name_stays(accounts: Accounts) -> None:
    first = await accounts.link_identity(ISSUER, "sub-1", "ada", roles=OPERATOR)
    assert isinstance(first, Account)

    assert await accounts.link_identity(ISSUER, "sub-1", "ada.renamed") == first
    assert await accounts.link_identity(ISSUER, "sub-1", "ada", roles=frozenset()) == replace(first, roles=frozenset())


async def test_signing_in_again_does_not_give_back_the_agents_that_an_admin_took_away(accounts: Accounts) -> None:
    await accounts.link_identity(ISSUER, "sub-1", "ada", roles=frozenset())
    await accounts.set_roles("ada", frozenset(), frozenset({"billing"}), by="user:root")

    again = await accounts.link_identity(ISSUER, "sub-1", "ada", roles=OPERATOR)

    assert isinstance(again, Account)
    assert (again.roles, again.agents) == (OPERATOR, frozenset({"billing"}))
    assert await accounts.get("ada") == again


@pytest.mark.parametrize(("issuer", "subject"), [("", "sub"), (ISSUER, ""), (ISSUER, "\ud800"), (ISSUER, "x" * 2_000)])
async def test_a_provider_that_names_nobody_is_refused(accounts: Accounts, issuer: str, subject: str) -> None:
    assert isinstance(await accounts.link_identity(issuer, subject, "ada"), IdentityProblem)
    assert await accounts.find_by_subject(issuer, subject) is None


@given(st.text(), st.text())
def test_any_text_is_judged_as_a_password_and_as_a_hash(password: str, name: str) -> None:
    find_password_problem(password, name)
    assert not verify_password(password, name)


@pytest.mark.parametrize(
    "kept", ["scrypt$3$8$1$AAAA$AAAA", f"scrypt${2**40}$8$1$AAAA$AAAA", "scrypt$9" * 99, "a$b$c$d$e$f"]
)
def test_a_hash_that_was_edited_by_hand_fits_no_password(kept: str) -> None:
    assert not verify_password(PASSWORD, kept)


def test_a_password_that_is_too_long_is_not_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "scrypt", None)

    assert not verify_password("x" * 10_000_000, DUMMY_HASH)
    assert not verify_password("\N{SNOWMAN}" * 1_000, DUMMY_HASH)


def test_a_password_is_the_same_however_its_letters_are_composed() -> None:
    assert verify_password("caf\u00e9 au lait et croissant", hash_password("cafe\u0301 au lait et croissant"))
