"""The figures of `docs/architecture.md` can be counted again."""

from scripts.walk import WALKS, measure


async def test_every_walk_is_counted_with_its_threads() -> None:
    walks = await measure(rounds=1)

    assert len(walks) >= len(WALKS)
    assert all("changes of file" in walk.figures for walk in walks)
    assert walks[0].steps[0].co_qualname == "ToolRuntime.execute"
    assert "sandbox/handlers/threads.py" in walks[0].files
