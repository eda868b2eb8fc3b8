"""What a notice says. Every text in it is visible and on one line; each channel escapes it for its own mark-up."""

import re
from typing import Protocol, TypeAlias
from urllib.parse import quote, urlencode

import msgspec

from ....domain.call import Question
from ....domain.tool import Risk
from ....rendering.escaping import escape_invisible
from ....rendering.times import format_utc
from ..audit_sinks.senders import SendOutcome

MAX_TITLE_CHARS = 200
MAX_NAME_CHARS = 100
#: The longest arguments that are shown whole. Longer ones are not shown at all: half of them could mislead.
MAX_ARGUMENTS_CHARS = 2_000
#: Notices that a digest names; of the others it says how many there are.
MAX_LISTED = 20


_LINK_START = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]{0,30}:(?=//)|\b(?:mailto|tel|sms|javascript|data):|\bwww\.)", re.I)
#: Names of files, which programs do not take for the name of a host.
_FILE = r"(?:py|js|ts|txt|json|yaml|yml|toml|csv|html|css|sql|java|cpp|pdf|png|jpg|xml|log|ini|cfg|lock)\b(?![/:])"
_HOST_DOT = re.compile(rf"(?<=[\w-])\.(?=(?!{_FILE})[^\W\d_]{{2,24}}\b)", re.I)


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """A question, as notices show it."""

    action_id: str
    run_id: str
    agent: str
    tool: str
    #: `approval`, `input` or `consent`; `test` for one that tries the channel.
    kind: str
    title: str
    risk: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    requester: str = ""
    payload_hash: str = ""
    #: Nanoseconds since 1970; 0 as deadline: there is none.
    asked_at: int = 0
    expires_at: int = 0
    #: The whole arguments as JSON; empty when they are too long to be shown.
    arguments: str = ""
    #: Approving needs nothing but what the notice shows.
    is_complete: bool = False
    is_urgent: bool = False
    #: In the console. It opens the question after signing in, and decides nothing.
    url: str = ""

    @property
    def deadline(self) -> str:
        """The deadline for people."""
        return f"{format_utc(self.expires_at)[:16]} UTC" if self.expires_at else "none"


class NoticeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How a question was closed."""

    #: `approved`, `rejected`, `expired`, ... and by whom; empty: by no person.
    status: str
    by: str = ""
    at: int = 0

    @property
    def text(self) -> str:
        """The answer in a sentence."""
        return f"{self.status.capitalize()} by {self.by}." if self.by else f"{self.status.capitalize()}."


class NoticeMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message to one recipient: a notice, several of them, or what became of one."""

    #: The same message has the same key, however often it is sent.
    key: str
    recipient: str
    notices: tuple[Notice, ...]
    #: Notices that it stands for, with those that are not listed.
    total: int = 1
    answer: NoticeAnswer | None = None
    #: With an answer: how the receiver called the first message.
    reference: str = ""
    #: It was sent before, and it is not known whether it arrived.
    is_repeated: bool = False
    #: The question was notified before, and is still open.
    is_escalated: bool = False
    inbox_url: str = ""
    #: When it is sent, in nanoseconds since 1970.
    sent_at: int = 0

    @property
    def is_digest(self) -> bool:
        """True if it stands for several notices."""
        return self.total > 1

    @property
    def subject(self) -> str:
        """The message in one line."""
        if self.is_digest:
            return f"{self.total} questions {'are still unanswered' if self.is_escalated else 'wait for an answer'}"
        notice = self.notices[0]
        if self.answer:
            return f"{self.answer.text} {notice.title}"
        return f"Still unanswered: {notice.title}" if self.is_escalated else notice.title


class RecipientGone(msgspec.Struct, frozen=True):
    """The recipient does not exist any more; nothing is sent to it again."""

    problem: str


NoticeOutcome: TypeAlias = SendOutcome | RecipientGone


class NoticeSender(Protocol):
    """Sends to one channel. Never raises for failures of the receiver or the network."""

    @property
    def can_update(self) -> bool:
        """True if a message can say later how its question was answered."""
        ...

    async def send(self, message: NoticeMessage) -> NoticeOutcome: ...

    async def close(self) -> None: ...


def build_notice(question: Question, requester: str, public_url: str, urgent_risks: frozenset[str]) -> Notice:
    """Build the notice of a question."""
    arguments = msgspec.json.encode(question.arguments).decode()
    is_short = len(arguments) <= MAX_ARGUMENTS_CHARS
    needs_more = question.trial is not None or question.changes or question.needs_person or question.edited_by
    return Notice(
        action_id=question.action_id,
        run_id=question.run_id,
        agent=_clean(question.agent),
        tool=_clean(question.tool_name),
        kind=question.kind,
        title=_clean_shown(_describe(question), MAX_TITLE_CHARS),
        facts=tuple((_clean_shown(fact.name), _clean_shown(fact.value)) for fact in question.key_facts),
        risk=tuple(map(_clean, question.risk)),
        requester=_clean(requester),
        payload_hash=question.payload_hash,
        asked_at=question.asked_at,
        expires_at=question.expires_at,
        arguments=escape_invisible(arguments) if is_short else "",
        is_complete=is_short and question.kind == "approval" and not needs_more,
        is_urgent=not urgent_risks.isdisjoint(question.risk),
        url=build_question_url(public_url, question.action_id, question.payload_hash),
    )


def build_test_notice(channel: str, public_url: str, now: int) -> Notice:
    """Build a notice that tries a channel."""
    return Notice(
        action_id="test",
        run_id="test",
        agent="none",
        tool="none",
        kind="test",
        title=f"Test of the notice channel {channel}: nothing waits for an answer",
        asked_at=now,
        url=build_inbox_url(public_url),
    )


def build_question_url(public_url: str, action_id: str, payload_hash: str) -> str:
    """Return the page of a question. The hash lets it say when the question is another one than the notice was for."""
    return f"{public_url}/console/inbox/{quote(action_id, safe='')}?{urlencode({'payload': payload_hash})}"


def build_inbox_url(public_url: str) -> str:
    """Return the page of all open questions."""
    return f"{public_url}/console/inbox"


def describe_lines(notice: Notice) -> list[tuple[str, str]]:
    """Return what channels show below the title: label and text."""
    lines = [("Agent", notice.agent), ("Tool", notice.tool)]
    # Beside its risks, a question has notes about how the call would run.
    risks = [each for each in notice.risk if each in set(Risk)]
    notes = [each for each in notice.risk if each not in risks]
    lines += [("Risk", ", ".join(risks))] if risks else []
    lines += [("Note", ", ".join(notes))] if notes else []
    lines += [("For", notice.requester)] if notice.requester else []
    lines += list(notice.facts)
    return [*lines, ("Deadline", notice.deadline)] if notice.kind != "test" else []


def break_links(text: str) -> str:
    """Return a text in which programs that show it find no address or host to link."""
    text = _LINK_START.sub(lambda found: found[0].replace(":", "[:]").replace(".", "[.]"), text)
    return _HOST_DOT.sub("[.]", text)


def _describe(question: Question) -> str:
    """Return the title; where the question has none, what is asked for."""
    if question.title:
        return question.title
    verb = {"approval": "Approve", "input": "Provide a value for", "consent": "Consent to"}[question.kind]
    return f"{verb} {question.headline}"


def _clean(text: str, limit: int = MAX_NAME_CHARS) -> str:
    """Return a text without anything invisible, in one line and not too long."""
    shown = escape_invisible(text[: limit * 2])
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def _clean_shown(text: str, limit: int = MAX_NAME_CHARS) -> str:
    """Return a text that was made visible before: its backslashes are not escaped again."""
    return _clean(text, limit).replace("\\\\", "\\")
