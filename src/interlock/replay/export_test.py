"""Exports a recorded run as a pytest file: hermetic, offline, without keys, and self-contained.

The file holds what the model and people said and what every call came to. When it runs, all of that goes through the
current code (`model.py`): nothing is executed, no model is asked. It fails with a message when tools, policy, prompts
or the runtime behave differently than when it was exported.

What goes into the file was in the log without secrets already. It is read once more for secrets, and what names a
machine or a person is left out or replaced: the folder of the run, the home folder, who asked and who answered.
"""

import asyncio
import re
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import msgspec

from ..app import App
from ..domain.call import Answer
from ..domain.errors import ArtifactError, ConfigurationError
from ..domain.event import LogEntry
from ..domain.rendering import render_for_model
from ..storage.artifacts import ArtifactStore
from .model import replay_recording
from .recording import Recording, ReplayAnswer, ReplayCall, short_digest, to_json
from .recording_reader import read_recording

WORKSPACE, HOME, PERSON, RUN_ID = "/workspace", "/home/person", "a person", "run_recorded"
#: A whole output that is longer stays out of the file: what was shown of it is enough to compare.
MAX_OUTPUT_CHARS = 64 * 1024

#: The name of the person who answers.
_AUTOMATIC_ANSWERERS = frozenset({"", "headless", "fallback", "clock"})
_is_import_path = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*").fullmatch
_is_test_name = re.compile(r"test_\w+").fullmatch

_HEAD = '''"""{about}

Nothing is executed and no model is asked. Export it again when what it shows is meant to change.
"""

# ruff: noqa: E501

import asyncio

from interlock.replay.recording import from_json
from interlock.replay.model import replay_recording
{import_line}
RECORDING = r\'\'\'
{recording}\'\'\'

'''

_BODY = """#: What policy says about each call.
DECISIONS = {decisions}
#: `ok`, or why a call did not come to a result.
OUTCOMES = {outcomes}


def {name}() -> None:
    replay = asyncio.run(replay_recording(from_json(RECORDING){agent}))

    if not replay.same:
        raise AssertionError(replay.words)
    assert replay.decisions == DECISIONS
    assert replay.outcomes == OUTCOMES
    assert replay.now.end == {end!a}
    assert replay.now.text == {text!a}
    assert replay.now.verification == {verification!a}
"""


async def export_test(
    entries: Sequence[LogEntry],
    artifacts: ArtifactStore | None = None,
    *,
    agent: str = "",
    name: str = "test_recorded_run",
) -> str:
    """Return the source of a test. `agent` is the entry point of the agent, as `package.module:function`, called
    without arguments; without it the test uses stubs of the recorded tools and decisions, so that it tests the runtime
    alone.
    """
    if agent and not _is_import_path(agent):
        raise ConfigurationError(f"{agent[:80]!r} does not say where the agent comes from: `package.module:function`.")
    if not _is_test_name(name):
        raise ConfigurationError(f"{name[:80]!r} cannot be the name of a test: it begins with `test_`.")
    recording = await asyncio.to_thread(lambda: make_portable(read_recording(entries, artifacts), artifacts))
    if agent:
        lost = {call.call_id for call in recording.calls.values() if call.lost}
        return _render_source(msgspec.structs.replace(recording, tools=()), lost, agent, name)
    return _render_source(recording, await _verify_with_stubs(recording), agent, name)


async def _verify_with_stubs(recording: Recording) -> Collection[str]:
    """Check that the test needs no agent. Some runs do: with budgets, typed answers, or another fail-safe."""
    replay = await replay_recording(recording)
    if not replay.same:
        raise ConfigurationError(
            "With stubs of its tools this run does not come out as it was recorded, so the test needs the agent: say "
            f"where it comes from. {replay.differences[0].words}"
        )
    return replay.unchecked


def _render_source(recording: Recording, unchecked: Collection[str], agent: str, name: str) -> str:
    module, _, function = agent.partition(":")
    head = _HEAD.format(
        about=_describe_recording(recording),
        import_line=f"from {module} import {function}\n" if agent else "",
        recording=_escape_source(to_json(recording).decode()),
    )
    return head + _BODY.format(
        name=name,
        agent=f", {function}()" if agent else "",
        decisions=_render_table(recording.decisions, unchecked),
        outcomes=_render_table(recording.outcomes, unchecked),
        end=recording.end,
        text=recording.text,
        verification=recording.verification,
    )


