"""The base class of the conformance suites."""

from inspect import iscoroutinefunction
from typing import Any

import pytest


class ConformanceSuite:
    """Mark asynchronous tests, so that the suites run in either mode of pytest-asyncio."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, member in vars(cls).items():
            if name.startswith("test_") and iscoroutinefunction(member):
                pytest.mark.asyncio(member)
