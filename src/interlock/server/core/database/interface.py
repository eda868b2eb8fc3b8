"""The server's database beside the log: accounts, keys, sessions, tokens, positions, signatures.

Its users write one set of statements, which both implementations understand: `?` for a parameter, `ON CONFLICT`, no
boolean columns, `CAST(x AS BLOB)` for bytes. A change is one transaction, and one change happens at a time, also where
several servers share the database. Callers get `StorageError` when the database cannot be used now; it says whether
anything was changed.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

T = TypeVar("T")

Row: TypeAlias = tuple[Any, ...]

UNCHANGED = "Nothing was changed. Try again."
UNCERTAIN = "It is not known whether the change was made: look before you try again."
#: `details["changed"]` of an error.
CHANGED = {UNCHANGED: "no", UNCERTAIN: "unknown"}


class Rows(Protocol):
    """The result of a statement."""

    @property
    def rowcount(self) -> int:
        """How many rows were changed."""
        ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """A connection inside of a transaction."""

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Rows: ...

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> object: ...


class LeaderLock(Protocol):
    """A lock that one server has at a time. Its methods block."""

    def hold(self) -> bool:
        """Acquire the lock, or make sure that this server still has it."""
        ...

    def release(self) -> None:
        """Let another server have it."""
        ...


class Database(Protocol):
    """The database of one or several servers."""

    @property
    def is_shared(self) -> bool:
        """True if servers on other hosts may use it."""
        ...

    @property
    def own_paths(self) -> tuple[str, ...]:
        """The paths of its files, which no tool may access."""
        ...

    async def run(self, change: Callable[[Connection], T]) -> T:
        """Run a change in one transaction, in a thread. The result is durable. When it raises, nothing was changed,
        unless a `StorageError` says that it is not known.
        """
        ...

    async def read(self, query: Callable[[Connection], T]) -> T:
        """Run a query in a thread, on one state of the database. It waits for no writer."""
        ...

    async def look_up(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Return the few rows of a statement, without a thread where that is possible without waiting."""
        ...

    async def check(self) -> str:
        """Return why the database cannot be used; empty when it can. After a failed change, try to write."""
        ...

    def run_now(self, change: Callable[[Connection], T]) -> T:
        """Run a change in this thread."""
        ...

    def read_now(self, query: Callable[[Connection], T]) -> T:
        """Run a query in this thread."""
        ...

    def create_leader_lock(self) -> LeaderLock:
        """Return the lock that the leader of all servers has."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...
