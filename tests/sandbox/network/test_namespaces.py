"""Commands in a small internet with real names, addresses and certificates: they reach hosts of rules and no other."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.patience import HANG_SECONDS
from tests.sandbox.commands import usable
from tests.sandbox.network.namespace import METADATA, OTHER, PRIVATE, PUBLIC

CURL = "curl -sS --max-time 20"
#: A command, what it prints, and the decisions about its connections.
COMMANDS: list[tuple[str, str, list[str]]] = [
    (f"{CURL} http://www.allowed.test/", "hello", ["allowed"]),
    (f"{CURL} --cacert ca.pem https://www.allowed.test/", "hello", ["allowed"]),
    (f"{CURL} -L http://www.allowed.test/redirect", "No egress rule allows GET to other.test", ["allowed", "refused"]),
    (f"{CURL} http://other.test/", "No egress rule allows GET to other.test", ["refused"]),
    (f"{CURL} --resolve www.allowed.test:80:{OTHER} http://{OTHER}/", "No egress rule allows", ["refused"]),
    # The proxy is asked for an allowed host, which is then asked for another one.
    (f"{CURL} -k --connect-to ::www.allowed.test:443 https://other.test/", "curl: (35)", ["refused"]),
    (f"{CURL} http://private.allowed.test/", f"{PRIVATE} is a private address", ["refused"]),
    (f"{CURL} http://metadata.allowed.test/", f"{METADATA} is an address of metadata services", ["refused"]),
    (f"{CURL} http://local.allowed.test/", "is a loopback address", ["refused"]),
    (f"{CURL} http://rebind.allowed.test/", "hello", ["allowed"]),
    (f"{CURL} http://rebind.allowed.test/", "is a loopback address", ["refused"]),
    (f"{CURL} http://missing.allowed.test/", "cannot be reached", ["failed"]),
    (f"{CURL} --noproxy '*' http://{PUBLIC}/", "curl: (7)", []),
    (f"{CURL} --noproxy '*' http://www.allowed.test/", "curl: (6)", []),
    (f"{CURL} --proxy socks5h://127.0.0.1:61080 http://www.allowed.test/", "curl: (97)", []),
    (f"{CURL} --proxy http://{OTHER}:80 http://www.allowed.test/", "curl: (7)", []),
]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What came of all commands, which run in one process."""
    usable("bubblewrap")
    own_user = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    words = ("unshare", *own_user, "--mount", "--net", sys.executable, "-m", "tests.sandbox.network.namespace")
    folder = tmp_path_factory.mktemp("internet")
    ended = subprocess.run(
        (*words, str(folder), "\n".join(f"echo @@; {command} 2>&1" for command, _, _ in COMMANDS)),
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * HANG_SECONDS,
        cwd=Path(__file__).parents[3],
    )
    if "unshare" in ended.stderr:
        pytest.skip(f"namespaces cannot be made here: {ended.stderr[-200:]}")
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_commands_reach_hosts_of_rules_only(outcome: dict[str, Any]) -> None:
    _, *printed = outcome["text"].split("@@")

    assert len(printed) == len(COMMANDS)
    for (command, expected, _), text in zip(COMMANDS, printed, strict=True):
        assert expected in text, command


def test_every_connection_is_recorded_with_its_decision(outcome: dict[str, Any]) -> None:
    decisions = [decision for _, _, each in COMMANDS for decision in each]

    assert [row["decision"] for row in outcome["connections"]] == decisions
    assert any("is not the host of the CONNECT" in row.get("reason", "") for row in outcome["connections"])


def test_servers_saw_no_other_connection(outcome: dict[str, Any]) -> None:
    assert outcome["reached"] == [f"{PUBLIC}:80", f"{PUBLIC}:443", f"{PUBLIC}:80", f"{PUBLIC}:80"]
