"""The log in memory passes the conformance suite."""

import pytest

from interlock.storage.memory import MemoryLog
from interlock.testing.conformance import EventLogConformance


@pytest.mark.requirement("R138")
class TestMemoryLog(EventLogConformance):
    @pytest.fixture
    def log(self) -> MemoryLog:
        return MemoryLog()
