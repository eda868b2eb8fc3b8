"""Runs started by webhooks of other systems.

A signature over the body authenticates the sender. The body is data: it is in the task as quoted, untrusted text, like
the output of a tool, and nowhere else. The run's id is derived from what was signed (the delivery, or the whole body
where the sender signs nothing else), so a repeated request names the run that it started.
"""

import hmac
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Literal

import msgspec

from ....domain.errors import ConfigurationError
from ....domain.json import InvalidJsonError, parse
from ....domain.rendering import render_untrusted_tool_message
from ..configured_secret import read_secret
from .due_times import find_trigger_problem
from .webhook_signature import DELIVERY_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER, compute_signature, is_delivery_id

PAYLOAD_PLACEHOLDER = "{{payload}}"
MAX_BODY_BYTES = 256 * 1024
#: Quoting makes text longer: invisible characters are escaped.
MAX_QUOTED_CHARS = 1_000_000
_MAX_DIGITS = 12
_NANOSECONDS_PER_SECOND = 1_000_000_000

WebhookErrorCode = Literal["unknown_webhook", "bad_signature", "too_old", "too_large", "bad_json", "webhook_paused"]
HTTP_STATUS_BY_CODE: dict[WebhookErrorCode, int] = {
    "unknown_webhook": 404,
    "bad_signature": 401,
    "too_old": 401,
    "too_large": 413,
    "bad_json": 422,
    "webhook_paused": 409,
}


