"""Binary output is described by its size, type and digest, and kept as an artifact, whichever tool it comes from."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from interlock import MemoryArtifacts, Observation, ToolRuntime, tool
from interlock.domain.rendering import render_for_model
from interlock.tools.read_artifact import read_artifact
from tests.support import call

from .shell import Play, PlayedSandbox, terminal

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 23
DIGEST = sha256(PNG).hexdigest()
DESCRIBED = f"[binary output: {len(PNG):,} bytes, png, sha256:{DIGEST}]"
MAX_SHOWN_CHARS = 1_000


def text_of(observation: Observation) -> str:
    return observation.content.text if observation.content else ""


async def observe(value: Any, **options: Any) -> Observation:
    @tool
    def fetch() -> Any:
        """Fetch it."""
        return value

    async with ToolRuntime(tools=[fetch], **options) as runtime:
        return (await runtime.execute([call("c", "fetch")])).observations[0]


@pytest.mark.parametrize("value", [PNG, bytearray(PNG)])
async def test_binary_values_are_described_and_kept(value: Any) -> None:
    artifacts = MemoryArtifacts()

    seen = await observe(value, artifacts=artifacts)

    assert text_of(seen) == DESCRIBED
    assert [ref.id for ref in seen.artifacts] == [f"sha256:{DIGEST}"]
    assert artifacts.read(seen.artifacts[0].id) == PNG
    assert seen.size is not None
    assert (seen.size.produced, seen.size.kept, seen.size.shown) == (len(PNG), len(PNG), 0)
    assert len(render_for_model(seen)) < MAX_SHOWN_CHARS


async def test_text_full_of_controls_is_binary_too() -> None:
    seen = await observe(PNG.decode("latin-1"))

    assert text_of(seen).startswith("[binary output: ")


@pytest.mark.parametrize(
    "value", [b"caf\xc3\xa9\n" * 100, b"caf\xe9 au lait, s'il vous pla\xeet\n" * 9, bytes(range(256))]
)
async def test_text_and_short_values_are_shown(value: bytes) -> None:
    assert text_of(await observe(value)) == value.decode(errors="backslashreplace")


async def test_secrets_in_binary_output_are_not_kept() -> None:
    artifacts = MemoryArtifacts()

    seen = await observe(
        PNG + b"hunter2-is-secret" + PNG, artifacts=artifacts, secrets={"PASSWORD": "hunter2-is-secret"}
    )

    assert b"hunter2" not in artifacts.read(seen.artifacts[0].id)


async def test_a_command_that_prints_bytes_is_described(tmp_path: Path) -> None:
    commands = PlayedSandbox(Play(output=(("stdout", PNG),)))

    async with terminal(tmp_path, commands) as shell:
        seen = await shell.run("cat logo.png")

    assert text_of(seen) == DESCRIBED
    assert (seen.artifacts[0].id, seen.facts["output"]) == (f"sha256:{DIGEST}", f"sha256:{DIGEST}")
    assert (seen.next_tool, "binary" in seen.next_hint) == (None, True)


async def test_words_beside_bytes_are_shown(tmp_path: Path) -> None:
    commands = PlayedSandbox(Play(output=(("stdout", PNG), ("stderr", b"Warning: it is a terminal\n"))))

    async with terminal(tmp_path, commands) as shell:
        shown = text_of(await shell.run("cat logo.png"))

    assert shown == f"[stdout]\n{DESCRIBED}\n[stderr]\nWarning: it is a terminal"


async def test_reading_the_artifact_floods_nobody() -> None:
    @tool
    def fetch() -> bytes:
        """Fetch it."""
        return PNG

    async with ToolRuntime(tools=[fetch, read_artifact]) as runtime:
        kept = (await runtime.execute([call("c", "fetch")])).observations[0].artifacts[0]
        seen = (await runtime.execute([call("d", "read_artifact", artifact_id=kept.id)])).observations[0]

    assert text_of(seen) == f"[bytes 0-{len(PNG):,} of {len(PNG):,}; this is the end]\n{DESCRIBED}"
