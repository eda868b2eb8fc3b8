"""The coding agents whose hooks Interlock knows."""

from collections.abc import Mapping

from .claude import CLAUDE
from .codex import CODEX
from .contract import AgentContract
from .cursor import CURSOR
from .gemini import GEMINI
from .opencode import OPENCODE

AGENTS: Mapping[str, AgentContract] = {
    contract.name: contract for contract in (CLAUDE, CODEX, GEMINI, OPENCODE, CURSOR)
}
