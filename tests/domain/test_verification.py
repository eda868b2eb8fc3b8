"""The newest check of each goal decides, and a change after it makes it old."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.domain.observation import Observation
from interlock.domain.outcome import NO_SIDE_EFFECTS, UNKNOWN_SIDE_EFFECTS, SideEffect, SideEffects
from interlock.domain.state.verification import (
    MAX_CHECKS,
    CheckResult,
    Evidence,
    Verification,
    VerificationState,
    WorkspaceChange,
)
from tests.each import each

EDIT: SideEffects = (SideEffect(kind="modified", target="shop.py"),)
MAIL: SideEffects = (SideEffect(kind="sent", target="ada@example.org"),)


class Run:
    """A run in short: one call after the other, each with the events that it leaves."""

    def __init__(self) -> None:
        self.checks = VerificationState()
        self.seq = 0

    def _call(self, tool: str, effects: SideEffects, **told: Any) -> None:
        call_id = f"c{self.seq}"
        self.checks.running[call_id] = self.seq
        self.checks.record_change(self.seq + 1, effects, call_id, tool)
        observation = Observation(call_id=call_id, tool=tool, side_effects=effects, summary="", **told)
        self.checks.record_observation(observation, self.seq + 2)
        self.seq += 3

    def edit(self, effects: SideEffects = EDIT, tool: str = "edit_file") -> None:
        self._call(tool, effects, ok=True)

    def check(self, command: str, ok: bool | None = True, effects: SideEffects = NO_SIDE_EFFECTS, **facts: Any) -> None:
        """As `bash` tells of a test or check command."""
        program = next(word for word in ("pytest", "ruff", "mypy", "go", "make", "npm", "cargo") if word in command)
        exit_code = 1 if ok is False else 0
        cwd = facts.pop("cwd", ".")
        told = {"program": program, "command": command, "exit_code": exit_code, "ok": ok, **facts}
        verified = {"verification": told, "cwd": cwd}
        self._call("bash", effects, ok=ok is not False, kind="verification", exit_code=exit_code, facts=verified)

    def own(self, tool: str, ok: bool, **facts: Any) -> None:
        """As a developer's tool may tell of its check."""
        self._call(tool, NO_SIDE_EFFECTS, ok=ok, kind="verification", facts=facts)

    @property
    def status(self) -> str:
        return self.checks.summarize().status


def counts(passed: int, failed: int = 0) -> dict[str, int]:
    return {"passed": passed, "failed": failed, "errors": 0, "skipped": 0}


def test_a_run_that_checked_nothing_has_no_verification() -> None:
    run = Run()
    run.edit()
    assert run.checks.summarize() == Verification(status="none", message="No test or check was run.")


@pytest.mark.requirement("R183")
def test_only_an_observation_of_the_kind_verification_is_evidence() -> None:
    checks = VerificationState()
    facts = {"verification": {"program": "pytest", "command": "pytest", "ok": True}}
    checks.record_observation(Observation(call_id="c1", tool="bash", ok=True, summary="5 passed", facts=facts), 1)
    assert checks.summarize().status == "none"


def test_a_pass_after_the_last_change_is_passed_and_says_by_what() -> None:
    run = Run()
    run.edit()
    run.check("pytest -q", counts=counts(12))
    verification = run.checks.summarize()
    (evidence,) = verification.evidence
    assert (verification.status, evidence.change) == ("passed", None)
    assert (evidence.check.command, evidence.check.call_id, evidence.check.seq) == ("pytest -q", "c3", 5)
    assert verification.message == "`pytest -q` (exit code 0, 12 passed) passed, and nothing changed after that."


@pytest.mark.requirement("R268")
def test_a_failure_is_failed_with_its_exit_code_and_counts() -> None:
    run = Run()
    run.check("pytest -q", ok=False, counts=counts(3, 1))
    verification = run.checks.summarize()
    assert verification.status == "failed"
    assert verification.evidence[0].check.exit_code == 1
    assert verification.message == "`pytest -q` failed (exit code 1, 3 passed, 1 failed)."


@pytest.mark.parametrize("target", [".git", "lib/.hg"])
def test_a_commit_makes_no_check_stale(target: str) -> None:
    run = Run()
    run.check("pytest -q")
    run.edit((SideEffect(kind="modified", target=target),), "bash")
    assert run.status == "passed"


def test_a_failure_before_the_last_change_is_still_a_failure() -> None:
    run = Run()
    run.check("pytest -q", ok=False)
    run.edit()
    verification = run.checks.summarize()
    assert verification.status == "failed"
    assert verification.message == (
        "`pytest -q` failed (exit code 1), and was not run again after edit_file changed shop.py (event 5)."
    )


