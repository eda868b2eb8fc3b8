"""Passkeys (WebAuthn) of accounts that have a password here: to sign in without it.

A challenge is used once, within minutes, by the session or browser that asked for it; only its hash is stored. The
authenticator has to verify the person, and its signature is bound to the server's public address. Accounts of an
identity provider have none: what the provider decides must not be passed by.
"""

from collections.abc import Callable, Mapping
from hashlib import sha256
from ipaddress import ip_address
from secrets import token_bytes
from time import time_ns
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec
import webauthn
from webauthn.helpers import base64url_to_bytes, bytes_to_base64url, parse_client_data_json
from webauthn.helpers.exceptions import WebAuthnException
from webauthn.helpers.structs import (
    AuthenticatorSelectionCriteria,
    PublicKeyCredentialDescriptor,
    ResidentKeyRequirement,
    UserVerificationRequirement,
)

from ..audit.audit_log import AuditEvent, append_event
from ..database.interface import Connection, Database
from .principal import IdentityProblem

MAX_PASSKEYS = 20
MAX_NAME_CHARS = 64
CHALLENGE_SECONDS = 300
#: Beyond this the oldest are deleted: requests without credentials must not fill the database.
MAX_CHALLENGES = 10_000
_CHALLENGE_BYTES = 32
_MAX_ID_CHARS = 1_400

_SELECT_BY_ACCOUNT = (
    "SELECT credential_id, name, created_at, used_at FROM passkeys WHERE account = ? ORDER BY created_at"
)
_SELECT_ONE = """SELECT account, CAST(public_key AS BLOB), sign_count FROM passkeys JOIN accounts
    ON accounts.name = passkeys.account WHERE credential_id = ? AND disabled = 0"""
_INSERT = """INSERT INTO passkeys (credential_id, account, name, public_key, sign_count, created_at)
    VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"""
_USE = "UPDATE passkeys SET sign_count = ?, used_at = ? WHERE credential_id = ? AND sign_count = ?"
_DELETE = "DELETE FROM passkeys WHERE account = ? AND credential_id = ?"
_INSERT_CHALLENGE = "INSERT INTO passkey_challenges (challenge, owner, expires_at) VALUES (?, ?, ?)"
_USE_CHALLENGE = "DELETE FROM passkey_challenges WHERE challenge = ? AND owner = ? AND expires_at > ?"
_DELETE_EXPIRED = "DELETE FROM passkey_challenges WHERE expires_at <= ?"
_COUNT_CHALLENGES = "SELECT count(*) FROM passkey_challenges"
_DELETE_OLDEST = """DELETE FROM passkey_challenges WHERE challenge IN (
    SELECT challenge FROM passkey_challenges ORDER BY expires_at LIMIT ?)"""


class Passkey(msgspec.Struct, frozen=True, kw_only=True):
    """A passkey as listed. Times are nanoseconds since 1970; 0 is never."""

    credential_id: str
    name: str
    created_at: int
    used_at: int


