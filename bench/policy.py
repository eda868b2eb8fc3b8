"""What deciding and asking cost: `python -m bench policy` prints a table.

`python -m bench.policy SECTION`, in a process of its own, prints one line of JSON.

A decision over 1,000 rules stands beside one over 10, made in turn in one process: for rules of many kinds, and for the
worst cases, where all of them are about one tool. Half of the rules allow and half refuse, and exactly one is about
the call; a decision in which it is not that one that spoke is an error, not a figure.
"""

import asyncio
import cProfile
import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from os import getcwd
from pathlib import Path
from typing import Any, TypeAlias

from interlock import (
    CallbackInteractionProvider,
    HeadlessInteractionProvider,
    InteractionProvider,
    Question,
    Rule,
    RulePolicy,
    ToolRuntime,
    tool,
)
from interlock.domain.decision import Verdict
from interlock.domain.payload import ApprovalBinding, Payload, canonical_payload, hash_payload
from interlock.domain.tool import CallContext, JsonObject
from interlock.policy.engine.rule import ArgumentIs, ArgumentRegex
from interlock.policy.interface import PolicyEvent
from interlock.policy.shell.bash import parse_script

from .local_tools import Figure, Series, Wanted, render

Figures: TypeAlias = dict[str, float]
Work: TypeAlias = Callable[[], object]

_FEW, _MANY = 10, 1_000
#: Of a repetition, of which the fastest counts.
_DECISIONS, _TURNS = 10, 100
_REPEAT = 15
_KIB = 1_024
_MEANT = 2
_ROOT = Path(__file__).resolve().parent.parent


@tool
async def quick(path: str, count: int, ratio: float) -> str:
    """Return the arguments."""
    return f"{path}:{count}:{ratio}"


@tool(risk="read", resources={"path": "path"})
async def read_file(path: str) -> str:
    """Look as if a file were read."""
    return path


@tool(risk="execute", resources={"command": "command"})
async def bash(command: str) -> str:
    """Look as if a command were run."""
    return command


@tool(risk="network", resources={"url": "host"})
async def fetch(url: str) -> str:
    """Look as if a page were fetched."""
    return url


_TOOLS = {each.name: each for each in (quick, read_file, bash, fetch)}
#: By tool, the call that is judged.
_CALLS: Mapping[str, JsonObject] = {
    "quick": {"path": f"src/module_{_MEANT}.py", "count": 1, "ratio": 0.5},
    "read_file": {"path": f"src/module_{_MEANT}.py"},
    "bash": {"command": "npm test"},
    "fetch": {"url": f"https://host-{_MEANT}.example.com/page"},
}


_NOBODY = HeadlessInteractionProvider()


@dataclass(frozen=True)
class RuleSet:
    """Rules of one kind: what each is about, by its number, and the calls that they judge."""

    about: Callable[[int], dict[str, Any]]
    calls: Mapping[str, JsonObject]

    def policy(self, size: int) -> RulePolicy:
        verdicts = ["allow" if number % _FEW < _FEW / 2 else "deny" for number in range(size)]
        return RulePolicy(
            Rule(id=f"r{number}", verdict=verdict, **self.about(number)) for number, verdict in enumerate(verdicts)
        )

    def events(self) -> list[PolicyEvent]:
        return [_event(name, arguments) for name, arguments in self.calls.items()]


def _mixed(number: int) -> dict[str, Any]:
    """About tools, commands, hosts, paths and arguments in turn. The first of each kind is about a call."""
    of_kind = _MEANT if number < 5 else number
    path = f"src/module_{of_kind}.py"
    kinds: list[dict[str, Any]] = [
        {"tools": f"tool_{of_kind}"},
        {"tools": "bash", "command": "npm test" if of_kind == _MEANT else f"program_{of_kind} test"},
        {"tools": "fetch", "host": f"host-{of_kind}.example.com"},
        {"path": path},
        {"tools": "quick", "arguments": {"path": ArgumentIs(path)}},
    ]
    return kinds[number % len(kinds)]


