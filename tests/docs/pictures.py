"""The pictures of `docs/console.md`, made anew with a real server and a real browser:

    .venv/bin/python -m tests.docs.pictures

Look at them before they are kept.
"""

import asyncio
import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.server.console.screenshots import take

FOLDER = Path("docs/images")
#: By the name in the docs: the page of `tests.server.console.screenshots`, with its theme and size.
PICTURES: Mapping[str, tuple[str, str]] = {
    "console-login": ("login", "light"),
    "console-dashboard": ("dashboard", "light"),
    "console-agents": ("agents", "light"),
    "console-triggers": ("triggers", "light"),
    "console-runs": ("runs", "dark"),
    "console-run": ("run", "light"),
    "console-waterfall": ("run-waterfall", "light"),
    "console-events": ("run-scrubbed", "light"),
    "console-inbox": ("inbox", "dark"),
    "console-approval": ("approval", "light"),
    "console-many": ("approval-many", "light"),
    "console-confirm": ("approval-confirm", "light"),
    "console-diff": ("approval-diff", "light"),
    "console-hostile": ("approval-hostile", "light"),
    "console-phone": ("approval", "light-phone"),
    "console-policy": ("policy", "light"),
    "console-notices": ("notices", "light"),
    "console-servers": ("servers", "light"),
    "console-consents": ("consents", "light"),
    "console-audit": ("audit", "light"),
    "console-sinks": ("sinks", "dark"),
    "console-admin": ("admin", "light"),
    "console-account": ("account", "light-phone"),
}


def make() -> None:
    with TemporaryDirectory() as folder:
        asyncio.run(take(Path(folder), frozenset(page for page, _ in PICTURES.values())))
        FOLDER.mkdir(exist_ok=True)
        for name, (page, look) in PICTURES.items():
            shutil.copyfile(Path(folder, f"{page}-{look}.png"), FOLDER / f"{name}.png")


if __name__ == "__main__":
    make()