def make_portable(recording: Recording, artifacts: ArtifactStore | None = None) -> Recording:
    """Return the recording without secrets, and without what identifies a machine or a person."""
    names, redact = _build_replacements(recording), App().parts.redactor.redact

    def clean(text: str) -> str:
        for old, new in names:
            text = text.replace(old, new)
        return redact(text)

    instructions = _InstructionCleaner(artifacts, clean)
    plain = msgspec.structs.replace(
        recording,
        requester="",
        # Digests of texts that may be changed here; the outcomes themselves are compared.
        conversation=(),
        answers=tuple(instructions.clean_answer(answer) for answer in recording.answers),
        calls={call_id: _anonymize(call) for call_id, call in recording.calls.items()},
    )
    cleaned = msgspec.convert(_map_strings(msgspec.to_builtins(plain), clean), Recording)
    outputs = [call.output for call in recording.calls.values()]
    calls = {
        call.call_id: _refresh_digests(call, was) for call, was in zip(cleaned.calls.values(), outputs, strict=True)
    }
    return msgspec.structs.replace(cleaned, calls=calls)


class _InstructionCleaner:
    """What the instructions are called when they are cleaned, too."""

    def __init__(self, artifacts: ArtifactStore | None, clean: Callable[[str], str]) -> None:
        self._artifacts = artifacts
        self._clean = clean
        self._names: dict[str, str] = {"": ""}

    def clean_answer(self, answer: ReplayAnswer) -> ReplayAnswer:
        request = answer.request
        name = self._names.get(request.instructions)
        if name is None:
            name = self._names[request.instructions] = self._clean_artifact_id(request.instructions)
        return msgspec.structs.replace(answer, request=msgspec.structs.replace(request, instructions=name))

    def _clean_artifact_id(self, artifact_id: str) -> str:
        try:
            written = self._artifacts.read(artifact_id) if self._artifacts is not None else None
        except (ArtifactError, OSError):
            written = None
        if written is None:
            return ""
        return f"sha256:{sha256(self._clean(written.decode(errors='replace')).encode()).hexdigest()}"


def _anonymize(call: ReplayCall) -> ReplayCall:
    answer, observation = call.answer, call.observation
    if answer is not None:
        who = answer.by if answer.by in _AUTOMATIC_ANSWERERS else PERSON
        answer = Answer(
            approved=answer.approved,
            reason=answer.reason,
            value=answer.value,
            expired=answer.expired,
            by=who,
            channel=answer.channel,
            assurance=answer.assurance,
        )
    if observation is not None and observation.failure is not None:
        failure = observation.failure
        details = {name: value for name, value in failure.details.items() if name != "action_id"}
        if details.get("by"):
            details["by"] = answer.by if answer is not None else PERSON
        failure = msgspec.structs.replace(failure, details=details)
        observation = msgspec.structs.replace(observation, failure=failure)
    whole = call.output if call.output is not None and len(call.output) <= MAX_OUTPUT_CHARS else None
    return msgspec.structs.replace(call, answer=answer, observation=observation, output=whole)


def _refresh_digests(call: ReplayCall, output: str | None) -> ReplayCall:
    """Update what depends on the text. A whole output that was changed is not what its artifact is named after: what
    was shown of it remains.
    """
    observation = call.observation
    digest = short_digest(render_for_model(observation)) if observation is not None else ""
    return msgspec.structs.replace(call, told=digest, output=call.output if call.output == output else None)


def _build_replacements(recording: Recording) -> list[tuple[str, str]]:
    """Return what is replaced, the longest first."""
    people = {call.answer.by for call in recording.calls.values() if call.answer and call.answer.by}
    names = {recording.run_id: RUN_ID, recording.workspace: WORKSPACE}
    with suppress(RuntimeError):
        names[str(Path.home())] = HOME
    found = [(old, new) for old, new in names.items() if len(old) > 1]
    found += [(f"A person ({who}) changed", f"A person ({PERSON}) changed") for who in people]
    return sorted(found, key=lambda pair: -len(pair[0]))


def _map_strings(value: Any, change: Callable[[str], str]) -> Any:
    match value:
        case str():
            return change(value)
        case dict():
            mapping = cast(dict[str, Any], value)
            return {change(name): _map_strings(item, change) for name, item in mapping.items()}
        case list() | tuple():
            return [_map_strings(item, change) for item in cast(Sequence[Any], value)]
        case _:
            return value


def _describe_recording(recording: Recording) -> str:
    calls = ", ".join(dict.fromkeys(call.tool for call in recording.calls.values() if _is_plain(call.tool)))
    agent = recording.agent if _is_plain(recording.agent) else "an agent"
    return f"A recorded run of {agent}: {len(recording.answers)} answers" + (f", calls of {calls}." if calls else ".")


def _is_plain(name: str) -> bool:
    return name.isascii() and name.isidentifier()


def _escape_source(text: str) -> str:
    """Escape JSON for a raw string: ASCII only, without a quote that could end it."""
    escaped = text.replace("'", "\\u0027")
    return "".join(char if char.isascii() and char != "\x7f" else _escape(char) for char in escaped)


def _escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _render_table(rows: dict[str, str], unchecked: Collection[str]) -> str:
    lines = [f"    {call_id!a}: {said!a},\n" for call_id, said in rows.items() if call_id not in unchecked]
    return f"{{\n{''.join(lines)}}}" if lines else "{}"
