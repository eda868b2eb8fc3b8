"""Test agents and tools: fakes, fixtures for pytest, and conformance suites for your own parts.

The names here need nothing but Interlock. `interlock.testing.pytest_plugin` and `interlock.testing.conformance` need
`pip install 'interlock[testing]'`.
"""

from ..models.scripted import ScriptedFault, ScriptedModel, ScriptedTurn, tool_call
from ..storage.memory import MemoryLog
from ..storage.memory_artifacts import MemoryArtifacts
from .clock import FakeClock
from .interaction import ScriptedInteractionProvider

__all__ = [
    "FakeClock",
    "MemoryArtifacts",
    "MemoryLog",
    "ScriptedFault",
    "ScriptedInteractionProvider",
    "ScriptedModel",
    "ScriptedTurn",
    "tool_call",
]
