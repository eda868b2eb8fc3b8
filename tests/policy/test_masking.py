"""Rules that deny a path to every tool, as what a sandbox must hide or hold read-only."""

from collections.abc import Sequence

import pytest

from interlock import Rule, RulePolicy, masks
from interlock.policy.engine.masking import Masked


def masked(*rules: Rule) -> Masked:
    return Masked(masks(RulePolicy(rules)), "/work")


def deny(path: str | Sequence[str], **more: str) -> Rule:
    return Rule(id=f"deny {path}", verdict="deny", tools="*", path=path, **more)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("path", ["secrets", "secrets/a", "secrets/a/b", "SECRETS/a"])
def test_a_denied_folder_is_hidden_with_all_that_is_in_it_in_any_case(path: str) -> None:
    assert masked(deny("secrets/")).hides(path)


def test_a_name_is_hidden_at_any_depth_and_others_are_not() -> None:
    found = masked(deny("*.pem"))

    assert found.hides("a.pem")
    assert found.hides("deep/down/a.pem")
    assert not found.hides("a.pem.txt")


def test_an_absolute_path_of_the_workspace_is_hidden() -> None:
    assert masked(deny("/work/a.txt")).hides("a.txt")
    assert not masked(deny("/other/a.txt")).hides("a.txt")


def test_a_deny_of_writing_holds_read_only_and_hides_nothing() -> None:
    found = masked(deny("ci", access="write"))

    assert found.freezes("ci/deploy.yml")
    assert not found.hides("ci/deploy.yml")


def test_a_rule_about_one_tool_masks_nothing() -> None:
    assert masked(Rule(id="r", verdict="deny", tools="read_file", path="a")).empty
