"""The accounts of people, for the console: a name with a password, or one that an identity provider vouches for.

An account is never removed, since the log names people by it; it is disabled. Every change is written with its row in
the journal. An account's stamp grows when its password changes or it is disabled: sign-ins from before count no more.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Iterable
from functools import partial
from time import time_ns

from msgspec.structs import replace

from ..database import Database
from . import account_rows
from .account_rows import TABLES, Account
from .passwords import NOBODYS, hash_password, is_password, problem_of
from .principal import Principal, Role
from .trust import Refusal, check_agents, check_name

__all__ = ("TABLES", "Account", "Accounts")

#: A hash takes 32 MiB; more of them at once would only wait for each other.
_HASHES_AT_ONCE = 2
_MAX_SUBJECT_CHARS = 1_024
_NO_ADMIN = "would leave the server without an admin of all agents"


class Accounts:
    def __init__(self, database: Database, now: Callable[[], int] = time_ns) -> None:
        self._database = database
        self._now = now
        self._hashing = asyncio.Semaphore(_HASHES_AT_ONCE)

    async def create(
        self,
        name: str,
        password: str,
        *,
        roles: Iterable[Role] = (),
        agents: frozenset[str] | None = None,
        by: str,
    ) -> Account | Refusal:
        roles = frozenset(roles)
        if refusal := check_name(name) or _check_trust(roles, agents) or _check_password(password, name):
            return refusal
        hashed = await self._hash(password)
        new = Account(name=name, roles=roles, agents=agents, created_at=self._now(), has_password=True)
        return await self._database.run(partial(account_rows.insert, account=new, password=hashed, by=by))

    async def set_password(self, name: str, password: str, *, by: str) -> Account | Refusal:
        """Ends all of their sign-ins."""
        if refusal := _check_password(password, name):
            return refusal
        hashed = await self._hash(password)

        def change(connection: sqlite3.Connection, account: Account) -> Account | Refusal:
            if account.issuer:
                return Refusal("password", f"is kept by {account.issuer}, where this account comes from", "conflict")
            return account_rows.set_password(connection, account, hashed, self._now(), by)

        return await self._change(name, change)

    async def set_roles(
        self, name: str, roles: Iterable[Role], agents: frozenset[str] | None, *, by: str
    ) -> Account | Refusal:
        """Counts from the next request on, also for whoever is signed in."""
        roles = frozenset(roles)
        if refusal := _check_trust(roles, agents):
            return refusal
        governs = Role.ADMIN in roles and agents is None

        def change(connection: sqlite3.Connection, account: Account) -> Account | Refusal:
            if (account.roles, account.agents) == (roles, agents):
                return account
            if not governs and account_rows.is_last_admin(connection, account):
                return Refusal("roles", _NO_ADMIN, "conflict")
            return account_rows.set_trust(connection, replace(account, roles=roles, agents=agents), self._now(), by)

        return await self._change(name, change)

    async def disable(self, name: str, *, by: str) -> Account | Refusal:
        """Ends all of their sign-ins."""
        return await self._set_disabled(name, True, by)

    async def enable(self, name: str, *, by: str) -> Account | Refusal:
        return await self._set_disabled(name, False, by)

    async def get(self, name: str) -> Account | None:
        return await self._database.run(partial(account_rows.by_name, name=name))

    async def list(self) -> tuple[Account, ...]:
        """All of them, by name."""
        return await self._database.run(account_rows.all_accounts)

    async def authenticate(self, name: str, password: str) -> Principal | None:
        """Takes equally long whether or not there is such an account."""
        if check_name(name):  # nobody has it; to look for nobody takes as long
            name = ""
        kept = await self._database.run(partial(account_rows.kept_password, name=name))
        async with self._hashing:
            is_right = await asyncio.to_thread(is_password, password, kept or NOBODYS)
        if not (is_right and kept):
            return None
        # It may have been changed or disabled while the hash was made.
        account, now_kept = await self._database.run(
            lambda connection: (account_rows.by_name(connection, name), account_rows.kept_password(connection, name))
        )
        return account.principal if account and now_kept == kept else None

    async def by_subject(self, issuer: str, subject: str) -> Account | None:
        if _check_subject(issuer, subject):
            return None
        return await self._database.run(partial(account_rows.by_subject, issuer=issuer, subject=subject))

    async def link(
        self,
        issuer: str,
        subject: str,
        name: str,
        *,
        roles: frozenset[Role] | None = None,
        agents: frozenset[str] | None = None,
    ) -> Account | Refusal:
        """The account of somebody for whom an identity provider vouches; made when they come for the first time.

        They keep the name that they first had. `roles` are what the provider says now; with None it says nothing, and
        they stay. `agents` are for a new account: later, an admin says which they are, and signing in again must not
        widen that. A name that somebody else has is refused: nobody gets an account by its name.
        """
        if refusal := _check_subject(issuer, subject) or _check_trust(roles or frozenset(), agents):
            return refusal
        by, at = f"oidc:{issuer}", self._now()
        new = Account(name=name, created_at=at, has_password=False, issuer=issuer, subject=subject)

        def change(connection: sqlite3.Connection) -> Account | Refusal:
            known = account_rows.by_subject(connection, issuer, subject)
            if known is None:
                made = replace(new, roles=roles or frozenset(), agents=agents)
                return check_name(name) or account_rows.insert(connection, made, None, by)
            if roles is None or known.roles == roles:
                return known
            return account_rows.set_trust(connection, replace(known, roles=roles), at, by)

        return await self._database.run(change)

    async def _hash(self, password: str) -> str:
        async with self._hashing:
            return await asyncio.to_thread(hash_password, password)

    async def _set_disabled(self, name: str, disabled: bool, by: str) -> Account | Refusal:
        def change(connection: sqlite3.Connection, account: Account) -> Account | Refusal:
            if account.disabled == disabled:
                return account
            if disabled and account_rows.is_last_admin(connection, account):
                return Refusal("disabled", _NO_ADMIN, "conflict")
            return account_rows.set_disabled(connection, replace(account, disabled=disabled), self._now(), by)

        return await self._change(name, change)

    async def _change(
        self, name: str, change: Callable[[sqlite3.Connection, Account], Account | Refusal]
    ) -> Account | Refusal:
        def changed(connection: sqlite3.Connection) -> Account | Refusal:
            account = account_rows.by_name(connection, name)
            return change(connection, account) if account else Refusal("name", "there is no such account", "unknown")

        return await self._database.run(changed)


def _check_trust(roles: frozenset[Role], agents: frozenset[str] | None) -> Refusal | None:
    if Role.AGENT in roles:
        return Refusal("roles", "`agent` is for keys: a person is not an agent")
    return check_agents(agents)


def _check_password(password: str, name: str) -> Refusal | None:
    problem = problem_of(password, name)
    return Refusal("password", problem) if problem else None


def _check_subject(issuer: str, subject: str) -> Refusal | None:
    for field, text in (("issuer", issuer), ("subject", subject)):
        if not (0 < len(text) <= _MAX_SUBJECT_CHARS and text.isprintable()):
            return Refusal(field, f"must be 1 to {_MAX_SUBJECT_CHARS} printable characters")
    return None
