"""Providers by name: the right one, with the caller's key only, or words that say what to do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from interlock.domain.errors import ConfigurationError
from interlock.models.provider_factory import PROVIDER_NAMES, create_provider
from interlock.models.scripted import ScriptedTurn, to_script
from tests.models.loopback import Reply, serving
from tests.models.wire import ASKED, HELLO, KEY, answer, text_of

VARIABLES = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
both = pytest.mark.parametrize("name", ["openai", "anthropic"])


@both
@pytest.mark.parametrize("key", [KEY, ""])
async def test_a_provider_asks_the_given_address_with_the_given_key_only(
    name: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLES[name], "sk-of-somebody-else")
    async with serving(Reply(HELLO[name])) as server:
        provider = create_provider(name, base_url=f"{server.url}/v1" if name == "openai" else server.url, key=key)
        events = await answer(provider, ASKED)
        await provider.close()

    assert (provider.name, text_of(events)) == (name, "Hi")
    assert server.asked[0].headers["authorization"] == f"Bearer {key or 'none'}"
    assert "sk-of-somebody-else" not in str(server.asked)


@both
def test_without_a_key_it_says_which_variable_is_looked_at(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"Nothing was asked; set {VARIABLES[name]}"):
        create_provider(name)


@both
@pytest.mark.parametrize(
    "base_url", ["https://models.example/v1", "http://localhost.example", "http://127.0.0.1@models.example", "http://["]
)
def test_an_address_elsewhere_needs_a_key(name: str, base_url: str) -> None:
    with pytest.raises(ConfigurationError, match="only a server on this host needs none"):
        create_provider(name, base_url=base_url)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("", f"Known: {', '.join(PROVIDER_NAMES)}."),
        ("openai ", "Did you mean `openai`"),
        ("ollama", "Known: "),
        ("\ud800" * 1000, "Known: "),
    ],
)
def test_unknown_providers_are_refused_with_known_ones(name: str, hint: str) -> None:
    with pytest.raises(ConfigurationError, match=hint):
        create_provider(name)


async def test_a_script_answers_by_position(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_bytes(to_script([ScriptedTurn(text="One.")]))
    provider = create_provider("scripted", script=script)

    assert [text_of(await answer(provider)) for _ in range(2)] == ["One.", "One."]


@pytest.mark.parametrize("written", ["", "folder", "missing.json", "pipe", "nonsense.json", "\0"])
def test_a_script_that_cannot_be_read_is_refused_in_words(tmp_path: Path, written: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "nonsense.json").write_text("{")
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(ConfigurationError, match="script"):
        create_provider("scripted", script=tmp_path / written if written else "")


@both
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    for module in ("openai_chat", "anthropic_messages"):
        monkeypatch.delitem(sys.modules, f"interlock.models.{module}", raising=False)

    with pytest.raises(ConfigurationError, match=rf"pip install 'interlock\[{name}\]'"):
        create_provider(name, key=KEY)


def test_no_sdk_is_imported_before_it_is_asked_for() -> None:
    names = "('openai', 'anthropic', 'httpx2')"
    looked = f"import sys, interlock.models.provider_factory; print([n for n in {names} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", looked], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
