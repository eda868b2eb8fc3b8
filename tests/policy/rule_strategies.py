"""Rules over every kind of condition, and calls of every kind of tool, for property tests."""

from typing import Any

from hypothesis import strategies as st

from interlock.domain.decision import Decision, Verdict
from interlock.domain.tool import CallContext, JsonObject, PermissionMode, ResourceKind
from interlock.policy.engine.example_event import ToolDeclaration, example_event
from interlock.policy.engine.rule import ArgumentGlob, ArgumentIs, ArgumentRegex, CommandPattern, Rule
from interlock.policy.interface import PolicyEvent

#: The clock of every policy in property tests.
NOW = 1_000
STRICTNESS = {verdict: rank for rank, verdict in enumerate(Verdict)}
#: It does not exist: what is judged here does not depend on files.
WORKSPACE = "/nowhere/project"


def strictness(decision: Decision) -> int:
    return STRICTNESS[decision.verdict]


_BATCH: dict[str, ResourceKind] = {"items.from": "path", "items.to": "path"}
TOOLS: dict[str, ToolDeclaration] = {
    "bash": {},
    "read_file": {},
    "edit_file": {},
    "fetch": {"risk": ("network",), "origin": "mcp", "source": "web", "resources": {"url": "host"}},
    "mcp__files__move": {"risk": ("write",), "origin": "mcp", "source": "files", "resources": _BATCH},
    "run_in": {"risk": ("read", "execute"), "resources": {"command": "command", "cwd": "path"}},
    "ask_agent": {"risk": ("delegate",), "origin": "extension", "source": "team"},
    "plain": {},
}
SCRIPTS = (
    "ls src",
    "npm test",
    "cat .env",
    "cat src/a.py",
    "rm -rf node_modules",
    "RM x",
    "/bin/rm x",
    "git push origin main",
    "echo hi > out.txt",
    "echo hi > /etc/motd",
    "cat < secrets/key",
    "> out.txt",
    "ls && rm x",
    "cd secrets && cat key",
    "sudo rm x",
    "FOO=1 npm test",
    "bash -c 'rm x'",
    "cat *.py",
    "curl https://evil.example/x",
    "curl http://docs.example/ && npm test",
    "$X",
    "rm x; $X",
    "eval $(cat x)",
    "if true; then rm x; fi",
    "cat 'never closed",
    "",
)
PATHS = (".env", "src/a.py", "./src/../secrets/key", "SECRETS/Key", "/etc/passwd", "~/x", "..", "", "a\0b")
URLS = (
    "https://evil.example/x",
    "http://a.evil.example:80",
    "docs.example",
    "http://1.2.3.4/",
    "http://0x7f.1",
    " ",
    "",
)

scripts = st.sampled_from(SCRIPTS)
paths = st.sampled_from(PATHS)
counts = st.integers(0, 2)
_ARGUMENTS: dict[str, st.SearchStrategy[JsonObject]] = {
    "bash": st.fixed_dictionaries({"command": scripts | st.just(["rm", "x"])}, optional={"count": counts}),
    "read_file": st.fixed_dictionaries({"path": paths}, optional={"count": counts}),
    "edit_file": st.fixed_dictionaries({"path": paths | st.lists(paths, max_size=3)}),
    "fetch": st.fixed_dictionaries({"url": st.sampled_from(URLS)}, optional={"count": counts}),
    "mcp__files__move": st.fixed_dictionaries(
        {"items": st.lists(st.fixed_dictionaries({"from": paths}, optional={"to": paths}), max_size=3)}
    ),
    "run_in": st.fixed_dictionaries({"command": scripts, "cwd": paths}),
    "ask_agent": st.fixed_dictionaries({}, optional={"count": counts}),
    "plain": st.fixed_dictionaries({}, optional={"count": counts, "path": paths}),
}
situations = st.builds(
    CallContext,
    run_id=st.just("run_1"),
    agent=st.sampled_from(["", "coder", "reviewer"]),
    mode=st.sampled_from(PermissionMode),
    interactive=st.booleans(),
    workspace=st.just(WORKSPACE),
)


@st.composite
def events(draw: st.DrawFn) -> PolicyEvent:
    name = draw(st.sampled_from(sorted(TOOLS)))
    return example_event(name, draw(_ARGUMENTS[name]), draw(situations), **TOOLS[name])


def over_none(event: PolicyEvent) -> bool:
    return event.arguments.get("count", 0) > 0


def interactive(event: PolicyEvent) -> bool:
    return event.situation.interactive


