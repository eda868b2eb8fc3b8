"""Hosts of commands with the real sandbox: opened by rules or by a person, for one call, and all of it recorded."""

from pathlib import Path

import pytest

from interlock import LocalTools, Rule, RulePolicy
from interlock.domain.egress import EgressVerdict
from interlock.errors import ConfigurationError
from interlock.policy import EgressRule
from interlock.sandbox.network.certificates import CertificateAuthority
from tests.sandbox.network.hosts import HOST, serving
from tests.tools.shell import FULL, PlayedSandbox

from .runs import Person, local_run, text_of

confined = pytest.mark.usefixtures("confined")
SECRET = "s3cret-token-value"


def policy_of(verdict: EgressVerdict, port: int, credential: str = "") -> RulePolicy:
    rule = EgressRule(verdict=verdict, hosts=HOST, ports=port, credential=credential, id="the-host")
    return RulePolicy([Rule(id="all", verdict="allow", tools="*")], egress=[rule])


@confined
async def test_person_opens_an_ask_host_for_one_call(root: Path) -> None:
    person = Person()
    async with (
        serving() as host,
        local_run(root, interaction=person, policy=policy_of("ask", host.port)) as run,
    ):
        fetch = f"curl -sS http://{HOST}:{host.port}/"
        refused = await run.bash(fetch)
        opened = await run.bash(fetch, hosts=[f"{HOST}:{host.port}"])
        again = await run.bash(fetch)
        started = await run.started("c2")

    assert f'call bash again with hosts=["{HOST}:{host.port}"]' in text_of(refused)
    assert [row["decision"] for row in refused.facts["connections"]] == ["refused"]
    assert "hello" in text_of(opened)
    [question] = person.asked
    assert question.reason == f"If approved, it can reach {HOST}:{host.port}."
    assert question.arguments["hosts"] == [f"{HOST}:{host.port}"]
    assert question.bound.surroundings.sandbox == "bubblewrap/workspace-write+hosts"
    assert started.profile == "workspace-write+hosts"
    assert "network_off" not in started.capabilities
    assert "hello" not in text_of(again)
    assert host.connections == 1


@confined
@pytest.mark.parametrize("mode", ["trusted", "contained", "default"])
async def test_refused_hosts_stay_closed(root: Path, mode: str) -> None:
    person = Person(approves=False)
    everything = RulePolicy([Rule(id="all", verdict="allow", tools="*")])
    async with serving() as host, local_run(root, mode=mode, interaction=person, policy=everything) as run:
        refused = await run.bash(f"curl http://{HOST}:{host.port}/", hosts=[f"{HOST}:{host.port}"])

    assert refused.code == "user_denied"
    assert person.asked[0].reason == f"If approved, it can reach {HOST}:{host.port}."
    assert host.connections == 0


@confined
async def test_denied_and_read_only_hosts_are_not_asked(root: Path) -> None:
    person = Person()
    async with local_run(root, interaction=person, policy=policy_of("deny", 80)) as run:
        denied = await run.bash("true", hosts=[HOST])
    async with local_run(root, mode="read_only", interaction=person) as run:
        reading = await run.bash("cat notes.txt", hosts=["example.com"])

    assert (denied.code, reading.code) == ("policy_denied", "policy_denied")
    assert person.asked == []


@confined
async def test_approved_hosts_open_no_other(root: Path) -> None:
    """In the mode `contained`, naming hosts takes the place of the whole network."""
    person = Person()
    async with (
        serving() as host,
        serving(address="127.0.0.8") as other,
        local_run(root, mode="contained", interaction=person) as run,
    ):
        fetch = f"curl -sS http://{HOST}:{host.port}/ http://127.0.0.8:{other.port}/"
        result = await run.bash(fetch, hosts=[f"{HOST}:{host.port}"])

    assert any(f"it can reach {HOST}:{host.port}." in question.reason for question in person.asked)
    assert not any("any host" in question.reason for question in person.asked)
    assert (host.connections, other.connections) == (1, 0)
    assert [row["decision"] for row in result.facts["connections"]] == ["allowed", "refused"]


