"""The hosts of a command: which it can reach through the proxy, what is asked about them, and what is reported."""

from collections.abc import Iterable, Sequence

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
from ...domain.tool import CallContext, JsonObject, PermissionMode
from ...sandbox.interface import Confinement
from ...sandbox.network.egress import CommandEgress
from .profile import SANDBOX_LAYER, ShellConfig

MAX_HOSTS = 20
_MAX_LISTED = 10


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