@pytest.mark.requirement("P14")
def test_a_pass_before_the_last_change_is_stale_and_says_which_change() -> None:
    run = Run()
    run.check("pytest -q")
    run.edit()
    verification = run.checks.summarize()
    assert verification.status == "stale"
    assert verification.evidence[0].change == WorkspaceChange(5, "c3", "edit_file", "shop.py")
    assert verification.message == (
        "`pytest -q` passed (exit code 0), and after that edit_file changed shop.py (event 5)."
    )


def test_a_call_with_unknown_effects_makes_a_pass_stale() -> None:
    run = Run()
    run.check("pytest -q")
    run.edit(UNKNOWN_SIDE_EFFECTS, tool="deploy")
    assert run.status == "stale"
    assert "deploy may have changed something (event 5)" in run.checks.summarize().message


def test_reading_and_sending_leave_a_pass_as_it_is() -> None:
    run = Run()
    run.check("pytest -q")
    run.edit(NO_SIDE_EFFECTS, tool="read_file")
    run.edit(MAIL, tool="send_mail")
    assert run.status == "passed"


def test_a_linter_that_passes_after_an_edit_leaves_the_tests_stale() -> None:
    run = Run()
    run.check("pytest")
    run.edit()
    run.check("ruff check .")
    assert run.status == "stale"
    assert [one.change is None for one in run.checks.summarize().evidence] == [False, True]
    run.check("pytest")
    assert run.status == "passed"


def test_what_a_check_writes_itself_makes_other_checks_stale_and_not_its_own() -> None:
    run = Run()
    run.check("pytest", effects=EDIT)
    assert run.status == "passed"
    run.check("ruff check --fix .", effects=EDIT)
    assert [one.change is None for one in run.checks.summarize().evidence] == [False, True]


def test_a_change_while_a_check_ran_makes_it_stale() -> None:
    checks = VerificationState()
    checks.running["tests"] = 1
    checks.running["edit"] = 2
    checks.record_change(3, EDIT, "edit", "edit_file")
    checks.record_change(5, UNKNOWN_SIDE_EFFECTS, "tests", "run_tests")
    told = Observation(
        call_id="tests", tool="run_tests", ok=True, summary="", kind="verification", side_effects=UNKNOWN_SIDE_EFFECTS
    )
    checks.record_observation(told, 6)
    assert checks.summarize().evidence[0].change == WorkspaceChange(3, "edit", "edit_file", "shop.py")


def test_an_observation_without_an_end_of_its_own_tells_of_a_change() -> None:
    run = Run()
    run.check("pytest")
    lost = Observation(call_id="lost", tool="bash", ok=False, summary="It stopped.", side_effects=UNKNOWN_SIDE_EFFECTS)
    run.checks.record_observation(lost, 20)
    assert run.status == "stale"


def test_an_equal_digest_later_proves_that_nothing_changed() -> None:
    run = Run()
    run.check("pytest", workspace="aaaa")
    run.edit(UNKNOWN_SIDE_EFFECTS, tool="bash")
    assert run.status == "stale"
    run.check("ruff check", workspace="aaaa")
    assert run.status == "passed"
    run.edit()
    assert run.status == "stale"


def test_another_digest_later_shows_a_change_that_no_call_told_of() -> None:
    run = Run()
    run.check("pytest", workspace="aaaa")
    run.check("ruff check", workspace="bbbb")
    verification = run.checks.summarize()
    assert verification.status == "stale"
    assert "and after that something changed that no call reported (seen at event 5)" in verification.message


@pytest.mark.parametrize("digest", ["", "unknown", "truncated:cccc"])
def test_a_digest_of_a_part_proves_nothing(digest: str) -> None:
    run = Run()
    run.check("pytest", workspace=digest)
    run.check("ruff check", workspace=digest)
    assert run.status == "passed"
    run.edit(UNKNOWN_SIDE_EFFECTS)
    run.check("ruff check", workspace=digest)
    assert run.status == "stale"


def test_digests_of_different_tools_are_not_compared() -> None:
    run = Run()
    run.check("pytest", workspace="aaaa")
    run.own("types", ok=True, workspace="tree:1")
    assert run.status == "passed"


