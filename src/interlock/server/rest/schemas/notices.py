"""REST schemas of notices: channels, deliveries, and what people chose about their own."""

from ..responses import OptionalTime, ResponseModel, Time


class NoticeChannelResponse(ResponseModel, frozen=True, kw_only=True):
    """The state of a channel."""

    name: str
    kind: str
    waiting_count: int
    sent_count: int
    #: Notices that the channel refused for good.
    dead_letter_count: int
    last_success_at: OptionalTime
    last_error: str
    last_error_at: OptionalTime
    failures: int


class NoticeChannelList(ResponseModel, frozen=True, kw_only=True):
    """Channels of notices."""

    channels: list[NoticeChannelResponse]


class NoticeTestResponse(ResponseModel, frozen=True, kw_only=True):
    """What became of a test notice."""

    channel: str
    #: Why it was not sent; empty: it was.
    problem: str


class NoticeDeliveryResponse(ResponseModel, frozen=True, kw_only=True):
    """A notice for one recipient of one channel."""

    number: int
    channel: str
    #: Whose notice it is; empty for a channel as a whole.
    account: str
    #: `asked` or `escalated`; `answered` or `escalation_answered` for an update that says how it was answered.
    kind: str
    run_id: str
    action_id: str
    #: `waiting`, `sending`, `sent`, `withdrawn` or `dead`.
    state: str
    attempts: int
    due_at: Time
    created_at: Time
    changed_at: Time
    problem: str


class NoticeDeliveryList(ResponseModel, frozen=True, kw_only=True):
    """Deliveries, newest first."""

    deliveries: list[NoticeDeliveryResponse]
    #: For the next page: `before`. Missing: there are no more.
    next_before: int | None


class SlackInteractionResponse(ResponseModel, frozen=True, kw_only=True):
    """What became of a button that was pressed in Slack."""

    #: `recorded`, `refused`, or `ignored` for buttons that decide nothing.
    outcome: str
    #: Why it was refused; empty: it was not.
    code: str
    message: str


class OwnChannelResponse(ResponseModel, frozen=True, kw_only=True):
    """A channel that reaches you."""

    name: str
    kind: str
    #: Where it reaches you; empty: in your browsers.
    address: str
    is_muted: bool


class OwnBrowserResponse(ResponseModel, frozen=True, kw_only=True):
    """A browser of yours that gets push."""

    id: str
    channel: str
    #: Its push service.
    host: str
    created_at: Time


class OwnNoticesResponse(ResponseModel, frozen=True, kw_only=True):
    """Your notices."""

    channels: list[OwnChannelResponse]
    browsers: list[OwnBrowserResponse]
    #: The channel that browsers can subscribe to, and the public key that they do it with; empty: there is none.
    push_channel: str
    push_key: str
