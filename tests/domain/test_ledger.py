"""The ledger walks the tables and nothing else: what does not fit is refused and changes nothing."""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.domain.call import Answer
from interlock.domain.decision import Decision, Verdict
from interlock.domain.errors import IllegalTransitionError, LogVersionError
from interlock.domain.event import (
    ApprovalExpired,
    ApprovalGranted,
    ApprovalRejected,
    ApprovalRequested,
    ApprovalVoided,
    BatchStarted,
    CallProposed,
    CallValidated,
    Fact,
    InputProvided,
    InputRefused,
    InputRequested,
    ModelRequested,
    ModelResponded,
    PolicyEvaluated,
    RunCancelled,
    RunCompleted,
    RunDegraded,
    RunFailed,
    RunPaused,
    RunResumed,
    RunStarted,
    ToolsOffered,
    UserMessageReceived,
    WarningRaised,
    event_type,
)
from interlock.domain.messages import MessagePart, Usage
from interlock.domain.observation import ArtifactRef, Observation, SideEffect
from interlock.domain.outcome import Failure
from interlock.domain.state.ledger import USAGE_FACT_KEY, Ledger
from interlock.domain.state.lifecycle import (
    ACTION_TRANSITIONS,
    CALL_TRANSITIONS,
    RUN_TRANSITIONS,
    ActionState,
    CallState,
    RunState,
)
from interlock.domain.state.verification import CheckResult
from tests.each import each
from tests.history.recorded import ALLOW, ASK, FACTS, RUN, ended, event, observed, proposed, question, started

_bytes = msgspec.json.Encoder(order="deterministic").encode

YES = Answer(approved=True, by="ada")
NO = Answer(approved=False, by="ada")


def ledger_of(*facts: Fact) -> Ledger:
    ledger = Ledger(run_id=RUN)
    for seq, fact in enumerate(facts):
        ledger.apply(event(seq, fact))
    return ledger


def observation(call_id: str) -> Observation:
    return Observation(call_id=call_id, tool="write_file", ok=True, summary="Done.")


def asked(call_id: str = "write") -> list[Fact]:
    return [
        RunStarted(schema=1),
        BatchStarted(call_count=1),
        proposed(call_id, "write_file"),
        CallValidated(call_id=call_id, ok=True),
        PolicyEvaluated(call_id=call_id, tool="write_file", decision=ASK),
        ApprovalRequested(call_id=call_id, question=question(call_id)),
    ]


GRANTED = ApprovalGranted(call_id="write", action_id="act_1", answer=YES)
REJECTED = ApprovalRejected(call_id="write", action_id="act_1", answer=NO)
EXPIRED = ApprovalExpired(call_id="write", action_id="act_1", answer=NO)
VOIDED = ApprovalVoided(call_id="write", action_id="act_1", reason="The file changed.")
START = started("write", "write_file", 7, action_id="act_1")

# Any fact, about few enough calls and actions that they meet.
CALL_IDS = st.sampled_from(["read", "push", "invalid", "write", "never"])
ACTION_IDS = st.sampled_from(["act_1", "act_2"])
ANSWERED: list[Callable[..., Fact]] = [
    ApprovalGranted,
    ApprovalRejected,
    ApprovalExpired,
    InputProvided,
    InputRefused,
]
ANY_FACT: st.SearchStrategy[Fact] = st.one_of(
    st.builds(RunStarted, schema=st.integers(1, 2)),
    st.builds(RunPaused, kind=st.sampled_from(["approval", "consent", "input"]), waiting=st.just(())),
    st.sampled_from([RunResumed(), RunCompleted(), RunCancelled(), RunFailed(message=""), RunDegraded(message="")]),
    st.sampled_from(
        [
            ToolsOffered(digest="m", versions={}, artifact_id="sha256:m"),
            BatchStarted(call_count=1),
            WarningRaised(message="Careful."),
        ]
    ),
    st.builds(proposed, CALL_IDS, st.just("write_file")),
    st.builds(CallValidated, call_id=CALL_IDS, ok=st.booleans()),
    st.builds(
        PolicyEvaluated,
        call_id=CALL_IDS,
        tool=st.just("write_file"),
        decision=st.builds(Decision, verdict=st.sampled_from(Verdict), reason=st.just("")),
    ),
    *(
        st.builds(kind, call_id=CALL_IDS, question=st.builds(question, CALL_IDS, ACTION_IDS))
        for kind in (ApprovalRequested, InputRequested)
    ),
    *(st.builds(kind, call_id=CALL_IDS, action_id=ACTION_IDS, answer=st.sampled_from([YES, NO])) for kind in ANSWERED),
    st.builds(ApprovalVoided, call_id=CALL_IDS, action_id=ACTION_IDS, reason=st.just("")),
    st.builds(started, CALL_IDS, st.just("write_file"), st.just(1), ACTION_IDS | st.just("")),
    st.builds(ended, CALL_IDS, st.just(1)),
    CALL_IDS.map(lambda call_id: observed(observation(call_id))),
)


