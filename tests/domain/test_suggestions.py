"""What is suggested for a name that does not exist."""

import pytest

from interlock.domain.suggestions import suggest_id, suggest_name

_IDS = ("run_09f3c1aa52d87b64", "run_e841517a9c02d6bf", "act_77aa01")


@pytest.mark.parametrize(
    ("given", "hint"),
    [("grpe", "Did you mean `grep`?"), ("Grep", "Did you mean `grep`?"), ("xyz", ""), ("", ""), ("grep" * 100, "")],
)
def test_the_nearest_name_is_suggested(given: str, hint: str) -> None:
    assert suggest_name(given, ("read_file", "grep", "bash")) == hint


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("run_e841", "Did you mean `run_e841517a9c02d6bf`?"),
        ("run_e851517", "Did you mean `run_e841517a9c02d6bf`?"),
        ("run_e841517a9c02d6b", "Did you mean `run_e841517a9c02d6bf`?"),
        ("run_5", ""),
        ("run_77dd0c4e19b3a852", ""),
        ("x" * 10_000, ""),
    ],
)
def test_an_id_that_begins_nearly_so_is_suggested(given: str, hint: str) -> None:
    assert suggest_id(given, _IDS) == hint
