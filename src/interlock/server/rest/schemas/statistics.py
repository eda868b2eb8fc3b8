"""REST schemas of statistics."""

from ...core.index.statistics import NamedCount, QuestionAge, StatisticsPeriod
from ..responses import OptionalTime, ResponseModel, Time


class OutcomeStepResponse(ResponseModel, frozen=True, kw_only=True):
    """Runs that ended in an hour or a day, by outcome. A rejected or expired run is not counted as failed."""

    start: Time
    completed: int
    degraded: int
    rejected: int
    expired: int
    cancelled: int
    failed: int


class WaitStepResponse(ResponseModel, frozen=True, kw_only=True):
    """How long approvals that were answered in an hour or a day had waited, within 12 %."""

    start: Time
    answered: int
    p50_seconds: float | None
    p90_seconds: float | None


class AgentUsageResponse(ResponseModel, frozen=True, kw_only=True):
    """What an agent used. `start`: the day; null for the whole period."""

    agent: str
    start: OptionalTime
    responses: int
    input_tokens: int
    output_tokens: int
    cost: float


class StatisticsResponse(ResponseModel, frozen=True, kw_only=True):
    """Figures of a period that ends now, in steps of hours or days (UTC)."""

    period: StatisticsPeriod
    since: Time
    width_seconds: int
    outcomes: list[OutcomeStepResponse]
    answers: dict[str, int]
    waits: list[WaitStepResponse]
    wait_p50_seconds: float | None
    wait_p90_seconds: float | None
    open_questions: int
    oldest_question_at: OptionalTime
    #: Open questions by age; the last count has no upper bound.
    question_ages: list[QuestionAge]
    #: By agent in the days of the period, most expensive first; and by agent and day.
    usage: list[AgentUsageResponse]
    daily_usage: list[AgentUsageResponse]
    #: Rules that asked people most often. Without a rule: the layer, in parentheses.
    rules: list[NamedCount]
    #: Failures of calls and models by code; and calls that policy or people refused.
    errors: list[NamedCount]
    refusals: list[NamedCount]
