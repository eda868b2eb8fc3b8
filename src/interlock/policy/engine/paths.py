"""Where a path leads: as it is written and as the file system resolves it, from every folder that it may start in.

A rule that denies applies when any of these targets matches; a rule that allows needs all of them. This is evaluated
before the call, and files may move after it: what a tool can really access is enforced by the sandbox.
"""

import re
from collections.abc import Callable, Iterable
from copy import copy
from os.path import expanduser, join, normpath, realpath

import msgspec

from ...domain.tool import relative_to_any
from ..shell.glob_expansion import ScanBudget, expand_glob

_MAX_GLOB_MATCHES = 1_000
#: For one decision: each folder that a path may start in counts.
_MAX_RESOLVED = 5_000
#: No file system takes longer ones.
_MAX_PATH_CHARS = 4_096
#: What stands here is another thing for every process: `/proc/self/cwd/secrets`.
_PROCESS_RELATIVE_PATH = re.compile(r"/{1,2}(?:proc(?!/[^/]+/root(?:/|$))|dev/fd|dev/std(?:in|out|err))(?:/|$)")


class PathTarget(msgspec.Struct, frozen=True):
    """One location that a path may lead to."""

    absolute: str
    #: From the workspace on; None outside of it.
    relative: str | None

    @property
    def match_texts(self) -> tuple[str, ...]:
        """The texts that patterns are matched against."""
        return ("a:" + self.absolute,) if self.relative is None else ("a:" + self.absolute, "r:" + self.relative)


class PathAccess(msgspec.Struct, frozen=True):
    """A path that a call names, and whether it is written."""

    given: str
    writes: bool
    #: Empty when it cannot be known where it leads.
    targets: tuple[PathTarget, ...]

    @property
    def is_inside_workspace(self) -> bool:
        """True when it stays in the workspace, from every folder it may start in."""
        return bool(self.targets) and all(place.relative is not None for place in self.targets)


class PathResolver:
    """Resolves paths relative to one folder, whose links are resolved once.

    File system lookups of one decision are bounded and cached: see `with_budget`.
    """

    def __init__(self, root: str) -> None:
        self.root = normpath(root)
        self._roots = tuple(dict.fromkeys((self.root, realpath(self.root))))
        self._budget: ScanBudget | None = None
        self._known: dict[str, tuple[PathTarget, ...]] | None = None
        self._resolve: Callable[[str], str] = realpath

    def with_budget(self, resolve: Callable[[str], str] = realpath) -> "PathResolver":
        """Return a resolver of the same folder with its own budget. Beyond it, further paths are unknown. `resolve`
        returns the real path of an absolute one.
        """
        fresh = copy(self)
        fresh._budget, fresh._known, fresh._resolve = ScanBudget(), {}, resolve
        return fresh

    def resolve(self, given: str, *, writes: bool, bases: Iterable[str] = ("",)) -> PathAccess:
        """Resolve a path to everything it may refer to."""
        return PathAccess(given, writes, self._find_targets(given, bases))

    def resolve_word(self, given: str, *, writes: bool, bases: tuple[str, ...], is_glob: bool) -> list[PathAccess]:
        """Return the path, and for a glob also the paths that a shell expands it to."""
        found: list[PathAccess] = [self.resolve(given, writes=writes, bases=bases)]
        if not is_glob or not found[0].targets:
            return found
        budget = self._budget or ScanBudget()
        for base in bases:
            names = expand_glob(given, join(self.root, base), budget)
            if names is None or len(names) > _MAX_GLOB_MATCHES:
                return [PathAccess(given, writes, ())]
            found += [self.resolve(name, writes=writes) for name in names]
        return found

    def is_inside(self, given: str, bases: tuple[str, ...], *, is_glob: bool = False) -> bool:
        """Return True if a path stays inside the workspace from every base."""
        return all(
            path.is_inside_workspace for path in self.resolve_word(given, writes=False, bases=bases, is_glob=is_glob)
        )

    def _find_targets(self, given: str, bases: Iterable[str]) -> tuple[PathTarget, ...]:
        try:
            starts = [given, expanduser(given)] if given.startswith("~") else [given]
            return tuple(
                dict.fromkeys(
                    place
                    for start in starts
                    for base in bases
                    for place in self._cached_targets(join(self.root, base, start))
                )
            )
        except (OSError, ValueError):
            return ()

    def _cached_targets(self, path: str) -> tuple[PathTarget, ...]:
        """Resolve a path as it is written and as it leads, once for a decision."""
        if self._known is None:
            return self._resolve_targets(path)
        if path not in self._known:
            if len(self._known) >= _MAX_RESOLVED:
                raise ValueError("too many paths were looked at")
            self._known[path] = self._resolve_targets(path)
        return self._known[path]

    def _resolve_targets(self, path: str) -> tuple[PathTarget, ...]:
        if len(path) > _MAX_PATH_CHARS or "\0" in path or _PROCESS_RELATIVE_PATH.match(lexical := normpath(path)):
            raise ValueError("it cannot be known where this leads")
        return self._make_target(lexical), self._make_target(self._resolve(path))

    def _make_target(self, absolute: str) -> PathTarget:
        if absolute.startswith("//"):
            absolute = absolute[1:]
        return PathTarget(absolute, relative_to_any(absolute, self._roots))
