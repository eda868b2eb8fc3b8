"""Path patterns of Claude Code, said in ours.

Both follow `.gitignore`. There `//` is absolute, `~/` the home folder, one `/` the project's folder, and a pattern that
matches a folder matches all that is in it. Here `/` is absolute, a pattern with a slash in it starts at the workspace,
and only a rule that refuses or asks takes a folder for all that is in it.
"""

import re

import msgspec

_MAX_GLOB_CHARS = 1_500


class _PathPattern(msgspec.Struct, frozen=True):
    #: `/`, `~/`, or nothing for the workspace.
    start: str
    parts: list[str]
    #: Only from the start on, and not at any depth.
    anchored: bool
    is_folder: bool


def _parse_path(pattern: str) -> _PathPattern:
    start = next((start for start in ("//", "~/", "/", "./") if pattern.startswith(start)), "")
    rest = pattern.removeprefix(start)
    parts: list[str] = []
    for part in rest.split("/"):
        plain = part if set(part) == {"*"} and len(part) == len("**") else re.sub(r"\*\*+", "*", part)
        if plain not in ("", ".") and not (plain == "**" and parts[-1:] == ["**"]):
            parts.append(plain)
    return _PathPattern({"//": "/", "~/": "~/"}.get(start, ""), parts, start not in ("", "./"), rest.endswith("/"))


def widen_glob(pattern: str) -> str:
    """Return a path pattern of ours that matches at least what this one does."""
    if len(pattern) > _MAX_GLOB_CHARS:
        return "/**"
    plain = re.sub(r"\\.?|\0", "?", re.sub(r"(?<!\\)\[(?:[^/]*\])?", "*", pattern.strip()), flags=re.DOTALL)
    path = _parse_path(plain)
    if ".." in path.parts or (not path.start and plain.startswith("~")):
        at = max(index for index, part in enumerate(path.parts) if part == ".." or index == 0)
        return "/" + "/".join(["**", *path.parts[at + 1 :]])
    if not path.parts or path.parts in (["*"], ["**"]):
        return f"{path.start}**" if path.start else "**/*"
    first, *more = path.parts
    if path.anchored and not path.start and not more:
        return f"{first}/**"
    # A folder and all that is in it means that folder at any depth, when it refuses.
    if not path.anchored and more == ["**"] and first != "**":
        return f"**/{first}/**"
    return path.start + "/".join(path.parts)


def narrow_glob(pattern: str) -> str | None:
    """Return a path pattern of ours that matches nothing that this one does not."""
    if pattern != pattern.strip() or set(pattern) & set("\\[]\0") or pattern.startswith("#"):
        return None
    path = _parse_path(pattern)
    anchored = path.anchored or pattern.startswith("./")
    if ".." in path.parts or len(pattern) > _MAX_GLOB_CHARS or (pattern.startswith("~") and path.start != "~/"):
        return None
    if path.is_folder and path.parts[-1:] == ["**"]:
        return None  # Every folder, and no file beside them: we have no pattern for that.
    if path.is_folder or path.parts[-1:] == ["**"] or not path.parts:
        # What is in a folder, without the folder itself.
        inside = path.parts[:-1] if path.parts[-1:] == ["**"] else path.parts
        at_any_depth = ["**"] if len(inside) == 1 and path.is_folder and not anchored else []
        return path.start + "/".join([*at_any_depth, *inside, "**", "*"])
    if len(path.parts) == 1 and not path.start and anchored:
        return f"{path.parts[0]}/**"
    return path.start + "/".join(path.parts)
