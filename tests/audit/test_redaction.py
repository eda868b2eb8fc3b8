"""A declared secret is nowhere: not in what the model reads, not in any byte of log, export or artifacts."""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from interlock import (
    CallbackInteractionProvider,
    CheckProblem,
    FailSafeConfig,
    FileArtifacts,
    NormalizedOutput,
    Rule,
    RulePolicy,
    SqliteLog,
    ToolContext,
    ToolIntent,
    ToolRuntime,
    render_for_user,
    tool,
)
from interlock.registry.decorator import ToolOptions
from tests.support import call

SECRET = "Tr0ub4dor&3 geheim/Wort+Zahl"
ENCODED = SECRET.encode()
FORMS = {
    "raw": SECRET,
    "base64": base64.b64encode(ENCODED).decode(),
    "base64url": base64.urlsafe_b64encode(ENCODED).decode(),
    "hex": ENCODED.hex(),
    "url": quote(SECRET, safe=""),
}


def secret_in(content: bytes) -> list[str]:
    """The forms of the secret, or of the best part of it, that stand in the bytes."""
    return [name for name, form in FORMS.items() if form.encode() in content or form[:20].encode() in content]


def found_under(folder: Path) -> dict[str, list[str]]:
    files = (file for file in folder.rglob("*") if file.is_file())
    return {file.name: found for file in files if (found := secret_in(file.read_bytes()))}


async def assert_clean(runtime: ToolRuntime, folder: Path, result: Any) -> None:
    exported = await runtime.export()
    assert secret_in(exported) == []
    for message in result.messages:
        assert secret_in(str(message).encode()) == []
    for observation in result.observations:
        assert secret_in(render_for_user(observation).encode()) == []
        assert secret_in(repr(observation).encode()) == []
    assert (await runtime.verify()).ok
    await runtime.close()
    assert found_under(folder) == {}


def runtime_in(folder: Path, tools: list[Any], **options: Any) -> ToolRuntime:
    return ToolRuntime(
        tools=tools,
        log=SqliteLog(folder / "runs.db"),
        artifacts=FileArtifacts(folder / "artifacts"),
        secrets={"DB_PASSWORD": SECRET},
        **options,
    )


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
async def test_a_secret_in_the_arguments_runs_and_is_not_recorded(tmp_path: Path, form: str) -> None:
    given: list[str] = []

    @tool
    async def login(password: str) -> str:
        given.append(password)
        return "welcome"

    runtime = runtime_in(tmp_path, [login])
    result = await runtime.execute([call("c1", "login", password=form)])

    assert given == [form]
    assert b"[redacted:DB_PASSWORD]" in await runtime.export()
    await assert_clean(runtime, tmp_path, result)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
async def test_a_secret_in_an_output_is_marked(tmp_path: Path, form: str) -> None:
    @tool
    async def show() -> str:
        return f"the password is {form} today"

    runtime = runtime_in(tmp_path, [show])
    result = await runtime.execute([call("c1", "show")])

    content = result.observations[0].content
    assert content is not None
    assert content.text == "the password is [redacted:DB_PASSWORD] today"
    await assert_clean(runtime, tmp_path, result)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
async def test_a_secret_in_a_long_output_is_not_in_its_artifact(tmp_path: Path, form: str) -> None:
    @tool(max_output_chars=400)
    async def dump() -> str:
        return "line\n" * 500 + form + "\n" + "line\n" * 500

    runtime = runtime_in(tmp_path, [dump])
    result = await runtime.execute([call("c1", "dump")])

    assert result.observations[0].artifacts
    await assert_clean(runtime, tmp_path, result)


async def test_a_secret_in_structured_output_is_marked_and_the_output_stays_json(tmp_path: Path) -> None:
    @tool
    async def show() -> dict[str, Any]:
        return {"password": SECRET, "nested": [{"again": SECRET}], SECRET: 1}

    runtime = runtime_in(tmp_path, [show])
    result = await runtime.execute([call("c1", "show")])

    assert isinstance(result.tool_executions[0].output, dict)
    await assert_clean(runtime, tmp_path, result)


