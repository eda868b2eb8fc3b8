"""Accounts in the database: the table, and the statements that read and change it with the audit log."""

from typing import Any

import msgspec

from ..audit.audit_log import AuditEvent, append_event
from ..database.interface import Connection
from .principal import (
    IdentityProblem,
    Principal,
    Role,
    check_name,
    decode_agents,
    decode_roles,
    describe_grants,
    encode_agents,
    encode_roles,
)

MAX_ACCOUNTS = 10_000

ACCOUNT_COLUMNS = "name, password IS NOT NULL, roles, agents, disabled, created_at, issuer, subject"
_INSERT_ACCOUNT = """INSERT INTO accounts (name, password, roles, agents, created_at, issuer, subject)
    VALUES (?, ?, ?, ?, ?, ?, ?)"""
_SELECT_HASH = "SELECT password FROM accounts WHERE name = ? AND disabled = 0"
_SELECT_OTHER_ADMINS = "SELECT roles FROM accounts WHERE name != ? AND disabled = 0 AND agents IS NULL"


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """An account that may sign in. Times are nanoseconds since 1970."""

    name: str
    roles: frozenset[Role] = frozenset()
    #: The agents that they own; None: all of them.
    agents: frozenset[str] | None = None
    disabled: bool = False
    created_at: int
    has_password: bool
    #: The identity provider and its subject; empty for local accounts.
    issuer: str = ""
    subject: str = ""

    @property
    def principal(self) -> Principal:
        """Principal that the account signs in as."""
        return Principal(name=f"user:{self.name}", kind="person", roles=self.roles, agents=self.agents)


def to_account(row: tuple[Any, ...]) -> Account:
    """Convert a row of `ACCOUNT_COLUMNS`."""
    name, has_password, roles, agents, disabled, created_at, issuer, subject = row
    return Account(
        name=name,
        roles=decode_roles(roles),
        agents=decode_agents(agents),
        disabled=bool(disabled),
        created_at=created_at,
        has_password=bool(has_password),
        issuer=issuer or "",
        subject=subject or "",
    )


def list_accounts(connection: Connection) -> tuple[Account, ...]:
    """List all accounts by name."""
    rows = connection.execute(f"SELECT {ACCOUNT_COLUMNS} FROM accounts ORDER BY name").fetchall()  # noqa: S608
    return tuple(map(to_account, rows))


def find_by_name(connection: Connection, name: str) -> Account | None:
    """Return an account by name, or None."""
    # What cannot be a name may be text that SQLite does not take.
    return None if check_name(name) else _select_one(connection, "name = ?", name)


def find_by_subject(connection: Connection, issuer: str, subject: str) -> Account | None:
    """Return the account of an identity provider's subject, or None."""
    return _select_one(connection, "issuer = ? AND subject = ?", issuer, subject)


def find_password_hash(connection: Connection, name: str) -> str | None:
    """Return the password hash; None also for disabled accounts and those without a password."""
    row = connection.execute(_SELECT_HASH, (name,)).fetchone()
    return row[0] if row else None


def is_last_admin(connection: Connection, account: Account) -> bool:
    """Return True if there is no other admin of all agents."""
    if account.disabled or Role.ADMIN not in account.roles or account.agents is not None:
        return False
    others = connection.execute(_SELECT_OTHER_ADMINS, (account.name,))
    return not any(Role.ADMIN in decode_roles(roles) for (roles,) in others)


def insert_account(
    connection: Connection, account: Account, password: str | None, by: str
) -> Account | IdentityProblem:
    """Insert an account and record it in the audit log. Return a problem if it cannot be created."""
    if find_by_name(connection, account.name):
        return IdentityProblem("name", f"there is an account `{account.name}` already", "conflict")
    if connection.execute("SELECT count(*) FROM accounts").fetchone()[0] >= MAX_ACCOUNTS:
        return IdentityProblem("name", f"there are {MAX_ACCOUNTS} accounts, and can be no more", "conflict")
    grants = (encode_roles(account.roles), encode_agents(account.agents))
    origin = (account.issuer or None, account.subject or None)
    connection.execute(_INSERT_ACCOUNT, (account.name, password, *grants, account.created_at, *origin))
    detail = describe_grants(account.roles, account.agents)
    event = AuditEvent(by=by, action="account.created", target=account.principal.name, detail=detail)
    append_event(connection, account.created_at, event)
    return account


def set_password(connection: Connection, account: Account, password: str, at: int, by: str) -> Account:
    """Set the password, end the sessions of the account and record it in the audit log."""
    update = "UPDATE accounts SET password = ?, stamp = stamp + 1 WHERE name = ?"
    connection.execute(update, (password, account.name))
    append_event(connection, at, AuditEvent(by=by, action="account.password_changed", target=account.principal.name))
    return account


def set_roles(connection: Connection, account: Account, at: int, by: str) -> Account:
    """Set the roles and agents of the account, and return it."""
    row = (encode_roles(account.roles), encode_agents(account.agents), account.name)
    connection.execute("UPDATE accounts SET roles = ?, agents = ? WHERE name = ?", row)
    detail = describe_grants(account.roles, account.agents)
    append_event(
        connection, at, AuditEvent(by=by, action="account.roles_changed", target=account.principal.name, detail=detail)
    )
    return account


def set_disabled(connection: Connection, account: Account, at: int, by: str) -> Account:
    """Enable or disable an account, end its sessions and record it in the audit log."""
    update = "UPDATE accounts SET disabled = ?, stamp = stamp + 1 WHERE name = ?"
    connection.execute(update, (int(account.disabled), account.name))
    action = "account.disabled" if account.disabled else "account.enabled"
    append_event(connection, at, AuditEvent(by=by, action=action, target=account.principal.name))
    return account


def _select_one(connection: Connection, condition: str, *values: str) -> Account | None:
    row = connection.execute(f"SELECT {ACCOUNT_COLUMNS} FROM accounts WHERE {condition}", values).fetchone()  # noqa: S608
    return to_account(row) if row else None
