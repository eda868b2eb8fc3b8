"""The figures of `docs/architecture.md` can be counted again."""

import pytest

from scripts.walk import WALKS, main


async def test_every_walk_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    await main(show_steps=False)

    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == list(WALKS)
    assert all("changes of file" in line for line in lines)
