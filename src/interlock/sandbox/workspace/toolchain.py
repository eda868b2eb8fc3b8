"""The toolchain of a project: the programs that a person's shell would find there, for commands in the sandbox.

The person's own environment says where programs are: `PATH`, an active virtual environment, the roots of version
managers. What lies outside of the workspace is mounted read-only. What lies in the workspace is only put on `PATH`: a
model can write it, so it is never mounted as something that can be trusted.

Files of the workspace may choose a version among the installed ones (`.python-version`, `.tool-versions`, the `home` of
a `.venv`), and never a place. Shims are replaced by the programs that they would start, because a shim needs its
manager. Nothing is executed to find out, and every look at the file system is bounded.

Of an environment only the parts that programs consist of are mounted: people keep settings with passwords beside them,
such as `pip.conf`. Variables are taken from a short list, so no key of this process gets in. What programs write below
the home, caches of pip, npm or Go, goes to the private home of each command.
"""

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from os.path import abspath, basename, dirname, exists, expanduser, isabs, isdir, islink, join, realpath
from stat import S_ISREG, S_ISVTX, S_IWOTH
from typing import Any, NamedTuple, cast

import msgspec

from ...rendering.text import shorten
from ..host.descriptors import closing_fd
from ..host.programs import SYSTEM_PATH, is_inside
from .protected_names import is_secret

#: The word in the setting `toolchain` for what is detected.
AUTO = "auto"

_MAX_PATH_ENTRIES = 200
_MAX_VERSIONS = 5_000
_MAX_CHOICE_BYTES = 64 * 1024
_MAX_PROBLEMS = 20
_MAX_SHOWN = 200
#: A command starts slower with each mount, and a sandbox takes a limited number of them.
_MAX_FOLDERS = 100
_SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
#: What programs consist of, below their prefix.
_PREFIX_PARTS = ("bin", "sbin", "lib", "lib64", "libexec", "include", "share", "pyvenv.cfg", "Cellar", "opt")
#: Folders of installed versions, below the home. A project may choose among these.
_VERSION_FOLDERS = (
    *(".pyenv/versions", ".local/share/uv/python", ".nvm/versions/node", ".local/share/fnm/node-versions"),
    *(".fnm/node-versions", ".asdf/installs", ".local/share/mise/installs", ".volta/tools/image"),
)
#: Where installers of single programs keep what they link into `~/.local/bin`.
_LINKED_FOLDERS = (".local/share/uv/tools", ".local/share/pipx/venvs", ".local/pipx/venvs")
_STATE_FOLDERS = ("/etc/x", "/run/x", "/var/x", "/proc/x", "/sys/x", "/dev/x", "/root", "/home/x")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
_VARIABLE_VALUE = re.compile(r"[\w@%+=:,./ -]{1,1000}", re.ASCII)
#: Taken as they are, if they look harmless.
_PLAIN_VARIABLES = ("TZ", "NO_COLOR", "CI")
#: The names of tools in `.tool-versions` are the managers' own.
_MANAGER_NAMES = {"nodejs": ("nodejs", "node"), "node": ("node", "nodejs"), "go": ("go", "golang")}


class ToolchainPart(msgspec.Struct, frozen=True, kw_only=True):
    """A folder of programs on `PATH`."""

    #: Who put it there: `venv`, `pyenv`, `nvm`, ..., or `path` for any other entry of `PATH`.
    manager: str
    programs: str
    version: str = ""
    #: What is mounted read-only for it. Empty: it is visible anyway.
    folders: tuple[str, ...] = ()


