"""The ids of runs, and the run that `gate.run` names for frameworks that do not say which conversation a call is of."""

import re
from contextvars import ContextVar, Token
from hashlib import sha256
from types import TracebackType
from typing import TYPE_CHECKING
from urllib.parse import quote

from ..domain.errors import ConfigurationError
from ..domain.ids import MAX_NAME_CHARS

if TYPE_CHECKING:
    from .gate import Gate

#: What needs no quotes in a shell, and no escape in an address.
_USABLE_ID = re.compile(r"[A-Za-z0-9:@._~%-]{1,128}")
_NAMED: ContextVar["NamedRun | None"] = ContextVar("interlock_gate_run", default=None)


class NamedRun:
    """The run that calls belong to, between `with gate.run(...)` and its end."""

    def __init__(self, gate: "Gate", run_id: str) -> None:
        self.gate = gate
        self.run_id = clean_run_id(run_id)
        #: How often each call of a function was made: the n-th is the same one when the program runs again.
        self.counts: dict[str, int] = {}
        self._token: Token[NamedRun | None] | None = None

    def __enter__(self) -> "NamedRun":
        self._token = _NAMED.set(self)
        self.gate.named_runs.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        self.gate.release_sync(self.run_id)

    async def __aenter__(self) -> "NamedRun":
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        await self.gate.release(self.run_id)

    def _end(self) -> None:
        if self._token is not None:
            _NAMED.reset(self._token)
            self.gate.named_runs.remove(self)


def find_named_run(open_runs: list[NamedRun]) -> NamedRun | None:
    """Return the one of these runs that the current code is in. A thread of a framework does not see the context that
    it was started in: there it is the only one.
    """
    named = _NAMED.get()
    if named in open_runs:
        return named
    return open_runs[0] if len(open_runs) == 1 else None


def clean_run_id(run_id: str) -> str:
    """Return the id as one that commands and addresses take. One that can be used is returned as it is."""
    if _USABLE_ID.fullmatch(run_id):
        return run_id
    if not run_id:
        raise ConfigurationError("The run id is empty. Nothing was executed.")
    readable = re.sub(r"[^A-Za-z0-9:@._%-]+", "-", run_id)[: MAX_NAME_CHARS // 4]
    return f"{readable}~{sha256(run_id.encode(errors='backslashreplace')).hexdigest()[:16]}"


def join_run_id(*parts: str) -> str:
    """Return a run id of parts that the framework knows, such as user and session. Other parts give another id."""
    # A dot begins the id of a run inside a call, and a tilde the digest of a long id.
    return ":".join(quote(part, safe="@").replace(".", "%2E").replace("~", "%7E") for part in parts)
