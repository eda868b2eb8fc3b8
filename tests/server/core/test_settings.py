"""How a server is set up: one file, in which every key has a default and nothing is ignored."""

from pathlib import Path

import pytest

from interlock.domain.errors import ConfigurationError
from interlock.server.core.settings import ServerSettings, ServerTable, read_settings

FULL = """
[server]
port = 9000
public_url = "https://interlock.example.com"
four_eyes = "all"
approval_seconds = 3600

[agents.support]
object = "shop.agents:support"
on_rejection = "continue"

[[schedules]]
name = "nightly"
agent = "support"
task = "Look."
cron = "0 3 * * *"

[[webhooks]]
name = "orders"
agent = "support"
task = "An order: {{payload}}"
secret_env = "ORDERS_SECRET"

[[forward]]
kind = "file"
name = "copy"
path = "/var/log/interlock.ndjson"
"""


def read(tmp_path: Path, text: str) -> ServerSettings:
    path = tmp_path / "serve.toml"
    path.write_text(text)
    return read_settings(path)


def test_an_empty_file_is_a_server_on_this_machine(tmp_path: Path) -> None:
    settings = read(tmp_path, "")

    assert settings == ServerSettings()
    assert settings.server.is_loopback
    assert settings.server.four_eyes == "high_risk"


def test_everything_that_a_server_has_can_be_said(tmp_path: Path) -> None:
    settings = read(tmp_path, FULL)

    assert (settings.server.port, settings.server.approval_seconds) == (9000, 3600)
    assert settings.agents["support"].on_rejection == "continue"
    assert [each.name for each in (*settings.schedules, *settings.webhooks, *settings.forward)] == [
        "nightly",
        "orders",
        "copy",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[server]\nport = 70000", "`int` <= 65535"),
        ("[server]\nport = '1'", "Expected `int`"),
        ("[server]\nfour_eyes = 'maybe'", "maybe"),
        ("[server]\nstop_seconds = 0", "> 0"),
        ("[sever]\n", "unknown field `sever`"),
        ("[agents.x]\n", "`object`"),
        ("[agents.x]\nobject = 'a:b'\nmode = 'wild'", "wild"),
        ("[agents.x]\nobject = 'a:b'\nqueue = '" + "q" * 129 + "'", "cannot be the name of a queue"),
        ("[worker]\nqueues = ['default', '']", "cannot be the name of a queue"),
        ("[worker]\nqueues = []", "needs at least one"),
        ("[server]\ntls_key = 'k.pem'", "tls_certificate and tls_key belong together"),
        ("[server]\npublic_url = 'interlock.example.com'", "public_url has to be like"),
        ("[server]\npublic_url = 'https://x.example/a b'", "public_url has to be like"),
        ("[server]\npublic_url = 'https://x.example/a/../b'", "public_url has to be like"),
        ("[server]\npublic_url = 'https://x.example//a'", "public_url has to be like"),
        ("[server]\npublic_url = 'https://x.example/a%2Fb'", "public_url has to be like"),
        ("[server]\npublic_url = 'https://x.example/a\"b'", "public_url has to be like"),
        ("[server]\npublic_url = 'https://x.example/a?b'", "public_url has to be like"),
        ("[server]\npublic_url = 'https://x.example/console/x'", "begins like a path of the server itself"),
        ("[server]\npublic_url = 'https://[::1'", "public_url has to be like"),
        ("[server]\npublic_url = 'https://x.example:99999'", "public_url has to be like"),
        ("[server]\npublic_url = 'https://me@x.example'", "public_url has to be like"),
        ("[server]\npublic_url = 'ftp://x.example'", "public_url has to be like"),
        ("[[[", "cannot be read"),
        ("server = 1", "Expected `object`"),
        ('[artifacts]\nkind = "s3"', 'bucket and kind = "s3" belong together'),
        ('[artifacts]\nkind = "files"\nprefix = "x"', 'need kind = "s3"'),
        ('[artifacts]\nkind = "postgres"\nfolder = "x"', 'folder needs kind = "files"'),
        ('[artifacts]\nkind = "s3"\nbucket = "x"\nsecret_access_key = "x"', "secret_access_key"),
    ],
)
def test_what_cannot_work_is_told_with_the_name_of_the_file(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read(tmp_path, text)

    said = str(refused.value)
    assert words in said
    assert "serve.toml" in said
    assert said.endswith("Nothing was started.")


def test_a_file_that_is_missing_or_no_text_is_told(tmp_path: Path) -> None:
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    for name in ("bytes.toml", "missing.toml", "."):
        with pytest.raises(ConfigurationError, match="cannot be read"):
            read_settings(tmp_path / name)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("https://x.example", ""),
        ("http://X.example:8080/", ""),
        ("https://[::1]:8443", ""),
        ("https://x.example/interlock/", "/interlock"),
        ("https://x.example:8443/Tools/inter-lock_1.0", "/Tools/inter-lock_1.0"),
    ],
)
def test_public_url_may_have_a_port_and_a_path(url: str, path: str) -> None:
    server = ServerSettings(server=ServerTable(public_url=url)).server
    assert (server.public_url, server.public_path) == (url, path)


@pytest.mark.parametrize(
    ("host", "is_loopback"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("10.0.0.1", False), ("", False)]
)
def test_only_names_of_this_machine_are_loopback(host: str, is_loopback: bool) -> None:
    assert ServerTable(host=host).is_loopback is is_loopback
