"""Whatever a title, a fact or a name says: no channel takes it for mark-up, a mention, a link or a header."""

import re
from email import message_from_bytes
from email.policy import default
from html.parser import HTMLParser
from typing import Any
from unicodedata import category

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from interlock.domain.call import KeyFact, Question
from interlock.server.core.notices.http_channels import build_ntfy_body, build_teams_body, build_webhook_body
from interlock.server.core.notices.mail import build_mail
from interlock.server.core.notices.notice import NoticeAnswer, NoticeMessage, build_inbox_url, build_notice
from interlock.server.core.notices.push import build_push_body
from interlock.server.core.notices.slack import build_slack_body

from .channels import PUBLIC_URL, slack
from .fake_slack import texts_of

HOSTILE = (
    "<!channel> <@U01ADA> <at>all</at> @everyone",
    "[ok](https://evil.example) <https://evil.example|ok> ![x](data:text/html,x)",
    "*b* _i_ ~s~ `c` ``` # h > q | t | {{DATE(2020-01-01)}} \\",
    "x\r\nBcc: eve@evil.example\r\n\r\n<img src=x onerror=alert(1)><script>",
    "\u202efdp.exe \u2066x\u2069 \u200bzero \ufeff \u0000 \x1b[31m \u2028line",
    "=?utf-8?q?=0D=0ABcc:_eve@evil.example?=",
    "javascript:alert(1) mailto:eve@evil.example www.evil.example evil.example/login",
    '"},{"url":"https://evil.example',
)
_TEXTS = st.one_of(
    st.sampled_from(HOSTILE), st.text(max_size=60), st.text("<>@#*_`[]()!|\\:/.~{}&\r\n\u202e ab", max_size=40)
)


def _build_question(title: str, name: str, value: str) -> Question:
    return Question(
        action_id="act_1",
        run_id="run_1",
        call_id="c1",
        tool_name=name,
        kind="approval",
        prompt=title,
        arguments={"what": value},
        payload_hash="sha256:0",
        risk=("write", value),
        title=title,
        key_facts=(KeyFact(name, value),),
        agent=name,
        asked_at=1,
        expires_at=2,
    )


@st.composite
def _messages(draw: st.DrawFn) -> NoticeMessage:
    questions = [
        _build_question(draw(_TEXTS) or "t", draw(_TEXTS), draw(_TEXTS)) for _ in range(draw(st.sampled_from([1, 3])))
    ]
    return _build_message(
        questions, draw(_TEXTS), draw(st.sampled_from([None, NoticeAnswer(status="approved", by="user:bob")]))
    )


def _build_message(questions: list[Question], requester: str, answer: NoticeAnswer | None) -> NoticeMessage:
    notices = tuple(build_notice(each, requester, PUBLIC_URL, frozenset()) for each in questions)
    return NoticeMessage(
        key="0" * 32,
        recipient="team@example.com",
        notices=notices,
        total=len(notices),
        answer=answer if len(notices) == 1 else None,
        reference="C01TEAM:1",
        inbox_url=build_inbox_url(PUBLIC_URL),
        sent_at=3,
    )


EXAMPLES = [_build_message([_build_question(text, text, text)], text, None) for text in HOSTILE]
_is_own = re.compile(re.escape(f"{PUBLIC_URL}/console/inbox") + r"(?:/act_1\?payload=sha256%3A0)?").fullmatch
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S*")


def _assert_visible(*texts: str) -> None:
    for text in texts:
        assert not [char for char in text if category(char) in {"Cc", "Cf", "Zl", "Zp"} and char != "\n"]


def _list_foreign(text: str) -> list[str]:
    """Addresses in a text that are not of this server, and hosts that programs link."""
    urls = [url for url in _URL.findall(text) if not _is_own(url)]
    return urls + re.findall(r"(?:evil\.example|www\.|mailto:|javascript:)", text)


def hostile(test: Any) -> Any:
    for message in EXAMPLES:
        test = example(message)(test)
    return given(_messages())(test)


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str, str | None]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


@hostile
def test_mail_has_no_mark_up_header_or_link_of_others(message: NoticeMessage) -> None:
    mail = message_from_bytes(build_mail(message, "interlock@example.com", 10**18).as_bytes(), policy=default)

    names = {"From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted", "Precedence", "X-Auto-Response-Suppress"}
    assert set(mail.keys()) == names | {"MIME-Version", "Content-Type"}
    plain, html = (mail.get_body((kind,)) for kind in ("plain", "html"))
    assert plain is not None
    assert html is not None
    page = _Tags()
    page.feed(html.get_content())
    allowed = {"html", "body", "h3", "table", "tr", "th", "td", "ul", "li", "p", "a"}
    assert page.tags <= allowed
    assert {(tag, name) for tag, name, _ in page.attributes} <= {("a", "href"), ("th", "align")}
    assert all(_is_own(value or "") for tag, _, value in page.attributes if tag == "a")
    for text in (str(mail["Subject"]), plain.get_content(), page.text):
        _assert_visible(text.replace("\r\n", "\n"))
        assert _list_foreign(text) == []


@hostile
def test_teams_card_has_no_mark_up_of_others(message: NoticeMessage) -> None:
    (attachment,) = build_teams_body(message)["attachments"]
    card = attachment["content"]
    texts = [text for block in card["body"] for text in [block.get("text", ""), *texts_of(block.get("facts", []))]]

    assert [(each["type"], bool(_is_own(each["url"]))) for each in card["actions"]] == [("Action.OpenUrl", True)]
    for text in texts:
        assert not set(re.sub(r"\\.", "", text)) & set("\\`*_{}[]()#+-.!|<>~")
    _assert_visible(*texts)


@hostile
def test_slack_message_has_only_plain_text(message: NoticeMessage) -> None:
    body = build_slack_body(message, slack(1))

    assert not set(body["text"]) & set("<>")
    assert (body["parse"], body["link_names"], body["mrkdwn"]) == ("none", False, False)
    for block in body["blocks"]:
        elements = [*([block["text"]] if block["type"] == "section" else []), *block.get("elements", ())]
        for element in elements:
            assert element["type"] in {"plain_text", "button", "rich_text_preformatted"}
            assert _is_own(element.get("url", build_inbox_url(PUBLIC_URL)))
    _assert_visible(*texts_of(body))


@hostile
def test_ntfy_message_is_plain_text(message: NoticeMessage) -> None:
    body = build_ntfy_body(message, "topic")

    assert set(body) == {"topic", "title", "message", "priority", "click", "sequence_id"}
    assert _is_own(body["click"])
    for text in (body["title"], body["message"]):
        _assert_visible(text)
        assert _list_foreign(text) == []


@hostile
def test_push_message_opens_only_this_server(message: NoticeMessage) -> None:
    body = msgspec.json.decode(msgspec.json.encode(build_push_body(message)))

    assert _is_own(body["url"])
    _assert_visible(body["title"], body["body"])
    assert len(msgspec.json.encode(body)) <= 3_993


@hostile
def test_webhook_keeps_texts_in_their_fields(message: NoticeMessage) -> None:
    body = msgspec.json.decode(msgspec.json.encode(build_webhook_body(message)))

    data = body["data"]
    questions = data["questions"] if message.is_digest else [data["question"]]
    assert set(body) == {"type", "timestamp", "data"}
    assert all(_is_own(each["url"]) for each in questions)
    _assert_visible(*texts_of(body))
