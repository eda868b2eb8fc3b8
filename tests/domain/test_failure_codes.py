"""The whole list of codes, and what each promises."""

import re

import pytest

from interlock.domain.outcome import ERROR_CODES, NO_SIDE_EFFECTS, UNKNOWN_SIDE_EFFECTS, Failure, Phase
from tests.each import each

BEFORE_EXECUTION = {Phase.ACCEPT, Phase.LOOKUP, Phase.VALIDATE, Phase.PERMIT, Phase.SCHEDULE}


def test_the_phases_are_the_stages_in_order() -> None:
    assert [phase.value for phase in Phase] == [
        "accept",
        "lookup",
        "validate",
        "permit",
        "schedule",
        "execute",
        "normalize",
        "observe",
        "record",
    ]


@pytest.mark.requirement("R275")
@each("code", ERROR_CODES)
def test_a_failure_takes_its_phase_from_its_code(code: str) -> None:
    failure = Failure.from_code(code, "Message.")
    row = ERROR_CODES[code]

    assert (failure.phase, failure.retryable, failure.side_effects) == (row.phase, row.retryable, row.side_effects)


@pytest.mark.requirement("R275")
def test_observations_use_the_words_of_the_field_for_phases() -> None:
    assert {phase.label for phase in Phase} >= {
        "lookup",
        "validate",
        "permission",
        "schedule",
        "execute",
        "normalize",
        "write_back",
    }


@pytest.mark.requirement("R200", "R201")
@pytest.mark.parametrize(
    "code",
    [
        "unknown_tool",
        "tool_not_visible",
        "schema_invalid",
        "runtime_precondition_failed",
        "ambiguous_target",
        "stale_file_baseline",
    ],
)
def test_a_validation_code_means_that_nothing_happened(code: str) -> None:
    assert ERROR_CODES[code].side_effects == NO_SIDE_EFFECTS
    assert ERROR_CODES[code].retryable
    assert ERROR_CODES[code].phase in {Phase.LOOKUP, Phase.VALIDATE}


@each("code", [code for code, row in ERROR_CODES.items() if row.phase in BEFORE_EXECUTION])
def test_a_code_from_before_execution_has_no_side_effects(code: str) -> None:
    assert ERROR_CODES[code].side_effects == NO_SIDE_EFFECTS


@each("code", [code for code, row in ERROR_CODES.items() if row.side_effects == UNKNOWN_SIDE_EFFECTS])
def test_a_call_that_may_have_had_effects_is_not_offered_again_unless_the_tool_itself_failed(code: str) -> None:
    assert ERROR_CODES[code].retryable is (code == "tool_failed")


@each("code", ERROR_CODES)
def test_a_code_is_a_plain_word_with_a_sentence(code: str) -> None:
    assert re.fullmatch("[a-z]+(_[a-z]+)*", code)
    assert re.fullmatch(r"[A-Z].*\.", ERROR_CODES[code].meaning)


def test_what_is_known_about_effects_replaces_what_the_code_assumes() -> None:
    assert Failure.from_code("timed_out", "Message.", side_effects=NO_SIDE_EFFECTS).side_effects == NO_SIDE_EFFECTS
    assert Failure.from_code("timed_out", "Message.").side_effects == UNKNOWN_SIDE_EFFECTS


def test_a_code_that_is_not_in_the_list_is_a_bug() -> None:
    with pytest.raises(KeyError):
        Failure.from_code("no_such_code", "Message.")
