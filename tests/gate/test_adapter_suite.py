"""The suite for adapters, with the smallest loop that can pass it."""

import pytest

from interlock.testing.adapters import AdapterConformance, AdapterHarness
from tests.gate.plain_loop import HARNESS


class TestPlainLoop(AdapterConformance):
    @pytest.fixture
    def harness(self) -> AdapterHarness:
        return HARNESS
