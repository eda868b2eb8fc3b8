"""Write the golden logs again: `python -m tests.golden.record [NAME ...]`, then look at the diff.

A name is that of a scene, such as `approvals`, `demo` or an example; without names all are recorded.
"""

import asyncio
import json
import sys

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
        (LOGS / f"{name}.ndjson").write_bytes(b"".join(to_ndjson(entries)))
        text = json.dumps(summarize(entries), indent=1, ensure_ascii=False)
        (LOGS / f"{name}.json").write_text(text + "\n")
        print(f"{name}: {len(entries)} events")


if __name__ == "__main__":
    main(sys.argv[1:])
