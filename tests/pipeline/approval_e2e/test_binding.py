"""An approval is bound to exactly what was asked about: whatever of it is different later, nothing is executed."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeAlias

import msgspec
import pytest

from interlock import InterlockError, MemoryLog, Question, Rule, RulePolicy, ToolContext, ToolRuntime, tool
from interlock.domain.event import ApprovalRequested, Fact, InvocationStarted
from tests.pipeline.batch.stage import codes
from tests.support import call, facts

from .scene import RUN, ProfiledSandbox, Scene, ask_rule, changed, rewritten, statuses

EDIT = call("c1", "edit", path="notes.txt")


async def approved(scene: Scene, **options: Any) -> str:
    """The run is left with one approved question; its id."""
    async with scene.runtime(**options) as runtime:
        [question] = (await runtime.execute([EDIT])).questions
        await runtime.decide(question.action_id, approved=True, by="ada", payload_hash=question.payload_hash)
        return question.action_id


@pytest.mark.requirement("R158", "R159", "D12")
async def test_what_starts_has_the_hash_that_was_recorded_when_it_was_asked(scene: Scene) -> None:
    action_id = await approved(scene)

    async with scene.runtime() as runtime:
        result = await runtime.resume()
        recorded = await facts(runtime)
        [action] = await runtime.actions()

    [asked] = [fact.question for fact in recorded if isinstance(fact, ApprovalRequested)]
    [started] = [fact for fact in recorded if isinstance(fact, InvocationStarted)]
    assert codes(result) == {"c1": "ok"}
    assert (started.action_id, started.payload_hash) == (action_id, asked.payload_hash)
    assert action.payload_hash == asked.payload_hash
    assert scene.ran == [{"path": "notes.txt", "text": "new", "size": 1.0}]


async def test_a_handler_knows_what_its_approval_is_bound_to(scene: Scene) -> None:
    seen: list[object] = []

    @tool(risk="write")
    def send(ctx: ToolContext, to: str) -> None:
        seen.append(ctx.bound)

    ask = Rule(id="ask", verdict="ask", when=lambda event: event.arguments["to"] == "ada")
    policy = RulePolicy([ask, Rule(id="all", verdict="allow")])
    async with scene.runtime(tools=[send], policy=policy) as runtime:
        [question] = (await runtime.execute([call("c1", "send", to="ada")])).questions
        await runtime.decide(question.action_id, approved=True, by="ada")
        await runtime.resume()
        await runtime.execute([call("c2", "send", to="bob")])

    assert seen == [question.bound.surroundings, None]


Alter: TypeAlias = Callable[[Scene, pytest.MonkeyPatch], dict[str, Any]]


def other_options(**options: Any) -> Alter:
    return lambda scene, patch: options


def other_tool(**options: Any) -> Alter:
    return lambda scene, patch: {"tools": [scene.tool(**options)]}


def other_folder(scene: Scene, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    folder = scene.folder.with_name("other")
    folder.mkdir()
    (folder / "notes.txt").write_text("as it was")
    return {"workspace": folder}


def other_content(scene: Scene, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    scene.file.write_text("as it is now")
    return {}


def no_file(scene: Scene, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    scene.file.unlink()
    return {}


def folder_instead(scene: Scene, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    scene.file.unlink()
    scene.file.mkdir()
    return {}


def later(scene: Scene, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    scene.time.passes(61)
    return {}


def other_profile(scene: Scene, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    patch.setattr(ProfiledSandbox, "profile", "bubblewrap/network")
    return {}


def other_environment(scene: Scene, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    patch.setattr(ProfiledSandbox, "environment", {"PATH": "/tmp/evil"})
    return {}


ALTERED: dict[str, tuple[Alter, str]] = {
    "tool version": (other_tool(version="2"), "tool version"),
    "tool description": (other_tool(description="Edits, and mails it."), "tool definition"),
    "tool risk": (other_tool(risk=("write", "network")), "tool definition"),
    "tool timeout": (other_tool(timeout_seconds=1.0), "tool definition"),
    "tool source": (other_tool(source="elsewhere"), "tool origin"),
    "tool origin": (other_tool(origin="mcp", source="server"), "tool origin"),
    "policy": (other_options(policy=ask_rule(reason="Another reason.", answer_within_seconds=60)), "policy"),
    "file content": (other_content, "file notes.txt"),
    "file vanishes": (no_file, "file notes.txt"),
    "file becomes a folder": (folder_instead, "file notes.txt"),
    "working directory": (other_folder, "working directory"),
    "requester": (other_options(requester="mallory"), "requester"),
    "mode": (other_options(mode="trusted"), "permission mode"),
    "no requester": (other_options(requester=""), "requester"),
    "sandbox": (other_profile, "sandbox"),
    "environment": (other_environment, "variable PATH"),
    "time": (later, "time"),
}


@pytest.mark.requirement("D12", "R160", "R161")
@pytest.mark.parametrize("field", ALTERED)
async def test_an_approval_is_void_when_anything_it_was_bound_to_is_different(
    scene: Scene, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.sandbox.handlers.executor.HandlerExecutor", ProfiledSandbox)
    scene.policy = ask_rule(answer_within_seconds=60)
    action_id = await approved(scene)
    alter, named = ALTERED[field]

    async with scene.runtime(**alter(scene, monkeypatch)) as runtime:
        result = await runtime.resume()
        audit = await runtime.verify()
        assert await statuses(runtime) == ["VOID", "PENDING"]

    assert scene.ran == []
    assert named in changed(result)
    assert result.questions[0].replaces == action_id
    assert audit.ok


@pytest.mark.requirement("D12", "R160")
async def test_a_file_that_appears_voids_the_approval_to_make_it(scene: Scene) -> None:
    scene.file.unlink()
    await approved(scene)
    scene.file.write_text("somebody else was faster")

    async with scene.runtime() as runtime:
        result = await runtime.resume()

    assert (scene.ran, changed(result)) == ([], ["file notes.txt"])
    [change] = result.questions[0].changes
    assert (change.was, change.now[:7]) == ("missing", "sha256:")


@pytest.mark.requirement("R161")
async def test_when_everything_is_as_it_was_again_the_approval_holds(scene: Scene) -> None:
    await approved(scene)
    scene.file.write_text("for a moment")
    scene.file.write_text("as it was")

    async with scene.runtime() as runtime:
        result = await runtime.resume()

    assert codes(result) == {"c1": "ok"}


@pytest.mark.requirement("R161")
@pytest.mark.parametrize("other", [{"path": "notes.txt", "text": "other"}, {"path": "other.txt"}])
async def test_an_approval_of_one_call_does_not_serve_another(scene: Scene, other: dict[str, Any]) -> None:
    await approved(scene)

    async with scene.runtime() as runtime:
        result = await runtime.execute([EDIT, call("c2", "edit", **other)])

    assert codes(result) == {"c1": "ok"}
    assert [question.call_id for question in result.questions] == ["c2"]


async def test_an_approval_in_one_run_is_none_in_another(scene: Scene) -> None:
    action_id = await approved(scene)

    async with scene.runtime(run_id="run_other") as other:
        [question] = (await other.execute([EDIT])).questions
        with pytest.raises(InterlockError, match="no question"):
            await other.decide(action_id, approved=True)
        assert (await other.resume()).questions == (question,)

    assert scene.ran == []


def stored(**fields: Any) -> Callable[[Question], Question]:
    return lambda question: msgspec.structs.replace(question, **fields)


def stored_bound(**fields: Any) -> Callable[[Question], Question]:
    return lambda question: msgspec.structs.replace(question, bound=msgspec.structs.replace(question.bound, **fields))


def stored_around(**fields: Any) -> Callable[[Question], Question]:
    def alter(question: Question) -> Question:
        around = msgspec.structs.replace(question.bound.surroundings, **fields)
        return stored_bound(surroundings=around)(question)

    return alter


def stored_file(**fields: Any) -> Callable[[Question], Question]:
    def alter(question: Question) -> Question:
        [file] = question.bound.surroundings.files
        return stored_around(files=(msgspec.structs.replace(file, **fields),))(question)

    return alter


STORED: dict[str, Callable[[Question], Question]] = {
    "run": stored(run_id="run_other"),
    "call": stored(call_id="c9"),
    "tool": stored(tool_name="read_artifact"),
    "arguments": stored(arguments={"path": "notes.txt", "text": "harmless", "size": 1.0}),
    "expires": stored(expires_at=2**62),
    "hash": stored(payload_hash="sha256:" + "0" * 64),
    "origin": stored_bound(tool_origin="mcp"),
    "source": stored_bound(tool_source="elsewhere"),
    "version": stored_bound(tool_version="2"),
    "definition": stored_bound(tool_definition="sha256:00"),
    "policy": stored_bound(policy="sha256:00"),
    "requester": stored_bound(requester="mallory"),
    "mode": stored_bound(mode="trusted"),
    "cwd": stored_around(cwd="/"),
    "environment": stored_around(environment={"PATH": "/tmp"}),
    "sandbox": stored_around(sandbox="bubblewrap"),
    "files": stored_around(files=()),
    "file path": stored_file(path="other.txt"),
    "file digest": stored_file(sha256="0" * 64),
    "file unbound": stored_file(sha256="", unbound="a folder"),
}

Moment: TypeAlias = Callable[[ToolRuntime, str], Awaitable[Any]]


@pytest.mark.requirement("P04", "R160")
@pytest.mark.parametrize("when", ["before the answer", "after the answer"])
@pytest.mark.parametrize("field", STORED)
async def test_a_stored_question_that_was_altered_in_one_field_executes_nothing(
    scene: Scene, field: str, when: str
) -> None:
    async with scene.runtime() as first:
        [question] = (await first.execute([EDIT])).questions
        if when == "after the answer":
            await first.decide(question.action_id, approved=True, by="ada")

    def alter(fact: Fact) -> Fact:
        if not isinstance(fact, ApprovalRequested):
            return fact
        return ApprovalRequested(call_id=fact.call_id, question=STORED[field](fact.question))

    altered: MemoryLog = await rewritten(scene.log, alter)
    async with scene.runtime(log=altered) as second:
        with suppress(InterlockError):
            if when == "before the answer":
                await second.decide(question.action_id, approved=True, by="ada")
            await second.resume()

    assert scene.ran == []
    assert not [entry for entry in await altered.read(RUN) if b"tool.invocation.started" in entry.body]
