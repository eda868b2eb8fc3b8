"""A change set for a person: what happened to each file, and the diffs of text files."""

from collections.abc import Callable
from typing import NamedTuple

from ...changes.change_set import Change, ChangeSet, FileState
from ...domain.trial import ChangeKind, TriedChange
from ...rendering.diff import make_unified_diff
from .baseline import display_path
from .text_file import TextFile, decode_content

_NEWLINE = "\n"
MAX_CHANGES_LISTED = 100
MAX_DIFF_CHARS = 12_000
#: Larger files are only named: their diffs would be too long for a question.
_MAX_DIFFED_BYTES = 256 * 1024


class ChangeSummary(NamedTuple):
    """The changes that are listed, how many there are, and the diffs as one text."""

    changes: tuple[TriedChange, ...]
    change_count: int
    diff: str
    is_diff_cut: bool


def summarize_changes(changed: ChangeSet, read_content: Callable[[str], bytes]) -> ChangeSummary:
    """Describe the changes. Folders that only hold other changes are left out.

    Args:
        changed: The change set.
        read_content: Returns the content of a digest. `OSError` when it is gone.
    """
    above = {path[:at] for path in (one.path for one in changed.changes) for at in _slashes(path)}
    shown = [one for one in changed.changes if not (one.path in above and _is_folder_only(one))]
    listed: list[TriedChange] = []
    diffs: list[str] = []
    room, is_cut = MAX_DIFF_CHARS, False
    for change in shown[:MAX_CHANGES_LISTED]:
        detail, diff = _describe(change, read_content)
        listed.append(TriedChange(display_path(change.path), _find_kind(change), detail))
        is_cut = is_cut or len(diff) > room
        diffs.append(diff[: max(0, room)])
        room -= len(diff)
    is_cut = is_cut or len(shown) > MAX_CHANGES_LISTED
    listed += [
        TriedChange(display_path(one.path), "skipped", one.reason) for one in changed.skipped[:MAX_CHANGES_LISTED]
    ]
    return ChangeSummary(tuple(listed), len(shown), "".join(diffs).removesuffix(_NEWLINE), is_cut)


def _slashes(path: str) -> list[int]:
    return [at for at, letter in enumerate(path) if letter == "/"]


def _is_folder_only(change: Change) -> bool:
    return {change.before.kind, change.after.kind} <= {"folder", "absent"}


def _find_kind(change: Change) -> ChangeKind:
    before, after = change.before, change.after
    if before.kind == "absent":
        return "created"
    if after.kind == "absent":
        return "deleted"
    is_same = (before.kind, before.digest, before.target) == (after.kind, after.digest, after.target)
    return "mode" if is_same else "modified"


def _describe(change: Change, read_content: Callable[[str], bytes]) -> tuple[str, str]:
    """Return the detail of a change, and its diff; empty where there is none."""
    before, after = change.before, change.after
    details: list[str] = []
    diff = ""
    if after.kind == "link":
        details.append(f"link to {display_path(after.target)}")
    elif after.kind == "folder" or (after.kind == "absent" and before.kind == "folder"):
        details.append("folder")
    elif before.digest != after.digest or before.kind != after.kind:
        texts = [_read_text(state, read_content) for state in (before, after)]
        if any(text is None for text in texts):
            details.append(f"{(after if after.kind == 'file' else before).size:,} bytes")
        else:
            old, new = (text or "" for text in texts)
            made = make_unified_diff(None if before.kind == "absent" else old, new, display_path(change.path))
            details.append(made.counts)
            # Without the two lines of names, which say the same as the first.
            diff = f"diff {display_path(change.path)}\n{made.text.split(_NEWLINE, 2)[2]}"
    if before.kind not in ("absent", "link") and after.kind not in ("absent", "link") and before.mode != after.mode:
        details.append(f"mode {before.mode:04o} -> {after.mode:04o}")
    elif before.kind == "absent" and after.kind == "file" and after.mode & 0o111:
        details.append("executable")
    if before.kind not in ("absent", after.kind) and after.kind != "absent":
        details.append(f"was a {before.kind}")
    return ", ".join(details), diff


def _read_text(state: FileState, read_content: Callable[[str], bytes]) -> str | None:
    """Return the text of a file, an empty one for what is no file; None when it is no text, too large or gone."""
    if state.kind != "file":
        return ""
    if not state.digest or state.size > _MAX_DIFFED_BYTES:
        return None
    try:
        decoded = decode_content(read_content(state.digest))
    except OSError:
        return None
    return decoded.display_text if isinstance(decoded, TextFile) else None
