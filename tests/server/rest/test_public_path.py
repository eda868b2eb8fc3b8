"""A server below a path: what it reads of requests, and what it writes into answers."""

import asyncio
import re
from html import unescape
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest
from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from interlock.client import AsyncClient
from interlock.oauth.providers import OAuthProvider
from interlock.server.console import rendering
from interlock.server.console.addresses import add_public_path, build_template_extension
from interlock.server.core.identity.oidc import SignInSettings
from interlock.server.core.settings import OWN_SEGMENTS, ServerSettings
from interlock.server.rest.mcp import METADATA_PATH, mount_gateway
from interlock.server.rest.public_path import PublicPathMiddleware
from tests.node.oidc_server import SECRETS, OidcServer, visitor
from tests.server.server_process import LOOKUP, PASSWORD, Running, running_server

PATH = "/tools/interlock"
TEMPLATES = Path(rendering.__file__).parent / "templates"
_WRITTEN_ADDRESS = re.compile(r'\b(?:href|src|action|formaction|data-[\w-]+)="(/[^"{]*)')
URL = f"https://host.example{PATH}"


async def _show_path(scope: Scope, receive: Receive, send: Send) -> None:
    """Show the path, redirect to it, or set a cookie for it, as the query says."""
    request = Request(scope)
    path = request.url.path + scope["raw_path"].decode()
    answer: Response = PlainTextResponse(path)
    if request.query_params.get("do") == "redirect":
        answer = RedirectResponse(request.query_params["to"])
    elif request.query_params.get("do") == "cookie":
        answer.set_cookie("name", "a/b", path=request.query_params["to"])
    await answer(scope, receive, send)


async def ask(path: str, **query: str) -> httpx2.Response:
    transport = httpx2.ASGITransport(PublicPathMiddleware(_show_path, PATH))
    async with httpx2.AsyncClient(transport=transport, base_url="http://host") as client:
        return await client.get(path, params=query)


@pytest.mark.parametrize(
    ("asked", "own"),
    [
        (f"{PATH}/v1/runs", "/v1/runs"),
        ("/v1/runs", "/v1/runs"),
        (PATH, "/"),
        (f"{PATH}/", "/"),
        (f"{PATH}x/v1", f"{PATH}x/v1"),
        (f"{PATH}{PATH}", PATH),
    ],
)
async def test_path_is_removed_once(asked: str, own: str) -> None:
    assert (await ask(asked)).text == own + own


@pytest.mark.parametrize(
    ("to", "public"),
    [
        ("/console/", f"{PATH}/console/"),
        ("https://elsewhere.example/", "https://elsewhere.example/"),
        ("//elsewhere.example/", "//elsewhere.example/"),
        ("?page=2", "?page=2"),
    ],
)
async def test_redirects_lead_below_the_path(to: str, public: str) -> None:
    assert (await ask("/", do="redirect", to=to)).headers["Location"] == public


@pytest.mark.parametrize(("to", "public"), [("/", PATH), ("/session", f"{PATH}/session")])
async def test_cookies_are_for_the_path(to: str, public: str) -> None:
    cookie = (await ask("/", do="cookie", to=to)).headers["Set-Cookie"]
    assert f"; Path={public};" in f"{cookie};"
    assert cookie.startswith(("name=a/b;", 'name="a/b";'))


async def test_client_and_description_use_the_path(tmp_path: Path) -> None:
    async with running_server(tmp_path, public_url=URL, hosts=("127.0.0.1",)) as server:
        http = await server.client()
        described = (await http.get(f"{PATH}/openapi.json")).json()
        async with AsyncClient(server.base + PATH, await server.key("agent")) as client:
            over = await client.wait((await client.start_run("shop", LOOKUP)).run_id)
        signed_in = await _sign_in(server)

    assert (described["servers"], over.status) == ([{"url": URL}], "COMPLETED")
    assert signed_in.startswith("__Secure-interlock=")
    assert {"HttpOnly", f"Path={PATH}", "SameSite=strict", "Secure"} <= set(signed_in.split("; "))


async def _sign_in(server: Running) -> str:
    client = await server.client()
    await server.service.accounts.create("petra", roles=[], password=PASSWORD, by="test")
    answer = await client.post("/v1/session", json={"name": "petra", "password": PASSWORD})
    return answer.headers["Set-Cookie"]


async def test_gateway_and_callbacks_name_the_path(tmp_path: Path) -> None:
    async with running_server(tmp_path, public_url=URL, hosts=("127.0.0.1",)) as server:
        mount_gateway(server.app, _show_path)
        client = await server.client()
        refused = await client.post(f"{PATH}/mcp")
        metadata = await client.get(f"{PATH}{METADATA_PATH}")
        key = {"Authorization": f"Bearer {await server.key('operator_all')}"}
        served = await client.post(f"{PATH}/mcp", headers=key)
        reloading = await client.get(f"{PATH}/consents/callback?state=x")

    assert refused.headers["WWW-Authenticate"] == f'Bearer resource_metadata="{URL}{METADATA_PATH}"'
    assert (metadata.json()["resource"], served.text) == (f"{URL}/mcp", "/mcp/mcp")
    assert f'content="0;url={PATH}/consents/callback?state=x&amp;arrived=1"' in reloading.text


