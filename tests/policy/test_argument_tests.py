"""Tests of arguments in rules that are written in code."""

import pytest

from interlock import Rule, RulePolicy
from interlock.errors import ConfigurationError


def test_a_plain_value_is_no_test_of_an_argument() -> None:
    with pytest.raises(ConfigurationError, match=r"Rule 'new': a test of an argument is ArgumentIs, .* not 'new'"):
        RulePolicy([Rule(id="new", verdict="deny", arguments={"text": "new"})])  # pyright: ignore[reportArgumentType] - that is the mistake
