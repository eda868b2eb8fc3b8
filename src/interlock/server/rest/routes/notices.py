"""Notices: channels, deliveries and dead letters for admins, and what people choose about their own."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta

from ...core.identity.permissions import Operation
from ...core.notices.outbox import Delivery
from ...core.notices.slack_interactions import MAX_BODY_BYTES, SlackRejection, SlackResult
from ..body import RequestModel, read_body
from ..caller import Call, PublicCall
from ..errors import ApiError
from ..routing import Routes
from ..schemas.notices import (
    NoticeChannelList,
    NoticeDeliveryList,
    NoticeDeliveryResponse,
    NoticeTestResponse,
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