async def test_identity_provider_sends_people_back_below_the_path(tmp_path: Path, provider: OidcServer) -> None:
    """The real provider knows only the address with the path, and checks it again for the token."""
    house = OAuthProvider(
        name="house", client_id="console", client_secret_env="CONSOLE", issuer=provider.issuer, always=("profile",)
    )
    settings, options = (
        ServerSettings(sign_in=SignInSettings(provider=house)),
        {"environ": {"CONSOLE": SECRETS["console"]}},
    )
    url = f"http://127.0.0.1:4444{PATH}"
    async with running_server(
        tmp_path, settings=settings, options=options, console=True, public_url=url, hosts=("127.0.0.1",)
    ) as server:
        client = await server.client()
        begun = await client.get(f"{PATH}/session/start?next=%2Fconsole%2Fruns")
        with visitor("anna") as there:
            said = await asyncio.to_thread(there.go, begun.headers["Location"])
        back = await client.get(f"{PATH}/session/callback", params=said)
        me = await client.get(f"{PATH}/v1/me")
        wanted = await client.get(_find_reload(back.text))

    sent = dict(parse_qsl(urlsplit(begun.headers["Location"]).query))
    assert sent["redirect_uri"] == f"{url}/session/callback"
    assert f"; Path={PATH}/session;" in f"{begun.headers['Set-Cookie']};"
    assert (back.status_code, me.json()["name"]) == (200, "user:anna")
    assert (wanted.status_code, wanted.headers["Location"]) == (303, f"{PATH}/console/runs")


def _find_reload(page: str) -> str:
    """Return the address that a page leads to."""
    found = re.search(r'content="0;url=([^"]+)"', page)
    assert found, page
    return unescape(found[1])


async def test_paths_of_the_server_are_known(tmp_path: Path) -> None:
    """Otherwise the path of `public_url` could be one of them."""
    async with running_server(tmp_path, console=True) as server:
        paths = [route.path for route in server.app.routes if isinstance(route, Route | Mount)]

    assert {path.split("/")[1] for path in paths if path != "/"} <= OWN_SEGMENTS


def test_addresses_in_templates_get_the_path() -> None:
    """What is escaped stays escaped; texts, other hosts and other attributes stay as they are."""
    template = Environment(autoescape=True, extensions=[build_template_extension("/p")]).from_string(
        "{% macro link(name) %}/console/runs/{{ name }}{% endmacro %}"
        '<a href="/console/a/{{ text }}" title="{{ own }}">/console/</a>'
        '<a href="{{ own if text else elsewhere }}?b" data-x="{{ own }}"></a><a href="{{ link(text) }}/undo"></a>'
        '<a href="{% if text %}/console/c{% else %}/console/d/{{ own }}{% endif %}"></a>'
        '<a href="{% if not text %}/console/c{% elif 1 %}{{ own }}/d{% endif %}{{ own }}"></a>'
        '<a href="{{ elsewhere }}"></a><i {% if text %}data-live-url="/console/b"{% endif %} data-path="{{ own }}"></i>'
    )

    assert template.render(text="<&>", own="/console/<", elsewhere="//x.example/") == (
        '<a href="/p/console/a/&lt;&amp;&gt;" title="/console/&lt;">/console/</a>'
        '<a href="/p/console/&lt;?b" data-x="/console/&lt;"></a><a href="/p/console/runs/&lt;&amp;&gt;/undo"></a>'
        '<a href="/p/console/c"></a><a href="/p/console/&lt;/d/console/&lt;"></a>'
        '<a href="//x.example/"></a><i data-live-url="/p/console/b" data-path="/p/console/&lt;"></i>'
    )


@pytest.mark.parametrize("template", sorted(TEMPLATES.iterdir()), ids=lambda path: path.name)
def test_no_template_has_an_address_without_the_path(template: Path) -> None:
    source = add_public_path(template.read_text(encoding="utf-8"), PATH)

    assert [each for each in _WRITTEN_ADDRESS.findall(source) if not each.startswith(f"{PATH}/")] == []


def test_addresses_in_scripts_get_the_path() -> None:
    source = 'fetch(`/v1${path}`); go("/console/login"); other("/v12"); re = /console/; text = "see /console/";'

    assert add_public_path(source, "/p") == source.replace("`/v1", "`/p/v1").replace('"/console/l', '"/p/console/l')
    assert add_public_path(source, "") == source