class Toolchain(msgspec.Struct, frozen=True, kw_only=True):
    """The programs, folders and variables of commands in one workspace."""

    workspace: str = ""
    parts: tuple[ToolchainPart, ...] = ()
    variables: Mapping[str, str] = {}
    #: What was left out, and why.
    problems: tuple[str, ...] = ()

    @property
    def folders(self) -> tuple[str, ...]:
        """Absolute paths to mount read-only, outer ones first, each once."""
        found: dict[str, None] = {}
        for folder in sorted({folder for part in self.parts for folder in part.folders}):
            if not any(is_inside(folder, other) for other in found):
                found[folder] = None
        return tuple(found)

    @property
    def path(self) -> tuple[str, ...]:
        """The entries of `PATH`, the system's last."""
        return tuple(dict.fromkeys((*(part.programs for part in self.parts), *SYSTEM_PATH.split(":"))))

    @property
    def environment(self) -> dict[str, str]:
        """Variables for commands."""
        return {**self.variables, "PATH": ":".join(self.path)}

    def find_program(self, name: str) -> str:
        """Return the path of a program as a command would find it; empty when there is none."""
        visible = (*_SYSTEM_FOLDERS, *self.folders, *([self.workspace] if self.workspace else ()))
        for folder in self.path:
            place = join(folder, name)
            if _is_executable(place) and any(is_inside(realpath(place), each) for each in visible):
                return place
        return ""


def detect_toolchain(workspace: str, environ: Mapping[str, str], wanted: tuple[str, ...] = (AUTO,)) -> Toolchain:
    """Return the toolchain for a workspace, found once per process.

    Args:
        wanted: Folders of programs, absolute, in their order on `PATH`; `auto` stands for the detected ones.
    """
    return _detect(realpath(workspace), tuple(sorted(environ.items())), wanted)


@lru_cache(maxsize=16)
def _detect(workspace: str, environ: tuple[tuple[str, str], ...], wanted: tuple[str, ...]) -> Toolchain:
    detector = _Detector(workspace, dict(environ))
    for entry in filter(None, wanted):
        if entry == AUTO:
            detector.add_detected()
        else:
            detector.add_entry(expanduser(entry), chosen=True)
    return detector.result()


class _Prefix(NamedTuple):
    manager: str
    #: The folder with `bin` in it.
    place: str
    version: str = ""