@confined
async def test_contained_commands_reach_allowed_hosts_unasked(root: Path) -> None:
    person = Person()
    async with serving() as host:
        rule = EgressRule(verdict="allow", hosts=HOST, ports=host.port)
        async with local_run(root, mode="contained", interaction=person, policy=RulePolicy(egress=[rule])) as run:
            result = await run.bash(f"curl -sS http://{HOST}:{host.port}/")

    assert "hello" in text_of(result)
    assert person.asked == []


@confined
async def test_task_has_its_proxy_until_its_end(root: Path) -> None:
    async with serving() as host, local_run(root, policy=policy_of("allow", host.port)) as run:
        task = await run.bash(f"curl -sS http://{HOST}:{host.port}/", background=True)
        ended = await run.do("wait_task", task_id=task.facts["task"]["id"])

    assert "hello" in text_of(ended)
    assert [row["host"] for row in ended.facts["connections"]] == [HOST]


@confined
async def test_credential_stays_out_of_sandbox_and_log(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = CertificateAuthority()
    (tmp_path / "ca.pem").write_bytes(authority.certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    monkeypatch.setenv("API_TOKEN", SECRET)

    def echo(request: bytes) -> bytes:
        return b"HTTP/1.1 200 OK\r\n\r\n" + request

    async with (
        serving(echo, tls=authority.server_context(HOST)) as host,
        local_run(root, policy=policy_of("allow", host.port, "API_TOKEN")) as run,
    ):
        script = f'curl -sS -H "Authorization: Bearer $API_TOKEN" https://{HOST}:{host.port}/ | tee seen; env'
        result = await run.bash(script)
        hidden = await run.bash(f"echo {SECRET}")
        log = await run.runtime.export()

    assert f"Bearer {SECRET}".encode() in host.received
    assert "API_TOKEN=added-by-the-interlock-proxy" in text_of(result)
    seen = (root / "seen").read_bytes()
    assert b"GET / HTTP/1.1" in seen
    assert SECRET.encode() not in seen + log
    assert SECRET not in text_of(hidden)


async def test_hosts_need_a_sandbox_with_a_proxy(root: Path) -> None:
    rest = tuple(name for name in FULL.capabilities if name != "egress")
    sandbox = PlayedSandbox(confinement=type(FULL)(backend="landlock", capabilities=rest, degraded=False))
    async with local_run(root, policy=policy_of("allow", 443), box={"commands": sandbox}) as run:
        named = await run.bash("true", hosts=["example.com"])
        await run.bash("true")

    assert named.code == "runtime_precondition_failed"
    assert "the sandbox landlock has no proxy" in named.summary
    [started] = sandbox.started
    assert not started.profile.has_hosts
    assert started.on_listener is None


async def test_rules_replace_the_whole_network(root: Path) -> None:
    sandbox = PlayedSandbox()
    async with local_run(root, policy=policy_of("allow", 443), box={"commands": sandbox, "network": True}) as run:
        await run.bash("true")

    [started] = sandbox.started
    assert not started.profile.network
    assert started.profile.egress_port
    with pytest.raises(ConfigurationError, match="network=True opens every host"):
        LocalTools(root, network=True, egress=[EgressRule(verdict="allow", hosts="a.com")])


@pytest.mark.parametrize("hosts", [["http://a.com/x"], ["a b"], ["127.1"], ["a.com:0"], ["a.com"] * 21])
async def test_malformed_hosts_are_refused(root: Path, hosts: list[str]) -> None:
    async with local_run(root, box={"commands": PlayedSandbox()}) as run:
        refused = await run.bash("true", hosts=hosts)

    assert refused.code == "runtime_precondition_failed"
