"""What tests of consents share: a clock, a token endpoint that answers as a test says, and consents on both."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from interlock.domain.tool import Consent, ConsentBinding
from interlock.oauth.consents import ConsentRequest, ConsentResult, OAuthConsents
from interlock.oauth.flow import Callback, FlowRefusal
from interlock.oauth.providers import OAuthProvider
from interlock.oauth.tokens import TokenStore
from interlock.server.core.sealing import SealingKeys
from tests.oauth.memory import MemoryTokens

SECOND = 1_000_000_000
REDIRECT = "http://127.0.0.1:4444/consents/callback"
READ = Consent(provider="mail", scopes=("mail.read",))
BINDING = ConsentBinding(user="user:ada", agent="helper", tool="read_mail", definition="sha256:1")
ADA = ConsentRequest(BINDING, READ, "act_1")
#: What an endpoint answers: a status and a document, or bytes as they are.
Answer = tuple[int, Mapping[str, Any] | bytes]


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000 * SECOND

    def __call__(self) -> int:
        return self.now

    def forward(self, seconds: float) -> None:
        self.now += int(seconds * SECOND)


@dataclass
class Endpoint:
    """A token endpoint on this host. Every form that it gets is kept."""

    answer: Callable[[dict[str, str]], Answer]
    url: str = ""
    forms: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    headers: list[str] = field(default_factory=list[str])
    #: Set when it was asked; it answers once it is open.
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    open: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = next((line[15:] for line in head.lower().splitlines() if line.startswith("content-length:")), "0")
            form = dict(parse_qsl((await reader.readexactly(int(length))).decode()))
            self.forms.append(form)
            self.headers.append(head)
            self.asked.set()
            await self.open.wait()
            status, said = self.answer(form)
            body = said if isinstance(said, bytes) else msgspec.json.encode(said)
            start = f"HTTP/1.1 {status} Said\r\ncontent-type: application/json\r\nconnection: close\r\n"
            writer.write(f"{start}content-length: {len(body)}\r\n\r\n".encode() + body)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def bound_to(**changes: str) -> ConsentBinding:
    """What `ADA` asks for, for something else."""
    return msgspec.structs.replace(BINDING, **changes)


def gives(access: str = "access-1", **more: Any) -> Answer:
    return 200, {"access_token": access, "token_type": "Bearer", "expires_in": 3600, **more}


@dataclass
class Scene:
    endpoint: Endpoint
    clock: Clock
    store: TokenStore
    consents: OAuthConsents

    def answers(self, answer: Answer) -> None:
        self.endpoint.answer = lambda _: answer

    async def consent(
        self, request: ConsentRequest = ADA, session: str = "session", code: str = "code"
    ) -> ConsentResult | FlowRefusal:
        begun = await self.consents.begin(request, REDIRECT, session)
        return await self.consents.finish(Callback(state=begun.state, code=code), request.binding.user, session)


@asynccontextmanager
async def at_provider(
    *, store: TokenStore | None = None, answer: Answer | None = None, **more: Any
) -> AsyncGenerator[Scene]:
    endpoint = Endpoint(lambda _: answer or gives(refresh_token="refresh-1"))
    endpoint.open.set()
    server = await asyncio.start_server(endpoint.serve, "127.0.0.1", 0)
    async with server:
        endpoint.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        clock, kept = Clock(), MemoryTokens() if store is None else store
        configured: dict[str, Any] = {
            "name": "mail",
            "client_id": "interlock",
            "authorization_endpoint": f"{endpoint.url}/auth",
            "token_endpoint": f"{endpoint.url}/token",
            "revocation_endpoint": f"{endpoint.url}/revoke",
        }
        provider = OAuthProvider(**{**configured, **more})
        consents = OAuthConsents([provider], kept, SealingKeys([b"k" * 32]), clock, {"SECRET": "s3cret +&%"})
        yield Scene(endpoint, clock, kept, consents)
        await consents.close()
