"""The conformance suite for adapters of `Gate`: the same twenty promises, with any framework.

Implement `AdapterHarness` for the framework, and subclass the suite:

    class TestMyAdapter(AdapterConformance):
        @pytest.fixture
        def harness(self) -> AdapterHarness:
            return MyHarness()
"""

from ...domain.errors import ConfigurationError

try:
    import pytest
    import pytest_asyncio  # noqa: F401  # pyright: ignore[reportUnusedImport] - the asynchronous tests need it
except ImportError as missing:
    raise ConfigurationError(
        "The conformance suite needs pytest and pytest-asyncio: pip install 'interlock[gate,testing]'"
    ) from missing

# Before it is imported: pytest shows values in failed assertions only of modules that it knows beforehand.
pytest.register_assert_rewrite(f"{__name__}.suite")

from .harness import DONE, THREAD, AdapterHarness, SampleTools, Script, ScriptedCall, Turn  # noqa: E402
from .suite import AdapterConformance  # noqa: E402

__all__ = ["DONE", "THREAD", "AdapterConformance", "AdapterHarness", "SampleTools", "Script", "ScriptedCall", "Turn"]