def broken(event: PolicyEvent) -> bool:
    raise RuntimeError


def unsure(event: PolicyEvent) -> Any:
    return None


_COMMANDS = ("rm", "git push", "npm test", "cat", "sudo", "curl", "*", "sudo rm", "rm -r")
#: Every condition that a rule may have, each as the fields that state it.
CONDITIONS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "tools": st.sampled_from(["bash", "*_file", "mcp__*", ["fetch", "run_in"]]).map(lambda made: {"tools": made}),
    "risk": st.sampled_from(["read", "write", {"read", "execute"}, {"network", "write"}]).map(
        lambda made: {"risk": made}
    ),
    "origin": st.sampled_from(["local", "mcp"]).map(lambda made: {"origin": made}),
    "server": st.sampled_from(["web", "f*", ["web", "files"]]).map(lambda made: {"server": made}),
    "path": st.sampled_from([".env", "secrets/**", "src/", "*.py", "/etc/**", "**", ["*.txt", "secrets"]]).map(
        lambda made: {"path": made}
    ),
    "access": st.tuples(st.sampled_from(["**", "secrets", "*.txt"]), st.sampled_from(["read", "write"])).map(
        lambda made: {"path": made[0], "access": made[1]}
    ),
    "command": st.sampled_from(
        [*_COMMANDS, ["rm", "cat"], [CommandPattern(("rm", "x"), exact=True)], [CommandPattern(("npm", "*"))]]
    ).map(lambda made: {"command": made}),
    "host": st.sampled_from(["evil.example", "*.evil.example", "*", ["docs.example", "1.2.3.4"]]).map(
        lambda made: {"host": made}
    ),
    "is": st.sampled_from([{"count": ArgumentIs(1)}, {"path": ArgumentIs(".env"), "count": ArgumentIs(1)}]).map(
        lambda made: {"arguments": made}
    ),
    "glob": st.sampled_from([{"command": ArgumentGlob("*rm*")}, {"items.from": ArgumentGlob("*e*")}]).map(
        lambda made: {"arguments": made}
    ),
    "regex": st.sampled_from([{"url": ArgumentRegex("evil")}, {"path": ArgumentRegex("^[.]")}]).map(
        lambda made: {"arguments": made}
    ),
    "agent": st.sampled_from(["coder", "co*", ["reviewer", "x"]]).map(lambda made: {"agent": made}),
    "mode": st.sampled_from(["trusted", ["default", "read_only"]]).map(lambda made: {"mode": made}),
    "interactive": st.booleans().map(lambda made: {"interactive": made}),
    "when": st.sampled_from([over_none, interactive, broken, unsure]).map(lambda made: {"when": made}),
    "expiry": st.sampled_from([NOW - 1, NOW, NOW + 1]).map(lambda made: {"expires_at": made}),
}


@st.composite
def rules(draw: st.DrawFn, number: int = 0, verdicts: tuple[Verdict, ...] = tuple(Verdict)) -> Rule:
    said = draw(st.sampled_from(verdicts))
    names = draw(st.lists(st.sampled_from(sorted(CONDITIONS)), max_size=3, unique=True))
    fields: dict[str, Any] = {}
    for name in names:
        fields |= draw(CONDITIONS[name])
    if said is Verdict.REQUEST_INPUT:
        fields["target_arg"] = draw(st.sampled_from(["path", "mode"]))
    return Rule(
        id=f"rule {number}",
        verdict=said,
        reason=draw(st.sampled_from(["", "Because.", "So."])),
        layer=draw(st.sampled_from(["project rule", "user rule", "enterprise policy"])),
        scope=draw(st.sampled_from(["once", "run"])),
        **fields,
    )


@st.composite
def rule_lists(draw: st.DrawFn, max_size: int = 5) -> list[Rule]:
    return [draw(rules(number)) for number in range(1, draw(st.integers(0, max_size)) + 1)]


defaults = st.sampled_from(["risk", "allow", "ask", "deny"])

_texts = st.text(max_size=12) | st.sampled_from([*SCRIPTS, *PATHS, *URLS, "~", "~\0", "~nobody/x"])
_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False) | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=8,
)
_names = st.sampled_from(["command", "path", "url", "items", "cwd", "count"])
#: Any JSON object, likely with the names that tools declare.
any_arguments = st.dictionaries(_names | _texts, _values, max_size=4)


@st.composite
def any_events(draw: st.DrawFn) -> PolicyEvent:
    name = draw(st.sampled_from(sorted(TOOLS)))
    return example_event(name, draw(any_arguments), draw(situations), **TOOLS[name])