RULE_SETS: Mapping[str, RuleSet] = {
    "mixed": RuleSet(_mixed, _CALLS),
    "programs": RuleSet(
        lambda number: {"tools": "bash", "command": f"program_{number} test"},
        {"bash": {"command": f"program_{_MEANT} test"}},
    ),
    "one_program": RuleSet(
        lambda number: {"tools": "bash", "command": f"npm run task_{number}"},
        {"bash": {"command": f"npm run task_{_MEANT}"}},
    ),
    "hosts": RuleSet(
        lambda number: {"tools": "fetch", "host": f"host-{number}.example.com"}, {"fetch": _CALLS["fetch"]}
    ),
    "paths": RuleSet(
        lambda number: {"tools": "read_file", "path": f"src/module_{number}.py"}, {"read_file": _CALLS["read_file"]}
    ),
    "arguments": RuleSet(
        lambda number: {"tools": "quick", "arguments": {"path": ArgumentIs(f"src/module_{number}.py")}},
        {"quick": _CALLS["quick"]},
    ),
    "patterns": RuleSet(
        lambda number: {"tools": "quick", "arguments": {"path": ArgumentRegex(f"/module_{number}[.]py$")}},
        {"quick": _CALLS["quick"]},
    ),
}


async def decisions(many: int = _MANY, repeat: int = _REPEAT) -> Figures:
    """A decision by few and by many rules of each kind."""
    figures: Figures = {}
    for name, rules in RULE_SETS.items():
        events = rules.events()
        judges = [judging(rules.policy(size), events, _DECISIONS) for size in (_FEW, many)]
        few_us, many_us = (us / _DECISIONS / len(events) for us in _fastest_us(judges, repeat))
        figures |= {f"{name}_few": few_us, f"{name}_many": many_us}
    return figures


async def decision_calls(many: int = _MANY) -> Figures:
    """The same in function calls, Python's and C's. They repeat exactly."""
    return {
        f"{name}_{word}": _count(judging(rules.policy(size), rules.events(), 1)) / len(rules.calls)
        for name, rules in RULE_SETS.items()
        for word, size in (("few", _FEW), ("many", many))
    }


async def governed(turns: int = _TURNS, repeat: int = _REPEAT) -> Figures:
    """Whole calls by ten rules of all kinds, each beside its decision. The tools do nothing, so shares are high."""
    figures: Figures = {}
    policy = RULE_SETS["mixed"].policy(_FEW)
    for name in ("quick", "read_file", "bash"):
        decide = judging(policy, [_event(name, _CALLS[name])], _DECISIONS)
        figures[f"{name}_decision"] = _fastest_us([decide], repeat)[0] / _DECISIONS
        figures[f"{name}_call"] = min([await _call_us(policy, name, turns) for _ in range(repeat)])
    return figures


