"""Write the golden logs again: `python -m tests.golden.record [NAME ...]`, then look at the diff.

A name is that of a scene, such as `approvals`, `demo` or `example.chat`; without names all are recorded. Name the
scenes that were meant to change, so that the other logs stay those of earlier code. Where calls run in threads (`demo`,
`killed`, `example.agent`), their order differs from one recording to the next.
"""

import asyncio
import json
import socket
import sys
from pathlib import Path

from interlock import to_ndjson

from .host_scenes import HOST_SCENES, workspace
from .reading import LOGS, Runs, neutralize, summarize
from .scenes import SCENES


def main(names: list[str]) -> None:
    for scene in SCENES:
        if not names or scene.__name__ in names:
            write(neutralize(asyncio.run(scene())))
    for name, host_scene in HOST_SCENES.items():
        if not names or name in names:
            with workspace() as folder:
                write(neutralize(host_scene(folder), folder))


def write(runs: Runs) -> None:
    for name, entries in runs.items():
        exported = b"".join(to_ndjson(entries))
        for word in (socket.gethostname(), str(Path.home())):
            assert word.encode() not in exported, f"{name} names this host: {word}"
        (LOGS / f"{name}.ndjson").write_bytes(exported)
        text = json.dumps(summarize(entries), indent=1, ensure_ascii=False)
        (LOGS / f"{name}.json").write_text(text + "\n")
        print(f"{name}: {len(entries)} events")


if __name__ == "__main__":
    main(sys.argv[1:])
