"""What looks like a secret is redacted; what only talks about one is not."""

import base64
import json

import pytest

from interlock.redaction.redactor import SecretRedactor
from tests.corpora import spellings
from tests.corpora.injection import load
from tests.each import each

ALNUM = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
GITHUB = "ghp_" + ALNUM[:36]
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
PEM = "\n".join(
    ["-----BEGIN RSA PRIVATE KEY-----", *["MIIEowIBAAKCAQEA0Z3VS5JJcds3xfn" * 2] * 4, "-----END RSA PRIVATE KEY-----"]
)

TOKENS = {
    "AKIAIOSFODNN7EXAMPLE": "aws_access_key_id",
    GITHUB: "github_token",
    "github_pat_" + ALNUM[:22] + "_" + ALNUM[:59]: "github_token",
    "glpat-" + ALNUM[:20]: "gitlab_token",
    "xoxb-123456789012-1234567890123-" + ALNUM[:24]: "slack_token",
    "sk_live_" + ALNUM[:24]: "stripe_key",
    "sk-proj-" + ALNUM[:40]: "openai_key",
    "sk-ant-api03-" + ALNUM: "anthropic_key",
    "AIza" + ALNUM[:35]: "google_api_key",
    "ya29." + ALNUM[:40]: "google_token",
    "npm_" + ALNUM[:36]: "npm_token",
    "pypi-AgEIcHlwaS5vcmc" + ALNUM: "pypi_token",
    "hf_" + ALNUM[:34]: "huggingface_token",
    "hvs." + ALNUM[:30]: "vault_token",
    JWT: "jwt",
    PEM: "private_key",
}


@pytest.mark.requirement("R239")
@each(("token", "name"), TOKENS.items())
def test_a_token_is_known_by_its_form_wherever_it_stands(token: str, name: str) -> None:
    redact = SecretRedactor().redact

    assert redact(token) == f"[redacted:{name}]"
    assert redact(f"see {token}, then") == f"see [redacted:{name}], then"
    assert redact(json.dumps({"out": f"a\n{token}"})) == json.dumps({"out": f"a\n[redacted:{name}]"})
    assert redact(f"x%3D{token}").startswith("x%3D[redacted:")
    assert redact("\u200b".join(token)) == f"[redacted:{name}]"


@each("token", [GITHUB, "AKIAIOSFODNN7EXAMPLE", "glpat-" + ALNUM[:20], "sk-ant-api03-" + ALNUM, PEM])
@each("before", range(3))
def test_a_token_is_known_in_base64_and_hex(token: str, before: int) -> None:
    redact = SecretRedactor().redact
    text = "\n" * before + token

    for encoded in (base64.b64encode(text.encode()).decode(), base64.urlsafe_b64encode(text.encode()).decode()):
        assert "[redacted:" in redact(f"blob: {encoded} end")
        assert len(redact(encoded)) < 40
    assert redact(token.encode().hex()).startswith("[redacted:")
    assert redact(token.encode().hex().upper()).startswith("[redacted:")


def test_the_corpus_secrets_are_redacted_both_halves_and_encoded() -> None:
    payloads = {attack.id: attack.payload for attack in load()}

    assert SecretRedactor().redact(payloads["L09"]) == (
        "key=[redacted:aws_access_key_id] secret=[redacted:aws_secret_access_key]"
    )
    assert SecretRedactor({"CANARY": GITHUB}).redact(payloads["L11"]) == "[redacted:CANARY]"
    assert SecretRedactor().redact(payloads["L11"]) == "[redacted:github_token]"


PLACES = {
    "AKIAIOSFODNN7EXAMPLE,wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY": (
        "[redacted:aws_access_key_id],[redacted:aws_secret_access_key]"
    ),
    "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY": (
        "aws_secret_access_key = [redacted:secret_access_key]"
    ),
    "Authorization: Bearer abcdefgh12345678": "Authorization: Bearer [redacted:authorization]",
    "-H 'authorization: Basic dXNlcjpwYXNz'": "-H 'authorization: Basic [redacted:authorization]'",
    "Proxy-Authorization: t0ken-with-9-chars": "Proxy-Authorization: [redacted:authorization]",
    "sent Bearer abcdefgh12345678 to it": "sent Bearer [redacted:bearer_token] to it",
    "postgres://me:pa/ss@host/db": "postgres://me:[redacted:url_password]@host/db",
    "postgres://me:p@ssw@host/db": "postgres://me:[redacted:url_password]@host/db",
    "redis://:pw@host:6379/0": "redis://:[redacted:url_password]@host:6379/0",
    "Cookie: sid=abc123def; theme=dark": "Cookie: [redacted:cookie]",
    "Set-Cookie: sid=abc123def; HttpOnly\nX: 1": "Set-Cookie: [redacted:cookie]\nX: 1",
    "password=hunter2": "password=[redacted:password]",
    "DB_PASSWORD=swordfish\nX=1": "DB_PASSWORD=[redacted:password]\nX=1",
    "?user=me&password=letmein&x=1": "?user=me&password=[redacted:password]&x=1",
    "Server=db;Pwd=s3cret!;": "Server=db;Pwd=[redacted:pwd];",
    "password: hunter2": "password: [redacted:password]",
    'password: str = "swordfish"': 'password: str = "[redacted:password]"',
    'if password == "hunter2":': 'if password == "[redacted:password]":',
    '{"api_key": "q8Zr41", "n": 1}': '{"api_key": "[redacted:api_key]", "n": 1}',
    r"{\"token\": \"q8Zr41\"}": r"{\"token\": \"[redacted:token]\"}",
    "X-Api-Key: 9f8e7d6c5b4a": "X-Api-Key: [redacted:api_key]",
    "secret: q8Zr41xx": "secret: [redacted:secret]",
    'api_key = "AbCdEfGhIjKlMnOp"': 'api_key = "[redacted:api_key]"',
    "credentials: password: hunter2": "credentials: password: [redacted:password]",
    "mysql --password hunter2x -h db": "mysql --password [redacted:option_value] -h db",
    "<password>swordfish</password>": "<password>[redacted:element_value]</password>",
}


@each(("text", "redacted"), PLACES.items())
def test_a_secret_is_known_by_what_stands_before_it(text: str, redacted: str) -> None:
    assert SecretRedactor().redact(text) == redacted


@each(
    "text",
    spellings.load("no secrets"),
)
def test_talk_and_code_about_secrets_is_left_alone(text: str) -> None:
    assert SecretRedactor().redact(text) == text