async def approvals(turns: int = _TURNS, repeat: int = _REPEAT) -> Figures:
    """A call that somebody says yes to at once, beside one that a rule allows; and what only questions need."""
    texts, numbers = _payload({"text": "word " * (_KIB // 5)}), _payload({f"n{at:03}": at for at in range(100, 193)})
    parts: list[Work] = [lambda: _hashed(texts), lambda: _hashed(numbers), lambda: parse_script("npm test")]
    text_us, numbers_us, read_us = (us / _DECISIONS for us in _fastest_us([_many(part) for part in parts], repeat))
    ask, allow = (RulePolicy([Rule(id="r", verdict=verdict)]) for verdict in ("ask", "allow"))
    yes = CallbackInteractionProvider(_yes)
    allowed, asked = list[float](), list[float]()
    for _ in range(repeat):
        allowed.append(await _call_us(allow, "quick", turns))
        asked.append(await _call_us(ask, "quick", turns, yes))
    return {
        "payload_text": text_us,
        "payload_numbers": numbers_us,
        "read_command": read_us,
        "allowed_call": min(allowed),
        "approved_call": min(asked),
    }


SECTIONS: Mapping[str, Callable[[], Coroutine[None, None, Figures]]] = {
    "decisions": decisions,
    "decision_calls": decision_calls,
    "governed": governed,
    "approvals": approvals,
}


async def _yes(question: Question) -> bool:
    return True


def _event(name: str, arguments: JsonObject) -> PolicyEvent:
    checked = _TOOLS[name].args_model.model_validate(arguments)
    return PolicyEvent("call_1", _TOOLS[name], checked, CallContext(run_id="bench", workspace=getcwd()))


def judging(policy: RulePolicy, events: Sequence[PolicyEvent], times: int) -> Work:
    """Decide about each of the calls so many times. The first decision about a tool also plans, so it is made here."""
    for event in events:
        decision = policy.evaluate(event)
        if decision.verdict is not Verdict.ALLOW or len(decision.rule_ids) != 1:
            raise AssertionError(f"{event.tool_name}: {decision.verdict} by {decision.rule_ids}")

    def judge() -> None:
        for _ in range(times):
            for event in events:
                policy.evaluate(event)

    return judge


def _many(work: Work) -> Work:
    def several() -> None:
        for _ in range(_DECISIONS):
            work()

    return several


def _fastest_us(works: Sequence[Work], repeat: int) -> list[float]:
    """CPU time of each, the least of many. They take turns, so that a slow moment hits all of them."""
    gc.collect()
    taken = [[_cpu_us(work) for work in works] for _ in range(repeat)]
    return [min(times) for times in zip(*taken, strict=True)]


def _cpu_us(work: Work) -> float:
    began = time.process_time_ns()
    work()
    return (time.process_time_ns() - began) / 1e3


def _count(work: Work) -> int:
    profile = cProfile.Profile()
    profile.enable()
    work()
    profile.disable()
    return sum(entry.callcount for entry in profile.getstats())


async def _call_us(policy: RulePolicy, name: str, turns: int, interaction: InteractionProvider = _NOBODY) -> float:
    """Return the CPU time of a whole call. A call that was not executed is an error, not a figure."""
    runtime = ToolRuntime(tools=[*_TOOLS.values()], policy=policy, interaction=interaction)
    function = {"name": name, "arguments": json.dumps(_CALLS[name])}
    calls = [{"id": f"call_{turn}", "type": "function", "function": function} for turn in range(turns)]
    gc.collect()
    began = time.process_time_ns()
    results = [await runtime.execute([call]) for call in calls]
    taken_ns = time.process_time_ns() - began
    await runtime.close()
    if not all(result.observations[0].ok for result in results):
        raise AssertionError(f"a call of {name} was not executed")
    return taken_ns / turns / 1e3


def _payload(arguments: JsonObject) -> Payload:
    size_bytes = len(json.dumps(arguments, separators=(",", ":")))
    if not 0.95 * _KIB < size_bytes < 1.05 * _KIB:
        raise AssertionError(f"{size_bytes} bytes")
    return Payload(
        "run_1", "call_1", "quick", arguments, ApprovalBinding(tool_version="1", policy="sha256:" + "0" * 64)
    )


def _hashed(payload: Payload) -> str:
    return hash_payload(canonical_payload(payload))


#: Kinds of rules, by their names in `RULE_SETS`. Patterns cannot be looked up, so they have no limit.
_KINDS = {
    "mixed": "everything",
    "programs": "program",
    "one_program": "words of one program",
    "hosts": "host",
    "paths": "path",
    "arguments": "argument",
    "patterns": "pattern of an argument",
}


def _many_rules(unit: str) -> tuple[Figure, ...]:
    return tuple(
        Figure(
            f"1,000 rules by {what} beside 10, {unit}",
            f"{name}_many",
            f"{name}_few",
            None if name == "patterns" else 3,
        )
        for name, what in _KINDS.items()
    )


FIGURES = (
    Wanted("decisions", _many_rules("CPU us")),
    Wanted("decision_calls", _many_rules("function calls")),
    Wanted(
        "governed",
        (
            Figure("a decision by 10 rules, beside its whole call, CPU us", "quick_decision", "quick_call", 0.1),
            Figure("the same about a path", "read_file_decision", "read_file_call", 0.1),
            Figure("the same about a command", "bash_decision", "bash_call", 0.1),
        ),
    ),
    Wanted(
        "approvals",
        (
            Figure("document and hash, 1 KiB of text, CPU us", "payload_text", None, 100),
            Figure("document and hash, 1 KiB of numbers, CPU us", "payload_numbers", None, 100),
            Figure("reading the command npm test, CPU us", "read_command", None),
            Figure("a call asked about and approved beside an allowed one, CPU us", "approved_call", "allowed_call"),
        ),
    ),
)


def report(rounds: int) -> str:
    """Measure every section in processes of their own, and return a table."""
    found: dict[str, Series] = {}
    for _ in range(rounds):
        for section in SECTIONS:
            words = [sys.executable, "-m", "bench.policy", section]
            done = subprocess.run(words, cwd=_ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=300)
            for name, value in json.loads(done.stdout).items():
                found.setdefault(section, {}).setdefault(name, []).append(value)
    return "\n".join(render(found, FIGURES))


if __name__ == "__main__":
    print(json.dumps(asyncio.run(SECTIONS[sys.argv[1]]())))
