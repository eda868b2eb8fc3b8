"""People at two servers of one log: what one of them records, the other one shows at once."""

from pathlib import Path

from tests.postgres.server import PostgresServer
from tests.server.story.agents import task
from tests.server.story.cluster import cluster

REFUND = task("Give it back.", ("refund", {"order": "7", "amount": 5.5}))


def test_run_is_made_here_approved_there_and_executed_elsewhere(postgres: PostgresServer, tmp_path: Path) -> None:
    with cluster(postgres, tmp_path) as (first, second):
        run_id = first.begin(REFUND)
        path = f"/v1/runs/{run_id}/events/stream?after_seq=-1"
        with first.as_person("olga") as here, here.stream("GET", path) as events:
            lines = events.iter_lines()
            next(line for line in lines if "APPROVAL_REQUIRED" in line)
            second.approve(run_id)
            next(line for line in lines if "COMPLETED" in line)
        assert first.run(run_id)["status"] == second.run(run_id)["status"] == "COMPLETED"
        first.stop()
        second.stop()

    assert (tmp_path / "ledger").read_text().splitlines() == ["7 5.5"]
