"""A mail server on loopback that remembers what it got."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, Session

from tests.patience import HANG_SECONDS


class PostOffice:
    """What it answers to each mail next (then 250), and what it got. A handler of aiosmtpd."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.envelopes: list[Envelope] = []
        self.sign_ins: list[tuple[str, str]] = []
        #: What it answers to QUIT.
        self.farewell = "221 Bye"
        self.port = 0
        self._news = asyncio.Condition()

    @property
    def mails(self) -> list[EmailMessage]:
        """The mails, as a mail program reads them."""
        found: list[EmailMessage] = []
        for envelope in self.envelopes:
            assert isinstance(envelope.content, bytes)
            mail = message_from_bytes(envelope.content, policy=default)
            assert isinstance(mail, EmailMessage)
            found.append(mail)
        return found

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        async with self._news:
            self.envelopes.append(envelope)
            self._news.notify_all()
        return self.answers.pop(0) if self.answers else "250 OK"

    async def handle_QUIT(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        return self.farewell

    def authenticate(self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any) -> AuthResult:
        name, password = data.login.decode(), data.password.decode()
        self.sign_ins.append((name, password))
        return AuthResult(success=password == "correct-horse-battery")

    async def wait_for_mails(self, count: int = 1) -> list[EmailMessage]:
        async with asyncio.timeout(HANG_SECONDS), self._news:
            await self._news.wait_for(lambda: len(self.envelopes) >= count)
        return self.mails


@asynccontextmanager
async def receiving_mail(
    *answers: str, tls: ssl.SSLContext | None = None, starttls: ssl.SSLContext | None = None, **options: Any
) -> AsyncGenerator[PostOffice]:
    office, loop = PostOffice(*answers), asyncio.get_running_loop()
    chosen: dict[str, Any] = {"tls_context": starttls, "require_starttls": starttls is not None, **options}
    server = await loop.create_server(
        lambda: SMTP(office, hostname="mail.test", loop=loop, authenticator=office.authenticate, **chosen),
        "127.0.0.1",
        0,
        ssl=tls,
    )
    office.port = server.sockets[0].getsockname()[1]
    try:
        yield office
    finally:
        server.close()
        await server.wait_closed()
