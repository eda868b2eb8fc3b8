"""Accounts of people, for the console: with a password, or from an identity provider.

An account is never deleted, since the log names people by it; it is disabled. Every change is written with its row in
the audit log. An account's stamp grows when its password changes or it is disabled: earlier sessions end.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from time import time_ns

from msgspec.structs import replace

from ..database.interface import Connection, Database
from . import account_rows
from .account_rows import Account
from .passwords import DUMMY_HASH, find_password_problem, hash_password, verify_password
from .principal import IdentityProblem, Principal, Role, check_agents, check_name

__all__ = ("Account", "Accounts")

#: A hash takes 32 MiB; more of them at once would only wait for each other.
_MAX_CONCURRENT_HASHES = 2
_MAX_SUBJECT_CHARS = 1_024
_NO_ADMIN = "would leave the server without an admin of all agents"


class Accounts:
    """Creates, changes and authenticates accounts."""

    def __init__(self, database: Database, now: Callable[[], int] = time_ns) -> None:
        self._database = database
        self._now = now
        self._hash_limit = asyncio.Semaphore(_MAX_CONCURRENT_HASHES)

    async def create(
        self,
        name: str,
        password: str,
        *,
        roles: Iterable[Role] = (),
        agents: frozenset[str] | None = None,
        by: str,
    ) -> Account | IdentityProblem:
        """Create an account with a password. Return a problem if a field is invalid."""
        roles = frozenset(roles)
        if refusal := check_name(name) or _check_roles(roles, agents) or _check_password(password, name):
            return refusal
        hashed = await self._hash(password)
        new = Account(name=name, roles=roles, agents=agents, created_at=self._now(), has_password=True)
        return await self._database.run(partial(account_rows.insert_account, account=new, password=hashed, by=by))

    async def set_password(self, name: str, password: str, *, by: str) -> Account | IdentityProblem:
        """Set the password, and end all sessions of the account."""
        if refusal := _check_password(password, name):
            return refusal
        hashed = await self._hash(password)

        def change(connection: Connection, account: Account) -> Account | IdentityProblem:
            if account.issuer:
                return IdentityProblem(
                    "password", f"is kept by {account.issuer}, where this account comes from", "conflict"
                )
            return account_rows.set_password(connection, account, hashed, self._now(), by)

        return await self._update(name, change)

    async def set_roles(
        self, name: str, roles: Iterable[Role], agents: frozenset[str] | None, *, by: str
    ) -> Account | IdentityProblem:
        """Set the roles, effective with the next request."""
        roles = frozenset(roles)
        if refusal := _check_roles(roles, agents):
            return refusal
        is_full_admin = Role.ADMIN in roles and agents is None

        def change(connection: Connection, account: Account) -> Account | IdentityProblem:
            if (account.roles, account.agents) == (roles, agents):
                return account
            if not is_full_admin and account_rows.is_last_admin(connection, account):
                return IdentityProblem("roles", _NO_ADMIN, "conflict")
            return account_rows.set_roles(connection, replace(account, roles=roles, agents=agents), self._now(), by)

        return await self._update(name, change)

    async def disable(self, name: str, *, by: str) -> Account | IdentityProblem:
        """Disable the account, and end all its sessions."""
        return await self._set_disabled(name, True, by)

    async def enable(self, name: str, *, by: str) -> Account | IdentityProblem:
        """Enable a disabled account."""
        return await self._set_disabled(name, False, by)

    async def get(self, name: str) -> Account | None:
        """Return an account by name, or None."""
        return await self._database.read(partial(account_rows.find_by_name, name=name))

    async def list(self) -> tuple[Account, ...]:
        """Return all accounts, by name."""
        return await self._database.read(account_rows.list_accounts)

    async def authenticate(self, name: str, password: str) -> Principal | None:
        """Check a password, in equal time whether or not the account exists."""
        if check_name(name):  # no such account; checking takes as long
            name = ""
        stored_hash = await self._database.read(partial(account_rows.find_password_hash, name=name))
        async with self._hash_limit:
            is_correct = await asyncio.to_thread(verify_password, password, stored_hash or DUMMY_HASH)
        if not (is_correct and stored_hash):
            return None
        # It may have been changed or disabled while the hash was made.
        account, current_hash = await self._database.read(
            lambda connection: (
                account_rows.find_by_name(connection, name),
                account_rows.find_password_hash(connection, name),
            )
        )
        return account.principal if account and current_hash == stored_hash else None

    async def find_by_subject(self, issuer: str, subject: str) -> Account | None:
        """Return the account of an identity provider's subject, or None."""
        if _check_subject(issuer, subject):
            return None
        return await self._database.read(partial(account_rows.find_by_subject, issuer=issuer, subject=subject))

    async def link_identity(
        self,
        issuer: str,
        subject: str,
        name: str,
        *,
        roles: frozenset[Role] | None = None,
        agents: frozenset[str] | None = None,
    ) -> Account | IdentityProblem:
        """Return the account of an identity at a provider; it is created at the first sign-in.

        The account keeps its first name. `roles` are those of the provider now; with None
        they are unchanged. `agents` are for a new account: later, an admin changes them, and signing in again must not
        widen them. A name that is taken is refused: a name never gives access to an account.
        """
        if refusal := _check_subject(issuer, subject) or _check_roles(roles or frozenset(), agents):
            return refusal
        by, at = f"oidc:{issuer}", self._now()
        new = Account(name=name, created_at=at, has_password=False, issuer=issuer, subject=subject)

        def change(connection: Connection) -> Account | IdentityProblem:
            known = account_rows.find_by_subject(connection, issuer, subject)
            if known is None:
                account = replace(new, roles=roles or frozenset(), agents=agents)
                return check_name(name) or account_rows.insert_account(connection, account, None, by)
            if roles is None or known.roles == roles:
                return known
            return account_rows.set_roles(connection, replace(known, roles=roles), at, by)

        return await self._database.run(change)

    async def _hash(self, password: str) -> str:
        async with self._hash_limit:
            return await asyncio.to_thread(hash_password, password)

    async def _set_disabled(self, name: str, disabled: bool, by: str) -> Account | IdentityProblem:
        def change(connection: Connection, account: Account) -> Account | IdentityProblem:
            if account.disabled == disabled:
                return account
            if disabled and account_rows.is_last_admin(connection, account):
                return IdentityProblem("disabled", _NO_ADMIN, "conflict")
            return account_rows.set_disabled(connection, replace(account, disabled=disabled), self._now(), by)

        return await self._update(name, change)

    async def _update(
        self, name: str, change: Callable[[Connection, Account], Account | IdentityProblem]
    ) -> Account | IdentityProblem:
        def changed(connection: Connection) -> Account | IdentityProblem:
            account = account_rows.find_by_name(connection, name)
            return (
                change(connection, account)
                if account
                else IdentityProblem("name", "there is no such account", "unknown")
            )

        return await self._database.run(changed)


def _check_roles(roles: frozenset[Role], agents: frozenset[str] | None) -> IdentityProblem | None:
    if Role.AGENT in roles:
        return IdentityProblem("roles", "`agent` is for keys: a person is not an agent")
    return check_agents(agents)


def _check_password(password: str, name: str) -> IdentityProblem | None:
    problem = find_password_problem(password, name)
    return IdentityProblem("password", problem) if problem else None


def _check_subject(issuer: str, subject: str) -> IdentityProblem | None:
    for field, text in (("issuer", issuer), ("subject", subject)):
        if not (0 < len(text) <= _MAX_SUBJECT_CHARS and text.isprintable()):
            return IdentityProblem(field, f"must be 1 to {_MAX_SUBJECT_CHARS} printable characters")
    return None
