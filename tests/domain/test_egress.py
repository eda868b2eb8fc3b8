"""Egress rules: what they name, and which of them wins."""

import pytest

from interlock.domain.egress import EgressRule, EgressRules, EgressVerdict, compile_egress_rule, parse_host_and_port
from interlock.errors import ConfigurationError
from tests.each import each


def rule(verdict: EgressVerdict, hosts: str, ports: int | tuple[int, ...] = (), methods: str = "") -> EgressRule:
    return EgressRule(verdict=verdict, hosts=hosts, ports=ports, methods=methods)


@each(
    ("rules", "outcome"),
    [
        ([], "unnamed"),
        ([rule("allow", "a.com")], "allow"),
        ([rule("allow", "b.com")], "unnamed"),
        ([rule("allow", "*.com")], "allow"),
        ([rule("allow", "a.com", 8443)], "unnamed"),
        ([rule("allow", "a.com"), rule("ask", "*.com")], "ask"),
        ([rule("allow", "a.com"), rule("ask", "a.com"), rule("deny", "*")], "deny"),
        ([rule("allow", "a.com", methods="GET")], "allow"),
        ([rule("allow", "a.com"), rule("deny", "a.com", methods="POST")], "allow"),
        ([rule("deny", "a.com", methods="POST")], "unnamed"),
    ],
)
def test_strictest_rule_decides_a_connection(rules: list[EgressRule], outcome: str) -> None:
    assert EgressRules(rules).decide("a.com", 443).outcome == outcome
    assert EgressRules(rules[::-1]).decide("a.com", 443).outcome == outcome


@pytest.mark.parametrize(
    ("method", "outcome"), [("GET", "allow"), ("POST", "deny"), ("PUT", "ask"), ("HEAD", "unnamed")]
)
def test_rules_about_methods_decide_requests(method: str, outcome: str) -> None:
    rules = EgressRules(
        [
            rule("allow", "a.com", methods="get, post"),
            rule("deny", "a.com", methods="POST"),
            rule("ask", "*", methods="PUT"),
        ]
    )

    assert rules.decide("a.com", 443).inspect
    assert rules.decide("a.com", 443, method).outcome == outcome


def test_wildcards_do_not_name_addresses() -> None:
    rules = EgressRules([rule("allow", "*"), rule("allow", "10.0.0.2")])

    assert rules.decide("10.0.0.1", 443).outcome == "unnamed"
    assert rules.decide("10.0.0.2", 443).outcome == "allow"
    assert EgressRules([rule("deny", "*")]).decide("10.0.0.1", 443).outcome == "deny"


def test_approval_opens_what_was_asked_and_no_more() -> None:
    rules = EgressRules([rule("ask", "a.com", 8443), rule("deny", "c.com")], approved=["a.com", "b.com:22", "c.com"])

    assert rules.decide("a.com", 8443).outcome == "allow"
    assert rules.decide("b.com", 22).outcome == "allow"
    assert rules.decide("b.com", 443).outcome == "unnamed"
    assert rules.decide("c.com", 443).outcome == "deny"
    assert rules.decide("d.com", 443).outcome == "unnamed"


@each(
    "address", ["127.0.0.1", "10.1.2.3", "169.254.169.254", "::1", "fe80::1", "64:ff9b::7f00:1", "::ffff:10.0.0.1", "x"]
)
def test_only_named_private_addresses_are_connected_to(address: str) -> None:
    assert EgressRules([rule("allow", "*")]).find_address_problem(address, 443)
    assert not EgressRules([rule("allow", "10.1.2.3")]).find_address_problem("10.1.2.3", 443)
    assert not EgressRules([rule("allow", "*")]).find_address_problem("93.184.216.34", 443)
    assert EgressRules([rule("deny", "93.184.216.34")]).find_address_problem("93.184.216.34", 443)


@each(
    ("wrong", "reason"),
    [
        (rule("allow", "https://a.com/x"), "the host alone"),
        (rule("allow", "a.com:80"), "is no host"),
        (rule("allow", ""), "is no host"),
        (rule("allow", "2130706433"), "is no host"),
        (rule("allow", "a.com", 0), "a port is a number"),
        (rule("allow", "a.com", 70_000), "a port is a number"),
        (rule("allow", "a.com", methods="CONNECT"), "no HTTP method"),
        (EgressRule(verdict="allow", hosts="*", credential="TOKEN"), "named hosts"),
        (EgressRule(verdict="deny", hosts="a.com", credential="TOKEN"), "no credential"),
        (EgressRule(verdict="allow", hosts="a.com", credential="a b"), "environment variable"),
        (EgressRule(verdict="allow", hosts="a.com", credential="A", header="X\r\n: {}"), "header is a text"),
    ],
)
def test_senseless_rules_are_refused(wrong: EgressRule, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        compile_egress_rule(wrong)


def test_other_values_are_no_rules() -> None:
    with pytest.raises(ConfigurationError, match="not dict"):
        compile_egress_rule({"allow": "a.com"})  # pyright: ignore[reportArgumentType]


@each(
    ("text", "parsed"),
    [
        ("Example.COM.", ("example.com", 0)),
        ("a.com:8443", ("a.com", 8443)),
        ("[::1]:80", ("::1", 80)),
        ("::1", ("::1", 0)),
        ("[::ffff:10.0.0.1]", ("10.0.0.1", 0)),
        ("a.com:0", None),
        ("a.com:99999", None),
        ("127.1", None),
        ("a b", None),
        ("u@a.com", None),
        ("", None),
    ],
)
def test_hosts_with_ports_are_parsed(text: str, parsed: tuple[str, int] | None) -> None:
    assert parse_host_and_port(text) == parsed
