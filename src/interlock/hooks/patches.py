"""The files that a patch of the `apply_patch` format names."""

import re

import msgspec

_MAX_FILES = 1_000
#: The program that applies it takes these with spaces before them, too.
_HEADER = re.compile(r"[ \t]*\*\*\* (Add File|Update File|Delete File|Move to): (.+?)[ \t\r]*")
_BEGIN = re.compile(r"[ \t]*\*\*\* Begin Patch[ \t\r]*$", re.MULTILINE)


class PatchedFiles(msgspec.Struct, frozen=True):
    """The files of a patch, in its order."""

    paths: tuple[str, ...]
    #: True when it only makes new files.
    only_new: bool


def find_patched_files(text: str) -> PatchedFiles | None:
    """Return the files that a patch names. None: it is no patch, or not all of its files can be known."""
    if _BEGIN.search(text) is None:
        return None
    paths: dict[str, None] = {}
    kinds: set[str] = set()
    for line in text.split("\n"):
        if "***" not in line or line.lstrip(" \t").startswith(("+", "-")):
            continue
        header = _HEADER.fullmatch(line)
        if header is not None:
            kinds.add(header[1])
            paths[header[2]] = None
        elif re.match(r"[ \t]*\*\*\* (?!Begin Patch|End Patch|End of File|Environment ID:)", line):
            return None  # a header that is not known
    if not paths or len(paths) > _MAX_FILES:
        return None
    return PatchedFiles(tuple(paths), kinds == {"Add File"})
