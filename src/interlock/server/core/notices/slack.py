"""Messages in Slack, by a bot.

Texts of a notice are plain text elements: no mark-up, mention, emoji or link of theirs means anything. A message has
buttons where its channel can verify who presses them (`slack_interactions`), and where everything that is approved is
in the message. When its question is answered, the message says how, and has no buttons any more.
"""

from collections.abc import Callable
from hashlib import sha256
from typing import Any
from uuid import UUID

import msgspec

from ..audit_sinks.senders import SendDelay, SendRejection, SendSuccess, classify_reply
from ..safe_http import HttpReply, SafeClient
from .channel_settings import SlackChannel
from .notice import Notice, NoticeMessage, NoticeOutcome, RecipientGone, break_links, describe_lines

APPROVE_BUTTON = "interlock_approve"
REJECT_BUTTON = "interlock_reject"
OPEN_BUTTON = "interlock_open"
#: Slack takes 3000 characters.
_MAX_TEXT_CHARS = 2_900
_MAX_CONFIRM_CHARS = 280
#: Errors about this message; all others are about the channel, the token or Slack itself, and can be fixed.
_REJECTIONS = frozenset({"msg_too_long", "no_text", "invalid_blocks", "invalid_blocks_format", "too_many_attachments"})
_GONE = frozenset({"message_not_found", "cant_update_message", "edit_window_closed"})
_MAX_ERROR_CHARS = 100
_MESSAGE_METADATA = "interlock_notice"


class _SlackReply(msgspec.Struct, frozen=True):
    ok: bool
    error: str = ""
    ts: str = ""
    channel: str = ""


_decode_reply = msgspec.json.Decoder(_SlackReply).decode
_encode = msgspec.json.encode


class SlackSender:
    """Posts and updates messages by the Web API."""

    can_update = True

    def __init__(self, channel: SlackChannel, token: str, client: SafeClient, now: Callable[[], int]) -> None:
        self._channel = channel
        self._token = token
        self._client = client
        self._now = now

    async def send(self, message: NoticeMessage) -> NoticeOutcome:
        """Post the message, or update the one that an answer is about."""
        body = build_slack_body(message, self._channel)
        if message.answer is None:
            return await self._call("chat.postMessage", body)
        channel, _, ts = message.reference.partition(":")
        return await self._call("chat.update", {**body, "channel": channel, "ts": ts})

    async def post_refusal(self, user: str, text: str) -> NoticeOutcome:
        """Show to one person alone why their answer was not recorded."""
        shown = _escape_mrkdwn(text[:_MAX_TEXT_CHARS])
        body = {"channel": self._channel.channel, "user": user, "text": shown, "parse": "none", "link_names": False}
        return await self._call("chat.postEphemeral", body)

    async def close(self) -> None:
        """Close the HTTP client."""
        await self._client.close()

    async def _call(self, method: str, body: dict[str, Any]) -> NoticeOutcome:
        headers = {"content-type": "application/json; charset=utf-8", "authorization": f"Bearer {self._token}"}
        reply = await self._client.post(f"{self._channel.url.rstrip('/')}/{method}", _encode(body), headers)
        outcome = classify_reply(reply, self._token, self._now)
        return _read_reply(reply, outcome) if isinstance(reply, HttpReply) else outcome


def _read_reply(reply: HttpReply, outcome: NoticeOutcome) -> NoticeOutcome:
    """Return what a reply says: Slack answers 200 also when it did nothing."""
    if not isinstance(outcome, SendSuccess):
        return outcome
    try:
        said = _decode_reply(reply.body)
    except msgspec.MsgspecError:
        return SendDelay("Slack answered something that is not a reply of its API.")
    if said.ok:
        return SendSuccess(f"{said.channel}:{said.ts}")
    error = said.error[:_MAX_ERROR_CHARS] if said.error.isidentifier() else "an unknown error"
    if error in _GONE:
        return RecipientGone(f"Slack has no message to update any more: {error}.")
    problem = f"Slack refused the message: {error}."
    return SendRejection(problem) if error in _REJECTIONS else SendDelay(problem)


