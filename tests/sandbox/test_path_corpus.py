"""Every path of the corpus, and more of its kinds, on both ways to open a file."""

import os
from pathlib import Path
from tempfile import mkdtemp

import pytest

from interlock.sandbox.host.beneath import PathOpener
from interlock.sandbox.workspace.refusals import PathRefusedError
from interlock.sandbox.workspace.workspace import Workspace
from tests.corpora.path_escape import CANARY, MORE, Case, Scene, load
from tests.each import each
from tests.sandbox.ordinary_user import pytest_as_ordinary_user
from tests.sandbox.ways import both_ways

WRITTEN = "written"
#: A race is not a case: it has a test of its own.
CASES = [case for case in (*load(), *MORE) if case.category != "toctou"]

pytestmark = pytest.mark.requirement("R229")


@both_ways
@each("case", CASES)
def test_a_path_leads_where_it_may_and_nowhere_else(case: Case, reach: PathOpener, tmp_path: Path) -> None:
    scene = Scene(Path(mkdtemp(dir=tmp_path)))
    path = scene.set_up(case)
    before = scene.around()

    with Workspace(scene.workspace, opener=reach) as workspace:
        place = located(workspace, case.op, path)
        told = do(workspace, case.op, path)

    assert (place is not None, told is not None) == (case.allowed, case.allowed)
    assert CANARY not in (told or "")
    assert scene.around() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="this is the ordinary user already")
def test_the_same_holds_for_an_ordinary_user() -> None:
    pytest_as_ordinary_user(__file__, "-k", "kernel")


def located(workspace: Workspace, op: str, path: str) -> str | None:
    """Where the path leads, when it is of use for this."""
    try:
        place = workspace.locate(path.partition("*")[0] if op == "glob" else path, writing=op == "write")
    except PathRefusedError:
        return None
    assert not {"..", ""}.intersection(place.relative.split("/"))
    useful = {"read": ("file",), "write": ("file", "missing")}.get(op, ("folder",))
    return place.relative if place.kind in useful else None


def do(workspace: Workspace, op: str, path: str) -> str | None:
    """What came of it, or None where it was refused."""
    try:
        match op:
            case "read":
                with workspace.open_file(path, None) as file:
                    return os.read(file.fd, 1_000).decode()
            case "write":
                relative = workspace.replace_file(path, WRITTEN.encode(), None).relative
                assert Path(workspace.root, relative).read_text() == WRITTEN
                return relative
            case _:
                fixed = path.partition("*")[0] if op == "glob" else path
                return " ".join(entry.name for entry in workspace.list_entries(fixed).entries)
    except PathRefusedError:
        return None
