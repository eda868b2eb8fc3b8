"""The reader against real bash: what it proves is what bash runs."""

import shutil
from pathlib import Path

import pytest

from tests.policy.bash_oracle import mismatches, scripts

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash to compare with")

#: Each of them was once read in another way than bash reads it.
_ONCE_WRONG = (
    'a >& "b\\$c"',
    ">& echo\\\\ a",
    "a &>f>&-''",
    "a '2'>f",
    "a 2>f",
    "a 2 >f",
    "time ! a",
    ">f time \\!",
    "a \\\n b",
    "a;\\\nb",
    "a # b \\\nc",
    "a <<'E'\nx\nE\nb",
    "cat <<-'E'\n\tx\n\tE\nb",
    "a\u00a0b",
    "a $'\\x41\\n'",
    "[ a ] && b",
    "a [ b ] c]",
    "! a | b",
    "{ a; } > f",
    "a >f b >g c",
)


def test_bash_runs_what_was_read(tmp_path: Path) -> None:
    count, wrong = mismatches([*_ONCE_WRONG, *scripts(seed=2026, count=1_500)], tmp_path)
    assert wrong == []
    assert count > 300


def test_the_oracle_sees_commands_and_files_that_were_not_listed(tmp_path: Path) -> None:
    _, wrong = mismatches(["a > f"], tmp_path, {"a > f": "b"})
    assert [mismatch.unexpected for mismatch in wrong] == [[("a",), ("file", "f"), ("a",), ("file", "f")]]
