"""Channels and routes of notices, as configured. Secrets are referenced, never included."""

import re
from collections.abc import Mapping
from email.headerregistry import Address
from typing import Annotated, Literal, TypeAlias

import msgspec

from ....domain.errors import ConfigurationError, InterlockError
from ....domain.suggestions import find_near_name
from ....domain.tool import Risk
from ....policy.files.values import parse_duration
from ..addresses import NetworkAccess, find_host_problem
from ..identity.principal import Role, check_name
from ..safe_http import find_url_problem
from .quiet_hours import QuietHours, load_time_zone, parse_quiet_hours

NoticeKind: TypeAlias = Literal["approval", "input", "consent"]

NO_QUIET_HOURS = "none"
MAX_AFTER_SECONDS = 7 * 86_400
_is_share = re.compile(r"([1-9][0-9]?)%").fullmatch
#: A host or `*.` and a domain, with a port only where it is not the usual one.
_is_host_pattern = re.compile(r"(?:\*\.)?[a-z0-9](?:[a-z0-9.-]{0,250}[a-z0-9])?(?::[0-9]{1,5})?").fullmatch
is_channel_name = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}").fullmatch
_is_slack_id = re.compile(r"[A-Z0-9]{2,32}").fullmatch
_is_topic = re.compile(r"[A-Za-z0-9_-]{1,64}").fullmatch
_is_ascii_address = re.compile(r"[A-Za-z0-9._%+=-]{1,64}@[A-Za-z0-9.-]{1,190}").fullmatch


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class _Channel(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    name: str
    #: Messages to one recipient within a minute. What is more is put together in one message.
    max_per_minute: Annotated[int, msgspec.Meta(ge=1, le=600)] = 20
    #: Collect notices for so long, and send them as one message. 0: each at once.
    digest_seconds: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 0.0
    #: When notices wait, such as `22:00-07:00`, in the `time_zone` of the notices. Urgent ones do not.
    quiet_hours: str = ""
    #: Also without TLS.
    allow_plain: bool = False
    allow_private: bool = False
    #: Certificates to trust instead of those of the system, for a receiver with its own certificate.
    ca_file: str = ""

    @property
    def network_access(self) -> NetworkAccess:
        return NetworkAccess(allow_plain=self.allow_plain, allow_private=self.allow_private)


class WebhookChannel(_Channel, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="webhook"):
    """A JSON object per notice, signed as Standard Webhooks says."""

    url: str
    secret_env: str = ""
    secret_file: str = ""


class EmailChannel(_Channel, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="email"):
    """A mail per notice and recipient, over SMTP."""

    #: The mail server, and its port.
    host: str
    port: Annotated[int, msgspec.Meta(ge=1, le=65_535)] = 587
    #: `starttls`, `tls` from the first byte, or `none`, which needs `allow_plain`.
    encryption: Literal["starttls", "tls", "none"] = "starttls"
    #: The name to sign in with. Empty: the server takes mail without.
    user: str = ""
    #: The variable that has the password, or:
    secret_env: str = ""
    secret_file: str = ""
    #: The address that mails come from. Replies to it are not read.
    sender: str
    #: Addresses that get every notice of the routes without `roles`.
    to: tuple[str, ...] = ()
    #: The addresses of people by account: `{ ada = "ada@example.com" }`.
    people: dict[str, str] = {}


class SlackChannel(_Channel, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="slack"):
    """A message per notice in a channel of Slack, by a bot."""

    #: The id of the channel in Slack, such as `C0123456789`.
    channel: str
    #: The variable that has the bot's token (`xoxb-...`), or:
    token_env: str = ""
    token_file: str = ""
    #: The variable that has the signing secret of the app, or its file. With it, messages have buttons.
    signing_secret_env: str = ""
    signing_secret_file: str = ""
    #: Calls of these tools, and with these risks, are decided in the console: their messages have no buttons.
    console_tools: frozenset[str] = frozenset()
    console_risks: frozenset[str] = frozenset()
    #: The Slack users that accounts are mapped to: `{ ada = "U0123456789" }`. Only they can use the buttons.
    people: dict[str, str] = {}
    #: The API of Slack.
    url: str = "https://slack.com/api"

    @property
    def has_buttons(self) -> bool:
        return bool(self.signing_secret_env or self.signing_secret_file)


class TeamsChannel(_Channel, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="teams"):
    """A card per notice, through a workflow of Microsoft Teams that takes webhook requests."""

    #: The variable that has the URL of the workflow, which is a secret; or:
    url_env: str = ""
    url_file: str = ""


class PushChannel(_Channel, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="push"):
    """Web Push to the browsers in which people switched it on."""

    #: The variable that has the private VAPID key (32 bytes in base64url), or:
    secret_env: str = ""
    secret_file: str = ""
    #: Whom push services contact about problems: `mailto:ops@example.com`.
    subject: str
    #: Push services that browsers may name; no other is called. `*.` stands for any subdomain.
    hosts: tuple[str, ...] = (
        "fcm.googleapis.com",
        "updates.push.services.mozilla.com",
        "*.push.apple.com",
        "*.notify.windows.com",
    )


class NtfyChannel(_Channel, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="ntfy"):
    """A message per notice in a topic of ntfy."""

    #: The server.
    url: str = "https://ntfy.sh"
    topic: str
    #: The variable that has an access token, or:
    token_env: str = ""
    token_file: str = ""


ChannelSettings: TypeAlias = WebhookChannel | EmailChannel | SlackChannel | TeamsChannel | PushChannel | NtfyChannel
#: Channels that reach single people.
PERSONAL_CHANNELS = (EmailChannel, PushChannel)


class NoticeRoute(_Table, frozen=True, kw_only=True):
    """Which questions go to a channel. Every key that is there has to match."""

    channel: str
    #: Only of runs of these agents.
    agents: frozenset[str] | None = None
    #: Only of calls of these tools.
    tools: frozenset[str] | None = None
    #: Only of calls with one of these risks: `read`, `write`, `execute`, `network`, `delegate`.
    risks: frozenset[str] | None = None
    kinds: tuple[NoticeKind, ...] = ("approval", "input")
    #: Only to people with one of these roles, for `email` and `push`.
    roles: frozenset[Role] | None = None
    #: Escalation: only questions that are still open after this time, such as `30m`, or after this share of the time
    #: until their deadline, such as `50%`. Empty: all, at once.
    escalate_after: str = ""
    #: As for the channel, for this route; `none`: also in the quiet hours of the channel.
    quiet_hours: str = ""

    def find_escalation_time(self, asked_at: int, expires_at: int) -> int | None:
        """Return when a question is escalated, in nanoseconds since 1970. 0: it is sent at once. None: never, since it
        has no deadline that a share could be of.
        """
        if not self.escalate_after:
            return 0
        if share := _is_share(self.escalate_after):
            return asked_at + (expires_at - asked_at) * int(share[1]) // 100 if expires_at else None
        return asked_at + int((parse_duration(self.escalate_after) or 0.0) * 1e9)


class NoticesTable(_Table, frozen=True, kw_only=True):
    """The table `[notices]`: how people learn of questions."""

    channels: tuple[ChannelSettings, ...] = ()
    routes: tuple[NoticeRoute, ...] = ()
    #: Of all quiet hours, such as `Europe/Berlin`.
    time_zone: str = "UTC"
    #: Questions about calls with one of these risks are sent in quiet hours, too, and with a higher priority.
    urgent_risks: frozenset[str] = frozenset({"execute", "network", "delegate"})
    #: How long deliveries are listed after their end.
    keep_seconds: Annotated[float, msgspec.Meta(gt=0, le=31_536_000)] = 30 * 86_400.0

    def get_quiet_hours(self, route: NoticeRoute) -> QuietHours | None:
        """Return the quiet hours of a route: its own, or those of its channel."""
        (channel,) = (each for each in self.channels if each.name == route.channel)
        text = route.quiet_hours or channel.quiet_hours
        return None if text in {"", NO_QUIET_HOURS} else parse_quiet_hours(text, self.time_zone)

    def __post_init__(self) -> None:
        """Reject channels and routes that cannot work."""
        known: dict[str, ChannelSettings] = {}
        load_time_zone(self.time_zone)
        if problem := _find_risk_problem(self.urgent_risks):
            raise ConfigurationError(f"`urgent_risks` of the notices cannot work: {problem}.")
        for channel in self.channels:
            problem = "another one has the same name" if channel.name in known else _find_problem(channel)
            if problem := problem or _find_quiet_problem(channel.quiet_hours):
                raise ConfigurationError(f'The notice channel "{channel.name[:64]}" cannot work: {problem}.')
            known[channel.name] = channel
        if sum(isinstance(channel, PushChannel) for channel in self.channels) > 1:
            # A browser subscribes with the key of one server.
            raise ConfigurationError("There is more than one notice channel of the kind `push`. Keep one.")
        for route in self.routes:
            if problem := _find_route_problem(route, known):
                raise ConfigurationError(f'A notice route to "{route.channel[:64]}" cannot work: {problem}.')


def get_channel_kind(channel: ChannelSettings) -> str:
    """Return the kind of a channel, as in the settings."""
    return str(channel.__struct_config__.tag)


def _find_route_problem(route: NoticeRoute, known: Mapping[str, ChannelSettings]) -> str:
    channel = known.get(route.channel)
    if channel is None:
        near = find_near_name(route.channel, known)
        return "there is no such channel" + (f"; did you mean {near!r}?" if near else "")
    if problem := _find_risk_problem(route.risks or frozenset()):
        return problem
    if route.roles is not None and not isinstance(channel, PERSONAL_CHANNELS):
        return "`roles` needs a channel that reaches single people (`email` or `push`)"
    if route.roles and Role.AGENT in route.roles:
        return "`roles` has `agent`, which no person has"
    if problem := _find_escalation_problem(route.escalate_after):
        return problem
    return "" if route.quiet_hours == NO_QUIET_HOURS else _find_quiet_problem(route.quiet_hours)


def _find_escalation_problem(after: str) -> str:
    if not after or _is_share(after):
        return ""
    try:
        seconds = parse_duration(after) or 0.0
    except InterlockError as error:
        return f"`escalate_after`: {error}"
    if 0 < seconds <= MAX_AFTER_SECONDS:
        return ""
    return "`escalate_after` is a time of at most 7 days, such as `30m`, or a share from `1%` to `99%`"


def _find_quiet_problem(text: str) -> str:
    try:
        if text:
            parse_quiet_hours(text, "UTC")
    except ConfigurationError as error:
        return str(error)
    return ""


def _find_risk_problem(risks: frozenset[str]) -> str:
    unknown = sorted(risks - set(Risk))
    return f"there is no risk {unknown[0][:64]!r}; expected {', '.join(Risk)}" if unknown else ""


def _find_problem(channel: ChannelSettings) -> str:
    if not is_channel_name(channel.name):
        return "a name has up to 64 lower-case letters, digits, - and _"
    match channel:
        case WebhookChannel():
            problem = _find_url_problem(channel.url, channel)
        case NtfyChannel():
            problem = _find_url_problem(channel.url, channel) if _is_topic(channel.topic) else "its topic is none"
        case SlackChannel():
            problem = _find_slack_problem(channel)
        case EmailChannel():
            problem = _find_mail_problem(channel)
        case PushChannel():
            problem = _find_push_problem(channel)
        case TeamsChannel():
            problem = ""
    return problem


def _find_url_problem(url: str, channel: ChannelSettings) -> str:
    problem = find_url_problem(url, channel.network_access)
    return f"its URL is not one that can be called: {problem}" if problem else ""


def _find_push_problem(channel: PushChannel) -> str:
    if not (channel.subject.startswith(("mailto:", "https://")) and channel.subject.isprintable()):
        return "its subject has to be like mailto:ops@example.com"
    wrong = [host for host in channel.hosts if not _is_host_pattern(host)]
    return f"`hosts` has {wrong[0][:64]!r}; expected a host such as push.example.com" if wrong else ""


def _find_slack_problem(channel: SlackChannel) -> str:
    if not _is_slack_id(channel.channel):
        return "its channel is an id of Slack, such as C0123456789"
    if not all(map(_is_slack_id, channel.people.values())):
        return "`people` has something that is not an id of a Slack user"
    if len(set(channel.people.values())) != len(channel.people):
        return "`people` maps two accounts to one Slack user"
    if problem := _find_risk_problem(channel.console_risks):
        return problem
    return _find_account_problem(channel.people) or _find_url_problem(channel.url, channel)


def _find_mail_problem(channel: EmailChannel) -> str:
    if channel.encryption == "none" and not channel.allow_plain:
        return "mail without encryption needs `allow_plain = true`"
    if channel.user and not (channel.user.isprintable() and (channel.secret_env or channel.secret_file)):
        return "its user needs a password (`secret_env` or `secret_file`)"
    receivers = (*channel.to, *channel.people.values())
    for address in (channel.sender, *receivers):
        if not is_mail_address(address):
            return f"{address[:64]!r} is not an address of mail"
    if channel.sender.lower() in map(str.lower, receivers):
        return "it would send mails to its own `sender`"
    problem = find_host_problem(channel.host)
    return f"its host cannot be called: {problem}" if problem else _find_account_problem(channel.people)


def _find_account_problem(people: Mapping[str, str]) -> str:
    wrong = [name for name in people if check_name(name)]
    return f"`people` has {wrong[0][:64]!r}, which cannot be an account" if wrong else ""


def is_mail_address(address: str) -> bool:
    """Return True for an address that cannot be read in two ways: ASCII, without quotes and comments."""
    if not _is_ascii_address(address):
        return False
    try:
        return Address(addr_spec=address).addr_spec == address
    except (ValueError, IndexError, AttributeError):
        return False
