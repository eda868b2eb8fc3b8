"""The mode `contained` with the real sandbox: what it holds runs, and what it does not hold is a question."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from interlock import Rule, RulePolicy
from interlock.domain.event import InvocationStarted
from interlock.sandbox.commands.unconfined import UnconfinedSandbox

from .runs import Person, local_run, text_of

confined = pytest.mark.usefixtures("confined")
EVERYTHING = RulePolicy([Rule(id="all", verdict="allow", tools="*")])


@pytest.fixture
async def fetch() -> AsyncGenerator[str]:
    """A command that needs the network, and prints what a server of this host says."""

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello\n")
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    yield f"curl --version >/dev/null 2>&1; cat < /dev/tcp/127.0.0.1/{port}"
    server.close()


@confined
async def test_contained_work_asks_nothing(root: Path) -> None:
    person = Person()

    async with local_run(root, mode="contained", interaction=person) as run:
        made = await run.bash("mkdir build && python3 -c 'print(1)' > build/out && cat build/out")
        opaque = await run.bash('C="touch made"; eval "$C"')
        await run.do("read_file", path="notes.txt")
        edited = await run.do("edit_file", path="notes.txt", old_string="two", new_string="2")
        started = await run.started("c1")

    assert (made.ok, opaque.ok, edited.ok, person.asked) == (True, True, True, [])
    assert (started.sandbox, started.profile) == ("bubblewrap", "workspace-write")
    assert (root / "made").exists()


@confined
async def test_contained_writes_nothing_outside(root: Path, tmp_path: Path) -> None:
    async with local_run(root, mode="contained", interaction=Person()) as run:
        written = await run.bash(f"echo x > {tmp_path}/outside; echo x > /usr/outside")
        edited = await run.do("write_file", path=f"{tmp_path}/outside", content="x")

    assert (written.code, edited.code) == ("command_failed", "policy_denied")
    assert not (tmp_path / "outside").exists()
    assert text_of(written).count("/usr/outside: Read-only file system") == 1


@confined
async def test_network_is_a_question_and_a_grant(root: Path, fetch: str) -> None:
    person = Person()

    async with local_run(root, mode="contained", interaction=person, policy=EVERYTHING) as run:
        approved = await run.bash(fetch)
        again = await run.bash(fetch)
        started = await run.started("c1")

    assert (approved.ok, text_of(approved), text_of(again)) == (True, "hello", "hello")
    assert started.profile == "workspace-write+network"
    assert len(person.asked) == 2
    assert person.asked[0].reason == "If approved, it can reach any host."
    assert person.asked[0].bound.surroundings.sandbox.endswith("+network")


@confined
@pytest.mark.parametrize("mode", ["trusted", "contained"])
async def test_network_stays_closed_without_approval(root: Path, fetch: str, mode: str) -> None:
    async with local_run(root, mode=mode, interaction=Person(approves=False), policy=EVERYTHING) as run:
        refused = await run.bash(fetch)
        unknown = await run.bash(fetch.partition("; ")[2])
        started = await run.facts(InvocationStarted)

    assert (refused.ok, unknown.ok) == (False, False)
    assert not any("network" in fact.profile for fact in started)


@confined
async def test_background_command_gets_the_approved_network(root: Path, fetch: str) -> None:
    async with local_run(root, mode="contained", interaction=Person()) as run:
        task = await run.bash(fetch, background=True)
        ended = await run.do("wait_task", task_id=task.facts["task"]["id"])

    assert "hello" in text_of(ended)


async def test_contained_asks_without_a_sandbox(root: Path) -> None:
    person = Person(approves=False)

    async with local_run(root, mode="contained", interaction=person, box={"commands": UnconfinedSandbox()}) as run:
        refused = await run.bash("touch made")

    assert refused.code == "user_denied"
    assert "no sandbox" in person.asked[0].reason


@confined
async def test_contained_asks_where_commands_have_the_network(root: Path) -> None:
    person = Person(approves=False)

    async with local_run(root, mode="contained", interaction=person, box={"network": True}) as run:
        refused = await run.bash("touch made")

    assert refused.code == "user_denied"
    assert "No sandbox without a network contains this tool" in person.asked[0].reason
