"""The benchmark of everyday work: what it counts, and that every time has its target."""

import pytest

from bench.daily import Job, Way, do_job, report_times
from interlock.sandbox.commands.probe import choose_sandbox

pytestmark = pytest.mark.skipif(choose_sandbox().confinement.degraded, reason="nothing contains commands here")

JOB = Job(
    {"a.txt": "tea\n"},
    [
        [("bash", {"command": "true > b.txt"}), ("bash", {"command": "ls"})],
        [("bash", {"command": "mkdir c"})],
        [("bash", {"command": "mkdir d"})],
    ],
)


@pytest.mark.parametrize(
    ("way", "outcome"),
    [
        (Way("default"), (3, 0)),
        (Way("default", always=True), (2, 0)),
        (Way("contained"), (0, 0)),
        (Way("read_only"), (0, 3)),
    ],
)
async def test_questions_of_a_job_are_counted(way: Way, outcome: tuple[int, int]) -> None:
    assert await do_job(JOB, way) == outcome


def test_every_time_has_a_target_and_a_verdict() -> None:
    lines = list(report_times(rounds=1))

    assert len(lines) == 4
    assert all("target <= " in line and line.endswith(("ok", "MISSED")) for line in lines)
