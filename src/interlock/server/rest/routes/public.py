"""Routes without credentials: health checks, and webhooks, which are authenticated by their signature."""

import logging
from typing import Annotated, Any, Literal

from msgspec import Meta

from ...core.triggers.webhooks import MAX_BODY_BYTES, WebhookRejection
from ..body import read_body
from ..caller import PublicCall
from ..errors import ApiError
from ..responses import JSON_MEDIA_TYPE, ResponseModel
from ..routing import Routes

logger = logging.getLogger("interlock.server")

route = Routes("server", prefix="")

_WEBHOOK_BODY: dict[str, Any] = {
    "required": True,
    "content": {JSON_MEDIA_TYPE: {"schema": {}}},
    "description": "Any JSON; the signature is in the headers.",
}


class HealthResponse(ResponseModel, frozen=True, kw_only=True):
    """Whether the server is healthy."""

    status: Literal["ok"]


class WebhookResponse(ResponseModel, frozen=True, kw_only=True):
    """The run that a webhook started."""

    run_id: str


@route("GET", "/health/live", None, HealthResponse, limited=False)
async def is_alive(call: PublicCall) -> HealthResponse:
    return HealthResponse(status="ok")


@route("GET", "/health/ready", None, HealthResponse, limited=False)
async def is_ready(call: PublicCall) -> HealthResponse:
    """Return 503 while the server cannot accept work."""
    problems = await call.service.find_readiness_problems()
    if problems:
        message = f"The server is not ready. {' '.join(problems)}"
        raise ApiError(503, "not_ready", message, {"problems": problems}, {"Retry-After": "1"})
    return HealthResponse(status="ok")


@route("POST", "/hooks/{name}", None, WebhookResponse, status=202, openapi={"requestBody": _WEBHOOK_BODY})
async def call_webhook(call: PublicCall, name: Annotated[str, Meta(max_length=256)]) -> dict[str, str]:
    """Start a run from a webhook. The same request again is the same run."""
    service, webhook = call.service, call.service.webhooks.find(name)
    body = await read_body(call.request, MAX_BODY_BYTES if webhook is None else webhook.max_body_bytes)
    headers = dict(call.request.headers)
    trigger = await service.trigger_service.accept_delivery(name, headers, body, service.now())
    if isinstance(trigger, WebhookRejection):
        logger.warning("Webhook %s rejected a request: %s", "unknown" if webhook is None else name, trigger.code)
        raise ApiError(trigger.status, trigger.code, trigger.message)
    return {"run_id": await service.start_webhook_run(trigger)}
