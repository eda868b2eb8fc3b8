"""REST schemas of schedules and webhooks."""

from msgspec import field

from ..responses import OptionalTime, ResponseModel, Time
from .runs import RunResponse


class PauseResponse(ResponseModel, frozen=True, kw_only=True):
    """Who paused it, when, and why."""

    actor: str = field(name="by")
    reason: str
    at: Time


class RefusalResponse(ResponseModel, frozen=True, kw_only=True):
    """Why nothing was started, how often, and when that was first and last so."""

    code: str
    message: str
    count: int
    first_at: Time
    last_at: Time


class ScheduleResponse(ResponseModel, frozen=True, kw_only=True):
    """A schedule."""

    name: str
    agent: str
    task: str
    enabled: bool
    cron: str
    every_seconds: int
    timezone: str
    #: Null: never, or it is paused.
    next_due_at: OptionalTime
    #: Null: it is not paused.
    paused: PauseResponse | None
    #: Why its last run could not be started; empty: it could.
    problem: str
    last_run: RunResponse | None
    refusals: list[RefusalResponse]


class ScheduleList(ResponseModel, frozen=True, kw_only=True):
    """Schedules."""

    schedules: list[ScheduleResponse]


class WebhookTriggerResponse(ResponseModel, frozen=True, kw_only=True):
    """A webhook."""

    name: str
    agent: str
    task: str
    #: Where deliveries are sent.
    path: str
    scheme: str
    #: Null: it is not paused.
    paused: PauseResponse | None
    last_run: RunResponse | None
    #: The newest first.
    refusals: list[RefusalResponse]


class WebhookList(ResponseModel, frozen=True, kw_only=True):
    """Webhooks."""

    webhooks: list[WebhookTriggerResponse]


class PauseResult(ResponseModel, frozen=True, kw_only=True):
    """Whether a schedule or webhook is paused now."""

    name: str
    paused: bool
    #: False: it was so already.
    changed: bool