async def test_a_secret_in_an_exception_is_marked(tmp_path: Path) -> None:
    @tool
    async def login() -> None:
        raise PermissionError(f"bad password {SECRET!r} for ada")

    runtime = runtime_in(tmp_path, [login])
    result = await runtime.execute([call("c1", "login")])

    assert "[redacted:DB_PASSWORD]" in result.observations[0].summary
    await assert_clean(runtime, tmp_path, result)


@pytest.mark.parametrize("filler", range(1_960, 2_001, 8))
async def test_no_part_of_a_secret_is_left_where_an_exception_text_is_cut(tmp_path: Path, filler: int) -> None:
    @tool
    async def login() -> None:
        raise PermissionError("x" * filler + SECRET)

    runtime = runtime_in(tmp_path, [login])
    result = await runtime.execute([call("c1", "login")])

    assert not [n for n in range(8, len(SECRET)) if SECRET[:n] in result.observations[0].summary]
    await assert_clean(runtime, tmp_path, result)


def saying(said: dict[str, Any]) -> Callable[[Any], NormalizedOutput]:
    return lambda _: NormalizedOutput(**said)


@pytest.mark.parametrize(
    "said",
    [
        {"summary": f"logged in with {SECRET}"},
        {"user_text": f"used {SECRET}"},
        {"ok": False, "code": "login_failed", "summary": f"refused {SECRET}"},
        {"facts": {"used": SECRET, "nested": [{"again": SECRET}]}},
        {"text": SECRET},
    ],
    ids=["summary", "user text", "failure", "facts", "text"],
)
async def test_a_secret_in_what_a_tool_says_about_its_result_is_marked(tmp_path: Path, said: dict[str, Any]) -> None:
    @tool(normalize=saying(said))
    async def login() -> str:
        return "done"

    runtime = runtime_in(tmp_path, [login])
    result = await runtime.execute([call("c1", "login")])

    await assert_clean(runtime, tmp_path, result)


async def test_a_secret_in_stated_effects_and_warnings_is_marked(tmp_path: Path) -> None:
    @tool
    async def login(ctx: ToolContext) -> None:
        ctx.side_effect("sent", f"https://ada:{SECRET}@db", SECRET)
        ctx.warn(f"the password {SECRET} is old")

    runtime = runtime_in(tmp_path, [login])
    result = await runtime.execute([call("c1", "login")])

    await assert_clean(runtime, tmp_path, result)


async def test_a_secret_in_progress_is_marked_before_anybody_hears_it(tmp_path: Path) -> None:
    heard: list[str] = []

    def hear(_: str, message: str) -> None:
        heard.append(message)

    @tool
    async def login(ctx: ToolContext) -> None:
        ctx.progress(f"trying {SECRET}")

    runtime = runtime_in(tmp_path, [login], on_progress=hear)
    result = await runtime.execute([call("c1", "login")])

    assert len(heard) == 1
    assert secret_in(heard[0].encode()) == []
    await assert_clean(runtime, tmp_path, result)


async def test_a_secret_that_does_not_fit_the_schema_is_not_echoed(tmp_path: Path) -> None:
    @tool
    async def pay(amount: int) -> None: ...

    runtime = runtime_in(tmp_path, [pay])
    result = await runtime.execute([call("c1", "pay", amount=SECRET), call("c2", "pay", amount="x" * 60 + SECRET)])

    assert [observation.code for observation in result.observations] == ["schema_invalid"] * 2
    await assert_clean(runtime, tmp_path, result)


async def test_a_secret_in_a_refused_intent_is_not_recorded(tmp_path: Path) -> None:
    runtime = runtime_in(tmp_path, [])
    result = await runtime.execute(
        [
            ToolIntent(call_id="c1", tool_name="nobody", arguments={"password": SECRET}, reason=f"use {SECRET}"),
            ToolIntent(call_id="c2", tool_name="nobody", arguments=f"not json {SECRET}"),
            ToolIntent(call_id="", tool_name="x", arguments={"password": SECRET}),
            ToolIntent(call_id="c4", tool_name="x", arguments={"password": {SECRET}}),
        ]
    )

    await assert_clean(runtime, tmp_path, result)


