"""Parses a path of a model as a path relative to the workspace root: text only, nothing is looked up.

`..` is kept: where it leads depends on links, so only the file system can resolve it.
"""

import os
import re
from collections.abc import Iterable

from .refusals import make_refusal

_MAX_PATH_BYTES = 4_095
_MAX_NAME_BYTES = 255
_MAX_NAMES = 255
_URI = re.compile(r"file:|[a-z][a-z0-9+.-]*://", re.IGNORECASE)


def to_relative_path(path: str, roots: Iterable[str]) -> str:
    """Return the path relative to the root, "." for the root itself. An absolute one must begin with one of the root's
    names.
    """
    if problem := _find_malformation(path):
        raise make_refusal(path, "malformed", problem)
    if not path.startswith("/"):
        return path
    names = split_names(path)
    for root in roots:
        above = split_names(root)
        if names[: len(above)] == above:
            ending = "/." if path.endswith(("/", "/.")) else ""
            return ("/".join(names[len(above) :]) or ".") + ending
    raise make_refusal(path, "outside")


def split_names(path: str) -> list[str]:
    """Return the names in a path, without empty ones and `.`."""
    return [name for name in path.split("/") if name not in ("", ".")]


def split_parent(path: str, relative: str) -> tuple[str, str]:
    """Return the folder of a file and the file's name, for a file that is to be written."""
    folder, _, name = relative.rpartition("/")
    if name in ("", ".", ".."):
        raise make_refusal(path, "not_a_file", "it names a folder")
    return folder or ".", name


def _find_malformation(path: str) -> str | None:
    if not path:
        return "it is empty"
    if "\0" in path:
        return "it holds a NUL character"
    if path.startswith("~"):
        return "a home is not part of the workspace; a file whose name begins with ~ is written ./~name"
    if _URI.match(path):
        return "it is a URI"
    return _find_encoding_problem(path)


def _find_encoding_problem(path: str) -> str | None:
    # No name that takes more characters can take fewer bytes: hostile lengths are not encoded first.
    if len(path) > _MAX_PATH_BYTES:
        return "it is too long"
    try:
        path.encode("utf-8")
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        return "it holds characters that no file name can have"
    names = encoded.split(b"/")
    if len(encoded) > _MAX_PATH_BYTES or len(names) > _MAX_NAMES or max(map(len, names)) > _MAX_NAME_BYTES:
        return "it is too long"
    return None
