"""Clients that go through a scenario of the conformance suite: one of the SDK alone, and ours."""

import json
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import httpx2
import mcp_types as types
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.session import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import AnyUrl

from interlock import ToolRuntime
from interlock.mcp import McpTools, ServerConfig
from interlock.mcp.client.connection import Relays
from tests.support import call

REDIRECT = "http://localhost:3000/callback"
METADATA_URL = "https://conformance-test.local/client-metadata.json"
#: What tools are called with, where their arguments are not optional.
_ARGUMENTS: dict[str, dict[str, Any]] = {
    "add_numbers": {"a": 5, "b": 3},
    "valid_tool": {"region": "us-west1"},
    "lookup_user": {"id": "u1"},
}


_ssl_context = cache(httpx2.create_ssl_context)


class Scenario(NamedTuple):
    """A scenario, as the suite hands it to a client."""

    url: str
    name: str
    version: str
    context: dict[str, Any]

    def choose_calls(self, tools: list[str]) -> list[tuple[str, dict[str, Any]]]:
        """Return the calls to make: those of the scenario, else one of every tool."""
        if given := self.context.get("toolCalls"):
            return [(each["name"], each["arguments"]) for each in given]
        return [(name, _ARGUMENTS.get(name, {})) for name in tools]


def read_scenario(text: str) -> Scenario:
    """Read what `hand_over.py` sends."""
    url, name, version, context = text.split("\0")
    return Scenario(url, name, version, json.loads(context or "{}"))


async def accept_defaults(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
    """Answer a form as it is filled in."""
    assert isinstance(params, types.ElicitRequestFormParams)
    fields: dict[str, Any] = params.requested_schema.get("properties", {})
    content = {name: field["default"] for name, field in fields.items() if "default" in field}
    return types.ElicitResult(action="accept", content=content)


async def run_sdk(scenario: Scenario) -> None:
    """Go through a scenario with the client of the SDK."""
    auth = _Login(scenario).auth if scenario.name.startswith("auth/") else None
    mode: Any = scenario.version if scenario.version in MODERN_PROTOCOL_VERSIONS else "legacy"
    async with (
        httpx2.AsyncClient(auth=auth, timeout=30, verify=_ssl_context()) as http,
        Client(
            streamable_http_client(scenario.url, http_client=http),
            mode="auto" if scenario.name == "request-metadata" else mode,
            elicitation_callback=accept_defaults,
            cache=None,
        ) as client,
    ):
        listed = await client.list_tools()
        for name, arguments in scenario.choose_calls([tool.name for tool in listed.tools]):
            await client.call_tool(name, arguments)


class _Login:
    """The authorization of the SDK, with a browser that agrees at once."""

    def __init__(self, scenario: Scenario) -> None:
        self._tokens: OAuthToken | None = None
        self._info: OAuthClientInformationFull | None = None
        self._result = AuthorizationCodeResult(code="")
        if client_id := scenario.context.get("client_id"):
            self._info = OAuthClientInformationFull(
                client_id=client_id,
                client_secret=scenario.context.get("client_secret"),
                redirect_uris=[AnyUrl(REDIRECT)],
                token_endpoint_auth_method="client_secret_basic",
                issuer=scenario.context.get("issuer"),
            )
        metadata = OAuthClientMetadata(
            client_name="conformance",
            redirect_uris=[AnyUrl(REDIRECT)],
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
        )
        self.auth = OAuthClientProvider(
            scenario.url, metadata, self, self._agree, self._come_back, client_metadata_url=METADATA_URL
        )

    async def get_tokens(self) -> OAuthToken | None:
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._info

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._info = client_info

    async def _agree(self, url: str) -> None:
        found = await agree(url)
        self._result = AuthorizationCodeResult(code=found["code"], state=found.get("state"), iss=found.get("iss"))

    async def _come_back(self) -> AuthorizationCodeResult:
        return self._result


async def agree(url: str) -> dict[str, str]:
    """Go to an authorization endpoint whose user agrees, and return what it sends back."""
    async with httpx2.AsyncClient(timeout=30, verify=_ssl_context()) as browser:
        location = (await browser.get(url)).headers["location"]
    return {name: values[0] for name, values in parse_qs(urlsplit(location).query).items()}


async def run_ours(scenario: Scenario) -> None:
    """Go through a scenario with our client, in a runtime."""
    config = ServerConfig(name="web", url=scenario.url, trust="declared", pins="off", relay=("elicitation",))
    auth = {"web": _Login(scenario).auth} if scenario.name.startswith("auth/") else {}
    tools = McpTools([config], auth=auth)
    tools.servers["web"].relays = Relays(elicitation=accept_defaults)
    async with ToolRuntime(tools=[tools], mode="trusted") as runtime:
        server = tools.servers["web"]
        assert server.state == "connected", server.reason
        names = {raw.name: name for name, raw in server.tools.items()}
        for number, (name, arguments) in enumerate(scenario.choose_calls(list(names))):
            # Arguments that do not fit the schema never leave the runtime: null, where it is not allowed, is left out.
            given = {key: value for key, value in arguments.items() if value is not None}
            [seen] = (await runtime.execute([call(f"c{number}", names[name], **given)])).observations
            assert seen.ok, seen