async def test_large_arguments_with_a_secret_are_kept_without_it(tmp_path: Path) -> None:
    @tool
    async def store(text: str) -> None: ...

    runtime = runtime_in(tmp_path, [store])
    result = await runtime.execute([call("c1", "store", text="x" * 9_000 + SECRET)])

    assert result.observations[0].ok
    await assert_clean(runtime, tmp_path, result)


async def test_a_secret_in_arguments_that_a_person_is_asked_about_is_not_recorded(tmp_path: Path) -> None:
    @tool(risk="write")
    async def login(password: str) -> str:
        return "welcome"

    runtime = runtime_in(tmp_path, [login], interaction=CallbackInteractionProvider(lambda _: True))
    result = await runtime.execute([call("c1", "login", password=SECRET)])

    assert result.observations[0].ok
    await assert_clean(runtime, tmp_path, result)


async def test_a_secret_in_a_persons_words_or_value_is_not_recorded(tmp_path: Path) -> None:
    @tool
    async def login(password: str = "") -> str:
        return "welcome"

    rule = Rule(id="ask", verdict="request_input", tools="login", target_arg="password", prompt="Password?")
    runtime = runtime_in(
        tmp_path, [login], policy=RulePolicy([rule]), interaction=CallbackInteractionProvider(lambda _: SECRET)
    )
    result = await runtime.execute([call("c1", "login")])

    assert result.observations[0].ok
    await assert_clean(runtime, tmp_path, result)


class Leaky:
    """A policy and hooks that put the arguments in the words of their refusal."""

    def evaluate(self, event: Any) -> Any:
        raise ValueError(f"cannot judge {event.arguments}")


def _raise(arguments: Any) -> Any:
    raise ValueError(f"not {arguments}")


def _refuse(value: Any) -> str:
    return f"not {value}"


REFUSING: dict[str, ToolOptions] = {
    "check": {"check": lambda arguments, _: CheckProblem(message=f"no {arguments}")},
    "input guardrail": {"input_guardrails": [_refuse]},
    "pre-hook": {"pre_hooks": [_raise]},
    "output guardrail": {"output_guardrails": [_refuse]},
    "error words": {"failure_error_function": lambda _, error: f"because {error}"},
}


@pytest.mark.parametrize("options", REFUSING.values(), ids=REFUSING)
async def test_a_secret_in_the_words_of_a_refusal_is_marked(tmp_path: Path, options: ToolOptions) -> None:
    @tool(**options)
    async def login(password: str) -> str:
        if "failure_error_function" in options:
            raise OSError(password)
        return password

    runtime = runtime_in(tmp_path, [login])
    result = await runtime.execute([call("c1", "login", password=SECRET)])

    assert not result.observations[0].ok
    await assert_clean(runtime, tmp_path, result)


async def test_a_secret_in_the_words_of_a_policy_that_fails_is_marked(tmp_path: Path) -> None:
    @tool
    async def login(password: str) -> None: ...

    runtime = runtime_in(tmp_path, [login], policy=Leaky())
    result = await runtime.execute([call("c1", "login", password=SECRET)])

    assert result.observations[0].code == "policy_denied"
    await assert_clean(runtime, tmp_path, result)


async def test_a_secret_in_the_reason_for_which_a_run_ends_is_marked(tmp_path: Path) -> None:
    @tool
    async def login(password: str) -> None: ...

    runtime = runtime_in(tmp_path, [login], policy=Leaky(), fail_safe=FailSafeConfig(approval_denial_policy="degrade"))
    result = await runtime.execute([call("c1", "login", password=SECRET)])

    assert result.degraded
    assert secret_in(result.message.encode()) == []
    await assert_clean(runtime, tmp_path, result)
