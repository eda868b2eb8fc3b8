"""What is a claim and what is none, in examples; and that no text can make finding it slow or wrong.

`claims.txt` and `no_claims.txt` have an answer per line, with `\\n` for a line break.
"""

from pathlib import Path
from time import process_time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from interlock.domain.observation import Observation
from interlock.domain.outcome import SideEffect
from interlock.domain.state.verification import Verification, VerificationState
from interlock.verification.claims import MAX_CLAIM_CHARS, describe_contradiction, find_claim
from interlock.verification.sentences import MAX_HEAD_CHARS, MAX_TAIL_CHARS
from tests.each import each


def examples(name: str) -> list[str]:
    lines = (Path(__file__).parent / name).read_text(encoding="utf-8").splitlines()
    return [line.replace("\\n", "\n") for line in lines]


CLAIMS = examples("claims.txt")
NO_CLAIMS = examples("no_claims.txt")


def test_there_are_many_examples() -> None:
    assert len(CLAIMS) > 200
    assert len(NO_CLAIMS) > 200


def test_an_answer_that_states_that_tests_pass_or_a_fix_is_verified_is_a_claim() -> None:
    assert [answer for answer in CLAIMS if not find_claim(answer)] == []


def test_what_is_denied_hedged_planned_past_or_quoted_is_no_claim() -> None:
    assert [answer for answer in NO_CLAIMS if find_claim(answer)] == []


def test_a_claim_is_found_among_sentences_that_are_none() -> None:
    answer = " ".join(NO_CLAIMS[:20]) + "\n\n- Changed `shop.py`.\n- **All 12 tests pass.** See above.\n"
    assert find_claim(answer) == "All 12 tests pass."


def test_no_answer_is_no_claim() -> None:
    assert find_claim("") == ""


@pytest.mark.parametrize("filling", ["word ", "Nothing here. ", "line\n", "```\ncode\n```\n"])
def test_a_claim_at_either_end_of_a_very_long_answer_is_found(filling: str) -> None:
    middle = filling * (2 * (MAX_HEAD_CHARS + MAX_TAIL_CHARS) // len(filling))
    assert find_claim(f"All tests pass.\n\n{middle}") == "All tests pass."
    assert find_claim(f"{middle}\n\nAll tests pass.") == "All tests pass."


@given(st.text())
@example("```")
@example("\ud800 tests pass")
@example('tests pass"`')
@example("\u2028tests\x00 pass")
def test_any_text_is_read_and_a_claim_is_a_part_of_it(text: str) -> None:
    claim = find_claim(text)
    assert claim in text
    assert len(claim) <= MAX_CLAIM_CHARS


_WORDS = 'all the tests pass not if , . ; : and but no 0 12/12 passed green failed should ✅ ` " > ``` ( it is \n'
_PIECES = st.sampled_from(_WORDS.split(" "))


@given(st.lists(_PIECES, max_size=40))
def test_any_mix_of_its_words_is_read_and_a_claim_is_a_part_of_it(pieces: list[str]) -> None:
    text = " ".join(pieces)
    assert find_claim(text) in text


@given(st.sampled_from(CLAIMS), st.sampled_from(["```", "~~~"]))
def test_no_claim_is_found_in_a_block_of_code(claim: str, fence: str) -> None:
    assert find_claim(f"It printed:\n{fence}\n{claim.replace('```', '')}\n{fence}\n") == ""


@given(st.sampled_from([claim for claim in CLAIMS if "\n" not in claim]))
def test_no_claim_is_found_in_a_quoted_line(claim: str) -> None:
    assert find_claim(f"> {claim}") == ""


#: Each is repeated to a mebibyte: what could make a pattern go back and forth.
_HARD = [
    "tests ",
    "test a ",
    "tests and ",
    "all of the test ",
    "no test ",
    "a",
    "✅ all ",
    "tests" + " word" * 12 + " ",
    "12/12 ",
    "exit code is ",
    "`",
    '"tests pass" ',
    "fix is ",
    "tested and ",
    "tests not pass. ",
    "if tests pass\n",
    "-" * 50,
    ". ",
    "\n" * 3,
    "```\n",
]


@each("piece", _HARD)
def test_no_text_takes_long_to_read(piece: str) -> None:
    text = piece * ((1 << 20) // len(piece))
    started = process_time()
    find_claim(text)
    assert process_time() - started < 5


def verified(ok: bool | None, *, edited: bool = False) -> Verification:
    checks = VerificationState()
    facts = {"verification": {"program": "pytest", "command": "pytest -q", "ok": ok, "exit_code": 0 if ok else 1}}
    checks.record_observation(
        Observation(call_id="c1", tool="bash", ok=bool(ok), summary="", kind="verification", facts=facts), 4
    )
    if edited:
        checks.record_change(9, (SideEffect(kind="modified", target="shop.py"),), "c2", "edit_file")
    return checks.summarize()


@pytest.mark.requirement("R268", "P14")
def test_a_claim_against_a_failed_run_says_what_failed_and_what_to_do() -> None:
    assert describe_contradiction("All tests pass.", verified(ok=False)) == (
        'The answer says "All tests pass", but `pytest -q` failed (exit code 1). '
        "Run it again once that is fixed, or correct the answer."
    )


@pytest.mark.requirement("P14")
def test_a_claim_with_an_edit_after_the_last_run_says_which_edit() -> None:
    assert describe_contradiction("All tests pass.", verified(ok=True, edited=True)) == (
        'The answer says "All tests pass", but `pytest -q` passed (exit code 0), and after that edit_file changed '
        "shop.py (event 9). Run it again, or correct the answer."
    )


@pytest.mark.requirement("R183")
def test_a_claim_without_any_run_does_not_replace_one() -> None:
    assert describe_contradiction("All tests pass.", VerificationState().summarize()) == (
        'The answer says "All tests pass", but no test or check was run. '
        "Run the tests, or say in the answer that they were not run."
    )


def test_a_claim_that_the_facts_bear_out_is_not_contradicted() -> None:
    assert describe_contradiction("All tests pass.", verified(ok=True)) == ""


@pytest.mark.parametrize("ok", [True, False, None])
def test_without_a_claim_there_is_nothing_to_contradict(ok: bool | None) -> None:
    assert describe_contradiction("", verified(ok)) == ""


@given(st.text(min_size=1, max_size=500))
def test_whatever_was_claimed_the_contradiction_is_one_safe_line(claim: str) -> None:
    told = describe_contradiction(claim, verified(ok=False))
    assert told.splitlines() == [told]
    assert told.encode()
    assert len(told) < 4_000
