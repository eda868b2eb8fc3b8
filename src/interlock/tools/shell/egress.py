"""The hosts of a command: which it can reach through the proxy, what is asked about them, and what is reported."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from ...domain.decision import Decision, Verdict
from ...domain.egress import (
    WEB_PORTS,
    EgressConnection,
    EgressOutcome,
    EgressReport,
    EgressRule,
    EgressRules,
    parse_host_and_port,
)
from ...domain.outcome import SideEffect
from ...domain.tool import CallContext, JsonObject, PermissionMode
from ...rendering.text import pluralize
from ...sandbox.interface import Confinement
from .profile import SANDBOX_LAYER, ShellConfig

if TYPE_CHECKING:
    from ...sandbox.network.proxy import EgressProxy

#: Beyond the ports that systems give out by themselves.
PROXY_PORT = 61_080
MAX_HOSTS = 20
_CA_FILE = "/.sandbox-ca.pem"
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

    def make_proxy(self) -> "EgressProxy":
        """Return the proxy of a command, which serves from the start to the end of it."""
        from ...sandbox.network.proxy import EgressProxy  # noqa: PLC0415 - loaded where a host is named

        return EgressProxy(self.rules)

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which programs find the proxy and trust it."""
        address = f"http://127.0.0.1:{PROXY_PORT}"
        variables = {name: address for upper in _PROXY_VARIABLES for name in (upper, upper.lower())}
        variables |= {"NO_PROXY": _LOOPBACK, "no_proxy": _LOOPBACK, "NODE_USE_ENV_PROXY": "1"}
        if self.files:
            variables |= dict.fromkeys(_CA_VARIABLES, _CA_FILE)
        return variables | {rule.credential: PLACEHOLDER for rule in self.rules.credentials}

    @property
    def files(self) -> Mapping[str, bytes]:
        """The certificates to trust, where the proxy has to read requests."""
        if not self.rules.needs_inspection:
            return {}
        from ...sandbox.network.certificates import (  # noqa: PLC0415 - the same
            can_make_certificates,
            get_authority,
            read_trusted_bundle,
        )

        if not can_make_certificates():
            return {}
        return {_CA_FILE: read_trusted_bundle() + get_authority().certificate}

    @property
    def secrets(self) -> tuple[str, ...]:
        """The credentials that the proxy adds."""
        values = (os.environ.get(rule.credential, "") for rule in self.rules.credentials)
        return tuple(value for value in values if value)


def find_egress(
    config: ShellConfig, confinement: Confinement, hosts: Sequence[str], *, approved: bool = False
) -> CommandEgress | None:
    """Return the egress of a command; None where no rule and no argument names a host, or the sandbox has no proxy.

    Args:
        hosts: The hosts that the call names.
        approved: A person approved the call with them.
    """
    rules = config.egress()
    if "egress" not in confinement.capabilities or not (rules or hosts):
        return None
    return CommandEgress(EgressRules(rules, hosts if approved else ()))


def find_hosts_problem(hosts: Sequence[str], confinement: Confinement) -> str:
    """Return why these hosts cannot be opened, whatever rules say; empty when they can."""
    if len(hosts) > MAX_HOSTS:
        return f"hosts names at most {MAX_HOSTS} hosts."
    if hosts and "egress" not in confinement.capabilities:
        return f"No host can be opened: the sandbox {confinement.backend} has no proxy. Leave out hosts."
    for host in hosts:
        if parse_host_and_port(host) is None:
            return f"{host[:100]!r} is no host. Write a name or an address, or with a port `example.com:8443`."
    return ""


def authorize_hosts(rules: Iterable[EgressRule], hosts: Sequence[str], situation: CallContext) -> Decision | None:
    """Decide about the hosts that a call names: None where rules allow all of them."""
    compiled = EgressRules(rules)
    outcomes = {host: _decide_host(compiled, host) for host in hosts}
    if denied := [host for host, (outcome, _) in outcomes.items() if outcome == "deny"]:
        ids = tuple(rule_id for host in denied for rule_id in outcomes[host][1])
        reason = f"Egress rules deny {', '.join(denied)}."
        return Decision(verdict=Verdict.DENY, reason=reason, rule_ids=ids, layer=SANDBOX_LAYER)
    asked = [host for host, (outcome, _) in outcomes.items() if outcome != "allow"]
    if not asked:
        return None
    if situation.mode is PermissionMode.READ_ONLY:
        reason = f"The run only reads, and no egress rule allows {', '.join(asked)}."
        return Decision(verdict=Verdict.DENY, reason=reason, rule_ids=("sandbox:hosts",), layer=SANDBOX_LAYER)
    ids = tuple(dict.fromkeys(rule_id for host in asked for rule_id in outcomes[host][1]))
    return Decision(
        verdict=Verdict.ASK,
        reason=f"If approved, it can reach {', '.join(asked)}.",
        rule_ids=ids or ("sandbox:hosts",),
        layer=SANDBOX_LAYER,
        risk=("execute", "network"),
        scope="once",
    )


def _decide_host(rules: EgressRules, text: str) -> tuple[EgressOutcome, tuple[str, ...]]:
    """Return the decision about a host on the port that it names, or on any that rules know."""
    parsed = parse_host_and_port(text)
    if parsed is None:
        return "deny", ("sandbox:hosts",)
    host, port = parsed
    ports = (port,) if port else dict.fromkeys((*WEB_PORTS, *(each for rule in rules.rules for each in rule.port_list)))
    decisions = [rules.decide(host, each) for each in ports]
    order: tuple[EgressOutcome, ...] = ("ask", "allow", "deny", "unnamed")
    best = min(decisions, key=lambda decision: order.index(decision.outcome))
    return best.outcome, best.rule_ids


def build_connection_facts(report: EgressReport) -> JsonObject:
    """Return the connections of a command for the log."""
    if not report.connections and not report.omitted:
        return {}
    facts: JsonObject = {"connections": [_to_fact(row) for row in report.connections]}
    if report.omitted:
        facts["connections_omitted"] = report.omitted
    return facts


def _to_fact(row: EgressConnection) -> JsonObject:
    fact: JsonObject = {"host": row.host, "port": row.port, "method": row.method, "decision": row.outcome}
    if row.rule:
        fact["rule"] = row.rule
    if row.reason:
        fact["reason"] = row.reason
    return fact | {"sent_bytes": row.sent_bytes, "received_bytes": row.received_bytes}


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


def build_egress_notes(report: EgressReport, mode: PermissionMode) -> list[str]:
    """Return notes for the model: which hosts were refused, and what to do."""
    refused = [row for row in report.connections if row.outcome != "allowed"]
    notes = [f"[network: {reason}]" for reason in list(dict.fromkeys(row.reason for row in refused))[:_MAX_LISTED]]
    askable = list(dict.fromkeys(_name_host(row) for row in refused if row.can_ask and row.outcome == "refused"))
    if askable and mode is not PermissionMode.READ_ONLY:
        named = ", ".join(f'"{host}"' for host in askable[:_MAX_LISTED])
        notes.append(f"[network: to ask a person for them, call bash again with hosts=[{named}]]")
    if report.omitted:
        notes.append(f"[network: {report.omitted} more connections are not listed]")
    return notes


def _name_host(row: EgressConnection) -> str:
    if row.port in WEB_PORTS:
        return row.host
    return f"[{row.host}]:{row.port}" if ":" in row.host else f"{row.host}:{row.port}"
