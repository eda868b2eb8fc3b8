"""What people choose about their own notices: channels that they mute, and browsers that get push."""

from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

import msgspec

from ..audit_sinks.senders import SendSuccess
from ..errors import ConflictError, not_found_error
from ..identity.guard import AccessGuard
from ..identity.permissions import Operation
from ..identity.principal import Principal
from .channel_settings import PERSONAL_CHANNELS, ChannelSettings, EmailChannel, PushChannel, get_channel_kind
from .notice import NoticeMessage, NoticeSender, build_inbox_url, build_test_notice
from .people import NoticePeople, PushSubscription
from .push import PushSender, find_endpoint_problem, find_key_problem


class OwnChannel(msgspec.Struct, frozen=True, kw_only=True):
    """A channel that reaches a person."""

    name: str
    kind: str
    #: Where it reaches them; empty: in their browsers.
    address: str
    is_muted: bool


class OwnBrowser(msgspec.Struct, frozen=True, kw_only=True):
    """A browser of a person that gets push."""

    id: str
    channel: str
    #: The push service.
    host: str
    created_at: int


class OwnNotices(msgspec.Struct, frozen=True, kw_only=True):
    """The notices of a person."""

    channels: tuple[OwnChannel, ...]
    browsers: tuple[OwnBrowser, ...]
    #: The channel that browsers can subscribe to, and the key that they do it with. Empty: there is none.
    push_channel: str
    push_key: str


class NewBrowser(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription, as a browser describes it."""

    channel: str
    endpoint: str
    public_key: str
    auth: str


class InvalidBrowser(msgspec.Struct, frozen=True):
    """A subscription that cannot be used: the field, and what is wrong with it."""

    field: str
    problem: str


class NoticePreferences:
    """Lists and changes what people chose."""

    def __init__(
        self,
        channels: Mapping[str, tuple[ChannelSettings, NoticeSender]],
        people: NoticePeople,
        guard: AccessGuard,
        public_url: Callable[[], str],
        now: Callable[[], int],
    ) -> None:
        self._channels = channels
        self._people = people
        self._guard = guard
        self._public_url = public_url
        self._now = now

    async def get(self, principal: Principal) -> OwnNotices:
        """Return the channels that reach a person, and their browsers."""
        await self._guard.check(principal, Operation.OWN_ACCOUNT)
        account = get_account_name(principal)
        muted = await self._people.list_muted(account)
        browsers = await self._people.list_subscriptions(account=account)
        push = next((each for _, each in self._channels.values() if isinstance(each, PushSender)), None)
        return OwnNotices(
            channels=tuple(
                OwnChannel(
                    name=name,
                    kind=get_channel_kind(channel),
                    address=channel.people[account] if isinstance(channel, EmailChannel) else "",
                    is_muted=name in muted,
                )
                for name, (channel, _) in self._channels.items()
                if _reaches(channel, account)
            ),
            browsers=tuple(map(_to_browser, browsers)),
            push_channel=push.name if push else "",
            push_key=push.public_key if push else "",
        )

    async def mute(self, principal: Principal, name: str, is_muted: bool) -> OwnChannel:
        """Switch the notices of a channel off or on, for one person."""
        await self._guard.check(principal, Operation.OWN_ACCOUNT)
        account = get_account_name(principal)
        if name not in self._channels or not _reaches(self._channels[name][0], account):
            raise not_found_error("channel", name)
        await self._people.set_muted(account, name, is_muted)
        await self._record(principal, name, "mute" if is_muted else "unmute")
        (found,) = (each for each in (await self.get(principal)).channels if each.name == name)
        return found

    async def subscribe(self, principal: Principal, new: NewBrowser) -> OwnBrowser | InvalidBrowser:
        """Let a browser get push. It belongs to this person from now on, and to no other."""
        await self._guard.check(principal, Operation.OWN_ACCOUNT)
        channel, _ = self._channels.get(new.channel, (None, None))
        if not isinstance(channel, PushChannel):
            raise not_found_error("channel", new.channel)
        if problem := find_endpoint_problem(new.endpoint, channel):
            return InvalidBrowser("endpoint", problem)
        if problem := find_key_problem(new.public_key, new.auth):
            return InvalidBrowser("keys", problem)
        account = get_account_name(principal)
        browser = _to_browser(
            await self._people.subscribe(account, channel.name, new.endpoint, new.public_key, new.auth)
        )
        await self._record(principal, browser.id, "push_on")
        return browser

    async def unsubscribe(self, principal: Principal, browser_id: str) -> None:
        """Send no more push to a browser of this person."""
        await self._guard.check(principal, Operation.OWN_ACCOUNT)
        if not await self._people.unsubscribe(browser_id, get_account_name(principal)):
            raise not_found_error("browser", browser_id)
        await self._record(principal, browser_id, "push_off")

    async def test(self, principal: Principal, browser_id: str) -> tuple[str, str]:
        """Send a test notice to a browser of this person. Return its channel, and what went wrong; empty: nothing."""
        await self._guard.check(principal, Operation.OWN_ACCOUNT)
        browsers = await self._people.list_subscriptions(account=get_account_name(principal))
        found = next((each for each in browsers if each.subscription_id == browser_id), None)
        if found is None:
            raise not_found_error("browser", browser_id)
        if found.channel not in self._channels:
            raise ConflictError("no_channel", f"The channel {found.channel} is not configured any more.", {})
        message = build_test_message(found.channel, browser_id, self._public_url(), self._now())
        outcome = await self._channels[found.channel][1].send(message)
        return found.channel, "" if isinstance(outcome, SendSuccess) else outcome.problem

    async def _record(self, principal: Principal, target: str, done: str) -> None:
        await self._guard.record_operation(principal, Operation.OWN_ACCOUNT, target, {"done": done})


def build_test_message(channel: str, recipient: str, public_url: str, now: int) -> NoticeMessage:
    """Build a message that tries a channel."""
    return NoticeMessage(
        key=f"test{now:x}",
        recipient=recipient,
        notices=(build_test_notice(channel, public_url, now),),
        inbox_url=build_inbox_url(public_url),
        sent_at=now,
    )


def get_account_name(principal: Principal) -> str:
    """Return the account of a person."""
    return principal.name.removeprefix("user:")


def _reaches(channel: ChannelSettings, account: str) -> bool:
    if isinstance(channel, EmailChannel):
        return account in channel.people
    return isinstance(channel, PERSONAL_CHANNELS)


def _to_browser(found: PushSubscription) -> OwnBrowser:
    host = urlsplit(found.endpoint).netloc
    return OwnBrowser(id=found.subscription_id, channel=found.channel, host=host, created_at=found.created_at)
