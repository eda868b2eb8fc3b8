"""`interlock serve` as a process of its own, the way people start it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from interlock.cli.config.server_files import lock_server, prepare_server_files
from tests.patience import HANG_SECONDS
from tests.sandbox.ordinary_user import pytest_as_ordinary_user

from .conftest import Run

COMMAND = [sys.executable, "-c", "from interlock.cli.main import main; main()", "serve"]


def environment(home: Path) -> dict[str, str]:
    """Of somebody who has set nothing."""
    return {"HOME": str(home)} | {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}


class Served:
    """A server that runs, and what it said when it began."""

    def __init__(self, process: "subprocess.Popen[str]", greeting: str) -> None:
        self.process = process
        self.greeting = greeting
        self.port = int(re.findall(r":(\d+)/", greeting)[0])

    @property
    def password(self) -> str:
        return (re.findall(r"with the password (\S+)", self.greeting) or [""])[0]

    def get(self, path: str, key: str = "") -> tuple[int, Any]:
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=HANG_SECONDS)) as connection:
            connection.request("GET", path, headers={"Authorization": f"Bearer {key}"} if key else {})
            answer = connection.getresponse()
            return answer.status, answer.read()

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """The exit code, and all that it said on stderr."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=HANG_SECONDS)
        return self.process.returncode, said


@contextmanager
def served(
    home: Path, *options: object, under: Sequence[str] = (), variables: Mapping[str, str] | None = None
) -> Generator[Served]:
    words = [*under, *COMMAND, "--port", "0", *map(str, options)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": home}
    with subprocess.Popen(words, env={**environment(home), **(variables or {})}, **pipes) as process:
        try:
            yield Served(process, _greeting(process))
        finally:
            process.kill()


def _greeting(process: "subprocess.Popen[str]") -> str:
    assert process.stdout
    said = ""
    for line in process.stdout:
        said += line
        if line.startswith("Ctrl-C"):
            return said
    assert process.stderr
    raise AssertionError(f"{said}\n{process.stderr.read()}")


def test_the_first_start_shows_a_password_and_the_second_does_not(tmp_path: Path) -> None:
    with served(tmp_path, "--demo") as first:
        assert len(first.password) >= 20
        assert first.get("/health/ready")[0] == 200
        assert first.get("/v1/runs")[0] == 401
        assert first.get("/console/")[0] in (200, 303, 307)
        assert first.stop() == (0, "")

    with served(tmp_path, "--demo") as second:
        assert second.password == ""
        assert second.stop(signal.SIGINT) == (0, "")
    assert (tmp_path / ".local/state/interlock/server.db").stat().st_mode & 0o777 == 0o600


def test_a_server_stops_in_order_when_the_terminal_is_gone(tmp_path: Path) -> None:
    with served(tmp_path, "--demo") as server:
        assert server.stop(signal.SIGHUP) == (0, "")


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc which signals are ignored")
def test_a_background_server_outlives_the_terminal(tmp_path: Path) -> None:
    """As `nohup interlock serve &` of a script starts it."""
    with served(tmp_path, "--demo", under=("sh", "-c", 'trap "" HUP INT; exec "$@"', "sh")) as server:
        status = Path(f"/proc/{server.process.pid}/status").read_text()
        ignored = int(re.findall(r"SigIgn:\s+(\w+)", status)[0], 16)
        assert [bool(ignored >> (number - 1) & 1) for number in (signal.SIGHUP, signal.SIGINT)] == [True, True]
        server.process.send_signal(signal.SIGHUP)
        server.process.send_signal(signal.SIGINT)
        assert server.get("/health/ready")[0] == 200
        assert server.stop() == (0, "")


def test_a_server_with_a_key_stops_in_time_though_somebody_follows_its_events(tmp_path: Path) -> None:
    log = tmp_path / "runs.db"
    add = [*COMMAND[:-1], "keys", "add", "ci", "--role", "operator", "--json", "--log", str(log)]
    made = subprocess.run(
        add, env=environment(tmp_path), capture_output=True, text=True, check=True, timeout=HANG_SECONDS
    )
    key = json.loads(made.stdout)["key"]
    with served(tmp_path, "--demo", "--log", log) as server:
        assert server.get("/v1/runs", key)[0] == 200
        with closing(HTTPConnection("127.0.0.1", server.port, timeout=HANG_SECONDS)) as connection:
            connection.request("GET", "/v1/events/stream", headers={"Authorization": f"Bearer {key}"})
            answer = connection.getresponse()
            assert answer.status == 200
            assert server.stop() == (0, "")


@pytest.mark.parametrize(("word", "code"), [("--help", 0), ("--demo", 2)])
def test_without_its_extra_the_command_has_help_and_says_what_to_install(tmp_path: Path, word: str, code: int) -> None:
    missing = "import sys; sys.modules['starlette'] = None; from interlock.cli.main import main; main()"
    command = [sys.executable, "-c", missing, "serve", word, "--log", str(tmp_path / "runs.db")]
    ended = subprocess.run(
        command, env=environment(tmp_path), capture_output=True, text=True, check=False, timeout=HANG_SECONDS
    )

    assert ended.returncode == code
    assert ("pip install 'interlock[server]'" in ended.stderr) == (code != 0)
    assert "Traceback" not in ended.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="it is one already")
