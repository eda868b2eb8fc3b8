"""A declared secret, and text that looks like one, is in no file that a run leaves, whoever said it and wherever."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from interlock import Agent, Runner, ScriptedModel, ScriptedTurn, SqliteLog, tool, tool_call
from interlock.domain.call import Answer
from interlock.domain.errors import AnswerRefusedError
from interlock.domain.messages import ProposedCall
from interlock.models.interface import ModelEvent, ModelRequest, StreamFinished, TextDelta, ToolCallDelta
from interlock.storage.file_artifacts import FileArtifacts

DECLARED = "d3clar3d-Zebra-77-value"
LOOKING = "sk-ant-api03-" + "Qw3rty" * 10
BOTH = f"{DECLARED} {LOOKING}"


@tool(name="described", risk="read", description=f"Uses the key {BOTH}")
def described() -> str:
    return ""


@tool(risk="write")
def send(to: str) -> str:
    """Send."""
    return "sent"


class Named:
    """A model that names calls and tools as it likes."""

    name = "named"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        if len(request.messages) > 1:
            yield TextDelta("end")
        else:
            for call_id, tool_name in (("a", LOOKING), (DECLARED, "send"), ("b", DECLARED)):
                yield ToolCallDelta(ProposedCall(call_id=call_id, tool=tool_name, arguments="{}"))
        yield StreamFinished(reason="stop")

    async def close(self) -> None: ...


class World:
    def __init__(self, folder: Path) -> None:
        self.log = SqliteLog(folder / "runs.db")
        self._artifacts = FileArtifacts(folder)

    def runner(self, **about: Any) -> Runner:
        options = {name: about.pop(name) for name in ("requester",) if name in about}
        sends = ScriptedTurn(calls=(tool_call("send", to="bob", call_id="a"),))
        model = about.pop("provider", ScriptedModel([sends, ScriptedTurn(text="end")], by_position=True))
        agent = Agent(provider=model, tools=[send, described], **about)
        return Runner(agent, log=self.log, artifacts=self._artifacts, secrets={"KEY": DECLARED}, **options)

    async def waiting(self, **about: Any) -> tuple[Runner, Any, str]:
        runner = self.runner(**about)
        handle = await runner.start("send it", run_id="r")
        result = await handle.result()
        return runner, handle, result.questions[0].action_id if result.questions else ""


Said: TypeAlias = Callable[[World], Awaitable[Runner]]


async def in_a_description(world: World) -> Runner:
    runner, _, _ = await world.waiting()
    return runner


async def in_names(world: World) -> Runner:
    runner, _, _ = await world.waiting(provider=Named())
    return runner


async def by_the_one_who_asks(world: World) -> Runner:
    runner, _, _ = await world.waiting(requester=f"me {BOTH}")
    return runner


async def in_the_name_of_the_model(world: World) -> Runner:
    runner, _, _ = await world.waiting(model=f"m-{LOOKING}")
    return runner


async def when_it_is_cancelled(world: World) -> Runner:
    runner, handle, _ = await world.waiting()
    await handle.cancel(f"because {BOTH}")
    return runner


async def in_an_answer(world: World) -> Runner:
    runner, handle, action_id = await world.waiting()
    await handle.decide(action_id, approved=False, by=f"me {BOTH}", reason=f"since {BOTH}")
    await handle.resume()
    await handle.result()
    return runner


async def in_a_note(world: World) -> Runner:
    runner, _, action_id = await world.waiting()
    claim = await world.log.acquire("r")
    answer = Answer(approved=False, by=f"me {BOTH}", reason=f"since {BOTH}")
    assert await runner.inbox.deliver("r", action_id, answer) == "queued"
    assert await runner.inbox.cancel("r", f"because {BOTH}") == "queued"
    assert len(await world.log.queued_commands("r")) == 2
    await world.log.release(claim)
    return runner


async def in_arguments_that_would_be_a_note(world: World) -> Runner:
    runner, _, action_id = await world.waiting()
    claim = await world.log.acquire("r")
    with pytest.raises(AnswerRefusedError, match="a secret is not written down"):
        await runner.inbox.deliver("r", action_id, Answer(approved=True, by="me", arguments={"to": DECLARED}))
    assert await world.log.queued_commands("r") == []
    await world.log.release(claim)
    return runner


SAYING: tuple[Said, ...] = (
    in_a_description,
    in_names,
    by_the_one_who_asks,
    in_the_name_of_the_model,
    when_it_is_cancelled,
    in_an_answer,
    in_a_note,
    in_arguments_that_would_be_a_note,
)


@pytest.mark.parametrize("say", SAYING, ids=lambda say: say.__name__)
async def test_no_file_has_the_secret_that_was_said(say: Said, tmp_path: Path) -> None:
    world = World(tmp_path)
    runner = await say(world)

    def found() -> list[str]:
        files = [(path, path.read_bytes()) for path in tmp_path.rglob("*") if path.is_file()]
        assert files
        return [
            f"{secret} in {path.name}" for path, held in files for secret in BOTH.split() if secret.encode() in held
        ]

    assert found() == []
    await runner.close()
    await world.log.close()
    assert found() == []
