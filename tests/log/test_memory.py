import pytest

from interlock.storage.memory import MemoryLog

from .claim_conformance import ClaimConformance
from .conformance import LogConformance, OpenLog


class TestMemoryLog(LogConformance, ClaimConformance):
    @pytest.fixture
    def open_log(self) -> OpenLog:
        def open_(name: str = "log") -> MemoryLog:
            return MemoryLog()

        return open_
