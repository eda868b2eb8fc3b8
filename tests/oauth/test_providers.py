"""Providers as an operator configures them: what cannot work, or is not safe, is refused at once."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock import ConfigurationError
from interlock.domain.errors import ConsentError
from interlock.domain.tool import Consent
from interlock.oauth.provider_client import resolve_endpoints
from interlock.oauth.providers import OAuthProvider, find_url_problem, load_client_secret
from tests.each import each

_MINIMAL: dict[str, Any] = {"name": "mail", "client_id": "us", "issuer": "https://provider.example"}


def provider(**more: Any) -> OAuthProvider:
    return OAuthProvider(**{**_MINIMAL, **more})


@each(
    ("more", "words"),
    [
        ({"name": "ma il"}, "name must be"),
        ({"client_id": ""}, "client_id is missing"),
        ({"issuer": ""}, "it needs an issuer, or both"),
        ({"issuer": "", "token_endpoint": "https://provider.example/token"}, "it needs an issuer, or both"),
        ({"issuer": "http://provider.example"}, "issuer must be an https URL, because it is on another host"),
        ({"token_endpoint": "http://10.0.0.1/token"}, "token_endpoint must be an https URL"),
        ({"revocation_endpoint": "file:///etc/passwd"}, "revocation_endpoint must be an https URL"),
        ({"client_secret_env": "A", "client_secret_file": "b"}, "cannot both say"),
        ({"always": ("a b",)}, "'a b' is not a scope"),
        ({"scopes": {"read": 'a"b'}}, "is not a scope"),
        ({"authorize_params": {"redirect_uri": "https://elsewhere.example"}}, "redirect_uri is not a parameter"),
        ({"token_params": {"code_verifier": "mine"}}, "code_verifier is not a parameter"),
    ],
)
def test_what_cannot_work_is_refused_in_words(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        provider(**more)


def test_a_field_of_a_wrong_type_is_named() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"OAuthProvider\.client_id"):
        provider(client_id=3)


@pytest.mark.parametrize(
    "url",
    [
        "https://provider.example/token",
        "https://provider.example:8443/a?b=c",
        "http://127.0.0.1:8080/token",
        "http://[::1]/token",
        "http://localhost/token",
    ],
)
def test_https_and_this_host_are_fine(url: str) -> None:
    assert find_url_problem(url) == ""


@each(
    "url",
    [
        "",
        "provider.example/token",
        "//provider.example/token",
        "https://",
        "https:///token",
        "ftp://provider.example/",
        "javascript:alert(1)",
        "http://provider.example/",
        "http://localhost.example/",
        "http://127.0.0.1.example/",
        "http://0.0.0.0/",
        "http://169.254.169.254/",
        "https://user@provider.example/",
        "https://user:word@provider.example/",
        "https://provider.example/#fragment",
        "https://provider.example:port/",
        "https://provider.example:99999/",
        "https://[::1/",
        "https://provider.example/a b",
        "https://provider.example/\nhost: elsewhere",
        "https://prövider.example/",
    ],
)
def test_nothing_else_is(url: str) -> None:
    assert find_url_problem(url)


def test_scopes_are_asked_for_in_the_words_of_the_provider() -> None:
    mail = provider(scopes={"mail.read": "https://mail.example/read"}, always=("openid", "offline_access"))
    consent = Consent(provider="mail", scopes=("mail.read", "profile"))

    assert mail.required_scopes(consent) == {"https://mail.example/read", "profile"}
    assert mail.requested_scopes(consent) == ("openid", "offline_access", "https://mail.example/read", "profile")


def test_the_secret_is_where_the_configuration_says(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("from the file\n")

    assert load_client_secret(provider(client_secret_env="MAIL"), {"MAIL": "from the variable"}) == "from the variable"
    assert load_client_secret(provider(client_secret_file=str(file)), {}) == "from the file"
    assert load_client_secret(provider(), {"MAIL": "x"}) == ""


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"x" * 5000, b"two\nlines"])
def test_a_secret_that_is_not_there_is_an_error_that_does_not_repeat_it(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "secret"
    file.write_bytes(content)

    with pytest.raises(ConfigurationError, match="mail") as raised:
        load_client_secret(provider(client_secret_file=str(file)), {})
    assert "two" not in str(raised.value)
    with pytest.raises(ConfigurationError, match="the variable MAIL"):
        load_client_secret(provider(client_secret_env="MAIL"), {})
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_client_secret(provider(client_secret_file=str(tmp_path / "none")), {})


def test_a_configuration_shows_no_secret() -> None:
    assert "from the variable" not in repr(provider(client_secret_env="MAIL"))


@pytest.mark.parametrize("inside", ["http://127.0.0.1:9200/_bulk", "https://localhost/token", "http://[::1]:8080/"])
@pytest.mark.parametrize("field", ["authorization_endpoint", "token_endpoint", "revocation_endpoint", "jwks_uri"])
async def test_a_provider_elsewhere_cannot_lead_us_to_services_of_this_host(
    field: str, inside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {
        "issuer": _MINIMAL["issuer"],
        "authorization_endpoint": "https://provider.example/auth",
        "token_endpoint": "https://provider.example/token",
        field: inside,
    }

    async def published(provider: OAuthProvider, url: str) -> Any:
        return said

    monkeypatch.setattr("interlock.oauth.provider_client.fetch_json", published)

    with pytest.raises(ConsentError, match="an endpoint is on this host, and its issuer is not"):
        await resolve_endpoints(provider())
