"""What tests of forwarders share: a log with runs of agents, a schema that is easy to read, and receivers by table."""

from collections.abc import Iterable

from interlock.domain.event import SCHEMA_VERSION, Event, LogEntry, RunStarted, WarningRaised, encode_event
from interlock.server.core.audit_sinks.destination import WebhookDestination
from interlock.server.core.audit_sinks.senders import EventBatch, SendOutcome, SendSuccess
from interlock.storage.event_log import EventLog
from tests.storage.runs import append, chain

SECRET = "a-secret-of-some-length"
ENVIRON = {"SECRET": SECRET}
AT = 1_700_000_000_000_000_000


def render(entry: LogEntry, event: Event, agent: str = "") -> bytes:
    return f"{entry.run_id} {entry.seq}".encode()


async def add_run(log: EventLog, run_id: str, count: int, agent: str = "billing") -> list[bytes]:
    """Append a run of so many events. What a destination should get of it."""
    facts = [RunStarted(schema=SCHEMA_VERSION, agent=agent), *(WarningRaised(message="x") for _ in range(count - 1))]
    events = (
        Event(seq=seq, run_id=run_id, at=AT + seq, correlation_id=run_id, causation_id=None, fact=fact)
        for seq, fact in enumerate(facts)
    )
    entries = chain(run_id, (encode_event(event) for event in events))
    await append(log, run_id, entries)
    return [f"{run_id} {seq}".encode() for seq in range(count)]


def webhook(port: int, name: str = "siem", agents: Iterable[str] | None = None) -> WebhookDestination:
    return WebhookDestination(
        name=name,
        url=f"http://127.0.0.1:{port}/",
        secret_env="SECRET",
        allow_plain=True,
        allow_private=True,
        agents=None if agents is None else frozenset(agents),
    )


class Told:
    """A sender that says what it was told to say, then that all was sent."""

    def __init__(self, *outcomes: SendOutcome) -> None:
        self.outcomes = list(outcomes)
        self.batches: list[EventBatch] = []
        #: The lines of those that it said were sent.
        self.taken: list[bytes] = []

    @property
    def lines(self) -> list[bytes]:
        return [item.line for batch in self.batches for item in batch.items]

    async def send(self, batch: EventBatch) -> SendOutcome:
        self.batches.append(batch)
        outcome = self.says(batch)
        if isinstance(outcome, SendSuccess):
            self.taken += [item.line for item in batch.items]
        return outcome

    def says(self, batch: EventBatch) -> SendOutcome:
        return self.outcomes.pop(0) if self.outcomes else SendSuccess()

    async def close(self) -> None:
        pass


class Unwilling(Told):
    """Takes batches without these lines."""

    def __init__(self, unwanted: Iterable[bytes], refusal: SendOutcome) -> None:
        super().__init__()
        self._unwanted = set(unwanted)
        self._refusal = refusal

    def says(self, batch: EventBatch) -> SendOutcome:
        return self._refusal if self._unwanted.intersection(item.line for item in batch.items) else SendSuccess()

    def relent(self) -> None:
        self._unwanted.clear()
