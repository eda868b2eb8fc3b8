"""Where Chromium is: what INTERLOCK_CHROMIUM names, or what the system has."""

import os
import shutil
from pathlib import Path

VARIABLE = "INTERLOCK_CHROMIUM"
#: The first is the same engine without windows: it starts with less than half of the work.
_PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FOLDERS = ("/usr/bin", "/usr/local/bin", "/snap/bin")


def chromium() -> str | None:
    given = os.environ.get(VARIABLE)
    if given:
        return given if Path(given).is_file() else None
    path = os.pathsep.join((os.environ.get("PATH", ""), *_FOLDERS))
    return next((found for program in _PROGRAMS if (found := shutil.which(program, path=path))), None)
