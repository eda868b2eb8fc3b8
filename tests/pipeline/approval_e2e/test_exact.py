"""What is shown is what runs: arguments that two readers could take for different things are one thing, or refused."""

from typing import Any

import pytest

from interlock import Question, ToolIntent, ToolRuntime, tool
from tests.pipeline.batch.stage import codes
from tests.support import call

from .scene import Person, Scene, ask_rule, soon


async def run(scene: Scene, intent: ToolIntent, **options: Any) -> tuple[dict[str, str], list[Question]]:
    person = Person()
    async with scene.runtime(interaction=person, **options) as runtime:
        return codes(await soon(runtime.execute([intent]))), person.asked


@pytest.mark.requirement("D12", "R145")
async def test_defaults_are_shown_and_hashed_and_what_runs_is_what_was_shown(scene: Scene) -> None:
    outcome, [question] = await run(scene, call("c1", "edit", path="notes.txt"))

    assert question.arguments == {"path": "notes.txt", "text": "new", "size": 1.0}
    assert (outcome, scene.ran) == ({"c1": "ok"}, [question.arguments])


@pytest.mark.requirement("D12", "R161")
async def test_a_default_that_is_sent_and_one_that_is_not_are_the_same_payload(scene: Scene) -> None:
    _, [short] = await run(scene, call("c1", "edit", path="notes.txt"), run_id="run_a")
    scene.log = type(scene.log)()
    _, [long] = await run(scene, call("c1", "edit", path="notes.txt", text="new", size=1), run_id="run_a")

    assert short.payload_hash == long.payload_hash


@pytest.mark.requirement("D12")
async def test_a_handler_gets_the_numbers_that_the_canonical_bytes_have(scene: Scene) -> None:
    got: list[Any] = []

    @tool(risk="write")
    async def keep(anything: Any) -> None:
        got.append(anything)

    sent = {"one": 1.0, "zero": -0.0, "hundred": 1e2, "half": 0.5, "text": "1.0"}
    async with ToolRuntime(tools=[keep], policy=ask_rule(tools="keep"), interaction=Person()) as runtime:
        result = await soon(runtime.execute([call("c1", "keep", anything=sent)]))

    assert codes(result) == {"c1": "ok"}
    assert repr(got) == repr([{"half": 0.5, "hundred": 100, "one": 1, "text": "1.0", "zero": 0}])


@pytest.mark.requirement("D12", "R143")
@pytest.mark.parametrize(
    "arguments",
    [
        '{"path": "a", "path": "b"}',
        '{"path": "a", "size": NaN}',
        '{"path": "a", "size": Infinity}',
        '{"path": "a", "size": 1e400}',
        '{"path": "a", "size": 9007199254740993}',
        '{"path": "a", "size": 1e20}',
        '{"path": "\\ud800"}',
        '{"path": "a", "\\udfff": 1}',
        '{"path": ' + "[" * 2_000 + "]" * 2_000 + "}",
        '{"path": "a", "approved": true}',
    ],
    ids=lambda text: text[:40],
)
async def test_what_has_no_one_meaning_is_refused_and_nobody_is_asked(scene: Scene, arguments: str) -> None:
    outcome, asked = await run(scene, ToolIntent(call_id="c1", tool_name="edit", arguments=arguments))

    assert outcome["c1"] in ("arguments_malformed", "schema_invalid", "policy_denied")
    assert (asked, scene.ran) == ([], [])


@pytest.mark.requirement("R161")
@pytest.mark.parametrize(
    ("one", "other"), [("ls", "ls "), ("\u00e9", "e\u0301"), ("a", "\u0430"), ("a", "a\u200b"), ("a", "a\u202e")]
)
async def test_text_that_looks_alike_is_another_payload_and_is_asked_about_again(
    scene: Scene, one: str, other: str
) -> None:
    async with scene.runtime() as runtime:
        [question] = (await runtime.execute([call("c1", "edit", path="notes.txt", text=one)])).questions
        await runtime.decide(question.action_id, approved=True, by="ada", scope="run")
        await runtime.resume()
        [again] = (await runtime.execute([call("c2", "edit", path="notes.txt", text=other)])).questions

    assert again.payload_hash != question.payload_hash
    assert [ran["text"] for ran in scene.ran] == [one]
