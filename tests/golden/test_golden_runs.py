"""Today's code runs the scripted scenes as earlier code did: the same events in the same order, the same texts."""

import asyncio
import platform
import re
from collections.abc import Iterable

import pytest

from tests.each import each

from .host_scenes import REPEATABLE, workspace
from .reading import facts, neutralize, observations, outline, read_log, read_summary, untitled, without_digests
from .scenes import SCENES, Scene, titled


@each("scene", SCENES)
def test_a_scripted_run_is_as_it_was(scene: Scene) -> None:
    for name, entries in neutralize(asyncio.run(scene())).items():
        golden = read_summary(name)
        assert outline(entries) == golden["outline"]
        assert observations(entries) == golden["observations"]
        assert untitled(entries) == untitled(read_log(name))
        if scene is titled:
            assert facts(entries) == facts(read_log(name))


@pytest.mark.parametrize("name", REPEATABLE)
def test_a_run_on_this_host_is_as_it_was(name: str) -> None:
    with workspace() as folder:
        [entries] = neutralize(REPEATABLE[name](folder), folder).values()

    golden = read_summary(name)
    assert by_call(outline(entries)) == by_call(golden["outline"])
    if platform.python_version_tuple()[:2] == ("3", "11"):  # unittest and pytest print other text in other versions
        assert texts(observations(entries)) == texts(golden["observations"])


def by_call(lines: Iterable[str]) -> list[str]:
    """Return the lines without their places, and those of each call together: threads end in any order."""
    return sorted((re.sub(r"^\d+ ", "", line) for line in lines), key=_call_in)


def _call_in(line: str) -> list[str]:
    return re.findall(r" ((?:call|round)_\d+) ", line)[:1]


def texts(seen: Iterable[list[str]]) -> list[list[str]]:
    return sorted([_ADDED.sub("", without_digests(text)) for text in each] for each in seen)


#: What is said since about a failing command: the line that failed, and where.
_FIRST_FAILURE = r"The first failure is at [^\"]+? Read it before editing\."
_ADDED = re.compile(rf'"preview":"(?:[^"\\]|\\.)*",|,"nextHint":"{_FIRST_FAILURE}"(?=\}})|{_FIRST_FAILURE} ')
