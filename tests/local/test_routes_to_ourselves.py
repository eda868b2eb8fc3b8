"""No way leads from a command, or from a path that a model names, to the runtime itself: nothing approves itself."""

import os
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from interlock import FileArtifacts, SqliteLog
from tests.sandbox.ordinary_user import pytest_as_ordinary_user

from .host import TOKEN_NAME, Host, host_in
from .routes import ROUTES, Route
from .toolbox import CANARY, REACHED, Box, box, commands_of, text_of

BACKENDS = ("bubblewrap", "landlock")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    with host_in(tmp_path) as made:
        monkeypatch.setenv(TOKEN_NAME, CANARY)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(made.home / "api.sock"))
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", f"unix:path={made.home}/api.sock")
        yield made


@pytest_asyncio.fixture
async def attacked(host: Host, request: pytest.FixtureRequest) -> AsyncGenerator[Box]:
    commands = commands_of(request.param)
    async with SqliteLog(host.home / "runs.db") as log:
        artifacts = FileArtifacts(host.home / "artifacts")
        async with box(host.workspace, commands=commands, log=log, artifacts=artifacts) as made:
            await made.call("write_file", path="notes.txt", content=CANARY)
            (host.workspace / "notes.txt").unlink()
            yield made


@pytest.mark.requirement("P13")
@pytest.mark.parametrize("attacked", BACKENDS, indirect=True)
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.sentence.replace(" ", "-"))
async def test_a_command_does_not_reach_us(route: Route, attacked: Box, host: Host) -> None:
    # Who has no word for it cannot hold it: Landlock leaves modes to the owner of a file, and says so.
    with_modes = "metadata" in attacked.tools.confinement.capabilities
    if route.is_for_good and not with_modes:
        pytest.skip("it would work, on the very files of this suite")
    script, before = route.script, host.held(with_modes)
    for name, value in host.words().items():
        script = script.replace("{" + name + "}", value)
    inherited = os.open(host.home / "policy.yaml", os.O_RDONLY)
    os.set_inheritable(inherited, True)

    said = await attacked.bash(script + "\nprintf '\\ntri%s' ed", timeout_seconds=45)

    os.close(inherited)
    assert "tried" in text_of(said), text_of(said)
    assert CANARY not in text_of(said)
    assert REACHED not in text_of(said)
    assert (host.visits, host.signals) == ([], [])
    assert host.held(with_modes) == before
    assert (await attacked.runtime.verify()).ok


@pytest.mark.skipif(os.geteuid() != 0, reason="this is an ordinary user")
@pytest.mark.requirement("P13")
def test_nor_does_it_when_we_are_an_ordinary_user() -> None:
    pytest_as_ordinary_user("tests/local/test_routes_to_ourselves.py", "-k", "landlock")


_OPEN_OUTSIDE = (
    "it reads keys in the home",
    "it reads the user's policy",
    "it asks our server on the loopback",
    "it asks our server through a file",
    "it asks our server by a name without a file",
)


@pytest.mark.parametrize("attacked", ["none"], indirect=True)
@pytest.mark.parametrize("sentence", _OPEN_OUTSIDE)
async def test_the_same_route_is_open_where_nothing_holds_a_command(sentence: str, attacked: Box, host: Host) -> None:
    script = next(route.script for route in ROUTES if route.sentence == sentence)
    for name, value in host.words().items():
        script = script.replace("{" + name + "}", value)

    said = await attacked.bash(script, timeout_seconds=20)

    assert CANARY in text_of(said)
