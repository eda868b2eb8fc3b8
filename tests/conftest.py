"""Give all tests the same signals, however the run was started, and no deadline but the timeout.

A script's background job ignores SIGINT and SIGQUIT, `nohup` ignores SIGHUP, and a caller may block any signal.
Programs inherit this, and a test that interrupts one would wait until its timeout.
"""

import gc
import signal
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.logs import keep_in_postgres
from tests.soak.budget import Budget

if TYPE_CHECKING:
    from tests.postgres.network import Host
    from tests.postgres.server import PostgresServer

#: Ignored by Python itself, which gives programs the default again.
_IGNORED_BY_PYTHON = {signal.SIGPIPE, signal.SIGXFSZ}
_COLLECTED = pytest.StashKey[int]()


#: The same examples in every run, so that a change fails its own run and no other. `make soak` looks for new ones with
#: `--hypothesis-profile=random`. A busy machine makes any example slow once, so there is no deadline.
settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=25)
settings.register_profile("random", deadline=None, max_examples=100)


def pytest_configure(config: pytest.Config) -> None:
    """Make programs start with default signals and an empty mask.

    A handler that does nothing replaces an ignored signal. The run itself still survives the signal, and programs do
    not inherit a handler.
    """
    # Collecting makes nothing but objects that stay. `pytest_collection_finish` turns it on again.
    gc.disable()
    if not config.getoption("--hypothesis-profile"):
        settings.load_profile("repeatable")
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - _IGNORED_BY_PYTHON:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda _, __: None)


@pytest.fixture(scope="session")
def postgres() -> Iterator["PostgresServer"]:
    """A running server. Tests use schemas of their own."""
    server: PostgresServer = import_module("tests.postgres.server").PostgresServer()
    try:
        yield server.start()
    finally:
        server.close()


@pytest.fixture
def host() -> Iterator["Host"]:
    """Another host, in a network namespace. Skipped where there are none."""
    with import_module("tests.postgres.network").open_host() as opened:
        yield opened


@pytest.fixture(params=["sqlite", "postgres"])
def log_backend(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """What `open_log` of `tests.logs` opens below `tmp_path`."""
    if request.param == "postgres":
        keep_in_postgres(tmp_path, request.getfixturevalue("postgres"))
    return request.param


@pytest.fixture(params=["sqlite", "postgres"])
def database_backend(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """What `open_database` of `tests.logs` opens below `tmp_path`."""
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        keep_in_postgres(tmp_path, server, server.server_url)
    return request.param


@pytest.fixture
def budget(request: pytest.FixtureRequest) -> Iterator[Budget]:
    """The time of a long test. What it did is shown at the end of the run."""
    budget = Budget()
    yield budget
    request.node.user_properties.append(("soak", f"{budget.done} rounds in {budget.used:.0f} s"))


def pytest_collection_finish(session: pytest.Session) -> None:
    session.config.stash[_COLLECTED] = len(session.items)
    # Thousands of tests stay until the end. Without this the collector would look at all of them again and again.
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show how many long tests ran, and how far each of them came."""
    if terminalreporter.config.getoption("-m") != "soak":
        return
    reports: list[pytest.TestReport] = [
        report for word in ("passed", "failed") for report in terminalreporter.getreports(word)
    ]
    terminalreporter.section(f"{len(reports)} of {terminalreporter.config.stash[_COLLECTED]} long tests ran")
    # What a fixture adds at its end is in the report of the teardown, which has no category.
    budgets = {report.nodeid: dict(report.user_properties) for report in terminalreporter.getreports("")}
    for report in reports:
        words = budgets[report.nodeid].get("soak", f"{report.duration:.0f} s")
        terminalreporter.write_line(f"{report.nodeid}: {words}")


#: The longest tests first: the last ones of a run are short, so no worker waits for another.
_LONG = ("tests/adapters/", "tests/server/story/", "tests/server/console/", "tests/cli/test_demo.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(_LONG))