class _Detector:
    """Collects the parts of one toolchain."""

    def __init__(self, workspace: str, environ: Mapping[str, str]) -> None:
        self._workspace = workspace
        self._environ = environ
        self._home = environ.get("HOME") or expanduser("~")
        self._parts: dict[str, ToolchainPart] = {}
        self._variables: dict[str, str] = {}
        self._problems: dict[str, None] = {}
        self._folder_count = 0
        self._pyenv = self._root("PYENV_ROOT", ".pyenv")
        self._cargo = self._root("CARGO_HOME", ".cargo")
        self._volta = self._root("VOLTA_HOME", ".volta")
        self._asdf = self._root("ASDF_DATA_DIR", ".asdf")
        self._mise = self._root("MISE_DATA_DIR", ".local/share/mise")

    def result(self) -> Toolchain:
        return Toolchain(
            workspace=self._workspace,
            parts=tuple(self._parts.values()),
            variables=dict(sorted(self._variables.items())),
            problems=tuple(self._problems)[:_MAX_PROBLEMS],
        )

    def add_detected(self) -> None:
        """Add everything that the person's shell would find, in its order."""
        for name in _PLAIN_VARIABLES:
            self._set_variable(name, self._environ.get(name, ""))
        if active := self._environ.get("VIRTUAL_ENV", ""):
            self._add_virtual_environment(active)
        # Also before they exist: a command may make them, and the next one uses them.
        self._add_workspace_environment(join(self._workspace, ".venv"))
        self._add_part("node_modules", join(self._workspace, "node_modules/.bin"))
        entries = self._environ.get("PATH", "").split(":")
        for entry in entries[:_MAX_PATH_ENTRIES]:
            if entry:
                self.add_entry(entry)
        if len(entries) > _MAX_PATH_ENTRIES:
            self._report(f"PATH has {len(entries):,} entries; only the first {_MAX_PATH_ENTRIES} were used.")
        self._add_go_modules()

    def add_entry(self, entry: str, *, chosen: bool = False) -> None:
        """Add an entry of `PATH`: as it is, or what the shims in it would start. `chosen`: a setting names it."""
        if not isabs(entry):
            self._report(f"{_shorten(entry)}: not used, because it is not an absolute path.")
            return
        place = realpath(entry)
        if not isdir(place):
            if islink(entry) or chosen:
                self._report(f"{_shorten(entry)}: not used, because it leads to no folder.")
        elif any(is_inside(place, top) for top in _SYSTEM_FOLDERS):
            self._add_part("path", abspath(entry))
        elif is_inside(place, self._workspace):
            self._add_part("path", place)
        elif not self._add_managed(abspath(entry), place):
            self._add_plain_entry(place, chosen=chosen)

    def _add_managed(self, entry: str, place: str) -> bool:
        """Add an entry that a version manager made. Return False if it is another one."""
        if is_inside(entry, self._pyenv) and not is_inside(entry, f"{self._pyenv}/versions"):
            for version in self._chosen_pyenv_versions() if basename(entry) == "shims" else ():
                self._add_prefix(_Prefix("pyenv", f"{self._pyenv}/versions/{version}", version))
        elif entry == f"{self._volta}/bin":
            self._add_volta()
        elif entry in (f"{self._asdf}/shims", f"{self._mise}/shims"):
            self._add_tool_versions(dirname(entry))
        elif entry == f"{self._cargo}/bin":
            self._add_rust(place)
        elif basename(entry) == "condabin":
            pass  # only for conda itself, which changes environments
        elif place == realpath(join(self._environ.get("CONDA_PREFIX", "") or "/", "bin")):
            prefix = self._environ["CONDA_PREFIX"]
            if self._add_prefix(_Prefix("conda", prefix, self._environ.get("CONDA_DEFAULT_ENV", ""))):
                self._set_variable("CONDA_PREFIX", prefix)
        else:
            return False
        return True

    def _add_plain_entry(self, place: str, *, chosen: bool) -> None:
        prefix = dirname(place)
        below_home = is_inside(place, realpath(self._home))
        if is_inside(place, "/nix/store"):
            self._add_part("nix", place, ("/nix/store",))
        elif any(is_inside(prefix, root) for root in self._version_roots()) and basename(place) == "bin":
            self._add_prefix(_Prefix(_guess_manager(place), prefix, _guess_version(prefix)))
        elif below_home and not chosen and not place.removeprefix(realpath(self._home)).startswith("/."):
            self._report(f"{_shorten(place)}: not used, because it is in your home. Name it in the setting toolchain.")
        elif below_home or basename(place) != "bin":
            # Not what is beside it: `~/.local/share` has more than programs.
            linked = (join(self._home, name) for name in _LINKED_FOLDERS) if place.endswith("/.local/bin") else ()
            self._add_part("path", place, (place, *filter(isdir, linked)))
        else:
            self._add_prefix(_Prefix("path", prefix))

    # Python

    def _add_virtual_environment(self, place: str) -> None:
        """Add the active environment. The person has chosen it, so its Python may be anywhere."""
        if not isabs(place) or not exists(join(place, "pyvenv.cfg")):
            self._report(f"{_shorten(place)}: not used, because this VIRTUAL_ENV has no pyvenv.cfg.")
        elif is_inside(realpath(place), self._workspace):
            self._add_workspace_environment(place)
        else:
            settings = _read_pyvenv(place)
            if self._add_prefix(_Prefix("venv", place, _version_of(settings))):
                self._set_variable("VIRTUAL_ENV", place)
                self._add_base_python(settings.get("home", ""), place)

    def _add_workspace_environment(self, place: str) -> None:
        """Add an environment of the workspace, which may choose an installed Python, and no other folder."""
        settings = _read_pyvenv(place)
        self._add_part("venv", join(place, "bin"), version=_version_of(settings))
        home = settings.get("home", "")
        if not home or any(is_inside(realpath(home), top) for top in (*_SYSTEM_FOLDERS, self._workspace)):
            return
        prefix = realpath(dirname(home))
        is_version = any(is_inside(prefix, root) and prefix != root for root in self._version_roots())
        if is_version or prefix in self._active_prefixes():
            self._add_base_python(home, place)
        else:
            self._report(
                f"{_shorten(place)}: its Python is in {_shorten(home)}, which is no folder of installed versions. "
                "If it is yours, name it in the setting toolchain."
            )

    def _add_base_python(self, home: str, environment: str) -> None:
        """Mount the Python that an environment was made from. It is not on `PATH`."""
        if not isabs(home) or any(is_inside(realpath(home), top) for top in _SYSTEM_FOLDERS):
            return
        # By both names: the environment links to the first, and Python finds its library by the second.
        for prefix in dict.fromkeys((abspath(dirname(home)), realpath(dirname(home)))):
            programs = join(environment, "bin")
            folders = self._accept_parts(prefix)
            if programs in self._parts and folders:
                part = self._parts[programs]
                self._parts[programs] = msgspec.structs.replace(part, folders=(*part.folders, *folders))

    def _chosen_pyenv_versions(self) -> list[str]:
        """Return the installed versions that pyenv would use here, as pyenv looks for them."""
        if chosen := self._environ.get("PYENV_VERSION", ""):
            wanted, source = chosen.split(":"), "PYENV_VERSION"
        else:
            found = next(self._find_upwards(".python-version"), "") or join(self._pyenv, "version")
            lines = (line.partition("#")[0].split() for line in _read_choice(found).splitlines())
            wanted, source = [word for line in lines for word in line[:1]], found
        installed = self._list_versions(join(self._pyenv, "versions"))
        versions: list[str] = []
        for name in wanted[:10]:
            if name != "system" and (version := self._pick_version(name, installed, source)):
                versions.append(version)
        return versions

    # Others

    def _add_rust(self, place: str) -> None:
        """Add rustup's programs, which choose a toolchain themselves, and the crates that were downloaded."""
        crates = filter(isdir, (join(self._cargo, name) for name in ("registry", "git")))
        rustup = self._root("RUSTUP_HOME", ".rustup")
        if not self._add_part("rustup", place, (place, *crates, *([rustup] if isdir(rustup) else ()))):
            return
        self._set_variable("CARGO_HOME", self._cargo)
        if isdir(rustup):
            self._set_variable("RUSTUP_HOME", rustup)

    def _add_go_modules(self) -> None:
        """Show the modules that were downloaded, if there is a Go."""
        modules = self._environ.get("GOMODCACHE") or join(self._root("GOPATH", "go").split(":")[0], "pkg/mod")
        go = next((part for part in self._parts.values() if _is_executable(join(part.programs, "go"))), None)
        if go is None or not isdir(modules) or is_inside(realpath(modules), self._workspace):
            return
        if folders := self._accept([modules]):
            self._parts[go.programs] = msgspec.structs.replace(go, folders=(*go.folders, *folders))
            self._set_variable("GOMODCACHE", modules)

    def _add_volta(self) -> None:
        """Add the Node that the project pins, or the default one: Volta's shims would have to write a lock file."""
        image = join(self._volta, "tools/image/node")
        package = _read_json(join(self._workspace, "package.json"))
        default = _read_json(join(self._volta, "tools/user/platform.json"))
        wanted = str(_get(package, "volta", "node") or _get(default, "node", "runtime") or "")
        if version := self._pick_version(wanted, self._list_versions(image), "Volta") if wanted else "":
            self._add_prefix(_Prefix("volta", join(image, version), version))

    def _add_tool_versions(self, root: str) -> None:
        """Add what `.tool-versions` and `mise.toml` choose of the versions that asdf or mise has installed."""
        chosen: dict[str, list[str]] = {}
        for file in (*self._find_upwards(".tool-versions"), join(self._home, ".tool-versions")):
            for line in _read_choice(file).splitlines():
                if words := line.partition("#")[0].split():
                    chosen.setdefault(words[0], words[1:])
        for file in self._find_upwards("mise.toml"):
            with suppress(tomllib.TOMLDecodeError, RecursionError):
                tools = _get(tomllib.loads(_read_choice(file)), "tools")
                named = cast(dict[str, object], tools) if isinstance(tools, dict) else {}
                for tool, version in named.items():
                    chosen.setdefault(tool, [version] if isinstance(version, str) else [])
        for tool, versions in list(chosen.items())[:50]:
            names = _MANAGER_NAMES.get(tool, (tool,)) if _VERSION.fullmatch(tool) else ()
            folder = next((place for name in names if isdir(place := join(root, "installs", name))), "")
            installed = self._list_versions(folder) if folder else {}
            for version in versions[:10]:
                if folder and version != "system" and (found := self._pick_version(version, installed, tool)):
                    self._add_prefix(_Prefix(basename(root).lstrip("."), join(folder, found), f"{tool} {found}"))

    # What they share

    def _root(self, variable: str, default: str) -> str:
        place = self._environ.get(variable, "")
        return abspath(place) if isabs(place) else join(self._home, default)

    def _version_roots(self) -> Iterator[str]:
        yield from (realpath(join(self._home, name)) for name in _VERSION_FOLDERS)
        yield realpath(join(self._pyenv, "versions"))
        yield from (realpath(join(root, "installs")) for root in (self._asdf, self._mise))
        for variable in ("UV_PYTHON_INSTALL_DIR", "CONDA_PREFIX"):
            if isabs(place := self._environ.get(variable, "")):
                yield realpath(place)
        if isabs(nvm := self._environ.get("NVM_DIR", "")):
            yield realpath(join(nvm, "versions/node"))

    def _active_prefixes(self) -> set[str]:
        """Return the prefixes whose programs the person's shell uses. The home has more than programs in it."""
        entries = self._environ.get("PATH", "").split(":")[:_MAX_PATH_ENTRIES]
        places = (dirname(realpath(entry)) for entry in entries if isabs(entry) and basename(entry) == "bin")
        conda = self._environ.get("CONDA_PREFIX", "")
        outside = {place for place in places if not is_inside(place, realpath(self._home))}
        return {*outside, realpath(conda)} if isabs(conda) else outside

    def _find_upwards(self, name: str) -> Iterator[str]:
        """Yield the files of this name in the workspace and the folders above it, nearest first."""
        folder = self._workspace
        while True:
            if exists(place := join(folder, name)):
                yield place
            if folder == "/":
                return
            folder = dirname(folder)

    def _list_versions(self, folder: str) -> dict[str, None]:
        versions: dict[str, None] = {}
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if len(versions) >= _MAX_VERSIONS:
                    self._report(f"{_shorten(folder)} has more than {_MAX_VERSIONS:,} versions; not all were seen.")
                    break
                versions[entry.name] = None
        return versions

    def _pick_version(self, wanted: str, installed: Mapping[str, None], source: str) -> str:
        """Return the installed version that a name means: itself, or the newest that it is the start of."""
        name = wanted.removeprefix("v")
        if not _VERSION.fullmatch(name):
            self._report(f"{_shorten(source)} chooses {_shorten(wanted)!r}, which is no version.")
            return ""
        for exact in (wanted, name, f"v{name}"):
            if exact in installed:
                return exact
        same = [each for each in installed if each.removeprefix("v").startswith(f"{name}.")]
        if not same:
            self._report(f"{_shorten(source)} chooses {name}, which is not installed.")
        return max(same, key=_version_key, default="")

    def _add_prefix(self, prefix: _Prefix) -> bool:
        """Add the programs of a prefix. An environment among the versions needs its Python, too."""
        place = abspath(prefix.place)
        folders = self._accept_parts(place)
        if real := realpath(place) if realpath(place) != place else "":
            if not any(is_inside(real, root) for root in self._version_roots()) and prefix.manager != "venv":
                self._report(f"{_shorten(place)}: not used, because it leads to {_shorten(real)}.")
                return False
            folders += self._accept_parts(real)
        if not any(folder.endswith("/bin") for folder in folders):
            self._report(f"{_shorten(place)}: not used, because it has no programs.")
            return False
        self._add_part(prefix.manager, join(place, "bin"), folders, prefix.version, checked=True)
        if prefix.manager != "venv" and exists(join(place, "pyvenv.cfg")):
            self._add_base_python(_read_pyvenv(place).get("home", ""), place)
        return True

    def _add_part(
        self,
        manager: str,
        programs: str,
        folders: tuple[str, ...] = (),
        version: str = "",
        *,
        checked: bool = False,
    ) -> bool:
        """Add a folder of programs. Return False if it may not be mounted."""
        accepted = folders if checked else self._accept(folders)
        if folders and not accepted:
            return False
        part = ToolchainPart(manager=manager, programs=programs, version=version, folders=accepted)
        self._parts.setdefault(programs, part)
        return True

    def _accept_parts(self, prefix: str) -> tuple[str, ...]:
        if not isdir(prefix):
            self._report(f"{_shorten(prefix)}: not used, because it leads to no folder.")
            return ()
        return self._accept(place for name in _PREFIX_PARTS if exists(place := join(prefix, name)))

    def _accept(self, folders: Iterable[str]) -> tuple[str, ...]:
        """Return the folders that may be mounted, and report the others."""
        accepted: list[str] = []
        for folder in folders:
            if problem := self._find_problem(folder):
                self._report(f"{_shorten(folder)}: not mounted, because {problem}.")
            elif self._folder_count < _MAX_FOLDERS:
                self._folder_count += 1
                accepted.append(folder)
            else:
                self._report(f"{_shorten(folder)}: not mounted, because there are more than {_MAX_FOLDERS} folders.")
        return tuple(accepted)

    def _find_problem(self, folder: str) -> str:
        """Return why a folder may not be mounted; empty when it may."""
        place = realpath(folder)
        homes = (*_STATE_FOLDERS, realpath(self._home), self._home)
        for name in {folder, place}:
            if any(is_inside(home, name) for home in homes) or is_inside(self._workspace, name):
                return "it holds more than programs"
            if is_inside(name, self._workspace):
                return "it is in the workspace, which commands can write"
            if is_secret(name.lstrip("/")):
                return "its name is one of credentials"
        if not os.access(place, os.R_OK):
            return "it cannot be read"
        shared = _find_shared(place)
        return f"every user can write to {_shorten(shared)}" if shared else ""

    def _set_variable(self, name: str, value: str) -> None:
        if _VARIABLE_VALUE.fullmatch(value):
            self._variables[name] = value

    def _report(self, problem: str) -> None:
        self._problems[problem] = None