class Passkeys:
    """Registers passkeys, and authenticates with them."""

    def __init__(self, database: Database, public_url: str, now: Callable[[], int] = time_ns) -> None:
        """`public_url` is the address of the server for people: passkeys belong to its host."""
        self._database = database
        self._now = now
        address = urlsplit(public_url)
        self._host = address.hostname or ""
        self._origin = f"{address.scheme}://{address.netloc}"
        #: False: browsers allow no passkeys for this address. They need https, or localhost, and a name.
        self.is_available = _is_name(self._host) and (address.scheme == "https" or self._host == "localhost")

    async def begin_registration(self, account: str, owner: str) -> dict[str, Any]:
        """Return the options for a new passkey, for `navigator.credentials.create`. `owner` is the session."""
        challenge = await self._create_challenge(owner)
        options = webauthn.generate_registration_options(
            rp_id=self._host,
            rp_name="Interlock",
            user_name=account,
            user_id=sha256(f"interlock/passkey-user/v1\n{account}".encode()).digest(),
            challenge=challenge,
            timeout=CHALLENGE_SECONDS * 1_000,
            authenticator_selection=AuthenticatorSelectionCriteria(
                resident_key=ResidentKeyRequirement.REQUIRED, user_verification=UserVerificationRequirement.REQUIRED
            ),
            exclude_credentials=[
                PublicKeyCredentialDescriptor(id=base64url_to_bytes(each.credential_id))
                for each in await self.list(account)
            ],
        )
        return msgspec.json.decode(webauthn.options_to_json(options))

    async def register(
        self, account: str, owner: str, name: str, credential: Mapping[str, Any]
    ) -> Passkey | IdentityProblem:
        """Add a passkey to an account, with the answer of `navigator.credentials.create`."""
        if not 0 < len(name.strip()) <= MAX_NAME_CHARS or not name.isprintable():
            return IdentityProblem("name", f"must be 1 to {MAX_NAME_CHARS} printable characters")
        challenge = await self._use_challenge(credential, owner)
        if challenge is None:
            return IdentityProblem("credential", "answers no open request of this session, or came too late")
        try:
            verified = webauthn.verify_registration_response(
                credential=dict(credential),
                expected_challenge=challenge,
                expected_rp_id=self._host,
                expected_origin=self._origin,
                require_user_verification=True,
            )
        except (WebAuthnException, ValueError) as error:
            return IdentityProblem("credential", f"cannot be verified: {error}"[:300])
        now = self._now()
        new = Passkey(
            credential_id=bytes_to_base64url(verified.credential_id), name=name.strip(), created_at=now, used_at=0
        )
        row = (new.credential_id, account, new.name, verified.credential_public_key, verified.sign_count, now)

        def insert(connection: Connection) -> Passkey | IdentityProblem:
            if len(connection.execute(_SELECT_BY_ACCOUNT, (account,)).fetchall()) >= MAX_PASSKEYS:
                return IdentityProblem("name", f"there are {MAX_PASSKEYS} passkeys, and can be no more", "conflict")
            if not connection.execute(_INSERT, row).rowcount:
                return IdentityProblem("credential", "is a passkey of an account already", "conflict")
            append_event(connection, now, _describe("passkey.added", account, new.name, f"user:{account}"))
            return new

        return await self._database.run(insert)

    async def begin_sign_in(self, owner: str) -> dict[str, Any]:
        """Return the options of a sign-in, for `navigator.credentials.get`. `owner` is the browser."""
        options = webauthn.generate_authentication_options(
            rp_id=self._host,
            challenge=await self._create_challenge(owner),
            timeout=CHALLENGE_SECONDS * 1_000,
            user_verification=UserVerificationRequirement.REQUIRED,
        )
        return msgspec.json.decode(webauthn.options_to_json(options))

    async def find_account(self, credential: Mapping[str, Any]) -> str:
        """Return the account whose passkey this claims to be; empty when there is none that may sign in."""
        row = await self._find(credential)
        return row[0] if row else ""

    async def authenticate(self, credential: Mapping[str, Any], owner: str) -> str:
        """Verify the answer of `navigator.credentials.get`. Return the account; empty when it is not verified."""
        challenge, row = await self._use_challenge(credential, owner), await self._find(credential)
        if challenge is None or row is None:
            return ""
        account, public_key, sign_count = row
        try:
            verified = webauthn.verify_authentication_response(
                credential=dict(credential),
                expected_challenge=challenge,
                expected_rp_id=self._host,
                expected_origin=self._origin,
                credential_public_key=public_key,
                credential_current_sign_count=sign_count,
                require_user_verification=True,
            )
        except (WebAuthnException, ValueError):
            return ""
        values = (verified.new_sign_count, self._now(), _read_id(credential), sign_count)
        is_used = await self._database.run(lambda connection: connection.execute(_USE, values).rowcount)
        return account if is_used else ""

    async def list(self, account: str) -> tuple[Passkey, ...]:
        """Return the passkeys of an account, the oldest first."""
        rows = await self._database.read(
            lambda connection: connection.execute(_SELECT_BY_ACCOUNT, (account,)).fetchall()
        )
        return tuple(Passkey(credential_id=row[0], name=row[1], created_at=row[2], used_at=row[3]) for row in rows)

    async def remove(self, account: str, credential_id: str, *, by: str) -> bool:
        """Remove a passkey of an account. Return False when there is none."""
        name = {each.credential_id: each.name for each in await self.list(account)}.get(credential_id)
        if name is None:
            return False

        def delete(connection: Connection) -> bool:
            if not connection.execute(_DELETE, (account, credential_id)).rowcount:
                return False
            append_event(connection, self._now(), _describe("passkey.removed", account, name, by))
            return True

        return await self._database.run(delete)

    async def remove_all(self, account: str, *, by: str) -> int:
        """Remove all passkeys of an account, and return how many there were."""
        return sum([await self.remove(account, each.credential_id, by=by) for each in await self.list(account)])

    async def _create_challenge(self, owner: str) -> bytes:
        challenge, now = token_bytes(_CHALLENGE_BYTES), self._now()
        row = (_hash(challenge), owner, now + CHALLENGE_SECONDS * 1_000_000_000)

        def insert(connection: Connection) -> None:
            connection.execute(_DELETE_EXPIRED, (now,))
            excess = connection.execute(_COUNT_CHALLENGES).fetchone()[0] - MAX_CHALLENGES + 1
            if excess > 0:
                connection.execute(_DELETE_OLDEST, (excess,))
            connection.execute(_INSERT_CHALLENGE, row)

        await self._database.run(insert)
        return challenge

    async def _use_challenge(self, credential: Mapping[str, Any], owner: str) -> bytes | None:
        """Return the challenge that a credential answers, and forget it; None: it is not one of this owner."""
        challenge = _read_challenge(credential)
        if challenge is None:
            return None
        values = (_hash(challenge), owner, self._now())
        is_known = await self._database.run(lambda connection: connection.execute(_USE_CHALLENGE, values).rowcount)
        return challenge if is_known else None

    async def _find(self, credential: Mapping[str, Any]) -> tuple[str, bytes, int] | None:
        credential_id = _read_id(credential)
        if not credential_id:
            return None
        return await self._database.read(
            lambda connection: connection.execute(_SELECT_ONE, (credential_id,)).fetchone()
        )


def _is_name(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return bool(host)
    return False


def _hash(challenge: bytes) -> str:
    return sha256(challenge).hexdigest()


def _read_id(credential: Mapping[str, Any]) -> str:
    found = credential.get("id")
    return found if isinstance(found, str) and found.isascii() and len(found) <= _MAX_ID_CHARS else ""


def _read_challenge(credential: Mapping[str, Any]) -> bytes | None:
    """Return the challenge that the browser signed; verified later with the rest."""
    response: Any = credential.get("response")
    data: Any = cast(dict[str, Any], response).get("clientDataJSON") if isinstance(response, dict) else None
    if not isinstance(data, str):
        return None
    try:
        return parse_client_data_json(base64url_to_bytes(data)).challenge
    except (WebAuthnException, ValueError):
        return None


def _describe(action: str, account: str, name: str, by: str) -> AuditEvent:
    return AuditEvent(by=by, action=action, target=f"user:{account}", detail={"name": name})