#: What was run before and failed, what was run after it and passed, and whether that makes up for it.
COVERED = [
    ("pytest", "pytest", True),
    ("pytest", "pytest -q -x", True),
    ("pytest -q", "python -m pytest --tb=short 2>&1 | tail -20", True),
    ("pytest", ".venv/bin/pytest -p no:cacheprovider -n 4 .", True),
    ("pytest tests/test_a.py", "pytest", True),
    ("pytest tests/test_a.py::test_x", "pytest tests/test_a.py -q", True),
    ("pytest tests/test_a.py::test_x[1]", "pytest ./tests/", True),
    ("pytest tests/test_a.py -k total", "pytest tests/test_a.py", True),
    ("pytest -m 'not slow'", "pytest", True),
    ("mypy src", "mypy src tests", True),
    ("go test ./shop", "go test ./...", True),
    ("go test ./...", "go test -v ./...", True),
    ("make test", "make -j4 test", True),
    ("npm test", "npm test -- --verbose", True),
    ("cd shop && pytest", "cd shop && pytest -q", True),
    ("pytest", "pytest tests/test_a.py", False),
    ("pytest", "pytest -k total", False),
    ("pytest", "pytest --lf", False),
    ("pytest", "pytest --deselect=tests/test_a.py::test_x", False),
    ("pytest tests/test_a.py", "pytest tests/test_b.py", False),
    ("pytest tests/test_a.py", "pytest tests/test_a.py::test_y", False),
    ("pytest tests/test_ab.py", "pytest tests/test_a", False),
    ("mypy src tests", "mypy src", False),
    ("go test ./...", "go vet ./...", False),
    ("go test ./...", "go test ./shop", False),
    ("make test", "make lint", False),
    ("npm test", "npm run test:unit", False),
    ("cargo test", "cargo clippy", False),
    ("pytest", "ruff check .", False),
    ("pytest", "pytest 'unclosed", False),
    ("pytest", "pytest " + "a" * 3_000, False),
]


@each(("before", "after", "is_covered"), COVERED)
def test_a_pass_makes_up_for_an_earlier_failure_that_it_covers(before: str, after: str, is_covered: bool) -> None:
    run = Run()
    run.check(before, ok=False)
    run.edit()
    run.check(after)
    assert run.status == ("passed" if is_covered else "failed")


def test_a_run_with_fewer_tests_does_not_make_up_for_a_larger_one_unless_it_is_the_same_command() -> None:
    run = Run()
    run.check("pytest", ok=False, counts=counts(9, 1))
    run.check("pytest -q", counts=counts(1))
    assert run.status == "failed"
    run.check("pytest", counts=counts(9))
    assert run.status == "passed"


def test_a_named_folder_with_as_many_tests_makes_up_for_the_whole() -> None:
    run = Run()
    run.check("pytest", ok=False, counts=counts(9, 1))
    run.check("pytest tests", counts=counts(10))
    assert run.status == "passed"


def test_what_is_counted_up_to_the_first_failure_is_not_all() -> None:
    run = Run()
    run.check("pytest -x", ok=False, counts=counts(0, 1))
    run.check("pytest tests/test_a.py", counts=counts(5))
    assert run.status == "failed"
    run.check("pytest", counts=counts(3))
    assert run.status == "passed"


def test_the_same_program_in_another_folder_is_another_goal() -> None:
    run = Run()
    run.check("pytest", ok=False, cwd="server")
    run.check("pytest", cwd="client")
    assert run.status == "failed"
    run.check("pytest -q", cwd="server")
    assert run.status == "passed"


def test_a_command_that_timed_out_in_a_folder_nobody_knows_can_be_made_up_for() -> None:
    run = Run()
    run.check("pytest", ok=False, cwd="")
    run.check("pytest -q", cwd="server")
    assert run.status == "passed"


def test_a_result_that_cannot_be_told_changes_nothing_and_is_no_pass() -> None:
    run = Run()
    run.check("pytest || true", ok=None)
    assert run.status == "none"
    assert run.checks.summarize().message == "`pytest || true` ran, but whether it passed is unknown."
    run.check("pytest", ok=False)
    run.check("pytest || true", ok=None)
    assert run.status == "failed"


def test_a_tool_of_a_developer_needs_nothing_but_the_kind() -> None:
    run = Run()
    run.own("check_invoices", ok=True)
    assert run.checks.summarize().message == "check_invoices passed, and nothing changed after that."
    run.own("check_invoices", ok=False)
    assert run.status == "failed"
    run.own("check_invoices", ok=True)
    assert run.status == "passed"


def test_a_tool_can_name_its_goals_apart() -> None:
    run = Run()
    run.own("run_suite", ok=False, goal="unit")
    run.own("run_suite", ok=True, goal="end to end")
    assert run.status == "failed"
    assert run.checks.summarize().message == "unit failed."


def test_a_tool_that_says_it_failed_is_believed_over_its_facts() -> None:
    run = Run()
    run.own("check_invoices", ok=False, verification={"ok": True})
    assert run.status == "failed"


def test_a_pass_in_one_tool_makes_up_for_a_failure_of_the_same_program_in_another() -> None:
    run = Run()
    run.check("pytest", ok=False)
    run.own("bash_outside", ok=True, program="pytest", command="pytest -q")
    assert run.status == "passed"