def moves(before: Ledger, after: Ledger) -> list[tuple[object, object]]:
    """Every state that is not what it was: from, to."""
    changed: list[tuple[object, object]] = [(before.state, after.state)]
    changed += [(before.calls[name].state, call.state) for name, call in after.calls.items() if name in before.calls]
    changed += [
        (before.actions[name].state, action.state) for name, action in after.actions.items() if name in before.actions
    ]
    return [(old, new) for old, new in changed if old is not new]


EDGES: set[tuple[object, object]] = {
    (state, after)
    for table in (RUN_TRANSITIONS, CALL_TRANSITIONS, ACTION_TRANSITIONS)
    for state, row in table.items()
    for after in row.values()
}


@given(st.integers(0, len(FACTS)), st.lists(ANY_FACT, max_size=30))
def test_no_list_of_facts_leaves_the_tables(recorded: int, more: list[Fact]) -> None:
    ledger = ledger_of(*FACTS[:recorded])
    for fact in more:
        stored = _bytes(ledger)
        before = msgspec.json.decode(stored, type=Ledger)
        try:
            ledger.apply(event(ledger.next_seq, fact))
        except (IllegalTransitionError, LogVersionError):
            assert _bytes(ledger) == stored
        else:
            assert ledger.next_seq == before.next_seq + 1
            assert set(moves(before, ledger)) <= EDGES


@pytest.mark.parametrize("seq", [0, 2, 99, -1])
def test_an_event_out_of_its_order_is_refused(seq: int) -> None:
    ledger = ledger_of(RunStarted(schema=1))

    with pytest.raises(IllegalTransitionError, match=f"event {seq} of run_1 is not the next one, 1"):
        ledger.apply(event(seq, WarningRaised(message="Careful.")))
    assert ledger == ledger_of(RunStarted(schema=1))


ABOUT_NOTHING: list[Fact] = [
    CallValidated(call_id="never", ok=True),
    PolicyEvaluated(call_id="never", tool="write_file", decision=ALLOW),
    ApprovalRequested(call_id="never", question=question("never", "act_2")),
    InputRequested(call_id="never", question=question("never", "act_2", "input")),
    ApprovalGranted(call_id="never", action_id="act_1", answer=YES),
    ApprovalGranted(call_id="write", action_id="act_2", answer=YES),
    ApprovalVoided(call_id="never", action_id="act_1", reason=""),
    ApprovalVoided(call_id="write", action_id="act_2", reason=""),
    started("never", "write_file", 1),
    ended("never", 1),
    observed(observation("never")),
]


@each("fact", ABOUT_NOTHING)
def test_a_fact_about_a_call_or_question_that_is_not_there_is_refused(fact: Fact) -> None:
    ledger = ledger_of(*asked())

    with pytest.raises(IllegalTransitionError):
        ledger.apply(event(ledger.next_seq, fact))
    assert ledger == ledger_of(*asked())


def test_a_granted_call_starts_once_and_uses_its_approval_up() -> None:
    ledger = ledger_of(*asked(), GRANTED, START)

    assert ledger.calls["write"].state is CallState.RUNNING
    assert ledger.calls["write"].started_seq == 7
    assert ledger.actions["act_1"].state is ActionState.EXECUTED
    with pytest.raises(IllegalTransitionError):
        ledger.apply(event(8, START))


@pytest.mark.requirement("P02")
@each("answer", [REJECTED, EXPIRED])
@each(
    "later",
    [GRANTED, PolicyEvaluated(call_id="write", tool="write_file", decision=ALLOW), START, VOIDED],
)
def test_a_refusal_stands_whatever_is_said_later(answer: Fact, later: Fact) -> None:
    ledger = ledger_of(*asked(), answer)

    with pytest.raises(IllegalTransitionError):
        ledger.apply(event(ledger.next_seq, later))
    assert ledger.calls["write"].state is CallState.REFUSED
    assert ledger.actions["act_1"].answer == NO


