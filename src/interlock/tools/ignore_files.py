"""A file that ripgrep takes for a list of what to ignore, and that is none.

ripgrep opens such a file wherever it finds its name. At a pipe it waits for ever, a device it reads without end, and an
enormous list takes all its memory. A command can leave one in the workspace, so it is looked for when a search does not
end as searches do.
"""

import os
import stat
from time import monotonic

#: Lists of what to ignore, and what leads to one of a repository.
_NAMES = frozenset({".gitignore", ".ignore", ".rgignore", "exclude", "commondir"})
#: Larger than any that a person writes.
_MAX_BYTES = 1 << 20
_SECONDS = 5.0


def find_odd(root: str) -> str:
    """The path of one, by its names alone: nothing is opened. Empty when there is none, or none was found in time."""
    deadline = monotonic() + _SECONDS
    for folder, _, names in os.walk(root):
        for name in sorted(_NAMES.intersection(names)):
            if is_odd(path := os.path.join(folder, name)):
                return path
        if monotonic() > deadline:
            break
    return ""


def is_odd(path: str) -> bool:
    try:
        # Through links, as ripgrep would go.
        found = os.stat(path)
    except OSError:
        return False
    return not stat.S_ISREG(found.st_mode) or found.st_size > _MAX_BYTES
