"""A store of artifacts may wait: no run calls it in the event loop, and what is known is not stored again."""

import asyncio
from collections.abc import Iterable

from interlock import Attachment, MemoryArtifacts, NormalizedOutput, Runner, tool
from interlock.pipeline.artifacts import KnownArtifacts
from tests.runs.support import agent_of, calls

SECRET = "abc-" * 3


class WaitingArtifacts(MemoryArtifacts):
    """A store that has to wait, as for a database."""

    immediate = False

    def __init__(self) -> None:
        super().__init__()
        self.stored: list[str] = []

    def keep(self, content: bytes) -> str:
        check_thread()
        self.stored.append(super().keep(content))
        return self.stored[-1]

    def keep_stream(self, chunks: Iterable[bytes]) -> str:
        check_thread()
        return super().keep_stream(chunks)

    def read(self, artifact_id: str, start: int = 0, size_bytes: int | None = None) -> bytes:
        check_thread()
        return super().read(artifact_id, start, size_bytes)

    def size_bytes(self, artifact_id: str) -> int:
        check_thread()
        return super().size_bytes(artifact_id)

    def path(self, artifact_id: str) -> str:
        check_thread()
        return super().path(artifact_id)


def check_thread() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise AssertionError("the event loop waits for the store")


@tool(risk="read", max_output_chars=200)
async def grow(text: str) -> str:
    """Return a text that its redaction makes too long to be shown."""
    return SECRET * (200 // len(SECRET))


@tool(risk="read", normalize=lambda value: NormalizedOutput(text="short", facts={"all": "x" * (1 << 20)}))
async def measure() -> str:
    """Return facts that are too large for an event."""
    return ""


@tool(risk="read")
async def see() -> list[object]:
    """Return a long text and a file."""
    return ["y" * 40_000, Attachment(b"text")]


async def test_no_run_waits_for_the_store_in_the_event_loop() -> None:
    turns = [
        calls(("c1", "grow", {"text": "z" * 10_000}), ("c2", "measure", {}), ("c3", "see", {})),
        calls(("c4", "read_artifact", {"artifact_id": "sha256:" + "0" * 64})),
    ]
    agent = agent_of(*turns, "Done.", tools=[grow, measure, see], instructions="Be brief.")
    store = WaitingArtifacts()

    async with Runner(agent, artifacts=store, secrets={"a-very-long-name-of-a-secret": SECRET}) as runner:
        result = await runner.run(["Look.", Attachment(b"more text")])

    assert result.status == "COMPLETED", result
    assert len(store.stored) >= 7  # catalog, instructions, attachment, arguments, output, facts, text and file


async def test_a_second_run_stores_neither_catalog_nor_instructions() -> None:
    agent, store = agent_of("Done.", "Done.", tools=[see], instructions="Be brief."), WaitingArtifacts()

    async with Runner(agent, artifacts=store) as runner:
        first, second = [await runner.run("Go.") for _ in range(2)]
        events = [await runner.log.read(result.run_id) for result in (first, second)]

    assert len(store.stored) == 2
    assert all(any(kept.encode() in entry.body for entry in run) for kept in store.stored for run in events)


def test_a_known_text_is_stored_again_after_some_minutes() -> None:
    now = 0.0
    known = KnownArtifacts(lambda: now)
    known.add("catalog", "sha256:1")

    now = 599.0
    assert known.find("catalog") == "sha256:1"
    now = 600.0
    assert known.find("catalog") == ""


async def test_a_lost_output_is_said() -> None:
    """Also where only redaction made it too long."""

    class Full(WaitingArtifacts):
        def keep(self, content: bytes) -> str:
            if b"redacted" in content:
                raise OSError("the disk is full")
            return super().keep(content)

    agent = agent_of(calls(("c1", "grow", {"text": ""})), "Done.", tools=[grow])
    async with Runner(agent, artifacts=Full(), secrets={"a-very-long-name-of-a-secret": SECRET}) as runner:
        result = await runner.run("Go.")

    [observation] = result.observations
    assert observation.failure is not None
    assert observation.failure.code == "artifact_lost"
