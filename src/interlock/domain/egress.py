"""Egress rules: which hosts commands can reach, on which ports and with which HTTP methods.

Deny beats ask, which beats allow, over all rules. What no rule names cannot be reached.
"""

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import msgspec

from .. import lazy_module, lazy_pattern
from .errors import ConfigurationError

if TYPE_CHECKING:
    from . import hosts
else:
    hosts = lazy_module(".hosts", __package__)

EgressVerdict: TypeAlias = Literal["allow", "ask", "deny"]
#: `unnamed`: no rule names the host with that port and method.
EgressOutcome: TypeAlias = Literal["allow", "ask", "deny", "unnamed"]

WEB_PORTS = (80, 443)
DEFAULT_HEADER = "Authorization: Bearer {}"
_MAX_PORT = 65_535
_HOST = lazy_pattern(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|[0-9a-f:.]+")
_METHOD = lazy_pattern(r"[A-Z]+(?:-[A-Z]+)*")
_VARIABLE = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_HEADER = lazy_pattern(r"[A-Za-z0-9-]+: [\x21-\x7e ]*\{\}[\x21-\x7e ]*")
_HOST_AND_PORT = lazy_pattern(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]+)(?::([0-9]{1,5}))?")


class EgressRule(msgspec.Struct, frozen=True, kw_only=True):
    """Allow, ask about or deny connections of commands to hosts.

    EgressRule(verdict="allow", hosts="pypi.org, files.pythonhosted.org")
    """

    verdict: EgressVerdict
    #: `example.com`; `*.example.com` is it and everything under it; an address only as it is. A text may name several.
    hosts: str | Collection[str]
    #: Empty: 80 and 443; with deny every port.
    ports: int | Collection[int] = ()
    #: HTTP methods. Empty: all. With methods, the proxy decrypts TLS to see them.
    methods: str | Collection[str] = ()
    #: The environment variable of this process whose value is added to every request as a header. Commands see a
    #: placeholder in it.
    credential: str = ""
    #: That header; `{}` is the value.
    header: str = DEFAULT_HEADER
    #: For the log. Empty: made from what the rule says.
    id: str = ""
    layer: str = "tool option"

    @property
    def port_list(self) -> tuple[int, ...]:
        """The ports as they were given; empty: the default."""
        return (self.ports,) if isinstance(self.ports, int) else tuple(self.ports)


class EgressDecision(msgspec.Struct, frozen=True):
    """The decision about a connection or a request."""

    outcome: EgressOutcome
    rule_ids: tuple[str, ...] = ()
    #: Rules about methods or credentials apply: the proxy has to read each request.
    inspect: bool = False
    #: The rule whose credential is added.
    credential: EgressRule | None = None


class EgressConnection(msgspec.Struct, kw_only=True):
    """A connection that a command made or tried to make, for the log."""

    host: str
    port: int
    #: `CONNECT`, or the method of a request where it was read.
    method: str
    #: `allowed`, `refused` (by rules or checks), or `failed` (the host could not be reached).
    outcome: str
    rule: str = ""
    reason: str = ""
    #: A person can open the host for a call.
    can_ask: bool = False
    sent_bytes: int = 0
    received_bytes: int = 0


class EgressReport(msgspec.Struct, frozen=True):
    """All connections of a command."""

    connections: tuple[EgressConnection, ...] = ()
    #: More connections, of which there is no row.
    omitted: int = 0

    @property
    def may_have_reached_hosts(self) -> bool:
        """True unless every connection was refused or failed."""
        return self.omitted > 0 or any(row.outcome == "allowed" for row in self.connections)


class EgressRules:
    """Rules compiled for decisions about connections."""

    def __init__(self, rules: Iterable[EgressRule] = (), approved: Collection[str] = ()) -> None:
        """
        Args:
            approved: Hosts, or `host:port`, that a person approved: rules that ask, or do not name them, open them.
        """
        self.rules = tuple(compile_egress_rule(rule) for rule in rules)
        self._approved = {parsed for each in approved if (parsed := parse_host_and_port(each)) is not None}

    @property
    def credentials(self) -> tuple[EgressRule, ...]:
        """The rules with a credential."""
        return tuple(rule for rule in self.rules if rule.credential)

    @property
    def needs_inspection(self) -> bool:
        """True if any rule is about methods or has a credential."""
        return any(rule.methods or rule.credential for rule in self.rules)

    def decide(self, host: str, port: int, method: str = "") -> EgressDecision:
        """Decide about a normalized host. Without a method: whether a connection can be made at all."""
        named = [rule for rule in self.rules if _names(rule, host, port)]
        inspect = any(rule.methods or rule.credential for rule in named)
        fitting = [rule for rule in named if not method or not rule.methods or method in rule.methods]
        # A rule about some methods says nothing yet about a connection that allows others.
        firm = [rule for rule in fitting if method or not rule.methods]
        if denying := [rule.id for rule in firm if rule.verdict == "deny"]:
            return EgressDecision("deny", tuple(denying), inspect)
        approved = self._is_approved(host, port, has_rule=any(rule.verdict == "ask" for rule in fitting))
        asking = [rule for rule in fitting if rule.verdict == "ask"]
        if not approved and (firmly := [rule.id for rule in asking if rule in firm]):
            return EgressDecision("ask", tuple(firmly), inspect)
        opening = [rule for rule in fitting if rule.verdict == "allow" or (approved and rule.verdict == "ask")]
        if opening or approved:
            credential = next((rule for rule in opening if rule.credential), None) if method else None
            ids = tuple(rule.id for rule in opening) or ("approved",)
            return EgressDecision("allow", ids, inspect, credential)
        return EgressDecision("ask" if asking else "unnamed", tuple(rule.id for rule in asking), inspect)

    def find_address_problem(self, address: str, port: int) -> str:
        """Return why an address that a name resolved to cannot be connected to; empty when it can. Addresses that are
        not on the public network must be named themselves.
        """
        parsed = hosts.parse_address(address)
        if parsed is None:
            return "the resolver's answer is not an address"
        decision = self.decide(str(parsed), port)
        if decision.outcome == "deny":
            return f"{parsed} is denied by {', '.join(decision.rule_ids)}"
        return "" if decision.outcome == "allow" else hosts.find_address_problem(parsed, hosts.NetworkAccess())

    def _is_approved(self, host: str, port: int, *, has_rule: bool) -> bool:
        return (host, port) in self._approved or ((host, 0) in self._approved and (has_rule or port in WEB_PORTS))


