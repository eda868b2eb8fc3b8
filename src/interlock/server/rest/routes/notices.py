"""Notices: channels, deliveries and dead letters for admins, and what people choose about their own."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta

from ...core.identity.permissions import Operation
from ...core.notices.outbox import Delivery
from ...core.notices.preferences import InvalidBrowser, NewBrowser, OwnBrowser, OwnChannel, OwnNotices
from ...core.notices.slack_interactions import MAX_BODY_BYTES, SlackRejection, SlackResult
from ..body import RequestModel, read_body
from ..caller import Call, PublicCall
from ..errors import ApiError, FieldProblem, invalid_request
from ..routing import Routes
from ..schemas.notices import (
    NoticeChannelList,
    NoticeDeliveryList,
    NoticeDeliveryResponse,
    NoticeTestResponse,
    OwnBrowserResponse,
    OwnChannelResponse,
    OwnNoticesResponse,
    SlackInteractionResponse,
)

route = Routes("notices")

_SLACK_BODY: dict[str, Any] = {
    "required": True,
    "content": {"application/x-www-form-urlencoded": {"schema": {}}},
    "description": "A form with `payload`, as Slack sends it; the signature is in the headers.",
}


class DeliveryFilters(RequestModel, frozen=True, kw_only=True):
    """Filters of deliveries."""

    channel: Annotated[str, Meta(max_length=64)] = ""
    state: Literal["", "waiting", "sending", "sent", "withdrawn", "dead"] = ""
    before: Annotated[int, Meta(ge=0, le=2**53 - 1)] = 0
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100


class BrowserKeys(RequestModel, frozen=True, kw_only=True):
    """The keys of a subscription, as browsers name them."""

    p256dh: Annotated[str, Meta(max_length=100)]
    auth: Annotated[str, Meta(max_length=40)]


class SubscribeRequest(RequestModel, frozen=True, kw_only=True):
    """A push subscription of a browser."""

    channel: Annotated[str, Meta(max_length=64)]
    endpoint: Annotated[str, Meta(max_length=1_024)]
    keys: BrowserKeys


class MuteRequest(RequestModel, frozen=True, kw_only=True):
    """Whether a person wants the notices of a channel."""

    is_muted: bool


@route("GET", "/notices/channels", Operation.READ_NOTICES, NoticeChannelList)
async def list_notice_channels(call: Call) -> dict[str, Sequence[Any]]:
    """List the channels, how many notices wait in each, and its last error."""
    return {"channels": await call.service.notices.list_channels(call.principal)}


@route("POST", "/notices/channels/{name}/test", Operation.MANAGE_NOTICES, NoticeTestResponse)
async def test_notice_channel(call: Call, name: Annotated[str, Meta(max_length=64)]) -> dict[str, str]:
    """Send a test notice through a channel now."""
    channel, problem = await call.service.notices.test(call.principal, name)
    return {"channel": channel, "problem": problem}


@route("GET", "/notices", Operation.READ_NOTICES, NoticeDeliveryList)
async def list_notices(call: Call, query: DeliveryFilters) -> dict[str, Any]:
    """List the deliveries of notices, newest first. With `state=dead`: those that a channel refused for good."""
    found = await call.service.notices.list_deliveries(
        call.principal, channel=query.channel, state=query.state, before=query.before, limit=query.limit
    )
    return {"deliveries": found, "next_before": found[-1].number if len(found) == query.limit else None}


@route("POST", "/notices/{number}/retry", Operation.MANAGE_NOTICES, NoticeDeliveryResponse)
async def retry_notice(call: Call, number: Annotated[int, Meta(ge=1, le=2**53 - 1)]) -> Delivery:
    """Send a dead letter again."""
    return await call.service.notices.retry(call.principal, number)


@route(
    "POST",
    "/notices/slack/{name}/interactions",
    None,
    SlackInteractionResponse,
    openapi={"requestBody": _SLACK_BODY},
)
async def answer_slack(call: PublicCall, name: Annotated[str, Meta(max_length=64)]) -> SlackResult:
    """Record the answer of a button in Slack. Authenticated by Slack's signature, and by the account of the person who
    pressed it.
    """
    body = await read_body(call.request, MAX_BODY_BYTES)
    result = await call.service.slack_interactions.handle(name, dict(call.request.headers), body)
    if isinstance(result, SlackRejection):
        raise ApiError(result.status, result.code, result.message)
    return result


@route("GET", "/me/notices", Operation.OWN_ACCOUNT, OwnNoticesResponse)
async def get_own_notices(call: Call) -> OwnNotices:
    """Return the channels that reach you, and your browsers that get push."""
    return await call.service.notices.preferences.get(call.principal)


@route("PUT", "/me/notices/channels/{name}", Operation.OWN_ACCOUNT, OwnChannelResponse)
async def mute_own_channel(call: Call, name: Annotated[str, Meta(max_length=64)], body: MuteRequest) -> OwnChannel:
    """Switch your own notices in a channel off or on."""
    return await call.service.notices.preferences.mute(call.principal, name, body.is_muted)


@route("POST", "/me/notices/browsers", Operation.OWN_ACCOUNT, OwnBrowserResponse, status=201)
async def subscribe_browser(call: Call, body: SubscribeRequest) -> OwnBrowser:
    """Let this browser get push. Its push service has to be one of the channel's `hosts`."""
    new = NewBrowser(channel=body.channel, endpoint=body.endpoint, public_key=body.keys.p256dh, auth=body.keys.auth)
    found = await call.service.notices.preferences.subscribe(call.principal, new)
    if isinstance(found, InvalidBrowser):
        raise invalid_request(FieldProblem(found.field, f"cannot be used: {found.problem}"))
    return found


@route("DELETE", "/me/notices/browsers/{browser_id}", Operation.OWN_ACCOUNT, status=204)
async def unsubscribe_browser(call: Call, browser_id: Annotated[str, Meta(max_length=64)]) -> None:
    """Send no more push to one of your browsers."""
    await call.service.notices.preferences.unsubscribe(call.principal, browser_id)


@route("POST", "/me/notices/browsers/{browser_id}/test", Operation.OWN_ACCOUNT, NoticeTestResponse)
async def test_browser(call: Call, browser_id: Annotated[str, Meta(max_length=64)]) -> dict[str, str]:
    """Send a test notice to one of your browsers."""
    channel, problem = await call.service.notices.preferences.test(call.principal, browser_id)
    return {"channel": channel, "problem": problem}
