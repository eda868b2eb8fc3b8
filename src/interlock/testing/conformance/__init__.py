"""Conformance suites: the tests that every implementation of an interface must pass.

Subclass a suite and define its fixture:

    class TestMyLog(EventLogConformance):
        @pytest.fixture
        def log(self) -> EventLog:
            return MyLog()
"""

from ...domain.errors import ConfigurationError

try:
    import pytest
    import pytest_asyncio  # noqa: F401  # pyright: ignore[reportUnusedImport] - the asynchronous tests need it
except ImportError as missing:
    raise ConfigurationError(
        "The conformance suites need pytest and pytest-asyncio: pip install 'interlock[testing]'"
    ) from missing

_SUITES = (
    "artifacts",
    "budgets",
    "effects",
    "event_log",
    "interaction",
    "leases",
    "leasing_appends",
    "policy",
    "sandbox",
)
# Before they are imported: pytest shows values in failed assertions only of modules that it knows beforehand.
pytest.register_assert_rewrite(*(f"{__name__}.{suite}" for suite in _SUITES))

from .artifacts import ArtifactStoreConformance  # noqa: E402
from .budgets import BudgetLedgerConformance, DurableBudgetLedgerConformance  # noqa: E402
from .event_log import DurableEventLogConformance, EventLogConformance  # noqa: E402
from .interaction import InteractionProviderConformance  # noqa: E402
from .leasing_appends import LeasingAppendConformance  # noqa: E402
from .policy import PolicyConformance  # noqa: E402
from .sandbox import CommandSandboxConformance  # noqa: E402

__all__ = [
    "ArtifactStoreConformance",
    "BudgetLedgerConformance",
    "CommandSandboxConformance",
    "DurableBudgetLedgerConformance",
    "DurableEventLogConformance",
    "EventLogConformance",
    "InteractionProviderConformance",
    "LeasingAppendConformance",
    "PolicyConformance",
]
