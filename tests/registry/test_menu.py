"""What a model is shown, and when it is the same."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.domain.tool import CallContext, PermissionMode, ToolDefinition
from interlock.registry.decorator import tool
from interlock.registry.memory import ToolRegistry


def handler(path: str) -> str:
    return path


READ = tool(handler, name="read_file", risk="read")
EDIT = tool(handler, name="edit_file", risk="write")
SITUATION = CallContext(run_id="run_1")


def test_a_menu_names_the_visible_tools_their_versions_and_schemas() -> None:
    menu = ToolRegistry([READ, EDIT]).catalog(SITUATION)

    assert menu.tools == (EDIT.spec, READ.spec)
    assert menu.versions == {"edit_file": EDIT.version, "read_file": READ.version}
    assert menu.digest.startswith("sha256:")


@pytest.mark.requirement("R191")
def test_visibility_depends_on_session_mode_and_task_phase() -> None:
    def while_reviewing(situation: CallContext) -> bool | str:
        return situation.task_phase == "review" or "Only while reviewing."

    def in_run_1(situation: CallContext) -> bool:
        return situation.run_id == "run_1"

    registry = ToolRegistry(
        [
            READ,
            EDIT,
            tool(handler, name="comment", risk="read", visible=while_reviewing),
            tool(handler, name="own", risk="read", visible=in_run_1),
        ]
    )

    def names(situation: CallContext) -> list[str]:
        assert [spec.name for spec in registry.catalog(situation).tools] == [
            definition.name for definition in registry.list_visible(situation)
        ]
        return [definition.name for definition in registry.list_visible(situation)]

    assert names(CallContext(run_id="run_1")) == ["edit_file", "own", "read_file"]
    assert names(CallContext(run_id="run_2")) == ["edit_file", "read_file"]
    assert names(CallContext(run_id="run_2", mode=PermissionMode.READ_ONLY)) == ["read_file"]
    assert names(CallContext(run_id="run_2", task_phase="review")) == ["comment", "edit_file", "read_file"]


def test_the_same_menu_is_the_same_object_until_the_tools_change() -> None:
    registry = ToolRegistry([READ])
    before = registry.catalog(SITUATION)

    assert registry.catalog(CallContext(run_id="run_2", task_phase="review")) is before
    registry.register(EDIT)
    assert registry.catalog(SITUATION).digest != before.digest
    registry.unregister("edit_file")
    assert registry.catalog(SITUATION) == before


def test_a_tool_that_changes_its_mind_is_asked_every_time() -> None:
    open_doors = [True]
    registry = ToolRegistry([READ, tool(handler, name="door", visible=lambda _situation: bool(open_doors))])

    opened = registry.catalog(SITUATION)
    open_doors.clear()
    closed = registry.catalog(SITUATION)
    open_doors.append(True)

    assert [set(opened.versions), set(closed.versions)] == [{"door", "read_file"}, {"read_file"}]
    assert registry.catalog(SITUATION) is opened


def test_many_different_menus_do_not_pile_up() -> None:
    def only_in_phase(number: int) -> ToolRegistry:
        return ToolRegistry(
            tool(handler, name=f"tool_{bit}", visible=lambda s, bit=bit: bool(int(s.task_phase) >> bit & 1))
            for bit in range(number)
        )

    registry = only_in_phase(8)
    menus = [registry.catalog(CallContext(run_id="run_1", task_phase=str(phase))) for phase in range(256)]

    assert len({menu.digest for menu in menus}) == 256
    assert registry.catalog(CallContext(run_id="run_1", task_phase="255")).digest == menus[255].digest


VARIANTS = [
    READ,
    tool(handler, name="read_file", risk="read", version="2"),
    tool(handler, name="read_file", risk="read", description="Other.", version=READ.version),
    EDIT,
    tool(handler, name="grep", risk="read"),
]


DISTINCT = [READ, EDIT, tool(handler, name="grep", risk="read"), tool(handler, name="glob", risk="read")]


@settings(deadline=None)
@given(st.permutations(DISTINCT), st.integers(0, len(DISTINCT)))
def test_the_digest_does_not_depend_on_the_order_of_registration(tools: list[ToolDefinition], count: int) -> None:
    chosen = tools[:count]
    in_other_order = sorted(chosen, key=lambda definition: definition.version)

    assert ToolRegistry(chosen).catalog(SITUATION) == ToolRegistry(in_other_order).catalog(SITUATION)


def test_another_name_version_description_or_schema_gives_another_digest() -> None:
    def other(path: str, limit: int = 1) -> str:
        return path

    menus = [
        ToolRegistry([definition]).catalog(SITUATION)
        for definition in [*VARIANTS, tool(other, name="read_file", risk="read", version=READ.version)]
    ]

    assert len({menu.digest for menu in menus}) == len(menus)
