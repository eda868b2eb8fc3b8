"""Routes without credentials: health checks, and webhooks, which are authenticated by their signature."""

import logging
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from ...core.triggers.webhooks import MAX_BODY_BYTES, WebhookRejection
from ..body import read_body
from ..caller import AddressLimit, ServiceDep
from ..encoding import declare_responses, json_response
from ..errors import ApiError
from ..schemas.runs import ResponseModel

logger = logging.getLogger("interlock.server")

router = APIRouter(tags=["server"])


class HealthResponse(ResponseModel, frozen=True, kw_only=True):
    """Whether the server is healthy."""

    status: Literal["ok"]


class WebhookResponse(ResponseModel, frozen=True, kw_only=True):
    """The run that a webhook started."""

    run_id: str


@router.get("/health/live", operation_id="isAlive", **declare_responses(HealthResponse))
async def is_alive() -> Response:
    return json_response(HealthResponse(status="ok"))


@router.get("/health/ready", operation_id="isReady", **declare_responses(HealthResponse))
async def is_ready(service: ServiceDep) -> Response:
    """Return 503 while the server cannot accept work."""
    problems = await service.find_readiness_problems()
    if problems:
        logger.warning("Not ready: %s", " ".join(problems))  # unauthenticated callers get no internal details
        raise ApiError(
            503, "not_ready", "The server cannot take work now; its log says why.", headers={"Retry-After": "1"}
        )
    return json_response(HealthResponse(status="ok"))


@router.post(
    "/hooks/{name}",
    operation_id="callWebhook",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {}}},
            "description": "Anything; its signature is in the headers.",
        }
    },
    **declare_responses(WebhookResponse, status=202),
)
async def call_webhook(
    name: Annotated[str, Path(max_length=256)], _: AddressLimit, request: Request, service: ServiceDep
) -> Response:
    """Start a run from a webhook. The same request again is the same run."""
    webhook = service.webhooks.find(name)
    body = await read_body(request, MAX_BODY_BYTES if webhook is None else webhook.max_body_bytes)
    trigger = service.webhooks.accept(name, dict(request.headers), body, service.now())
    if isinstance(trigger, WebhookRejection):
        logger.warning("The webhook %s was called in vain: %s", "unknown" if webhook is None else name, trigger.code)
        raise ApiError(trigger.status, trigger.code, trigger.message)
    return json_response(WebhookResponse(run_id=await service.start_webhook_run(trigger)), 202)