def compile_egress_rule(rule: EgressRule) -> EgressRule:
    """Return the rule in its one spelling. Raise `ConfigurationError` when it makes no sense."""
    if type(rule) is not EgressRule:
        raise ConfigurationError(f"egress has EgressRule(verdict=..., hosts=...), not {type(rule).__name__}")
    if rule.verdict not in get_args(EgressVerdict):
        raise ConfigurationError(f"an egress rule says allow, ask or deny, not {rule.verdict!r}")
    texts = rule.hosts.split(",") if isinstance(rule.hosts, str) else rule.hosts
    hosts = tuple(dict.fromkeys(_parse_pattern(text.strip()) for text in texts))
    if not hosts:
        raise ConfigurationError("an egress rule names at least one host")
    ports = rule.port_list
    for port in ports:
        if not 0 < port <= _MAX_PORT:
            raise ConfigurationError(f"a port is a number from 1 to {_MAX_PORT}, not {port}")
    named = rule.methods.replace(",", " ").split() if isinstance(rule.methods, str) else rule.methods
    methods = tuple(dict.fromkeys(method.upper() for method in named))
    for method in methods:
        if not _METHOD.fullmatch(method) or method == "CONNECT":
            raise ConfigurationError(f"{method[:40]!r} is no HTTP method of a request, such as GET or POST")
    if rule.credential:
        _check_credential(rule, hosts)
    what = "".join(f":{port}" for port in ports) + "".join(f" {method}" for method in methods)
    return msgspec.structs.replace(
        rule,
        hosts=hosts,
        ports=ports or (() if rule.verdict == "deny" else WEB_PORTS),
        methods=methods,
        id=rule.id or f"egress:{rule.verdict}:{','.join(hosts)}{what}"[:200],
    )


def parse_host_and_port(text: str) -> tuple[str, int] | None:
    """Return the normalized host and the port of `host` or `host:port`, 0 for none; None when it names no host."""
    text = text.strip()
    found = _HOST_AND_PORT.fullmatch(text) if hosts.parse_address(text) is None else None
    written, digits = (found[1], found[2]) if found is not None else (text, None)
    host = hosts.normalize_host(written.strip("[]"))
    if host is None or not _HOST.fullmatch(host) or (digits is not None and not 0 < int(digits) <= _MAX_PORT):
        return None
    return host, int(digits or 0)


def _names(rule: EgressRule, host: str, port: int) -> bool:
    if rule.ports and port not in rule.port_list:
        return False
    # `*` and `*.1` stand for names: an address is opened only by a rule that names it.
    if rule.verdict != "deny" and hosts.parse_address(host) is not None:
        return host in rule.hosts
    return any(hosts.host_matches(pattern, host) for pattern in rule.hosts)


def _parse_pattern(pattern: str) -> str:
    if pattern == "*":
        return pattern
    under = "*." if pattern.startswith("*.") else ""
    name = pattern[len(under) :].strip("[]")
    host = hosts.normalize_host(name)
    if "/" in pattern:
        raise ConfigurationError(f"{pattern[:80]!r}: the host alone, without the rest of the address")
    if host is None or not _HOST.fullmatch(host) or not name.isascii():
        known = "`example.com`, `*.example.com`, or an address; ports have their own key"
        raise ConfigurationError(f"{pattern[:80]!r} is no host: {known}")
    return under + host


def _check_credential(rule: EgressRule, hosts: tuple[str, ...]) -> None:
    if rule.verdict == "deny":
        raise ConfigurationError("a rule that denies has no credential")
    if not _VARIABLE.fullmatch(rule.credential):
        raise ConfigurationError(f"credential is the name of an environment variable, not {rule.credential[:40]!r}")
    if not _HEADER.fullmatch(rule.header) or rule.header.count("{}") != 1:
        raise ConfigurationError(f"header is a text such as {DEFAULT_HEADER!r}, in which {{}} is the credential")
    if "*" in hosts:
        raise ConfigurationError("a credential is for named hosts; `*` would send it to every host")
