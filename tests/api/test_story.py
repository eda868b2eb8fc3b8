"""The life of a run over HTTP: begun, paused, listed, decided, resumed by itself, ended, exported."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.api.server import LOOKUP, NOTE, REFUND, RENAME, running_server, task


async def test_an_approved_run_resumes_by_itself_and_completes(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        run_id = await server.begin(NOTE)
        asked = await server.asked(run_id)
        print(asked)
