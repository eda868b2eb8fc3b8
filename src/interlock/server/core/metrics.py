"""What the metrics of a server show of its lists."""

from ...engine.metrics import Gauge, Values
from .index.rows import ActionQuery
from .service import Service

_PENDING = frozenset({"PENDING"})


def list_gauges(service: Service) -> tuple[Gauge, ...]:
    """Return the gauges of a server: runs, open questions and their age, and runs under way here."""
    index = service.index

    async def find_oldest_question() -> Values:
        page = await index.list_actions(ActionQuery(statuses=_PENDING, limit=1))
        oldest = page.rows[0].asked_at if page.rows else 0
        return {"": max(0.0, (service.now() - oldest) / 1e9) if oldest else 0.0}

    async def count_live() -> Values:
        return {"": float(len(service.runners.list_live_handles()))}

    return (
        Gauge("interlock_runs", "Runs without child runs, by status.", "status", index.count_runs),
        Gauge("interlock_open_questions", "Open questions, by kind.", "kind", index.count_open_questions),
        Gauge("interlock_oldest_question_seconds", "Age of the oldest open question.", "", find_oldest_question),
        Gauge("interlock_process_runs", "Runs that this server has.", "", count_live),
    )
