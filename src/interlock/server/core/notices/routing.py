"""Which channels and people a question is for. People get notices of what they may read, as long as they may."""

from collections.abc import Mapping

import msgspec

from ....domain.call import Question
from ..identity.account_rows import Account
from ..identity.accounts import Accounts
from ..identity.permissions import Operation, is_allowed
from ..index.rows import RunRow
from .channel_settings import ChannelSettings, EmailChannel, NoticeRoute, NoticesTable, PushChannel
from .people import NoticePeople
from .quiet_hours import QuietHours

_OPERATIONS = {"approval": Operation.DECIDE, "input": Operation.ANSWER, "consent": Operation.CONSENT}


class NoticeRecipient(msgspec.Struct, frozen=True):
    """A recipient of a channel. Both are empty for a channel as a whole."""

    channel: str
    account: str = ""
    #: An address, or the id of a browser.
    address: str = ""


class PlannedNotice(msgspec.Struct, frozen=True):
    """A recipient of a question, and when."""

    recipient: NoticeRecipient
    #: When, if it is still open by then, in nanoseconds since 1970; 0: at once.
    escalates_at: int = 0
    quiet_hours: QuietHours | None = None


class NoticeRouter:
    """Finds the recipients of a question."""

    def __init__(self, table: NoticesTable, accounts: Accounts, people: NoticePeople) -> None:
        self._channels: Mapping[str, ChannelSettings] = {channel.name: channel for channel in table.channels}
        self._routes = [(route, table.get_quiet_hours(route)) for route in table.routes]
        self._urgent_risks = table.urgent_risks
        self._accounts = accounts
        self._people = people

    async def find_recipients(self, question: Question, run: RunRow) -> list[PlannedNotice]:
        """Return the recipients: each once, by the first route, and once more for the earliest escalation."""
        found: dict[tuple[NoticeRecipient, bool], PlannedNotice] = {}
        is_urgent = not self._urgent_risks.isdisjoint(question.risk)
        for route, quiet_hours in self._routes:
            escalates_at = route.find_escalation_time(question.asked_at, question.expires_at)
            if escalates_at is None or not _matches(route, question, run.agent):
                continue
            for recipient in await self._list_recipients(route, question, run):
                new = PlannedNotice(recipient, escalates_at, None if is_urgent else quiet_hours)
                known = found.setdefault((recipient, escalates_at > 0), new)
                if new.escalates_at < known.escalates_at:
                    found[recipient, True] = new
        return list(found.values())

    async def may_receive(self, channel: str, account: str, run: RunRow) -> bool:
        """Return True if a person may still get notices of a run in a channel."""
        found = await self._accounts.get(account)
        is_active = found is not None and not found.disabled and is_allowed(found.principal, Operation.READ_RUN, run)
        return is_active and channel not in await self._people.list_muted(account)

    async def _list_recipients(self, route: NoticeRoute, question: Question, run: RunRow) -> list[NoticeRecipient]:
        channel = self._channels[route.channel]
        match channel:
            case EmailChannel():
                shared = channel.to if route.roles is None and question.kind != "consent" else ()
                people = [(name, address) for name, address in channel.people.items()]
                own = [NoticeRecipient(channel.name, "", address) for address in shared]
            case PushChannel():
                subscriptions = await self._people.list_subscriptions(channel=channel.name)
                people, own = [(each.account, each.subscription_id) for each in subscriptions], []
            case _:
                return [NoticeRecipient(channel.name)]
        for name in dict.fromkeys(name for name, _ in people):
            if await self._is_wanted(route, name, question, run):
                own += [NoticeRecipient(channel.name, name, address) for each, address in people if each == name]
        return own

    async def _is_wanted(self, route: NoticeRoute, name: str, question: Question, run: RunRow) -> bool:
        account = await self._accounts.get(name)
        if account is None or not await self.may_receive(route.channel, name, run):
            return False
        return _may_answer(account, question, run) if route.roles is None else bool(route.roles & account.roles)


def _may_answer(account: Account, question: Question, run: RunRow) -> bool:
    return is_allowed(account.principal, _OPERATIONS[question.kind], run)


def _matches(route: NoticeRoute, question: Question, agent: str) -> bool:
    return (
        question.kind in route.kinds
        and (route.agents is None or agent in route.agents)
        and (route.tools is None or question.tool_name in route.tools)
        and (route.risks is None or not route.risks.isdisjoint(question.risk))
    )
