"""A host with everything that an attacker wants: a run's own files, sockets, tokens, and programs' settings."""

import os
import signal
import socket
import sys
import sysconfig
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread

import interlock

from .toolbox import CANARY, snapshot

_PACKAGE = Path(interlock.__file__).parent
_SITE = Path(sysconfig.get_path("purelib"))
#: What attacks would leave there.
_PLANTED = ("evil", "sitecustomize", "usercustomize")
TOKEN_NAME = "INTERLOCK_TEST_TOKEN"


class Host:
    """Beside the workspace: a home with the runtime's files and sockets, and listeners that note who came."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.workspace = folder / "workspace"
        self.abstract = f"interlock-{os.getpid()}-{folder.name}"
        self.visits: list[str] = []
        self.signals: list[int] = []
        self.ports: dict[str, int] = {}
        for made in (self.home / ".ssh", self.workspace / ".interlock", self.workspace / ".git" / "hooks"):
            made.mkdir(parents=True)
        (self.home / "policy.yaml").write_text(f"# {CANARY}\nversion: 1\n")
        (self.home / ".bashrc").write_text("# mine\n")
        (self.home / ".ssh" / "id_ed25519").write_text(CANARY)
        (self.workspace / ".interlock" / "policy.yaml").write_text("version: 1\n")
        (self.workspace / ".git" / "config").write_text("[core]\n\tbare = false\n")
        (self.workspace / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
        (self.workspace / ".git" / "hooks" / "pre-commit").write_text("#!/bin/sh\n")
        for name in ("objects", "refs/heads"):
            (self.workspace / ".git" / name).mkdir(parents=True)
        (self.workspace / "main.py").write_text("print('hello')\n")

    def words(self) -> dict[str, str]:
        """What attacks are told: they need not guess."""
        return {
            "home": str(self.home),
            "workspace": str(self.workspace),
            "pid": str(os.getpid()),
            "python": sys.executable,
            "package": str(_PACKAGE),
            "site": str(_SITE),
            "v4": str(self.ports["v4"]),
            "v6": str(self.ports.get("v6", 0)),
            "socket": str(self.home / "api.sock"),
            "abstract": self.abstract,
        }

    def held(self, with_modes: bool = True) -> dict[str, tuple[int, bytes]]:
        """What no attack may change."""
        return {path: (mode if with_modes else 0, content) for path, (mode, content) in self._held().items()}

    def _held(self) -> dict[str, tuple[int, bytes]]:
        ours = snapshot(self.home)
        of_the_run = [
            path for path in ours if "runs.db" in path or ("/artifacts/" in path and ours[path][1] != b"evil\n")
        ]
        guarded = snapshot(self.workspace / ".interlock", self.workspace / ".git" / "hooks")
        single = (self.workspace / ".git" / "config", _PACKAGE, _PACKAGE / "__init__.py")
        return {
            **{path: kept for path, kept in ours.items() if path not in of_the_run},
            **guarded,
            **{str(path): (path.stat().st_mode, path.read_bytes() if path.is_file() else b"") for path in single},
            **{
                str(path): (0, b"")
                for folder in (_PACKAGE, _SITE)
                for path in folder.glob("*")
                if path.stem in _PLANTED
            },
        }


@contextmanager
def host_in(folder: Path) -> Generator[Host]:
    host = Host(folder)
    before = signal.signal(signal.SIGUSR1, lambda number, frame: host.signals.append(number))
    places = [place for place in ("/tmp", "/var/tmp", "/dev/shm") if os.access(place, os.W_OK)]
    assert len(places) > 1
    shared = [Path(place) / f"interlock-{os.getpid()}-shared" for place in places]
    with ExitStack() as stack:
        stack.callback(signal.signal, signal.SIGUSR1, before)
        for path in shared:
            path.write_text(CANARY)
            stack.callback(path.unlink)
        stack.enter_context(_listening(host))
        yield host


@contextmanager
def _listening(host: Host) -> Generator[None]:
    places: list[tuple[str, int, object]] = [
        ("v4", socket.AF_INET, ("127.0.0.1", 0)),
        ("path", socket.AF_UNIX, str(host.home / "api.sock")),
        ("abstract", socket.AF_UNIX, f"\0{host.abstract}"),
    ]
    places += [("v6", socket.AF_INET6, ("::1", 0))] if _has_v6() else []
    over = Event()
    with ExitStack() as stack:
        for name, family, address in places:
            server = stack.enter_context(socket.socket(family))
            server.bind(address)  # pyright: ignore[reportArgumentType] - one form per family
            server.listen()
            server.settimeout(0.05)
            if name in ("v4", "v6"):
                host.ports[name] = server.getsockname()[1]
            thread = Thread(target=_answer, args=(server, name, host, over), daemon=True)
            thread.start()
            stack.callback(thread.join)
        stack.callback(over.set)
        yield


def _answer(server: socket.socket, name: str, host: Host, over: Event) -> None:
    while not over.is_set():
        try:
            visitor, _ = server.accept()
        except TimeoutError:
            continue
        with visitor:
            host.visits.append(name)
            visitor.sendall(f"HTTP/1.0 200 OK\r\n\r\n{CANARY}".encode())


def _has_v6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as tried:
            tried.bind(("::1", 0))
    except OSError:
        return False
    return True