def _find_shared(place: str) -> str:
    """Return the folder that lets any user exchange what is at the place; empty when there is none."""
    with suppress(OSError):
        if os.stat(place).st_mode & S_IWOTH:
            return place
        while place != "/":
            place = dirname(place)
            mode = os.stat(place).st_mode
            if mode & S_IWOTH and not mode & S_ISVTX:
                return place
    return ""


def _is_executable(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _read_choice(path: str) -> str:
    """Return the start of a small file that anybody may have written; empty when it is no plain file."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    with suppress(OSError, ValueError), closing_fd(os.open(path, flags)) as fd:
        return os.read(fd, _MAX_CHOICE_BYTES).decode(errors="replace") if S_ISREG(os.fstat(fd).st_mode) else ""
    return ""


def _read_json(path: str) -> Any:
    with suppress(msgspec.DecodeError, RecursionError):
        return msgspec.json.decode(_read_choice(path).encode())
    return None


def _get(value: Any, *names: str) -> Any:
    """Return a value inside of nested mappings; None when there is none."""
    for name in names:
        value = cast(dict[str, Any], value).get(name) if isinstance(value, dict) else None
    return value


def _read_pyvenv(environment: str) -> dict[str, str]:
    lines = (line.partition("=") for line in _read_choice(join(environment, "pyvenv.cfg")).splitlines())
    return {name.strip().lower(): value.strip() for name, equals, value in lines if equals}


def _version_of(settings: Mapping[str, str]) -> str:
    version = settings.get("version") or settings.get("version_info", "")
    return version if _VERSION.fullmatch(version) else ""


def _guess_manager(place: str) -> str:
    return next((name for name in ("pyenv", "uv", "nvm", "fnm", "asdf", "mise", "volta") if name in place), "path")


def _guess_version(prefix: str) -> str:
    parent = dirname(prefix) if basename(prefix) == "installation" else prefix
    return basename(parent) if any(letter.isdigit() for letter in basename(parent)) else ""


def _version_key(version: str) -> tuple[tuple[int, str], ...]:
    return tuple((int(piece), "") if piece.isdigit() else (-1, piece) for piece in re.split(r"[.+-]", version))


def _shorten(text: str) -> str:
    return shorten("".join(letter if letter.isprintable() else "?" for letter in text), _MAX_SHOWN)
