"""Buttons in Slack: a press is an answer only of a person whose account may decide the question.

A request proves by its signature that Slack sent it, within minutes, and counts once. The Slack user in it is mapped to
an account by the settings, and the account decides as in the console: enabled, with the right role, bound to the
payload that the message showed, and recorded with the channel `slack`. Every refusal is in the audit log.
"""

import hmac
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, cast
from urllib.parse import parse_qs

import msgspec

from ....domain.json import InvalidJsonError, parse
from ....history.fold import load_run
from ....storage.event_log import EventLog
from ..configured_secret import read_secret
from ..database.interface import Connection, Database
from ..errors import ForbiddenError, NotFoundError, ServiceError
from ..identity.accounts import Accounts
from ..identity.guard import AccessGuard
from ..identity.permissions import Operation
from ..identity.principal import Principal
from ..runs.approval_service import Approval, ApprovalService
from .channel_settings import NoticesTable, SlackChannel
from .notice import build_notice
from .service import NoticeService
from .slack import APPROVE_BUTTON, REJECT_BUTTON, SlackSender, has_buttons

MAX_BODY_BYTES = 128 * 1024
TOLERANCE_SECONDS = 300
_NANOSECONDS_PER_SECOND = 1_000_000_000
#: Signatures are remembered for longer than they are accepted.
_REMEMBERED_NS = 4 * TOLERANCE_SECONDS * _NANOSECONDS_PER_SECOND
_MAX_DIGITS = 12
_VALUE_PARTS = 2
_REASON = "Rejected in Slack."


class SlackRejection(msgspec.Struct, frozen=True):
    """A request that is not one of Slack, or none that can be read. Nothing was done."""

    status: int
    code: str
    message: str


class SlackResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a press: `recorded`, `refused`, or `ignored` for buttons that decide nothing."""

    outcome: str
    code: str = ""
    message: str = ""


class _User(msgspec.Struct, frozen=True):
    id: str


class _Channel(msgspec.Struct, frozen=True):
    id: str


class _Action(msgspec.Struct, frozen=True):
    action_id: str
    value: str = ""


class _Payload(msgspec.Struct, frozen=True):
    type: str
    user: _User
    channel: _Channel
    actions: tuple[_Action, ...]


class SlackInteractions:
    """Answers the requests that Slack sends when a button is pressed."""

    def __init__(  # noqa: PLR0913 - what it joins
        self,
        table: NoticesTable,
        *,
        log: EventLog,
        database: Database,
        accounts: Accounts,
        guard: AccessGuard,
        approvals: ApprovalService,
        notices: NoticeService,
        environ: Mapping[str, str],
        now: Callable[[], int],
    ) -> None:
        self._channels = {each.name: each for each in table.channels if isinstance(each, SlackChannel)}
        self._secrets = {
            name: read_secret(
                f'The buttons of the notice channel "{name}"',
                each.signing_secret_env,
                each.signing_secret_file,
                environ,
            ).encode()
            for name, each in self._channels.items()
            if each.has_buttons
        }
        self._urgent_risks = table.urgent_risks
        self._log = log
        self._database = database
        self._accounts = accounts
        self._guard = guard
        self._approvals = approvals
        self._notices = notices
        self._now = now

    async def handle(self, name: str, headers: Mapping[str, str], body: bytes) -> SlackResult | SlackRejection:
        """Verify a request, and record the answer in it."""
        secret = self._secrets.get(name)
        if secret is None:
            return SlackRejection(404, "unknown_channel", "No notice channel of this name has buttons.")
        signature = headers.get("x-slack-signature", "")
        rejection = self._find_forgery(secret, headers.get("x-slack-request-timestamp", ""), signature, body)
        if rejection is None and not await self._remember(signature):
            rejection = SlackRejection(409, "replayed", "This request was answered before. Nothing was done.")
        if rejection is not None:
            await self._record(f"slack:{name}", name, rejection.code)
            return rejection
        payload = _read_payload(body)
        if isinstance(payload, SlackRejection):
            await self._record(f"slack:{name}", name, payload.code)
            return payload
        return await self._answer(self._channels[name], payload)

    async def _answer(self, channel: SlackChannel, payload: _Payload) -> SlackResult:
        (action,) = payload.actions
        if action.action_id not in (APPROVE_BUTTON, REJECT_BUTTON):
            return SlackResult(outcome="ignored")
        try:
            await self._decide(channel, payload, action)
        except ServiceError as error:
            sender = self._notices.get_sender(channel.name)
            if isinstance(sender, SlackSender):
                await sender.post_refusal(payload.user.id, str(error))
            return SlackResult(outcome="refused", code=error.code, message=str(error))
        return SlackResult(outcome="recorded")

    async def _decide(self, channel: SlackChannel, payload: _Payload, action: _Action) -> None:
        """Record the answer. Raise `ServiceError` if it cannot be recorded; then nothing was decided."""
        parts = action.value.split(" ")
        action_id, payload_hash = parts if len(parts) == _VALUE_PARTS else ("", "")
        principal = await self._find_principal(channel, payload.user.id, action_id)
        if payload.channel.id != channel.channel or not action_id or not payload_hash:
            raise await self._refuse(
                principal, action_id, "foreign_message", "The button is not of a message of this channel."
            )
        try:
            row, run = await self._guard.get_action(principal, action_id, Operation.DECIDE)
        except NotFoundError:
            await self._record(principal.name, action_id, "unknown_action")
            raise
        entry = (await load_run(self._log, row.run_id)).ledger.actions.get(action_id)
        question = None if entry is None else entry.question
        if question is None or not has_buttons(build_notice(question, run.requester, "", self._urgent_risks), channel):
            raise await self._refuse(
                principal, action_id, "needs_console", f"{action_id} has to be decided in the console."
            )
        try:
            if action.action_id == APPROVE_BUTTON:
                await self._approvals.approve(principal, action_id, Approval(payload_hash=payload_hash), "slack")
            else:
                await self._approvals.reject(principal, action_id, _REASON, payload_hash, "slack")
        except ForbiddenError:  # recorded where it was found
            raise
        except ServiceError as error:
            await self._record(principal.name, action_id, error.code)
            raise

    async def _find_principal(self, channel: SlackChannel, user: str, action_id: str) -> Principal:
        names = [name for name, mapped in channel.people.items() if mapped == user]
        sender = Principal(name=f"slack:{user[:32]}", kind="system", roles=frozenset())
        if not names:
            raise await self._refuse(
                sender, action_id, "unmapped_sender", "This Slack user is mapped to no account (`people`)."
            )
        account = await self._accounts.get(names[0])
        if account is None or account.disabled:
            raise await self._refuse(
                sender, action_id, "account_disabled", f"The account {names[0]} does not exist or is disabled."
            )
        return account.principal

    async def _refuse(self, principal: Principal, action_id: str, code: str, message: str) -> ForbiddenError:
        text = f"{message} Nothing was decided."
        return await self._guard.record_refusal(principal, Operation.DECIDE, action_id, code, text)

    async def _record(self, by: str, target: str, code: str) -> None:
        principal = Principal(name=by, kind="system", roles=frozenset())
        await self._guard.record_refusal(principal, Operation.DECIDE, target, code, code)

    def _find_forgery(self, secret: bytes, timestamp: str, signature: str, body: bytes) -> SlackRejection | None:
        is_time = timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= _MAX_DIGITS
        signed = b"v0:" + timestamp.encode("latin-1", "replace") + b":" + body
        expected = f"v0={hmac.new(secret, signed, sha256).hexdigest()}"
        if not is_time or not hmac.compare_digest(signature.encode("latin-1", "replace"), expected.encode()):
            message = "The request has no signature of Slack that fits its body. Nothing was done; check the secret."
            return SlackRejection(401, "bad_signature", message)
        if abs(self._now() // _NANOSECONDS_PER_SECOND - int(timestamp)) > TOLERANCE_SECONDS:
            message = f"The request was signed more than {TOLERANCE_SECONDS} s ago, or ahead. Nothing was done."
            return SlackRejection(401, "too_old", message)
        return None

    async def _remember(self, signature: str) -> bool:
        """Remember a signature. Return False if it was known."""

        def write(connection: Connection) -> bool:
            now = self._now()
            connection.execute("DELETE FROM notice_callbacks WHERE at < ?", (now - _REMEMBERED_NS,))
            sql = "INSERT INTO notice_callbacks (signature, at) VALUES (?, ?) ON CONFLICT DO NOTHING"
            return connection.execute(sql, (signature, now)).rowcount > 0

        return await self._database.run(write)


def _read_payload(body: bytes) -> _Payload | SlackRejection:
    """Return the only `payload` of a form, with one action."""
    try:
        values = parse_qs(body.decode(), strict_parsing=True, max_num_fields=10).get("payload", [])
        if len(values) == 1 and isinstance(value := parse(values[0].encode()), dict):
            payload = msgspec.convert(cast(dict[str, Any], value), _Payload)
            if payload.type == "block_actions" and len(payload.actions) == 1:
                return payload
    except (InvalidJsonError, ValueError, msgspec.ValidationError):
        pass
    message = "Expected a form with one `payload` of the type block_actions, with one action. Nothing was done."
    return SlackRejection(422, "bad_payload", message)
