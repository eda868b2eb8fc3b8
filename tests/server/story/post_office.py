"""A server whose tools need access to people's mail, the provider that has the mail, and the way through its pages."""

import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from time import time_ns
from typing import Any

import httpx2
from playwright.async_api import Page

from interlock import Rule, RulePolicy, ToolContext, tool
from interlock.agent.agent import Agent
from interlock.domain.tool import Consent
from interlock.models.scripted import ScriptedModel
from interlock.oauth.providers import OAuthProvider
from interlock.oauth.tokens import GrantStore
from interlock.server.core.identity.oidc import RoleRule, SignInSettings
from interlock.server.core.identity.principal import Role
from interlock.server.core.sealing import load_sealing_keys
from interlock.server.core.settings import ServerSettings, ServerTable
from interlock.server.core.token_table import TokenTable
from tests.node.oidc_server import SECRETS, OidcServer
from tests.patience import HANG_SECONDS
from tests.server.console.browser import Watch
from tests.server.server_process import PASSWORD, Running, running_server
from tests.server.story.agents import MAX_TURNS, turn

CONSENT_SECONDS = 5_000.0
PEOPLE = ("ada", "bob", "cleo", "dora", "emil", "fay")
_FONT = "https://fonts.googleapis.com/"


class PostOffice:
    """A running server, and the provider that has the mail."""

    def __init__(self, server: Running, provider: OidcServer, used: list[str]) -> None:
        self.server, self.service, self.base = server, server.service, server.base
        self.provider = provider
        #: The tokens that tools were given, in their order.
        self.used = used

    async def asks_for(self, task: str, person: str) -> str:
        """A run that the agent's program makes for somebody. Its id."""
        return await self.server.begin(task, agent="post", on_behalf_of=person)

    async def get(self, path: str) -> Any:
        """What the agent's program is answered."""
        return (await (await self.server.client("agent_post")).get(path)).json()

    async def errors(self, run_id: str) -> list[str]:
        """The codes of its errors, as its events have them."""
        events = (await self.get(f"/v1/runs/{run_id}/events"))["events"]
        return [event["data"]["code"] for event in events if event["type"] == "ERROR"]

    async def kept_tokens(self, person: str, tool_name: str) -> tuple[str, str]:
        """What the server keeps sealed: the token, and what it is renewed with."""
        table = TokenTable(self.service.database)
        grants = GrantStore(table, load_sealing_keys(self.service.state_folder / "sealing.key", {}))
        (kept,) = [kept for kept in await table.list_grants(f"user:{person}") if kept.binding.tool == tool_name]
        grant = await grants.load(kept.binding, "mail")
        assert grant is not None
        return grant.tokens.access_token, grant.tokens.refresh_token


class Clock:
    def __init__(self) -> None:
        self._ahead = 0

    def __call__(self) -> int:
        return time_ns() + self._ahead

    def put_forward(self, seconds: float) -> None:
        self._ahead += int(seconds * 1_000_000_000)


def post_agent(issuer: str, used: list[str]) -> Agent:
    async def asked(context: ToolContext) -> str:
        used.append(context.access_token or "")
        headers = {"Authorization": f"Bearer {context.access_token}"}
        async with httpx2.AsyncClient(headers=headers, trust_env=False, verify=False, timeout=HANG_SECONDS) as client:
            answer = await client.get(f"{issuer}/api/mail")
        return f"{answer.status_code}: the mail of {answer.json().get('user')}"

    @tool(consent=Consent(provider="mail", scopes=("mail.read",)))
    async def read_mail(folder: str, context: ToolContext) -> str:
        """Read somebody's mail."""
        return await asked(context)

    @tool(consent=Consent(provider="mail", scopes=("mail.read", "mail.send")), risk="network")
    async def send_mail(to: str, context: ToolContext) -> str:
        """Send mail as somebody."""
        return await asked(context)

    policy = RulePolicy([Rule(id="letters-need-a-look", verdict="ask", tools="send_mail")], default="allow")
    provider = ScriptedModel([turn] * MAX_TURNS, by_position=True)
    return Agent(provider=provider, name="post", tools=(read_mail, send_mail), policy=policy)


@asynccontextmanager
async def post_office(folder: Path, provider: OidcServer, clock: Clock) -> AsyncGenerator[PostOffice]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    used: list[str] = []
    options = {"environ": {"MAIL": SECRETS["interlock"], "CONSOLE": SECRETS["console"]}, "now": clock}
    settings, agent = _settings(provider.issuer), post_agent(provider.issuer, used)
    async with running_server(folder, [agent], settings, port=port, console=True, options=options) as server:
        for name in PEOPLE:
            await server.service.accounts.create(name, PASSWORD, by="test")
        await server.service.accounts.create("olga", PASSWORD, roles=(Role.OPERATOR,), by="test")
        yield PostOffice(server, provider, used)


def _settings(issuer: str) -> ServerSettings:
    mail = OAuthProvider(
        name="mail",
        client_id="interlock",
        client_secret_env="MAIL",
        issuer=issuer,
        always=("openid", "offline_access"),
        authorize_params={"prompt": "consent"},
    )
    house = OAuthProvider(
        name="house", client_id="console", client_secret_env="CONSOLE", issuer=issuer, always=("profile",)
    )
    rule = RoleRule(claim="groups", value="interlock-operators", role=Role.OPERATOR)
    return ServerSettings(
        server=ServerTable(consent_seconds=CONSENT_SECONDS),
        providers=(mail,),
        sign_in=SignInSettings(provider=house, roles=(rule,)),
    )


async def may_leave(page: Page, watch: Watch, provider: OidcServer) -> None:
    """The provider's pages are not ours, and neither is the font that they would like to have."""
    watch.expected += [f"off origin: {provider.issuer}/", f"off origin: {_FONT}"]
    await page.context.route(f"{_FONT}**", lambda route: route.fulfill(status=200, content_type="text/css", body=""))


async def sign_in_there(page: Page, name: str) -> None:
    """On the provider's first page."""
    await page.locator("input[name=login]").fill(name)
    await page.locator("input[name=password]").fill("any")
    await page.get_by_role("button", name="Sign-in").click()
    await page.get_by_role("heading", name="Authorize").wait_for()
