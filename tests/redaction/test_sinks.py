r"""No secret leaves the pipeline, whatever form it has and whichever way it takes.

A canary is written in a form, put into a call at a place, and looked for in everything that comes out: the log, its
exports for audit sinks, what the model reads, progress, and every artifact.
"""

import base64
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from interlock import Decision, ToolContext, ToolIntent, ToolRuntime, tool
from interlock.audit import records as told
from interlock.audit import schemas
from interlock.audit.export import read_export
from interlock.redaction.redactor import SecretRedactor
from interlock.storage.memory_artifacts import MemoryArtifacts
from tests.each import each

TOKEN = "ghp_" + "a1B2c3D4e5F6" * 3
DECLARED = "cor/rect+horse &battery-staple"


def in_base64(secret: str) -> str:
    return base64.b64encode(b"x" * 30 + secret.encode() + b"y" * 30).decode()


def wrapped(secret: str) -> str:
    text = in_base64(secret)
    return "\n".join(text[at : at + 64] for at in range(0, len(text), 64))


FORMS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "base64": in_base64,
    "wrapped base64": wrapped,
    "url": lambda secret: f"https://user:{base64.urlsafe_b64encode(secret.encode()).decode()}@host.example/",
    "unseen characters": "\u200b".join,
    "quoted": lambda secret: f'"{secret}"\n',
}
by_form = each("form", FORMS.values())
by_secret = each("secret", [TOKEN, DECLARED])


def cores(secret: str) -> set[str]:
    """What must not be found once everything that splits or escapes is removed."""
    plain = {secret[4:30], base64.urlsafe_b64encode(secret.encode()).decode()[:28]}
    return {*plain, *(base64.b64encode(b"x" * 30 + secret.encode()).decode()[44:68],)}


def leaked(secret: str, texts: list[str]) -> list[str]:
    def bare(text: str) -> str:
        text = re.sub(r"\\u([0-9a-fA-F]{4})", lambda match: chr(int(match[1], 16)), text)
        return re.sub(r"\\+u\{[0-9a-f]+\}|\\+[nrt]|[\u200b\n\r\\\"]", "", text)

    return [text for text in texts if any(core in bare(text) for core in cores(secret))]


class Fails:
    """A policy that fails with the arguments in its text."""

    def evaluate(self, event: Any) -> Decision:
        raise ValueError(f"cannot judge {event.arguments.text}")


@tool(risk="read")
async def echo(text: str, context: ToolContext, count: int = 0, extra: dict[str, Any] = {}) -> Any:  # noqa: B006
    """Say it in every way there is."""
    context.progress(text)
    context.warn(f"careful: {text}")
    context.keep(text.encode(), "note")
    context.side_effect("said", text, text)
    return {"said": text, text: [text], "extra": extra}


@tool(risk="read")
async def fail(text: str) -> str:
    """Fail with it."""
    raise ValueError(f"no such thing: {text}")


@tool(risk="write")
async def write(text: str) -> str:
    """Ask about it."""
    return text


class Run:
    """One runtime, and everything that came out of it."""

    def __init__(self, **options: Any) -> None:
        self._artifacts = MemoryArtifacts()
        self._progress: list[str] = []
        self.runtime = ToolRuntime(
            tools=[echo, fail, write],
            artifacts=self._artifacts,
            secrets={"DECLARED": DECLARED},
            on_progress=lambda _, message: self._progress.append(message),
            **options,
        )

    async def texts(self, tool_name: str, arguments: Any) -> list[str]:
        async with self.runtime as runtime:
            result = await runtime.execute([ToolIntent(call_id="c1", tool_name=tool_name, arguments=arguments)])
            log = await runtime.export()
        entries = read_export(log.splitlines())
        records = [told.to_audit_record(entry) for entry in entries]
        sinks = [
            sink(record).decode()
            for record in records
            for sink in (schemas.cef, schemas.ecs, schemas.splunk_hec, schemas.ocsf)
        ]
        kept = [content.decode() for content in vars(self._artifacts)["_contents"].values()]
        seen = [json.dumps(message, ensure_ascii=False) for message in result.messages]
        observed = [observation.summary + observation.user_text for observation in result.observations]
        return [log.decode(), *sinks, *kept, *seen, *observed, *self._progress]


@by_form
@by_secret
async def test_no_way_out_shows_a_secret(form: Callable[[str], str], secret: str) -> None:
    texts = await Run().texts("echo", {"text": form(secret)})

    assert len(texts) > 20
    assert leaked(secret, texts) == []


@by_form
@by_secret
@each("tool_name", ["fail", "write", "no_such_tool"])
async def test_no_failure_or_question_shows_a_secret(form: Callable[[str], str], secret: str, tool_name: str) -> None:
    assert leaked(secret, await Run().texts(tool_name, {"text": form(secret)})) == []


@by_form
@by_secret
async def test_no_failed_policy_shows_a_secret(form: Callable[[str], str], secret: str) -> None:
    assert leaked(secret, await Run(policy=Fails()).texts("echo", {"text": form(secret)})) == []


@by_form
@by_secret
async def test_no_key_shows_a_secret(form: Callable[[str], str], secret: str) -> None:
    assert leaked(secret, await Run().texts("echo", {"text": "x", "extra": {form(secret): {form(secret): 1}}})) == []


@by_form
@by_secret
@each("place", ["value", "list", "key", "unknown field"])
async def test_no_validation_error_shows_a_secret(form: Callable[[str], str], secret: str, place: str) -> None:
    written = form(secret)
    bad = {
        "value": {"text": "x", "count": written},
        "list": {"text": "x", "count": [written]},
        "key": {"text": "x", "count": {written: 1}},
        "unknown field": {"text": "x", written: 1},
    }

    assert leaked(secret, await Run().texts("echo", bad[place])) == []


@by_secret
@pytest.mark.parametrize("tail", ["}", ""], ids=["JSON", "malformed"])
async def test_escaped_letters_hide_nothing(secret: str, tail: str) -> None:
    escaped = "".join(f"\\u{ord(character):04x}" for character in secret)

    assert leaked(secret, await Run().texts("echo", f'{{"text": "{escaped}"{tail}')) == []


async def test_half_a_secret_is_not_shown_where_a_text_is_cut() -> None:
    texts = await Run().texts("echo", f"{'x' * 1980} {TOKEN}")

    assert [text for text in texts if TOKEN[:12] in text] == []


def test_redacting_again_changes_nothing() -> None:
    redact = SecretRedactor({"DECLARED": DECLARED}).redact

    for form in FORMS.values():
        once = redact(form(TOKEN))
        assert redact(once) == once