def test_several_failures_are_told_of_by_the_newest() -> None:
    run = Run()
    run.check("ruff check", ok=False)
    run.check("mypy src", ok=False)
    assert run.checks.summarize().message == "`mypy src` failed (exit code 1) (and 1 more like this)."


def test_many_passes_are_told_of_by_the_first_ones() -> None:
    run = Run()
    for name in "abcde":
        run.own(f"check_{name}", ok=True)
    message = "check_a, check_b, check_c and 2 more passed, and nothing changed after that."
    assert run.checks.summarize().message == message


def test_any_number_of_goals_keeps_the_failure_and_stays_small() -> None:
    run = Run()
    for number in range(MAX_CHECKS + 10):
        run.own(f"before_{number}", ok=True)
    run.own("broken", ok=False)
    for number in range(MAX_CHECKS + 10):
        run.own(f"after_{number}", ok=True)
    assert run.status == "failed"
    assert len(run.checks.checks) == MAX_CHECKS
    assert not run.checks.running


def test_what_cannot_be_told_gives_way_where_there_are_too_many_goals() -> None:
    run = Run()
    for number in range(MAX_CHECKS):
        run.own(f"check_{number}", ok=True, verification={"ok": None})
    run.own("good", ok=True)
    assert run.status == "passed"


_WORD = st.sampled_from(
    ["pytest", "tests", "-k", "x", "-q", "ruff", "check", ";", "|", "2>&1", "'", "\n", "$(", "\ud800"]
)
_COMMAND = st.lists(_WORD, max_size=8).map(" ".join) | st.text(max_size=40)
_JSON: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 7, -(2**70), 0.5, "a\nb", "\ud800", [], ["a"], {}, {"ok": {}}]
)
_FACTS = st.fixed_dictionaries(
    {},
    optional={
        "ok": st.booleans() | st.none() | _JSON,
        "program": st.sampled_from(["pytest", "ruff", ""]) | _JSON,
        "command": _COMMAND | _JSON,
        "goal": st.sampled_from(["a", "b"]) | _JSON,
        "counts": st.dictionaries(st.sampled_from(["passed", "failed"]), st.integers(-1, 5)) | _JSON,
        "workspace": st.sampled_from(["a", "b", "unknown"]) | _JSON,
        "exit_code": st.integers() | _JSON,
        "verification": _JSON,
        "cwd": st.sampled_from(["", ".", "a"]) | _JSON,
    },
)
_EFFECTS = st.sampled_from([NO_SIDE_EFFECTS, UNKNOWN_SIDE_EFFECTS, EDIT])
_STEP = st.tuples(st.sampled_from(["bash", "mine"]), st.booleans(), st.booleans(), _EFFECTS, _FACTS)


@given(st.lists(_STEP, max_size=8))
def test_whatever_tools_say_it_is_passed_only_where_nothing_failed_or_changed(steps: list[Any]) -> None:
    checks = VerificationState()
    for seq, (tool, ok, is_check, effects, facts) in enumerate(steps):
        kind = "verification" if is_check else "tool"
        told = Observation(
            call_id=f"c{seq}", tool=tool, ok=ok, summary="", kind=kind, side_effects=effects, facts=facts
        )
        checks.record_observation(told, seq)
    verification = checks.summarize()
    assert msgspec.json.decode(msgspec.json.encode(checks), type=VerificationState) == checks
    assert "\n" not in verification.message
    assert len(verification.message) < 1_000
    if verification.status == "passed":
        last = max(seq for seq, step in enumerate(steps) if step[2])
        assert steps[last][1] or checks.checks[-1].ok is None
        assert not any(step[3] for step in steps[last + 1 :])
        assert all(
            one.check.ok is not False and (one.check.ok is None or one.change is None) for one in verification.evidence
        )


@given(st.lists(st.sampled_from(["pass", "fail", "edit"]), max_size=12))
def test_with_one_goal_the_last_check_and_what_came_after_it_decide(steps: list[str]) -> None:
    run = Run()
    for step in steps:
        run.edit() if step == "edit" else run.check("pytest", ok=step == "pass")
    checks = [at for at, step in enumerate(steps) if step != "edit"]
    if not checks:
        expected = "none"
    elif steps[checks[-1]] == "fail":
        expected = "failed"
    else:
        expected = "stale" if "edit" in steps[checks[-1] :] else "passed"
    assert run.status == expected


def test_evidence_and_checks_are_plain_data() -> None:
    run = Run()
    run.check("pytest", counts=counts(2), workspace="aaaa")
    run.edit()
    verification = run.checks.summarize()
    assert msgspec.json.decode(msgspec.json.encode(verification), type=Verification) == verification
    assert isinstance(verification.evidence[0], Evidence)
    assert isinstance(verification.evidence[0].check, CheckResult)
