"""What the daemon last saw, for other processes: a file beside its socket."""

from pathlib import Path

import msgspec

STATUS_NAME = "hooks.json"


class AgentStatus(msgspec.Struct):
    """What the daemon last saw of an agent. Times are nanoseconds since 1970."""

    #: The last event of any kind, and the last session that began.
    seen_at: int = 0
    started_at: int = 0
    decided_at: int = 0
    tool: str = ""
    verdict: str = ""
    reason: str = ""
    #: Why a hook could last not be answered by the policy.
    error_at: int = 0
    error: str = ""


class DaemonStatus(msgspec.Struct):
    """What `interlock hooks status` reads."""

    pid: int = 0
    started_at: int = 0
    agents: dict[str, AgentStatus] = {}


def read_status(state: Path) -> DaemonStatus:
    """Return what a daemon last wrote. Nothing: it never ran."""
    try:
        return msgspec.json.decode((state / STATUS_NAME).read_bytes(), type=DaemonStatus)
    except (OSError, msgspec.MsgspecError):
        return DaemonStatus()
