"""Rules that deny a path to every tool, as what a sandbox must hide or hold read-only."""

from collections.abc import Sequence

import pytest

from interlock import Rule, RulePolicy, find_masks
from interlock.policy.analysis.masks import MaskMatcher


def masked(*rules: Rule) -> MaskMatcher:
    return MaskMatcher(find_masks(RulePolicy(rules)), "/work")


def deny(path: str | Sequence[str], **more: str) -> Rule:
    return Rule(id=f"deny {path}", verdict="deny", tools="*", path=path, **more)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("path", ["secrets", "secrets/a", "secrets/a/b", "SECRETS/a"])
def test_a_denied_folder_is_hidden_with_all_that_is_in_it_in_any_case(path: str) -> None:
    assert masked(deny("secrets/")).is_hidden(path)


def test_a_name_is_hidden_at_any_depth_and_others_are_not() -> None:
    found = masked(deny("*.pem"))

    assert found.is_hidden("a.pem")
    assert found.is_hidden("deep/down/a.pem")
    assert not found.is_hidden("a.pem.txt")


def test_an_absolute_path_of_the_workspace_is_hidden() -> None:
    assert masked(deny("/work/a.txt")).is_hidden("a.txt")
    assert not masked(deny("/other/a.txt")).is_hidden("a.txt")


def test_a_deny_of_writing_holds_read_only_and_hides_nothing() -> None:
    found = masked(deny("ci", access="write"))

    assert found.is_read_only("ci/deploy.yml")
    assert not found.is_hidden("ci/deploy.yml")


def test_a_rule_about_one_tool_masks_nothing() -> None:
    found = masked(Rule(id="r", verdict="deny", tools="read_file", path="a"))

    assert not found.is_hidden("a")
    assert not found.is_read_only("a")
