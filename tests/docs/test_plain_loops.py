"""The page about loops with the SDKs of `openai` and `anthropic`, with responses of their own types."""

import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from anthropic.types import Message
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from interlock import FileArtifacts, Inbox, SqliteLog

from .pages import compiled, python_blocks, text_of

_PAGE = "docs/adapters/plain.md"
_ARGUMENTS = '{"order": 7, "amount": 5.0}'


async def test_a_loop_with_each_sdk_pauses_and_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    asked: list[list[Any]] = []
    names: dict[str, Any] = {"ANTHROPIC": _anthropic(asked), "OPENAI": _openai(asked)}
    for block in python_blocks(text_of(_PAGE)):
        code = block.code.replace("anthropic.AsyncAnthropic()", "ANTHROPIC").replace("openai.AsyncOpenAI()", "OPENAI")
        await _run(compiled(code, _PAGE, block.line), names)
        if "ticket" in code:
            paused = await _approve_all(tmp_path / "runs.db")
            if paused and "ticket-42" not in code:  # the page says it once
                await _run(compiled(code[code.index("print(") :], _PAGE, block.line), names)
    lines = capsys.readouterr().out.splitlines()

    assert [line.startswith("['Run refund?") for line in lines] == [True, False] * 3, lines
    assert [_count_refunds(messages) for messages in asked] == [0, 1] * 3


async def _run(code: Any, names: dict[str, Any]) -> None:
    ran = eval(code, names)  # noqa: S307 - our own page
    if inspect.isawaitable(ran):
        await ran


async def _approve_all(path: Path) -> int:
    """Answer as another process does."""
    async with SqliteLog(path) as log:
        inbox = Inbox(log, FileArtifacts(path.with_name("runs.db.artifacts")))
        pending = await inbox.pending()
        for question in pending:
            await inbox.approve(question, by="ada")
    return len(pending)


def _count_refunds(messages: list[Any]) -> int:
    return sum("Refunded 5.0 for order 7." in str(message) for message in messages)


def _anthropic(asked: list[list[Any]]) -> SimpleNamespace:
    async def create(*, messages: list[Any], tools: list[Any], **options: Any) -> Message:
        asked.append(messages)
        text: dict[str, Any] = {"type": "text", "text": "One moment."}
        call = {"type": "tool_use", "id": "a1", "name": "refund", "input": {"order": 7, "amount": 5.0}}
        content = [text, call] if len(messages) == 1 else [text]
        usage = {"input_tokens": 1, "output_tokens": 1}
        head = {"id": "m1", "type": "message", "role": "assistant", "model": "m", "usage": usage}
        return Message.model_validate(head | {"content": content, "stop_reason": None, "stop_sequence": None})

    return SimpleNamespace(messages=SimpleNamespace(create=create))


def _openai(asked: list[list[Any]]) -> SimpleNamespace:
    async def create_chat(*, messages: list[Any], tools: list[Any], **options: Any) -> ChatCompletion:
        asked.append(messages)
        call = {"id": "b1", "type": "function", "function": {"name": "refund", "arguments": _ARGUMENTS}}
        message = {"content": None, "tool_calls": [call]} if len(messages) == 1 else {"content": "Done."}
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", **message}}
        return ChatCompletion.model_validate(
            {"id": "c1", "created": 0, "model": "m", "object": "chat.completion", "choices": [choice]}
        )

    async def create_response(*, input: list[Any], tools: list[Any], **options: Any) -> Response:
        asked.append(input)
        output: list[dict[str, Any]] = [{"type": "reasoning", "id": "rs1", "summary": []}]
        if len(input) == 1:
            output.append({"type": "function_call", "call_id": "d1", "name": "refund", "arguments": _ARGUMENTS})
        return Response.model_validate(
            {
                "id": "r1",
                "created_at": 0,
                "model": "m",
                "object": "response",
                "output": output,
                "parallel_tool_calls": True,
                "tool_choice": "auto",
                "tools": tools,
            }
        )

    return SimpleNamespace(
        chat=SimpleNamespace(completions=SimpleNamespace(create=create_chat)),
        responses=SimpleNamespace(create=create_response),
    )
