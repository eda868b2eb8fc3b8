"""A real OAuth and OpenID provider as a process of its own (`oidc.mjs`), and somebody who goes through its pages.

Its pages, for a browser. The first is headed "Sign-in": fill `input[name=login]` (that is who one is, e.g. `ada`) and
`input[name=password]` (anything), and press the button "Sign-in". The next is headed "Authorize" and lists the scopes:
press the button "Continue". Either has a link "[ Cancel ]", which is a no. A browser that is signed in does not see the
first page again, and the second only for what was not consented to before, unless it is sent with `prompt=consent`.

It is at `localhost`, and whoever asks it at 127.0.0.1: to a browser these are two sites, as in real life, so a cookie
with `SameSite=Strict` does not come along when somebody is sent back.
"""

import re
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest

from tests.node.install import NODE, PAGE_TOOLS, NoRegistryError, found
from tests.patience import HANG_SECONDS

_SCRIPT = Path(__file__).parent / "oidc.mjs"
#: The paths that it sends people back to, on any port of 127.0.0.1.
REDIRECT_PATHS = ("/consents/callback", "/session/callback", "/tools/interlock/session/callback")
#: The clients that it knows, and their secrets. `public` has none.
SECRETS = {"interlock": "a secret of the interlock client", "console": "a secret of the console client", "public": ""}


class OidcServer:
    def __init__(self, issuer: str) -> None:
        self.issuer = issuer

    def requests(self) -> Mapping[str, int]:
        """How often its token endpoint was asked, by grant type."""
        return self._ask("GET", "/test/requests")

    def answer_with(self, status: int) -> None:
        """What its token endpoint answers from now on; 0: what is right."""
        self._ask("POST", f"/test/break?status={status}" if status else "/test/break")

    def forget_grants(self) -> None:
        """As when users take back what they consented to at the provider's own pages."""
        self._ask("POST", "/test/forget")

    def mail(self, token: str) -> tuple[int, Any]:
        """What a tool gets that calls the provider's API with this token."""
        response = httpx2.get(
            f"{self.issuer}/api/mail", headers={"authorization": f"Bearer {token}"}, trust_env=False, verify=False
        )
        return response.status_code, response.json()

    def _ask(self, method: str, path: str) -> Any:
        response = httpx2.request(method, f"{self.issuer}{path}", trust_env=False, verify=False)
        response.raise_for_status()
        return response.json()


class Visitor:
    """A browser at the provider, with its cookies."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._client = httpx2.Client(trust_env=False, verify=False, timeout=HANG_SECONDS)

    def go(self, url: str, answer: Literal["Continue", "Cancel"] = "Continue") -> dict[str, str]:
        """Go there, sign in, and press the button. What the provider sends back to whoever asked."""
        issuer = urlsplit(url).netloc
        response = self._client.get(url)
        for _ in range(12):
            if response.is_redirect:
                url = str(httpx2.URL(url).join(response.headers["location"]))
                if urlsplit(url).netloc != issuer:
                    return dict(parse_qsl(urlsplit(url).query))
                response = self._client.get(url)
            elif answer == "Cancel" and 'value="consent"' in response.text:
                url = _found(r'href="([^"]*/abort)"', response.text)
                response = self._client.get(url)
            else:
                url = _found(r'action="([^"]+)"', response.text)
                form = {"prompt": _found(r'name="prompt" value="(\w+)"', response.text)}
                response = self._client.post(url, data=form | {"login": self.name, "password": "any"})
        raise AssertionError("The provider's pages do not end.")

    def close(self) -> None:
        self._client.close()


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    assert match, f"There is no {pattern} on the page: {text[:2000]}"
    return unescape(match[1])


@contextmanager
def visitor(name: str) -> Generator[Visitor]:
    there = Visitor(name)
    try:
        yield there
    finally:
        there.close()


@contextmanager
def running_oidc_server() -> Generator[OidcServer]:
    program = found(PAGE_TOOLS)
    if isinstance(program, NoRegistryError):
        pytest.skip(str(program))
    command = [NODE, _SCRIPT, program, *REDIRECT_PATHS]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8"
    ) as process:
        try:
            assert process.stdout
            said: list[str] = []
            for line in process.stdout:
                said.append(line)
                if line.startswith("listening on "):
                    break
            assert "listening on " in "".join(said[-1:]), f"oidc-provider did not start: {''.join(said)}"
            yield OidcServer(said[-1].removeprefix("listening on ").strip())
        finally:
            process.kill()
            process.communicate(timeout=HANG_SECONDS)


@pytest.fixture(scope="module")
def oidc_server() -> Generator[OidcServer]:
    """Import it where it is used, or into a `conftest.py`."""
    with running_oidc_server() as server:
        yield server