class Webhook(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A configured webhook."""

    name: str
    agent: str
    #: `{{payload}}` is where the body goes, quoted.
    task: str
    secret_env: str = ""
    secret_file: str = ""
    #: `interlock` as in `webhook_signature.py`; `github` as GitHub and others sign: `X-Hub-Signature-256`.
    scheme: Literal["interlock", "github"] = "interlock"
    #: How old a signed time may be, or how far ahead.
    tolerance_seconds: int = 300
    max_body_bytes: int = MAX_BODY_BYTES


class WebhookTrigger(msgspec.Struct, frozen=True, kw_only=True):
    """A run to start. It may exist already: then this is a repeated request."""

    webhook: str
    agent: str
    task: str
    run_id: str


class WebhookRejection(msgspec.Struct, frozen=True):
    """Why nothing was started."""

    code: WebhookErrorCode
    message: str

    @property
    def status(self) -> int:
        """HTTP status of the rejection."""
        return HTTP_STATUS_BY_CODE[self.code]


_BAD_SIGNATURE = WebhookRejection(
    "bad_signature", "The request has no signature that fits its body. Nothing was started; check the shared secret."
)


class Webhooks:
    """Authenticates webhook requests."""

    def __init__(self, webhooks: Sequence[Webhook], environ: Mapping[str, str]) -> None:
        self._webhooks: dict[str, Webhook] = {}
        self._secrets: dict[str, str] = {}
        for webhook in webhooks:
            if problem := "another one has the same name" if webhook.name in self._webhooks else _find_problem(webhook):
                raise ConfigurationError(f'The webhook "{webhook.name[:64]}" cannot work: {problem}.')
            owner = f'The webhook "{webhook.name}"'
            self._secrets[webhook.name] = read_secret(owner, webhook.secret_env, webhook.secret_file, environ)
            self._webhooks[webhook.name] = webhook

    @property
    def configured(self) -> tuple[Webhook, ...]:
        """All webhooks of the settings."""
        return tuple(self._webhooks.values())

    def find(self, name: str) -> Webhook | None:
        """Return the webhook before the body is read, for its size limit."""
        return self._webhooks.get(name)

    def accept(self, name: str, headers: Mapping[str, str], body: bytes, now: int) -> WebhookTrigger | WebhookRejection:
        """Verify a delivery and return what it starts. Reject it with a code otherwise."""
        webhook = self._webhooks.get(name)
        if webhook is None:
            return WebhookRejection("unknown_webhook", "There is no webhook of this name. Nothing was started.")
        if len(body) > webhook.max_body_bytes:
            return WebhookRejection(
                "too_large", f"The body is longer than {webhook.max_body_bytes} bytes. Nothing was started."
            )
        lowered = {key.lower(): value for key, value in headers.items()}
        key = _VERIFIERS[webhook.scheme](webhook, self._secrets[name], lowered, body, now)
        if isinstance(key, WebhookRejection):
            return key
        return _build_trigger(webhook, key, body)


def _build_trigger(webhook: Webhook, key: bytes, body: bytes) -> WebhookTrigger | WebhookRejection:
    try:
        parse(body)
        text = body.decode()
    except (InvalidJsonError, UnicodeDecodeError) as error:
        return WebhookRejection(
            "bad_json", f"The body is not JSON ({error}). Nothing was started; send it as application/json."
        )
    quoted = render_untrusted_tool_message(f"webhook {webhook.name}", text, "json")
    task = webhook.task.replace(PAYLOAD_PLACEHOLDER, f"\n{quoted}\n").strip()
    if len(task) > MAX_QUOTED_CHARS:
        return WebhookRejection(
            "too_large",
            f"The body has more than {MAX_QUOTED_CHARS} characters when it is quoted. Nothing was started.",
        )
    request_digest = sha256(webhook.name.encode() + bytes(1) + key).hexdigest()[:32]
    return WebhookTrigger(
        webhook=webhook.name, agent=webhook.agent, task=task, run_id=f"hook-{webhook.name}-{request_digest}"
    )


def _verify_interlock_signature(
    webhook: Webhook, secret: str, headers: Mapping[str, str], body: bytes, now: int
) -> bytes | WebhookRejection:
    time, delivery = headers.get(TIMESTAMP_HEADER.lower(), ""), headers.get(DELIVERY_HEADER.lower(), "")
    if not (time.isascii() and time.isdigit() and len(time) <= _MAX_DIGITS and is_delivery_id(delivery)):
        return _BAD_SIGNATURE
    if not _is_equal_in_constant_time(
        headers.get(SIGNATURE_HEADER.lower(), ""), compute_signature(secret, int(time), delivery, body)
    ):
        return _BAD_SIGNATURE
    if abs(now - int(time) * _NANOSECONDS_PER_SECOND) > webhook.tolerance_seconds * _NANOSECONDS_PER_SECOND:
        return WebhookRejection(
            "too_old",
            f"The request was signed more than {webhook.tolerance_seconds} s from now. Nothing was started; "
            "check both clocks, and sign each attempt again.",
        )
    return delivery.encode()


def _verify_github_signature(
    webhook: Webhook, secret: str, headers: Mapping[str, str], body: bytes, now: int
) -> bytes | WebhookRejection:
    expected = "sha256=" + hmac.new(secret.encode(), body, sha256).hexdigest()
    return body if _is_equal_in_constant_time(headers.get("x-hub-signature-256", ""), expected) else _BAD_SIGNATURE


#: What a request is known by, once its signature fits.
_VERIFIERS = {"interlock": _verify_interlock_signature, "github": _verify_github_signature}


def _is_equal_in_constant_time(given: str, expected: str) -> bool:
    """Compare two texts in a time that does not depend on the given one."""
    return hmac.compare_digest(given.encode(errors="replace"), expected.encode())


def _find_problem(webhook: Webhook) -> str:
    if problem := find_trigger_problem(webhook.name, webhook.agent, webhook.task):
        return problem
    if webhook.task.count(PAYLOAD_PLACEHOLDER) > 1:
        return f"its task has {PAYLOAD_PLACEHOLDER} more than once"
    if not 0 < webhook.tolerance_seconds <= 86_400:  # noqa: PLR2004 - a day
        return "`tolerance_seconds` is between 1 and 86400"
    return "" if 0 < webhook.max_body_bytes <= MAX_BODY_BYTES else f"`max_body_bytes` is at most {MAX_BODY_BYTES}"
