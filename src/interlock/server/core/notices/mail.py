"""E-mail over SMTP, one message per recipient.

Texts of a notice are in the subject and the bodies only, encoded by the `email` package: a header cannot be added by
one. Mails say that a program wrote them, so that no other program answers, and replies are never read. The message id
is the same for every attempt: mail servers and programs drop a repetition by it.
"""

import asyncio
import smtplib
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from html import escape

from ..addresses import AddressRefusal, Resolver, resolve_allowed_addresses
from ..audit_sinks.senders import SendDelay, SendRejection, SendSuccess
from .channel_settings import EmailChannel
from .notice import NoticeMessage, NoticeOutcome, break_links, describe_lines

_TIMEOUT_SECONDS = 20.0
_TOTAL_SECONDS = 60.0
_FIRST_PERMANENT = 500
_MAX_REPLY_CHARS = 200


class MailSender:
    """Sends messages as mails."""

    can_update = False

    def __init__(
        self, channel: EmailChannel, password: str, verify: ssl.SSLContext, resolve: Resolver, now: Callable[[], int]
    ) -> None:
        self._channel = channel
        self._password = password
        self._verify = verify
        self._resolve = resolve
        self._now = now

    async def send(self, message: NoticeMessage) -> NoticeOutcome:
        """Send the mail over a new connection to an allowed address."""
        channel = self._channel
        mail = build_mail(message, channel.sender, self._now())
        try:
            async with asyncio.timeout(_TOTAL_SECONDS):
                addresses = await resolve_allowed_addresses(
                    channel.host, channel.port, channel.network_access, self._resolve
                )
                if isinstance(addresses, AddressRefusal):
                    return SendDelay(addresses.problem)
                return await asyncio.to_thread(self._submit, addresses, mail, message.recipient)
        except TimeoutError:
            return SendDelay(f"{channel.host} did not take the mail within {_TOTAL_SECONDS:g} s.")
        except (OSError, UnicodeError) as error:
            return SendDelay(f"{channel.host} cannot be reached: {error}.")

    async def close(self) -> None:
        """Do nothing: connections are not kept."""

    def _submit(self, addresses: Sequence[str], mail: EmailMessage, recipient: str) -> NoticeOutcome:
        channel, is_accepted = self._channel, False
        try:
            with _connect(channel, addresses, self._verify) as smtp:
                if channel.encryption == "starttls":
                    smtp.starttls(context=self._verify)
                if channel.user:
                    smtp.login(channel.user, self._password)
                smtp.send_message(mail, channel.sender, [recipient])
                is_accepted = True
        except smtplib.SMTPRecipientsRefused as error:
            code, reply = error.recipients[recipient]
            return self._classify(code, reply)
        except (smtplib.SMTPSenderRefused, smtplib.SMTPDataError) as error:
            return self._classify(error.smtp_code, error.smtp_error)
        except smtplib.SMTPAuthenticationError as error:
            return SendDelay(f"{channel.host} refused the password: {error.smtp_code}.")
        except (smtplib.SMTPException, OSError) as error:
            # What goes wrong after the mail was accepted, at QUIT, is no reason to send it again.
            return SendSuccess() if is_accepted else SendDelay(self._describe(error))
        return SendSuccess()

    def _describe(self, error: Exception) -> str:
        text = " ".join(f"{type(error).__name__}: {error}".split())[:_MAX_REPLY_CHARS]
        return self._mask(f"{self._channel.host} cannot be used: {text}")

    def _classify(self, code: int, reply: bytes | str) -> NoticeOutcome:
        text = reply.decode(errors="replace") if isinstance(reply, bytes) else reply
        shown = " ".join(text.split())[:_MAX_REPLY_CHARS]
        problem = self._mask(f"The mail server answered {code}: {shown}")
        return SendRejection(problem) if code >= _FIRST_PERMANENT else SendDelay(problem)

    def _mask(self, problem: str) -> str:
        """Return the text without the password, which a server may repeat."""
        return problem.replace(self._password, "***") if self._password else problem