@pytest.mark.parametrize("later", [GRANTED, REJECTED, EXPIRED], ids=event_type)
def test_a_question_is_answered_once(later: Fact) -> None:
    ledger = ledger_of(*asked(), GRANTED)

    with pytest.raises(IllegalTransitionError):
        ledger.apply(event(ledger.next_seq, later))
    assert ledger.actions["act_1"].answer == YES


def test_a_voided_approval_cannot_start_its_call() -> None:
    ledger = ledger_of(*asked(), GRANTED, VOIDED)

    assert ledger.actions["act_1"].state is ActionState.VOID
    assert ledger.calls["write"].action_id == ""
    with pytest.raises(IllegalTransitionError):
        ledger.apply(event(ledger.next_seq, START))


def test_a_waiting_call_cannot_start() -> None:
    ledger = ledger_of(*asked())

    with pytest.raises(IllegalTransitionError, match=r"tool\.invocation\.started, does not fit"):
        ledger.apply(event(ledger.next_seq, started("write", "write_file", 6)))


def test_the_same_call_proposed_again_changes_nothing_but_the_place() -> None:
    ledger = ledger_of(*asked())
    ledger.apply(event(6, CallProposed(call_id="write", tool="bash", digest="other", duplicate=True)))

    expected = ledger_of(*asked())
    expected.next_seq = 7
    assert ledger == expected


def test_a_run_that_starts_twice_is_refused() -> None:
    with pytest.raises(IllegalTransitionError, match="run_1 started twice"):
        ledger_of(RunStarted(schema=1), RunStarted(schema=1))


def test_an_ended_invocation_is_open_no_more_and_keeps_its_time() -> None:
    call = ledger_of(*asked(), GRANTED, START, ended("write", 7)).calls["write"]

    assert (call.state, call.started_seq, call.latency_ms) == (CallState.ENDED, -1, 1.5)


def test_a_start_without_an_end_stays_open() -> None:
    """After a crash this is how an unknown outcome is found."""
    ledger = ledger_of(*asked(), GRANTED, START)

    assert ledger.open_calls() == ["write"]
    assert ledger.calls["write"].started_seq == 7
    assert ledger.calls["write"].is_outcome_unknown is True
    assert ledger_of(*asked(), GRANTED).calls["write"].is_outcome_unknown is False


def test_open_calls_are_in_model_order_and_end_with_their_observation() -> None:
    facts: list[Fact] = [RunStarted(schema=1), *(proposed(name, "grep") for name in ("c", "a", "b"))]
    ledger = ledger_of(*facts, observed(observation("a")))

    assert ledger.open_calls() == ["c", "b"]


def test_the_ledger_knows_every_artifact_of_its_run() -> None:
    kept = ArtifactRef(id="sha256:1", kind="output", size_bytes=1)
    seen = msgspec.structs.replace(observation("write"), artifacts=(kept,))
    menu = ToolsOffered(digest="m", versions={}, artifact_id="sha256:m")
    request = ModelRequested(menu_digest="m", message_count=1, instructions_artifact_id="sha256:i")
    response = ModelResponded(private_artifact_id="sha256:p")
    message = UserMessageReceived(text="Look.", parts=(MessagePart(artifact_id="sha256:u"),))

    ledger = ledger_of(menu, message, request, response, proposed("write", "grep"), observed(seen))
    assert ledger.artifact_ids == {"sha256:m", "sha256:u", "sha256:i", "sha256:p", "sha256:1"}


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        ("approval", RunState.PAUSED_APPROVAL),
        ("consent", RunState.PAUSED_CONSENT),
        ("input", RunState.PAUSED_INPUT),
    ],
)
def test_a_run_pauses_for_what_it_waits_for_and_goes_on(kind: str, state: RunState) -> None:
    paused = msgspec.convert({"type": "run.paused", "kind": kind, "waiting": ["act_1"]}, RunPaused)
    ledger = ledger_of(RunStarted(schema=1), paused)

    assert ledger.state is state
    ledger.apply(event(2, RunResumed()))
    assert ledger.state is RunState.RUNNING


def test_an_answer_to_another_call_is_refused() -> None:
    ledger = ledger_of(*asked(), proposed("other", "write_file"))
    before = _bytes(ledger)

    for fact in (GRANTED, VOIDED):
        with pytest.raises(IllegalTransitionError, match="act_1 is about write, not other"):
            ledger.apply(event(7, msgspec.structs.replace(fact, call_id="other")))
    assert _bytes(ledger) == before


def test_a_call_starts_with_its_own_approval_only() -> None:
    ledger = ledger_of(*asked(), GRANTED)

    with pytest.raises(IllegalTransitionError, match="write starts with '', not 'act_1'"):
        ledger.apply(event(7, started("write", "write_file", 7)))
    assert ledger.actions["act_1"].state is ActionState.APPROVED


