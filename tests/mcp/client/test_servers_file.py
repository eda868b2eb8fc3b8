"""The servers file is read strictly: what is not understood is refused with what to write instead."""

from pathlib import Path

import pytest

from interlock.domain.tool import Consent
from interlock.errors import ConfigurationError
from interlock.mcp import ServerConfig, ServerSandbox, read_servers_file


def read(tmp_path: Path, text: str, name: str = "mcp.toml") -> tuple[ServerConfig, ...]:
    file = tmp_path / name
    file.write_text(text)
    return read_servers_file(file)


def test_a_whole_file(tmp_path: Path):
    text = """
    [servers.fs]
    command = ["mcp-server-filesystem", "."]
    sandbox = { write = ["."], network = ["example.com"], read = ["/opt/x"] }
    trust = "declared"
    pins = "locked"
    tools = ["read_*"]
    relay = ["roots"]
    env = ["GITHUB_TOKEN"]
    timeout = 5

    [servers.remote]
    url = "https://example.com/mcp"
    headers = { X-Key = "Key ${MY_KEY}" }
    consent = { provider = "mail", scopes = ["read"] }
    """
    assert read(tmp_path, text) == (
        ServerConfig(
            name="fs",
            command=("mcp-server-filesystem", "."),
            sandbox=ServerSandbox(write=(".",), network=("example.com",), read=("/opt/x",)),
            trust="declared",
            pins="locked",
            tools=("read_*",),
            relay=("roots",),
            env={"GITHUB_TOKEN": "GITHUB_TOKEN"},
            timeout_seconds=5.0,
        ),
        ServerConfig(
            name="remote",
            url="https://example.com/mcp",
            headers={"X-Key": "Key ${MY_KEY}"},
            consent=Consent(provider="mail", scopes=("read",)),
        ),
    )


def test_the_file_of_another_client(tmp_path: Path):
    text = """{"theme": "dark", "mcpServers": {
        "My-GitHub": {"type": "stdio", "command": "npx", "args": ["-y", "x"], "env": {"TOKEN": "${GH}"}},
        "off": {"command": "x", "disabled": true},
        "web": {"type": "http", "url": "https://example.com/mcp", "autoApprove": ["a"]}}}"""
    github, web = read(tmp_path, text, "config.json")
    assert (github.name, github.command, github.env) == ("my_github", ("npx", "-y", "x"), {"TOKEN": "GH"})
    assert (web.name, web.url, web.sandbox) == ("web", "https://example.com/mcp", ServerSandbox())


SERVER = '[servers.a]\ncommand = ["x"]\n'
WRONG = {
    "no TOML": ("[servers", "no TOML"),
    "unknown table": ("[server.a]\ncommand = ['x']", "Did you mean `servers`"),
    "unknown key": (SERVER + 'snadbox = "off"', "Did you mean `sandbox`"),
    "unknown key in the sandbox": (SERVER + "sandbox = { wirte = [] }", "Did you mean `write`"),
    "unknown word": (SERVER + 'trust = "declard"', "Did you mean `declared`"),
    "unknown relay": (SERVER + 'relay = ["root"]', "Did you mean `roots`"),
    "both": (SERVER + 'url = "https://example.com"', "either command or url"),
    "neither": ("[servers.a]\npins = 'off'", "either command or url"),
    "name": ("[servers.'A b']\ncommand = ['x']", "cannot be the name of a server"),
    "double underscore": ("[servers.a__b]\ncommand = ['x']", "cannot be the name of a server"),
    "empty command": ("[servers.a]\ncommand = []", "command is empty"),
    "command as text": ("[servers.a]\ncommand = 'x y'", "list of texts"),
    "plain http": ("[servers.a]\nurl = 'http://example.com'", "use https"),
    "password in the address": ("[servers.a]\nurl = 'https://u:p@example.com'", "a user or a password"),
    "other scheme": ("[servers.a]\nurl = 'file:///etc/passwd'", "must be an address"),
    "value in the file": (SERVER + 'env = { KEY = "abc" }', "has a value in the file"),
    "header without a variable": ("[servers.a]\nurl='https://e.com'\nheaders = { X = 'abc' }", "names no variable"),
    "reserved header": ("[servers.a]\nurl='https://e.com'\nheaders = { Host = '${X}' }", "cannot be set"),
    "two authorizations": (
        "[servers.a]\nurl='https://e.com'\nheaders = { Authorization = '${X}' }\nconsent = { provider = 'm' }",
        "leave it out of headers",
    ),
    "sandbox of another host": ("[servers.a]\nurl='https://e.com'\nsandbox = 'off'", "for servers with command"),
    "several folders": (SERVER + 'sandbox = { write = ["a", "b"] }', "names one folder"),
    "relative folder": (SERVER + 'sandbox = { read = ["a"] }', "no absolute path"),
    "timeout": (SERVER + "timeout = 0", "number of seconds"),
}


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=WRONG)
def test_what_is_not_understood_is_refused(text: str, message: str, tmp_path: Path):
    with pytest.raises(ConfigurationError, match=message):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", 'no "mcpServers"'),
        ('{"mcpServers": {"a": {"type": "sse", "url": "https://e.com"}}}', "not supported"),
        ('{"mcpServers": {"a-b": {"command": "x"}, "a_b": {"command": "y"}}}', "Two servers would be called"),
        ('{"mcpServers": {"a": {"command": "x", "env": {"K": "secret"}}}}', "has a value in the file"),
        ('{"mcpServers": {"a": {"command": "x", "cmd": 1}}}', "There is no key|no key|unknown|Unknown"),
    ],
)
def test_wrong_files_of_other_clients(text: str, message: str, tmp_path: Path):
    with pytest.raises(ConfigurationError, match=message):
        read(tmp_path, text, "x.json")


def test_variables_are_read_when_they_are_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    [server] = read(tmp_path, SERVER + 'env = ["MY_KEY"]')
    monkeypatch.delenv("MY_KEY", raising=False)
    with pytest.raises(ConfigurationError, match="MY_KEY is not set"):
        server.read_environment()
    monkeypatch.setenv("MY_KEY", "value")
    assert (server.read_environment(), server.list_secrets()) == ({"MY_KEY": "value"}, ["value"])


@pytest.mark.parametrize("path", ["missing.toml", "folder"])
def test_a_file_that_cannot_be_read(path: str, tmp_path: Path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_servers_file(tmp_path / path)