def has_buttons(notice: Notice, channel: SlackChannel) -> bool:
    """Return True if a question can be decided by a button: the message shows all of it, and nothing needs the
    console.
    """
    return (
        channel.has_buttons
        and notice.is_complete
        and notice.tool not in channel.console_tools
        and channel.console_risks.isdisjoint(notice.risk)
        and len(break_links(_describe(notice))) <= _MAX_TEXT_CHARS
        and len(notice.arguments) <= _MAX_TEXT_CHARS
    )


def build_slack_body(message: NoticeMessage, channel: SlackChannel) -> dict[str, Any]:
    """Return the arguments of `chat.postMessage`."""
    blocks = [_section(message.subject)]
    if message.is_digest:
        lines = [f"• {notice.title} ({notice.agent})" for notice in message.notices]
        lines += [f"And {left} more."] if (left := message.total - len(message.notices)) else []
        blocks.append(_section("\n".join(lines)))
        buttons = [_build_open_button(message.inbox_url)]
    else:
        notice = message.notices[0]
        blocks += [_section(shown)] if (shown := _describe(notice)) else []
        buttons = [_build_open_button(notice.url)]
        if message.answer is None and has_buttons(notice, channel):
            blocks.append(_preformatted(notice.arguments))
            buttons = [*_build_decision_buttons(notice), *buttons]
    if message.is_repeated and message.answer is None:
        note = "Sent again: it is not known whether the first message arrived."
        blocks.append({"type": "context", "elements": [_plain(note)]})
    blocks.append({"type": "actions", "elements": buttons})
    return {
        "channel": channel.channel,
        # What notifications show, where there are no blocks.
        "text": _escape_mrkdwn(message.subject),
        "blocks": blocks,
        "parse": "none",
        "link_names": False,
        "mrkdwn": False,
        "unfurl_links": False,
        "unfurl_media": False,
        # The same for every attempt.
        "client_msg_id": str(UUID(hex=sha256(message.key.encode()).hexdigest()[:32])),
        "metadata": {"event_type": _MESSAGE_METADATA, "event_payload": {"id": message.key}},
    }


def build_button_value(notice: Notice) -> str:
    """Return what a button is about: exactly this question with exactly this payload."""
    return f"{notice.action_id} {notice.payload_hash}"


def _build_decision_buttons(notice: Notice) -> list[dict[str, Any]]:
    value = build_button_value(notice)
    chosen = ((APPROVE_BUTTON, "Approve", "primary"), (REJECT_BUTTON, "Reject", "danger"))
    return [
        {
            "type": "button",
            "action_id": action_id,
            "text": _plain(label),
            "style": style,
            "value": value,
            "confirm": {
                "title": _plain(f"{label}?"),
                "text": _plain(break_links(notice.title)[:_MAX_CONFIRM_CHARS]),
                "confirm": _plain(label),
                "deny": _plain("Cancel"),
                "style": style,
            },
        }
        for action_id, label, style in chosen
    ]


def _build_open_button(url: str) -> dict[str, Any]:
    return {"type": "button", "action_id": OPEN_BUTTON, "text": _plain("Open in the console"), "url": url}


def _describe(notice: Notice) -> str:
    return "\n".join(f"{label}: {text}" for label, text in describe_lines(notice))


def _section(text: str) -> dict[str, Any]:
    shown = break_links(text)
    return {
        "type": "section",
        "text": _plain(shown if len(shown) <= _MAX_TEXT_CHARS else f"{shown[:_MAX_TEXT_CHARS]}…"),
    }


def _preformatted(text: str) -> dict[str, Any]:
    """Return a block that shows a text exactly as it is."""
    shown = {"type": "rich_text_preformatted", "elements": [{"type": "text", "text": text}]}
    return {"type": "rich_text", "elements": [shown]}


def _plain(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text, "emoji": False}


def _escape_mrkdwn(text: str) -> str:
    """Return a text in which Slack finds no mention, link or channel."""
    return break_links(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
