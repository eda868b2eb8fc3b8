"""Somebody who swaps a folder for a link to another one all the time, while calls are judged and tools open files.

In the workspace, `a` is by turns a folder and a link to `private`, about which a rule asks, and nobody says yes.
"""

from itertools import count, cycle
from pathlib import Path
from time import monotonic

import msgspec

from interlock import LocalTools, Rule, RulePolicy, ToolRuntime
from tests.support import call

from .race import CANARY, Race, moving

_CALLS: tuple[tuple[str, dict[str, object]], ...] = (
    ("read_file", {"path": "a/f", "again": True}),
    ("list_dir", {"path": "a"}),
    ("write_file", {"path": "a/made/new", "content": "written"}),
)


async def judged_race(folder: Path, seconds: float) -> Race:
    """Read, list and write in turn, each as a call of its own, until the time is over."""
    root = folder / "ws"
    for place, content in (("a", "inside"), ("private", CANARY)):
        (root / place).mkdir(parents=True)
        (root / place / "f").write_text(content)
    (root / "private/only outside").touch()
    (root / "trash").mkdir()
    (root / "f").touch()
    (root / "a.link").symlink_to("private")
    (root / "f.link").symlink_to("private/f")
    policy = RulePolicy([Rule(id="private", verdict="ask", path="private/**")])
    found = Race()
    with moving(root, root / "private", found):
        async with ToolRuntime(tools=LocalTools(root), policy=policy, mode="trusted") as runtime:
            end, ids = monotonic() + seconds, count()
            for name, arguments in cycle(_CALLS):
                if monotonic() > end:
                    break
                [observed] = (await runtime.execute([call(f"c{next(ids)}", name, **arguments)])).observations
                found.met[name, observed.code] += 1
                shown = msgspec.json.encode(observed).decode()
                if CANARY in shown or "only outside" in shown:
                    found.wrong.append(f"{name}: {shown}")
    if sorted(path.name for path in (root / "private").iterdir()) != ["f", "only outside"]:
        found.wrong.append("something was written where nobody said yes")
    return found
