"""Change sets: files before and after, by kind, mode, content and attributes.

A change set is complete in itself except for contents, which are named by their SHA-256 and kept in a `ChangeStore`.
Times are restored where they are known, but are no part of what a person approves: neither of the digest, nor of the
comparison with what is found later.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import msgspec

FileKind: TypeAlias = Literal["absent", "file", "folder", "link"]
_VERSION = "interlock.change_set.v1"


class FileState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One path at one time."""

    kind: FileKind
    #: Permissions, with set-user-id, set-group-id and sticky bits; 0 for a link.
    mode: int = 0
    size: int = 0
    #: SHA-256 of the content, or of a link's target. Empty for a file: the content was not read, because it is too
    #: large or not readable; then it is compared by size and time, and cannot be restored.
    digest: str = ""
    #: Of a link.
    target: str = ""
    mtime_ns: int = 0
    #: Names that begin with `user.`, and their values as hexadecimal text.
    xattrs: dict[str, str] = {}

    def matches(self, other: "FileState") -> bool:
        """Return True if both are the same but for their times."""
        if self.kind == other.kind == "file" and not (self.digest and other.digest):
            return (self.mode, self.size, self.mtime_ns) == (other.mode, other.size, other.mtime_ns)
        return self._essence() == other._essence()

    def _essence(self) -> tuple[object, ...]:
        size = self.size if self.kind == "file" else 0
        return self.kind, self.mode, size, self.digest, self.target, tuple(sorted(self.xattrs.items()))


ABSENT = FileState(kind="absent")
#: The fact of a call's observation that names its change set.
CHANGE_SET_FACT = "change_set"


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One path, before and after."""

    #: From the workspace on; bytes that are no UTF-8 are lone surrogates, as in `os.listdir`.
    path: str
    before: FileState
    after: FileState


class SkippedFile(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a command changed and that is not part of its change set."""

    path: str
    reason: str


class MalformedChangeSetError(ValueError):
    """A change set that no command can have made."""


class ChangeSet(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was changed, sorted by path."""

    changes: tuple[Change, ...] = ()
    skipped: tuple[SkippedFile, ...] = ()

    def digest(self) -> str:
        """Return the SHA-256 of paths, kinds, modes, contents, links and attributes, before and after."""
        hashed = hashlib.sha256(f"{_VERSION}\n".encode())
        for change in self.changes:
            for word in (change.path, *_list_words(change.before), *_list_words(change.after)):
                encoded = os.fsencode(word)
                hashed.update(b"%d:" % len(encoded) + encoded)
            hashed.update(b"\n")
        return hashed.hexdigest()

    def invert(self) -> "ChangeSet":
        """Return the change set that undoes this one."""
        return ChangeSet(
            changes=tuple(Change(path=one.path, before=one.after, after=one.before) for one in self.changes)
        )

    @property
    def contents(self) -> frozenset[str]:
        """The digests of all contents, before and after."""
        states = (state for one in self.changes for state in (one.before, one.after))
        return frozenset(state.digest for state in states if state.kind == "file" and state.digest)

    def check(self) -> None:
        """Raise `MalformedChangeSetError` unless all paths are usable and the folders of all files can exist."""
        by_path = {change.path: change for change in self.changes}
        for path, change in by_path.items():
            names = path.split("/")
            if any(name in ("", ".", "..") or "\0" in name for name in names):
                raise MalformedChangeSetError(f"{path!r} is not a path inside of a workspace.")
            for count in range(1, len(names)):
                above = by_path.get("/".join(names[:count]))
                if above is not None and not (
                    _can_hold(above.before, change.before) and _can_hold(above.after, change.after)
                ):
                    raise MalformedChangeSetError(f"{path!r} would be in {above.path!r}, which is not a folder.")
        if any(one.path >= other.path for one, other in pairwise(self.changes)):
            raise MalformedChangeSetError("The paths of a change set are sorted, and each is there once.")

    def to_json(self) -> bytes:
        """Encode the change set. Paths that are no UTF-8 keep their bytes."""
        return json.dumps(msgspec.to_builtins(self), separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, text: bytes) -> "ChangeSet":
        """Decode and check a change set. Raise `MalformedChangeSetError` for anything else."""
        try:
            return cls.from_builtins(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise MalformedChangeSetError(f"This is not a change set: {error}") from error

    @classmethod
    def from_builtins(cls, value: Any) -> "ChangeSet":
        """Convert and check decoded JSON. Raise `MalformedChangeSetError` for anything but a change set."""
        try:
            found = msgspec.convert(value, cls)
        except msgspec.ValidationError as error:
            raise MalformedChangeSetError(f"This is not a change set: {error}") from error
        found.check()
        return found


def compare_states(before: Mapping[str, FileState], after: Mapping[str, FileState]) -> ChangeSet:
    """Return what makes one of the other, for the paths that both have."""
    changes = (
        Change(path=path, before=before[path], after=after[path])
        for path in sorted(before.keys() & after.keys())
        if not before[path].matches(after[path])
    )
    return ChangeSet(changes=tuple(changes))


def _list_words(state: FileState) -> Iterator[str]:
    # Without a digest, size and time are all that is known of a content.
    unread = state.kind == "file" and not state.digest
    yield from (state.kind, f"{state.mode:o}", state.digest, state.target)
    yield f"{state.size} {state.mtime_ns}" if unread else ""
    yield from (str(len(state.xattrs)), *(word for pair in sorted(state.xattrs.items()) for word in pair))


def _can_hold(folder: FileState, inner: FileState) -> bool:
    return folder.kind == "folder" or inner.kind == "absent"