def _connect(channel: EmailChannel, addresses: Sequence[str], verify: ssl.SSLContext) -> smtplib.SMTP:
    """Connect to one of the checked addresses. Certificates are checked for the name."""
    for address in addresses[:-1]:
        with suppress(OSError):
            return _open(channel, address, verify)
    return _open(channel, addresses[-1], verify)


def _open(channel: EmailChannel, address: str, verify: ssl.SSLContext) -> smtplib.SMTP:
    if channel.encryption == "tls":
        return _PinnedTlsClient(address, channel, verify)
    return _PinnedClient(address, channel)


class _PinnedClient(smtplib.SMTP):
    """A client that connects to an address that was checked, whatever the name resolves to by now."""

    def __init__(self, address: str, channel: EmailChannel) -> None:
        self._address = address
        super().__init__(channel.host, channel.port, timeout=_TIMEOUT_SECONDS)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        return socket.create_connection((self._address, port), timeout)


class _PinnedTlsClient(smtplib.SMTP_SSL):
    """The same, with TLS from the first byte."""

    def __init__(self, address: str, channel: EmailChannel, verify: ssl.SSLContext) -> None:
        self._address = address
        super().__init__(channel.host, channel.port, timeout=_TIMEOUT_SECONDS, context=verify)

    def _get_socket(self, host: str, port: int, timeout: float) -> ssl.SSLSocket:
        plain = socket.create_connection((self._address, port), timeout)
        return self.context.wrap_socket(plain, server_hostname=host)


def build_mail(message: NoticeMessage, sender: str, now: int) -> EmailMessage:
    """Return the mail of a message: as text, and as HTML without anything that is loaded from elsewhere."""
    mail = EmailMessage(policy=SMTP)
    mail["From"] = Address(display_name="Interlock", addr_spec=sender)
    mail["To"] = Address(addr_spec=message.recipient)
    # The text must not be taken for one that is encoded already: a line break in it would begin a header.
    mail["Subject"] = break_links(message.subject).replace("=?", "= ?")
    mail["Date"] = format_datetime(datetime.fromtimestamp(now // 1_000_000_000, UTC))
    mail["Message-ID"] = f"<{message.key}@{sender.rpartition('@')[2]}>"
    # RFC 3834, and what older programs look for.
    mail["Auto-Submitted"] = "auto-generated"
    mail["Precedence"] = "bulk"
    mail["X-Auto-Response-Suppress"] = "All"
    mail.set_content(_build_text(message))
    mail.add_alternative(_build_html(message), subtype="html")
    return mail


_NOTE = "Sign in to answer. This mail decides nothing, and replies to it are not read."


def _build_text(message: NoticeMessage) -> str:
    lines = [break_links(message.subject), ""]
    if message.is_digest:
        for notice in message.notices:
            lines += [f"- {break_links(notice.title)}", f"  {notice.url}"]
        lines += ["", f"All of them: {message.inbox_url}"]
    else:
        lines += [break_links(f"{label}: {text}") for label, text in describe_lines(message.notices[0])]
        lines += ["", message.notices[0].url]
    return "\n".join([*lines, "", _NOTE, ""])


def _build_html(message: NoticeMessage) -> str:
    if message.is_digest:
        items = "".join(f"<li>{_build_link(each.url, each.title)}</li>" for each in message.notices)
        shown, link = f"<ul>{items}</ul>", _build_link(message.inbox_url, "Open the inbox")
    else:
        rows = "".join(
            f"<tr><th align='left'>{_escape(label)}</th><td>{_escape(text)}</td></tr>"
            for label, text in describe_lines(message.notices[0])
        )
        shown, link = f"<table>{rows}</table>", _build_link(message.notices[0].url, "Open in the console")
    heading = f"<h3>{_escape(message.subject)}</h3>"
    return f"<!doctype html><html><body>{heading}{shown}<p>{link}</p><p>{_NOTE}</p></body></html>"


def _build_link(url: str, text: str) -> str:
    return f'<a href="{escape(url)}">{_escape(text)}</a>'


def _escape(text: str) -> str:
    """Return a text of others that mail programs show as it is, and link nothing of."""
    return escape(break_links(text))
