"""Registry lookup: first of all, for every intent, whatever menu the model was shown."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from interlock import (
    CallContext,
    MemoryArtifacts,
    PermissionMode,
    Phase,
    Risk,
    ToolIntent,
    ToolRegistry,
    ToolRuntime,
    tool,
)
from interlock.domain.event import BatchStarted, CallProposed, CallValidated, InvocationStarted, ToolsOffered
from tests.support import call, facts

ran: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


@tool(risk=[Risk.READ])
async def read() -> str:
    ran.append("read")
    return "text"


@tool
async def edit(path: str) -> str:
    ran.append(f"edit {path}")
    return "edited"


@pytest.mark.requirement("R184")
@pytest.mark.parametrize("arguments", [{"path": 5}, {"any": [1, 2]}, {}, "", "{}"], ids=str)
async def test_an_unknown_tool_is_unknown_whatever_its_input(arguments: Any) -> None:
    runtime = ToolRuntime(tools=[read])
    result = await runtime.execute([ToolIntent(call_id="c1", tool_name="reed", arguments=arguments)])

    assert result.observations[0].code == "unknown_tool"
    assert not [fact for fact in await facts(runtime) if isinstance(fact, CallValidated)]


@pytest.mark.requirement("R184", "R185", "R201", "R207")
async def test_an_unknown_tool_is_an_observation_of_the_lookup_that_names_the_tools_there_are() -> None:
    result = await ToolRuntime(tools=[read, edit]).execute([call("c1", "reed", path="p")])

    failure = result.observations[0].failure
    assert failure is not None
    assert (failure.code, failure.phase, failure.retryable, failure.side_effects) == (
        "unknown_tool",
        Phase.LOOKUP,
        True,
        (),
    )
    assert "There is no tool 'reed'" in failure.message
    assert failure.details["available_tools"] == ["edit", "read", "read_artifact"]


@pytest.mark.requirement("R190", "R191", "R192", "R201")
async def test_a_tool_that_the_older_menu_had_is_refused_when_the_mode_changed() -> None:
    runtime = ToolRuntime(tools=[read, edit])
    shown = runtime.registry.to_openai_function_tools(runtime.situation)
    assert "edit" in {entry["function"]["name"] for entry in shown}

    runtime.switch_mode(mode="read_only")
    result = await runtime.execute([call("c1", "edit", path="src/a.py"), call("c2", "read")])

    refused, done = result.observations
    assert refused.failure is not None
    assert (refused.code, refused.failure.retryable) == ("tool_not_visible", True)
    assert "Tool edit is not available in read-only mode." in refused.failure.message
    assert done.ok
    assert ran == ["read"]


WAYS: dict[str, tuple[Callable[[CallContext], bool | str], list[bool]]] = {
    "mode": (lambda situation: situation.mode is PermissionMode.TRUSTED, [True, False, False]),
    "task phase": (lambda situation: situation.task_phase == "repair", [False, True, False]),
    "session": (lambda situation: situation.run_id == "run_a" and situation.agent == "fixer", [True, True, True]),
    "another session": (lambda situation: situation.run_id == "run_b" or "Not here.", [False, False, False]),
}


@pytest.mark.requirement("R190", "R191")
@pytest.mark.parametrize(("visible", "seen"), WAYS.values(), ids=WAYS)
async def test_visibility_is_asked_for_each_intent_by_mode_phase_and_session(
    visible: Callable[[CallContext], bool | str], seen: list[bool]
) -> None:
    runtime = ToolRuntime(
        tools=[tool(edit.handler, name="edit", visible=visible)], run_id="run_a", agent="fixer", mode="trusted"
    )
    found: list[bool] = []
    for number, situation in enumerate([{}, {"mode": "default", "task_phase": "repair"}, {"task_phase": "report"}]):
        runtime.switch_mode(**situation)
        result = await runtime.execute([call(f"c{number}", "edit", path="p")])
        found.append(result.observations[0].ok)

    assert found == seen
    assert len(ran) == sum(seen)


@pytest.mark.requirement("R192")
async def test_an_invisible_tool_says_why_in_its_own_words() -> None:
    hidden = tool(edit.handler, name="edit", visible=lambda _: "Edits open after the review.")
    result = await ToolRuntime(tools=[hidden]).execute([call("c1", "edit", path="p")])

    assert result.observations[0].code == "tool_not_visible"
    assert result.observations[0].summary.startswith("Edits open after the review. Nothing was executed.")
    assert ran == []


@pytest.mark.requirement("R190")
async def test_a_tool_that_was_removed_after_the_menu_was_shown_is_unknown() -> None:
    runtime = ToolRuntime(tools=[read, edit])
    runtime.registry.to_anthropic_tools()
    runtime.registry.unregister("edit")
    result = await runtime.execute([call("c1", "edit", path="p")])

    assert result.observations[0].code == "unknown_tool"
    assert ran == []


@pytest.mark.requirement("R193")
async def test_a_batch_names_its_menu_and_the_menu_can_be_read_from_its_artifact() -> None:
    artifacts = MemoryArtifacts()
    runtime = ToolRuntime(tools=[read, edit], artifacts=artifacts)
    await runtime.execute([call("c1", "read")])
    runtime.switch_mode(mode="read_only")
    await runtime.execute([call("c2", "read")])
    await runtime.execute([call("c3", "read")])

    recorded = await facts(runtime)
    menus = {fact.digest: fact for fact in recorded if isinstance(fact, ToolsOffered)}
    batches = [menus[fact.menu_digest] for fact in recorded if isinstance(fact, BatchStarted)]
    assert [sorted(menu.versions) for menu in batches] == [
        ["edit", "read", "read_artifact"],
        ["read", "read_artifact"],
        ["read", "read_artifact"],
    ]
    assert len(menus) == 2
    kept = msgspec.json.decode(artifacts.read(batches[0].artifact_id))
    assert {entry["name"]: entry["parameters_schema"] for entry in kept}["edit"] == edit.spec.parameters_schema


@pytest.mark.requirement("R193")
async def test_the_menu_of_the_run_can_be_read_back_through_the_runtime() -> None:
    runtime = ToolRuntime(tools=[read])
    await runtime.execute([call("c1", "read")])
    [menu] = [fact for fact in await facts(runtime) if isinstance(fact, ToolsOffered)]

    result = await runtime.execute([call("c2", "read_artifact", artifact_id=menu.artifact_id)])

    content = result.observations[0].content
    assert content is not None
    shown = json.loads(content.text.split("\n", 1)[1])
    assert [entry["name"] for entry in shown] == ["read", "read_artifact"]


@pytest.mark.requirement("R194", "R195")
async def test_intent_and_invocation_name_the_version_and_what_executed_it() -> None:
    def plain() -> None: ...

    tools = [tool(edit.handler, name="edit", version="2.1"), plain]
    runtime = ToolRuntime(tools=tools)
    await runtime.execute([call("c1", "edit", path="p"), call("c2", "plain"), call("c3", "nobody")])

    recorded = await facts(runtime)
    proposed = {fact.call_id: fact for fact in recorded if isinstance(fact, CallProposed)}
    started = {fact.call_id: fact for fact in recorded if isinstance(fact, InvocationStarted)}
    assert [proposed[call_id].tool_version for call_id in ("c1", "c3")] == ["2.1", ""]
    assert proposed["c2"].tool_version.startswith("sha256:")
    assert [(started[c].executor, started[c].tool_version) for c in ("c1", "c2")] == [
        ("async", "2.1"),
        ("thread", proposed["c2"].tool_version),
    ]


@pytest.mark.requirement("R194")
async def test_the_version_on_record_is_the_one_of_that_moment() -> None:
    registry = ToolRegistry([tool(edit.handler, name="edit", version="1")])
    runtime = ToolRuntime(tools=registry)
    await runtime.execute([call("c1", "edit", path="p")])
    registry.unregister("edit")
    registry.register(tool(edit.handler, name="edit", version="2"))
    await runtime.execute([call("c2", "edit", path="p")])

    versions = [fact.tool_version for fact in await facts(runtime) if isinstance(fact, CallProposed)]
    assert versions == ["1", "2"]


@pytest.mark.parametrize("answer", [None, 0, 1, "", [], object()], ids=lambda answer: type(answer).__name__)
def test_a_tool_that_does_not_clearly_say_that_it_is_visible_is_not(answer: Any) -> None:
    registry = ToolRegistry([tool(read.handler, name="read", visible=lambda _: answer)])

    assert registry.list_visible(CallContext(run_id="r")) == []
