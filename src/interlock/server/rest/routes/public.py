"""What needs no key: whether the server lives, and webhooks, which prove themselves by their signature."""

import logging
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from ...core.triggers.webhooks import MAX_BODY_BYTES, WebhookRefused
from ..body import read_body
from ..caller import Knocked, Served
from ..encoding import answer, answers
from ..errors import ApiError
from ..schemas.runs import Shape

logger = logging.getLogger("interlock.server")

router = APIRouter(tags=["server"])


class Health(Shape, frozen=True, kw_only=True):
    status: Literal["ok"]


class Begun(Shape, frozen=True, kw_only=True):
    run_id: str


@router.get("/health/live", operation_id="isAlive", **answers(Health))
async def is_alive() -> Response:
    return answer(Health(status="ok"))


@router.get("/health/ready", operation_id="isReady", **answers(Health))
async def is_ready(service: Served) -> Response:
    """503 while it cannot take work."""
    problems = await service.trouble()
    if problems:
        logger.warning("Not ready: %s", " ".join(problems))  # whoever asks here is nobody that the inside is told to
        raise ApiError(
            503, "not_ready", "The server cannot take work now; its log says why.", headers={"Retry-After": "1"}
        )
    return answer(Health(status="ok"))


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
    **answers(Begun, status=202),
)
async def call_webhook(
    name: Annotated[str, Path(max_length=256)], _: Knocked, request: Request, service: Served
) -> Response:
    """Another system says that something happened. Sent again, it is the same run."""
    webhook = service.webhooks.find(name)
    body = await read_body(request, MAX_BODY_BYTES if webhook is None else webhook.max_body_bytes)
    came = service.webhooks.accept(name, dict(request.headers), body, service.now())
    if isinstance(came, WebhookRefused):
        logger.warning("The webhook %s was called in vain: %s", "unknown" if webhook is None else name, came.code)
        raise ApiError(came.status, came.code, came.message)
    return answer(Begun(run_id=await service.trigger(came)), 202)
