"""The network of one command or process: its proxy, how programs find that, and what was reached."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from ...domain.egress import EgressReport, EgressRules
from ...domain.outcome import SideEffect
from ...rendering.text import pluralize

if TYPE_CHECKING:
    from .proxy import EgressProxy

#: Beyond the ports that systems give out by themselves.
PROXY_PORT = 61_080
#: What a command finds in the variable of a credential.
PLACEHOLDER = "added-by-the-interlock-proxy"
_PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_LOOPBACK = "localhost,127.0.0.1,::1"
_CA_VARIABLES = (
    *("SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"),
    *("PIP_CERT", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO"),
)
_MAX_LISTED = 10


class CommandEgress(msgspec.Struct, frozen=True):
    """The egress of one command."""

    rules: EgressRules
    #: Where the certificates are that it trusts.
    ca_file: str = "/.sandbox-ca.pem"

    def make_proxy(self) -> "EgressProxy":
        """Return the proxy of a command, which serves from the start to the end of it."""
        from .proxy import EgressProxy  # noqa: PLC0415 - loaded where a host is named

        return EgressProxy(self.rules)

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which programs find the proxy and trust it."""
        address = f"http://127.0.0.1:{PROXY_PORT}"
        variables = {name: address for upper in _PROXY_VARIABLES for name in (upper, upper.lower())}
        variables |= {"NO_PROXY": _LOOPBACK, "no_proxy": _LOOPBACK, "NODE_USE_ENV_PROXY": "1"}
        if self.files:
            variables |= dict.fromkeys(_CA_VARIABLES, self.ca_file)
        return variables | {rule.credential: PLACEHOLDER for rule in self.rules.credentials}

    @property
    def files(self) -> Mapping[str, bytes]:
        """The certificates to trust, where the proxy has to read requests."""
        if not self.rules.needs_inspection:
            return {}
        from .certificates import (  # noqa: PLC0415 - the same
            can_make_certificates,
            get_authority,
            read_trusted_bundle,
        )

        if not can_make_certificates():
            return {}
        return {self.ca_file: read_trusted_bundle() + get_authority().certificate}

    @property
    def secrets(self) -> tuple[str, ...]:
        """The credentials that the proxy adds."""
        values = (os.environ.get(rule.credential, "") for rule in self.rules.credentials)
        return tuple(value for value in values if value)


def make_connection_effects(report: EgressReport) -> tuple[SideEffect, ...]:
    """Return one side effect for each host that was reached."""
    totals: dict[str, list[int]] = {}
    for row in report.connections:
        if row.outcome == "allowed" and (row.sent_bytes or row.received_bytes):
            total = totals.setdefault(f"{row.host}:{row.port}", [0, 0, 0])
            for at, value in enumerate((1, row.sent_bytes, row.received_bytes)):
                total[at] += value
    return tuple(
        SideEffect(
            kind="sent",
            target=place,
            detail=f"{pluralize(count, 'request')}, {sent:,} bytes sent, {received:,} received",
        )
        for place, (count, sent, received) in list(totals.items())[:_MAX_LISTED]
    )
