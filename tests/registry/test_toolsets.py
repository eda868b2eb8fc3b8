"""Sets of tools made from other sets."""

import msgspec
import pytest

from interlock.domain.errors import DuplicateToolError, ToolDeclarationError
from interlock.registry.decorator import tool
from interlock.registry.toolsets import filter_tools, prefix_tools, rename_tools


def handler(path: str) -> str:
    return path


READ = tool(handler, name="read", risk="read")
WRITE = tool(handler, name="write", risk="write", version="3")


def test_filtered_keeps_what_it_is_told_to() -> None:
    assert filter_tools([READ, WRITE], keep=lambda definition: definition.read_only) == (READ,)


def test_prefixed_puts_a_word_before_every_name() -> None:
    read, write = prefix_tools([READ, WRITE], "files_")

    assert (read.name, write.name) == ("files_read", "files_write")
    assert write == msgspec.structs.replace(WRITE, spec=write.spec)


def test_renamed_changes_the_names_it_is_given_and_no_other() -> None:
    read, write = rename_tools([READ, WRITE], {"read": "cat"})

    assert read.name == "cat"
    assert write is WRITE


def test_a_digest_follows_the_name_and_a_given_version_stays() -> None:
    read, write = prefix_tools([READ, WRITE], "x_")

    assert read.version == tool(handler, name="x_read", risk="read").version != READ.version
    assert write.version == "3"


def test_two_tools_that_would_get_one_name_are_refused() -> None:
    with pytest.raises(DuplicateToolError, match="'write'"):
        rename_tools([READ, WRITE], {"read": "write"})
    with pytest.raises(DuplicateToolError, match="'x_read'"):
        prefix_tools([READ, READ], "x_")


def test_two_tools_may_swap_their_names() -> None:
    assert [definition.name for definition in rename_tools([READ, WRITE], {"read": "write", "write": "read"})] == [
        "write",
        "read",
    ]


def test_a_name_that_cannot_be_is_refused() -> None:
    with pytest.raises(ToolDeclarationError, match="no tool cat, dog to rename"):
        rename_tools([READ], {"dog": "a", "cat": "b"})
    with pytest.raises(ToolDeclarationError, match="cannot be called 'files/read'"):
        prefix_tools([READ], "files/")
