"""Settings of notice channels on loopback, and what tests wait for."""

import asyncio
import hmac
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Any, TypeVar

import msgspec

from interlock.server.core.identity import account_rows
from interlock.server.core.identity.account_rows import Account
from interlock.server.core.identity.principal import Role
from interlock.server.core.notices.channel_settings import (
    ChannelSettings,
    EmailChannel,
    NoticeRoute,
    NoticesTable,
    NtfyChannel,
    PushChannel,
    SlackChannel,
    TeamsChannel,
    WebhookChannel,
)
from interlock.server.core.notices.outbox import Delivery
from interlock.server.core.service import Service
from interlock.server.core.settings import ServerSettings, ServerTable
from tests.patience import HANG_SECONDS
from tests.server.core.receiver import Request
from tests.server.core.serving import KEYS, breath

_T = TypeVar("_T")
WEBHOOK_SECRET = "whsec_" + b64encode(b"0123456789abcdef01234567").decode()
ENVIRON = {
    **KEYS,
    "HOOK": WEBHOOK_SECRET,
    "TOKEN": "xoxb-0123456789abcdef",
    "SIGNING": "8f742231b10e8888abcd99yyyzzz85a5",
    "VAPID": "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw",
}
PUBLIC_URL = "https://interlock.example.com"
LOCAL: dict[str, Any] = {"allow_plain": True, "allow_private": True}


def hook(port: int, name: str = "hook", **more: Any) -> WebhookChannel:
    return WebhookChannel(name=name, url=f"http://127.0.0.1:{port}/in", secret_env="HOOK", **LOCAL, **more)


def slack(port: int, *, buttons: bool = True, **more: Any) -> SlackChannel:
    signing = {"signing_secret_env": "SIGNING"} if buttons else {}
    url = f"http://127.0.0.1:{port}/api"
    return SlackChannel(name="slack", channel="C01TEAM", url=url, token_env="TOKEN", **LOCAL, **signing, **more)


def mail(port: int, **more: Any) -> EmailChannel:
    values: dict[str, Any] = {"host": "127.0.0.1", "sender": "interlock@example.com", "encryption": "none", **more}
    return EmailChannel(name="mail", port=port, **LOCAL, **values)


def teams(**more: Any) -> TeamsChannel:
    return TeamsChannel(name="teams", url_env="TEAMS", **LOCAL, **more)


def ntfy(port: int, **more: Any) -> NtfyChannel:
    return NtfyChannel(name="phone", url=f"http://127.0.0.1:{port}", topic="secret-topic", **LOCAL, **more)


def push(port: int, **more: Any) -> PushChannel:
    values: dict[str, Any] = {"hosts": (f"127.0.0.1:{port}",), **LOCAL, **more}
    return PushChannel(name="browsers", secret_env="VAPID", subject="mailto:ops@example.com", **values)


def settings_for(
    *channels: ChannelSettings, routes: tuple[NoticeRoute, ...] | None = None, **notices: Any
) -> ServerSettings:
    """Every question to every channel, unless there are routes."""
    chosen = tuple(NoticeRoute(channel=each.name) for each in channels) if routes is None else routes
    table = NoticesTable(channels=channels, routes=chosen, **notices)
    return ServerSettings(server=ServerTable(public_url=PUBLIC_URL), notices=table)


async def add_account(service: Service, name: str, *roles: Role, agents: frozenset[str] | None = None) -> None:
    """An account that nobody can sign in to, which is enough for notices."""
    new = Account(name=name, roles=frozenset(roles), agents=agents, created_at=1, has_password=True)
    await service.database.run(lambda connection: account_rows.insert_account(connection, new, "", "test"))


def verify_webhook(request: Request) -> dict[str, Any]:
    """Check a Standard Webhooks signature as a receiver would, and return the body."""
    key = b64decode(WEBHOOK_SECRET.removeprefix("whsec_"))
    signed = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.".encode() + request.body
    expected = "v1," + b64encode(hmac.new(key, signed, sha256).digest()).decode()
    assert expected in request.headers["webhook-signature"].split(" ")
    return msgspec.json.decode(request.body)


async def until_found(look: Callable[[], Awaitable[_T | None]]) -> _T:
    """What `look` finds. Deliveries change without an event of the log, so it looks again and again."""
    async with asyncio.timeout(HANG_SECONDS):
        while not (found := await look()):
            await breath()
        return found


async def deliveries(service: Service, *states: str, count: int = 1) -> list[Delivery]:
    """The deliveries in one of these states, oldest first, when there are so many."""

    async def look() -> list[Delivery] | None:
        found = await service.notices.outbox.list_deliveries(limit=1_000)
        mine = [each for each in reversed(found) if each.state in states]
        return mine if len(mine) >= count else None

    return await until_found(look)


async def drain(service: Service) -> None:
    """Plan and send everything that is due now, as the loops of the server would."""
    while await service.notices._planner.plan_page():  # pyright: ignore[reportPrivateUsage] - without its loop
        pass
    for dispatcher in service.notices._dispatchers.values():  # pyright: ignore[reportPrivateUsage]
        for _ in range(100):
            if await dispatcher.send_next() is None:
                break
