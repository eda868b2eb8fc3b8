"""A fake of Slack on loopback: its Web API checks tokens and arguments as Slack does, and its buttons are signed."""

import hmac
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any, cast
from urllib.parse import urlencode

import msgspec

from interlock.server.core.notices.slack_interactions import SlackRejection, SlackResult
from interlock.server.core.service import Service
from tests.server.core.receiver import Receiver, Request, answer, receiving

from .channels import ENVIRON

_MAX_BLOCK_CHARS = 3_000
_METHODS = frozenset({"/api/chat.postMessage", "/api/chat.update", "/api/chat.postEphemeral"})


class FakeSlack:
    """What it was sent. `errors` are what it answers next instead of doing it."""

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.errors: list[str] = []
        #: By their `ts`: the messages as they are now.
        self.messages: dict[str, dict[str, Any]] = {}
        self.whispers: list[dict[str, Any]] = []

    @property
    def port(self) -> int:
        return self.receiver.port

    async def answer(self, request: Request) -> bytes:
        said = self._do(request)
        return answer(200, msgspec.json.encode(said), content_type="application/json")

    def _do(self, request: Request) -> dict[str, Any]:
        body = msgspec.json.decode(request.body)
        if error := self._find_error(request, body):
            return {"ok": False, "error": error}
        if request.target == "/api/chat.postEphemeral":
            self.whispers.append(body)
            return {"ok": True, "message_ts": "1"}
        ts = body.get("ts") or f"17000000{len(self.messages):02}.000100"
        self.messages[ts] = body
        return {"ok": True, "ts": ts, "channel": body["channel"]}

    def _find_error(self, request: Request, body: dict[str, Any]) -> str:
        if self.errors:
            return self.errors.pop(0)
        found = {
            "invalid_auth": request.headers.get("authorization") != f"Bearer {ENVIRON['TOKEN']}",
            "invalid_form_data": not request.headers["content-type"].startswith("application/json"),
            "unknown_method": request.target not in _METHODS,
            "channel_not_found": body["channel"] != "C01TEAM",
            "message_not_found": request.target == "/api/chat.update" and body["ts"] not in self.messages,
            "invalid_blocks": any(len(text) > _MAX_BLOCK_CHARS for text in texts_of(body)),
        }
        return next((error for error, is_so in found.items() if is_so), "")

    async def wait_for_messages(self, count: int = 1) -> list[dict[str, Any]]:
        await self.receiver.wait_for(lambda: len(self.messages) >= count)
        return list(self.messages.values())


def buttons_of(message: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The buttons of a message, by their labels."""
    (actions,) = [block for block in message["blocks"] if block["type"] == "actions"]
    return {each["text"]["text"]: each for each in actions["elements"]}


def texts_of(value: Any) -> list[str]:
    """Every text in a message."""
    if isinstance(value, dict):
        return texts_of(list(cast(dict[str, Any], value).values()))
    if isinstance(value, list):
        return [text for each in cast(list[Any], value) for text in texts_of(each)]
    return [value] if isinstance(value, str) else []


def press(button: dict[str, Any], user: str = "U01ADA", **more: Any) -> bytes:
    """The form that Slack sends when a person presses a button."""
    action = {"type": "button", "action_id": button["action_id"], "value": button.get("value", "")}
    payload = {"type": "block_actions", "user": {"id": user}, "channel": {"id": "C01TEAM"}, "actions": [action], **more}
    return urlencode({"payload": msgspec.json.encode(payload).decode()}).encode()


def sign(body: bytes, at: int, secret: str = ENVIRON["SIGNING"]) -> dict[str, str]:
    """The headers of a request of Slack, signed at that second."""
    signature = hmac.new(secret.encode(), b"v0:%d:" % at + body, sha256).hexdigest()
    return {"x-slack-request-timestamp": str(at), "x-slack-signature": f"v0={signature}"}


async def send(service: Service, body: bytes, headers: dict[str, str] | None = None) -> SlackResult | SlackRejection:
    """Send a request to the server, signed now unless there are headers."""
    chosen = sign(body, service.now() // 10**9) if headers is None else headers
    return await service.slack_interactions.handle("slack", chosen, body)


@asynccontextmanager
async def faking_slack() -> AsyncGenerator[FakeSlack]:
    async with receiving() as receiver:
        fake = FakeSlack(receiver)
        receiver.answers = [fake.answer] * 1_000
        yield fake
