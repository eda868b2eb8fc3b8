"""Where a path leads: as it is written and as the file system resolves it, from every folder that it may start in.

A rule that refuses holds when any of these places matches; a rule that allows needs all of them. This is judgement
before the call, and files may move after it: what a tool can really reach is the sandbox's business.
"""

import re
from collections.abc import Callable, Iterable
from copy import copy
from os.path import expanduser, join, normpath, realpath

import msgspec

from ...domain.resources import place_in
from ..shell.wildcards import Looks, expand

_MAX_GLOBBED = 1_000
#: For one decision: each folder that a path may start in counts.
_MAX_RESOLVED = 5_000
#: No file system takes longer ones.
_MAX_PATH_CHARS = 4_096
#: What stands here is another thing for every process: `/proc/self/cwd/secrets`.
_DEPENDS_ON_WHO_LOOKS = re.compile(r"/{1,2}(?:proc(?!/[^/]+/root(?:/|$))|dev/fd|dev/std(?:in|out|err))(?:/|$)")


class Place(msgspec.Struct, frozen=True):
    """One place that a path may lead to."""

    absolute: str
    #: From the workspace on; None outside of it.
    relative: str | None

    @property
    def texts(self) -> tuple[str, ...]:
        """What patterns are matched against."""
        return ("a:" + self.absolute,) if self.relative is None else ("a:" + self.absolute, "r:" + self.relative)


class Touched(msgspec.Struct, frozen=True):
    """A path that a call names."""

    given: str
    writes: bool
    #: Empty when it cannot be known where it leads.
    places: tuple[Place, ...]

    @property
    def inside(self) -> bool:
        """Does it stay in the workspace, wherever it starts?"""
        return bool(self.places) and all(place.relative is not None for place in self.places)


class Workspace:
    """The folder that relative paths start in. Its own links are resolved once.

    What one decision may look at is bounded, and looked at once: see `for_one_decision`.
    """

    def __init__(self, root: str) -> None:
        self.root = normpath(root)
        self._roots = tuple(dict.fromkeys((self.root, realpath(self.root))))
        self._looks: Looks | None = None
        self._known: dict[str, tuple[Place, ...]] | None = None
        self._resolve: Callable[[str], str] = realpath

    def for_one_decision(self, resolve: Callable[[str], str] = realpath) -> "Workspace":
        """The same folder with its own budget. Beyond it nothing is known of any further path. `resolve` gives the real
        path of an absolute one."""
        fresh = copy(self)
        fresh._looks, fresh._known, fresh._resolve = Looks(), {}, resolve
        return fresh

    def touched(self, given: str, *, writes: bool, bases: Iterable[str] = ("",)) -> Touched:
        return Touched(given, writes, self._places(given, bases))

    def named(self, given: str, *, writes: bool, bases: tuple[str, ...], is_glob: bool) -> list[Touched]:
        """The path, and with a glob also those that a shell makes of it."""
        found: list[Touched] = [self.touched(given, writes=writes, bases=bases)]
        if not is_glob or not found[0].places:
            return found
        looks = self._looks or Looks()
        for base in bases:
            names = expand(given, join(self.root, base), looks)
            if names is None or len(names) > _MAX_GLOBBED:
                return [Touched(given, writes, ())]
            found += [self.touched(name, writes=writes) for name in names]
        return found

    def inside(self, given: str, bases: tuple[str, ...], *, is_glob: bool = False) -> bool:
        return all(path.inside for path in self.named(given, writes=False, bases=bases, is_glob=is_glob))

    def _places(self, given: str, bases: Iterable[str]) -> tuple[Place, ...]:
        try:
            starts = [given, expanduser(given)] if given.startswith("~") else [given]
            return tuple(
                dict.fromkeys(
                    place for start in starts for base in bases for place in self._both(join(self.root, base, start))
                )
            )
        except (OSError, ValueError):
            return ()

    def _both(self, path: str) -> tuple[Place, ...]:
        """As it is written and as it is resolved. A path that stands in many words is resolved once for a decision."""
        if self._known is None:
            return self._resolved(path)
        if path not in self._known:
            if len(self._known) >= _MAX_RESOLVED:
                raise ValueError("too many paths were looked at")
            self._known[path] = self._resolved(path)
        return self._known[path]

    def _resolved(self, path: str) -> tuple[Place, ...]:
        if len(path) > _MAX_PATH_CHARS or "\0" in path or _DEPENDS_ON_WHO_LOOKS.match(lexical := normpath(path)):
            raise ValueError("it cannot be known where this leads")
        return self._place(lexical), self._place(self._resolve(path))

    def _place(self, absolute: str) -> Place:
        if absolute.startswith("//"):
            absolute = absolute[1:]
        return Place(absolute, place_in(absolute, self._roots))