def test_an_ordinary_user_can_serve() -> None:
    pytest_as_ordinary_user("tests/cli/test_serve.py", "-k", "first_start")


@pytest.fixture
def project(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where files with agents are."""
    here = Path.cwd()
    monkeypatch.setattr(sys, "path", [str(here), *sys.path])
    (here / "raises_at_once.py").write_text("1 / 0\n")
    (here / "has_a_number.py").write_text("agent = 7\n")
    (here / "broken.toml").write_text("[server]\nport = 'many'\n")
    (here / "unknown.toml").write_text("[server]\nprot = 1\n")
    (here / "half.toml").write_text("[server]\ntls_key = 'key.pem'\n")
    (here / "tls.toml").write_text("[server]\ntls_key = 'no.pem'\ntls_certificate = 'no.pem'\n")
    return here


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--config", "broken.toml"), "broken.toml: Expected `int`"),
        (("--config", "unknown.toml"), "unknown field `prot`"),
        (("--config", "half.toml"), "half.toml: [server] tls_certificate and tls_key belong together"),
        (("--config", "tls.toml", "--demo", "--port", "0"), "no.pem cannot be used: No such file"),
        (("--config", "nothing.toml"), "nothing.toml cannot be read"),
        (("--agent", "nowhere:agent"), "'nowhere:agent' cannot be loaded"),
        (("--agent", "raises_at_once:agent"), "cannot be loaded: ZeroDivisionError"),
        (("--agent", "has_a_number:agent"), "is a int, and has to be an Agent"),
        (("--agent", "agent"), "has to be like `package.module:name`"),
        ((), "There is no agent to serve"),
        (("--demo", "--host", "no such host", "--port", "0"), "Cannot listen on"),
        (("--demo", "--host", "0.0.0.0", "--port", "0"), "There is no account yet"),  # noqa: S104
    ],
)
def test_what_cannot_be_served_is_one_sentence(cli: Run, project: Path, options: tuple[str, ...], words: str) -> None:
    said = cli("serve", *options)

    assert (said.exit_code, said.stdout) == (2, "")
    assert words in said.stderr
    assert len(said.stderr.strip().splitlines()) == 1


def test_a_port_that_is_taken_and_files_that_are_in_use_are_named(cli: Run, project: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        busy = cli("serve", "--demo", "--port", port)
    with lock_server(prepare_server_files(None).state):
        second = cli("serve", "--demo", "--port", 0)

    assert (busy.exit_code, second.exit_code) == (2, 2)
    assert f"Cannot listen on 127.0.0.1 port {port}: Address already in use" in busy.stderr
    assert "is already running. Nothing was started" in second.stderr


def test_elsewhere_than_on_this_machine_it_warns_where_nothing_encrypts(tmp_path: Path) -> None:
    add = [*COMMAND[:-1], "accounts", "add", "ada", "--role", "admin"]
    environ = environment(tmp_path)
    subprocess.run(add, input="correct horse battery\n", env=environ, text=True, check=True, timeout=HANG_SECONDS)

    with served(tmp_path, "--demo", "--host", "0.0.0.0") as server:  # noqa: S104
        assert server.password == ""
        code, said = server.stop()

    assert code == 0
    assert said.startswith("Warning: 0.0.0.0 can be reached from elsewhere")


def test_metrics_are_served_at_a_port_of_their_own(tmp_path: Path) -> None:
    with served(tmp_path, "--demo", "--metrics-port", "0") as server:
        (metrics_port,) = re.findall(r"Metrics are at http://127\.0\.0\.1:(\d+)/metrics", server.greeting)
        server.port = int(metrics_port)
        found = {path: server.get(path) for path in ("/metrics", "/health/ready")}
        code, _ = server.stop()

    assert (code, found["/health/ready"]) == (0, (200, b"ok\n"))
    assert b'interlock_open_questions{kind="approval"} 0\n' in found["/metrics"][1]
    assert b"interlock_oldest_question_seconds 0\n" in found["/metrics"][1]
