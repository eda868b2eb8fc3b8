"""The benchmark of the targets: rounds, ratios, verdicts, and the record that the documentation is made from."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from bench import report
from bench.peers import environments
from bench.peers.driver import OURS, PEERS, SECTIONS, Measured, Runtime, Step, measure, steps
from bench.targets import TARGETS, Results, judge

_NOTHING: Mapping[str, list[float]] = {}


def _measured(section: str, **runtimes: dict[str, list[float]]) -> Measured:
    return Measured({section: {name.replace("_", "-"): found for name, found in runtimes.items()}}, {}, [])


def _rows(results: Results) -> dict[str, tuple[str, str, str]]:
    return {figure: (measured, target, verdict) for figure, measured, target, verdict in judge(results)}


def test_rounds_are_interleaved_and_their_order_turns() -> None:
    runtimes = {"a": Runtime("", "a.py"), "b": Runtime("", "b.py"), "c": Runtime("", "c.py", sections=("durable",))}

    assert steps(runtimes, ["overhead", "counts"], 2) == [
        Step(0, "overhead", "a"),
        Step(0, "overhead", "b"),
        Step(1, "overhead", "b"),
        Step(1, "overhead", "a"),
        Step(0, "counts", "a"),
        Step(0, "counts", "b"),
    ]


def test_a_ratio_is_taken_within_a_round() -> None:
    measured = _measured("overhead", interlock={"x": [20.0, 80.0, 90.0]}, floor_gov={"x": [10.0, 40.0, 10.0]})

    assert measured.ratio("overhead", "interlock", "x", "floor-gov") == 2.0
    assert measured.median("overhead", "interlock", "x") == 80.0
    assert measured.ratio("overhead", "interlock", "x", "absent") is None


def test_every_target_is_judged_and_absent_figures_are_not() -> None:
    measured = _measured("overhead", interlock={"sequential_cpu_us": [90.0]}, floor_gov={"sequential_cpu_us": [30.0]})

    rows = _rows(Results(measured, _NOTHING, {}, {"throughput": {"runs": [299.0, 301.0, 302.0]}}))

    assert len(rows) == len([target for target in TARGETS if not target.needs_peers])
    assert rows["1 call x 200 turns through the loop, CPU beside the floor"] == (
        "3.00x (90.0 beside 30.0 us)",
        "<= 2.5x",
        "MISSED",
    )
    assert rows["server: runs of 5 governed calls on one core, per second"] == ("301", ">= 300", "ok")
    assert {row[2] for row in rows.values()} == {"ok", "MISSED", "-"}


def test_peers_are_compared_by_the_best_of_them() -> None:
    measured = _measured(
        "overhead", interlock={"sequential_cpu_us": [90.0]}, a={"sequential_cpu_us": [1_900.0]}, b={"other": [1.0]}
    )

    rows = _rows(Results(measured, _NOTHING, {}, {}, ["a", "b"]))

    assert rows["the best peer's CPU beside that"] == ("21.1x (a: 1,900 us)", ">= 20x", "ok")


def test_the_slowest_search_counts() -> None:
    search = {
        "glob, all files": [10.0],
        "glob, all files, rg": [10.0],
        "glob, by name": [15.0],
        "glob, by name, rg": [10.0],
    }

    rows = _rows(Results(Measured({}, {}, []), _NOTHING, {"search": search}, {}))

    assert rows["glob beside ripgrep, 25,000 files, slowest of 3"] == (
        "1.50x (15.0 beside 10.0): glob, by name",
        "<= 1.2x",
        "MISSED",
    )


def test_a_runtime_that_cannot_be_installed_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "absent.txt").write_text("interlock-no-such-package==0\n")
    monkeypatch.setattr(environments, "_PACKAGES", tmp_path)
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")

    measured = measure({"absent": Runtime("absent", "floor.py")}, ["counts"], 1, lambda text: None)

    assert measured.figures == {}
    (problem,) = measured.problems
    assert problem.startswith("absent could not be installed: ")
    assert len(problem.splitlines()) == 1


def test_every_environment_is_pinned() -> None:
    packages = Path(environments.__file__).with_name("packages")
    used = {runtime.environment for runtime in (OURS | PEERS).values() if runtime.environment}

    assert {file.stem for file in packages.iterdir()} == used
    for file in packages.iterdir():
        assert all(line.count("==") == 1 for line in file.read_text().splitlines()), file
    assert not any("," in name for name in PEERS), "names are given with commas between them"
    assert all(set(runtime.sections) <= set(SECTIONS) for runtime in (OURS | PEERS).values())


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    where = report.Circumstances("2026-01-02", 2, "3.11.7", 3, 0.5, 6.0)
    record = report.Record(where, [("a", "1", "<= 2", "ok")], [["", "x"], ["a", "1"]], {"x": {"y": "1"}}, [])

    report.write(record, tmp_path / "results.json")

    assert report.read(tmp_path / "results.json") == record
    assert "busy" in where.text
    assert "busy" not in report.Circumstances("2026-01-02", 2, "3.11.7", 3, 0.5, 2.0).text