def test_the_code_of_a_failure_is_kept() -> None:
    ledger = ledger_of(RunStarted(schema=1), RunFailed(message="Too long.", code="budget_exceeded"))

    assert (ledger.state, ledger.message, ledger.code) == (RunState.FAILED, "Too long.", "budget_exceeded")


def lost(call_id: str, code: str) -> Fact:
    failure = Failure.from_code(code, "It may have happened.", side_effects="unknown")
    seen = msgspec.structs.replace(observation(call_id), ok=False, failure=failure, side_effects="unknown")
    return observed(seen)


@pytest.mark.parametrize("code", ["outcome_unknown", "timed_out", "cancelled"])
def test_an_unknown_outcome_stays_until_the_same_call_ran(code: str) -> None:
    run = [*asked(), GRANTED, START, ended("write", 7), lost("write", code)]
    again = CallProposed(call_id="again", tool="write_file", digest="d-write")
    refused = ledger_of(*run, again, CallValidated(call_id="again", ok=False), observed(observation("again")))
    assert refused.unknown_calls == {"d-write": "write"}

    permitted: list[Fact] = [
        CallValidated(call_id="again", ok=True),
        PolicyEvaluated(call_id="again", tool="write_file", decision=ALLOW),
    ]
    start = len(run) + 3
    ran = [started("again", "write_file", start), ended("again", start), observed(observation("again"))]
    assert ledger_of(*run, again, *permitted, *ran).unknown_calls == {}


def test_what_runs_and_changes_is_known_to_the_checks() -> None:
    forked = RunStarted(schema=1, forked_at=3)
    running = ledger_of(forked, *asked()[1:], GRANTED, START)
    assert (running.checks.forked_at, running.checks.running) == (3, {"write": 7})

    effect = SideEffect(kind="write", target="notes.txt")
    end = msgspec.structs.replace(ended("write", 7), side_effects=(effect,))
    done = ledger_of(*asked(), GRANTED, START, end)
    (change,) = done.checks.changes
    assert (change.seq, change.call_id, change.target) == (8, "write", "notes.txt")

    after_crash = msgspec.structs.replace(observation("write"), side_effects=(effect,))
    seen = ledger_of(*asked(), GRANTED, START, observed(after_crash))
    assert [change.seq for change in seen.checks.changes] == [8]

    quiet = ledger_of(*asked(), GRANTED, START, observed(observation("write")))
    assert (quiet.checks.running, quiet.checks.changes) == ({}, [])


def test_a_check_belongs_to_the_call_that_started_it() -> None:
    def verified_by(started_call: str) -> CheckResult:
        facts = {"verification": {"goal": "tests", "started_call": started_call}}
        end = Observation(call_id="wait", tool="task", ok=True, summary="Passed.", kind="verification", facts=facts)
        calls = [proposed("start", "bash"), observed(observation("start")), proposed("open", "make")]
        (check,) = ledger_of(*calls, proposed("wait", "task"), observed(end)).checks.checks
        return check

    found = {name: verified_by(name) for name in ("start", "open", "unknown", "")}
    places = {name: (check.tool, check.started_seq) for name, check in found.items()}
    assert places == {"start": ("bash", 1), "open": ("make", 0), "unknown": ("task", 0), "": ("task", 4)}


def test_the_usage_of_a_child_run_is_added() -> None:
    used = ModelResponded(usage=Usage(input_tokens=1, output_tokens=2))
    seen = msgspec.structs.replace(observation("child"), facts={USAGE_FACT_KEY: {"input_tokens": 10}})
    ledger = ledger_of(used, proposed("child", "ask"), observed(seen))

    assert ledger.dialogue.usage == Usage(input_tokens=11, output_tokens=2)


def test_state_that_a_tool_sets_to_nothing_is_gone() -> None:
    def sets(call_id: str, **state: object) -> list[Fact]:
        seen = msgspec.structs.replace(observation(call_id), state=state)
        return [proposed(call_id, "write_file"), observed(seen)]

    assert ledger_of(*sets("a", x=1, y=2), *sets("b", x=None, z=3)).tool_state == {"y": 2, "z": 3}


def test_two_ledgers_share_nothing() -> None:
    first, second = Ledger(run_id=RUN), Ledger(run_id=RUN)
    first.artifact_ids.add("sha256:1")
    first.apply(event(0, proposed("write", "grep")))

    assert second == Ledger(run_id=RUN)
