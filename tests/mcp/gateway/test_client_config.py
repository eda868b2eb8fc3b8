"""What `interlock gateway --print-config` prints can be written to the client's file as it is."""

import json
import tomllib
from typing import get_args

import pytest

from interlock.mcp.gateway.client_config import ClientName, render_client_config

_PROGRAM, _ARGUMENTS = ["/opt/in ter/interlock"], ["--servers", 'a "b".toml']
_COMMAND = [*_PROGRAM, "gateway", *_ARGUMENTS]


@pytest.mark.parametrize("client", get_args(ClientName))
def test_config_is_valid_and_names_the_command(client: ClientName) -> None:
    text = render_client_config(client, _PROGRAM, _ARGUMENTS, None).text
    settings = tomllib.loads(text) if client == "codex" else json.loads(text)

    [server] = next(iter(settings.values())).values()
    command = server["command"] if client == "opencode" else [server["command"], *server["args"]]
    assert command == _COMMAND


@pytest.mark.parametrize("client", get_args(ClientName))
def test_config_of_an_http_gateway_names_its_url(client: ClientName) -> None:
    text = render_client_config(client, _PROGRAM, _ARGUMENTS, "127.0.0.1:8931").text
    settings = tomllib.loads(text) if client == "codex" else json.loads(text)

    [server] = next(iter(settings.values())).values()
    assert "http://127.0.0.1:8931/mcp" in (server.get("url"), server.get("httpUrl"))
