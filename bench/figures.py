"""The figures that are shown, what each is compared with, and what it must reach."""

from typing import Literal, NamedTuple


class Source(NamedTuple):
    """A figure of a section, of one of those who are measured. Imports have no subject of their own: `both`.
    `policy` is ours without a run around it.
    """

    subject: Literal["ours", "floor", "both", "policy"]
    name: str


class Figure(NamedTuple):
    section: str
    label: str
    value: Source
    #: None compares with nothing.
    reference: Source | None
    #: The most that the ratio may be, or the value itself where it has no reference. None is for information.
    limit: float | None = None
    #: Better than what must be reached, and worth it.
    stretch: float | None = None


def _beside_floor(
    section: str, label: str, name: str, limit: float | None = None, stretch: float | None = None
) -> Figure:
    return Figure(section, label, Source("ours", name), Source("floor", name), limit, stretch)


def _beside_own(section: str, label: str, name: str, reference: str, limit: float) -> Figure:
    return Figure(section, label, Source("ours", name), Source("ours", reference), limit)


def _import(label: str, name: str, reference: str | None, limit: float | None = None) -> Figure:
    return Figure("import", label, Source("both", name), Source("both", reference) if reference else None, limit)


def _count(label: str, name: str) -> Figure:
    return Figure("calls", label, Source("ours", name), None, 250)


def _many_rules(section: str, unit: str, what: str, name: str) -> Figure:
    """Patterns cannot be looked up, so they have no limit."""
    label = f"1,000 rules by {what} beside 10, {unit}"
    return _of_policy(section, label, f"{name}_many", f"{name}_few", None if name == "patterns" else 3)


def _of_policy(section: str, label: str, name: str, reference: str | None = None, limit: float | None = None) -> Figure:
    return Figure(section, label, Source("policy", name), Source("policy", reference) if reference else None, limit)


#: Kinds of rules, by their names in `policy.py`.
_RULES = (
    ("everything", "mixed"),
    ("program", "programs"),
    ("words of one program", "one_program"),
    ("host", "hosts"),
    ("path", "paths"),
    ("argument", "arguments"),
    ("pattern of an argument", "patterns"),
)

FIGURES = (
    _beside_floor("sequential", "1 call x 200 turns, CPU us per call", "cpu_us", 2.5, 1.5),
    _beside_floor("sequential", "the same with a sync tool, CPU us per call", "sync_cpu_us"),
    _beside_floor("sequential", "a run of a single call, CPU us", "one_call_cpu_us"),
    _beside_floor("parallel", "100 calls in a turn, CPU us per call", "cpu_us_100", 2.5, 1.5),
    _beside_floor("parallel", "1,000 calls in a turn, CPU us per call", "cpu_us_1000", 2.5, 1.5),
    _count("function calls per tool call, turn 30", "turn_30"),
    _count("function calls per tool call, turn 210", "turn_210"),
    _count("function calls per tool call, 100 calls in a turn", "parallel_100"),
    _beside_own("calls", "function calls, turn 210 beside turn 30", "turn_210", "turn_30", 1.01),
    _beside_floor("durable", "durable, 1 call x 100 turns, wall us per call", "wall_us", 1.5),
    _beside_floor("durable", "durable, 100 calls in a turn, wall us per call", "wall_us_100", 2.0),
    _beside_floor("durable", "durable, 1 call x 100 turns, CPU us per call", "cpu_us"),
    _beside_floor("durable", "durable, 100 calls in a turn, CPU us per call", "cpu_us_100"),
    _beside_floor("durable", "stored bytes per call, 1 call x 100 turns", "bytes"),
    _beside_floor("durable", "stored bytes per call, 100 calls in a turn", "bytes_100"),
    _beside_own("sleeping", "100 async tools of 50 ms, wall ms", "async_ms", "ideal_ms", 1.3),
    _beside_own("sleeping", "100 sync tools of 50 ms, wall ms", "sync_ms", "ideal_ms", 1.3),
    _import("import interlock, beside import pydantic, CPU ms", "interlock", "pydantic", 1.5),
    _import("with ToolRuntime and tool, beside BaseModel, CPU ms", "names", "base_model"),
    _import("from interlock import Agent, Runner, tool, CPU ms", "agent", None, 100),
    _import("the same beside BaseModel", "agent", "base_model"),
    _import("resident MiB after it", "agent_mib", None, 32),
    _import("the same with a tool, and a run of it, CPU ms", "program", None),
    _import("interlock --help beside import typer, CPU ms", "help", "typer", 1.3),
    _import("interlock run --help beside import typer, CPU ms", "run_help", "typer", 1.3),
    _beside_own("turns", "turn 100 beside turn 10, CPU us", "turn_100", "turn_10", 1.2),
    _beside_own("turns", "turn 500 beside turn 10, CPU us", "turn_500", "turn_10", 1.2),
    _beside_floor("turns", "505 turns, CPU ms", "total_ms"),
    _beside_floor("memory", "resident MiB, everything loaded", "loaded_mib"),
    _beside_floor("memory", "resident MiB after 200 turns", "after_200_turns_mib"),
    _beside_floor("memory", "resident MiB after 1,000 calls in a turn", "after_1000_calls_mib"),
    *(
        _many_rules(section, unit, what, name)
        for section, unit in (("decisions", "CPU us"), ("decision_calls", "function calls"))
        for what, name in _RULES
    ),
    _of_policy(
        "governed", "a decision by 10 rules, beside its whole call, CPU us", "quick_decision", "quick_call", 0.1
    ),
    _of_policy("governed", "the same about a path", "read_file_decision", "read_file_call", 0.1),
    _of_policy("governed", "the same about a command", "bash_decision", "bash_call", 0.1),
    _of_policy("approvals", "document and hash, 1 KiB of text, CPU us", "payload_text", limit=100),
    _of_policy("approvals", "document and hash, 1 KiB of numbers, CPU us", "payload_numbers", limit=100),
    _of_policy("approvals", "reading the command npm test, CPU us", "read_command"),
    _of_policy(
        "approvals", "a call asked about and approved beside an allowed one, CPU us", "approved_call", "allowed_call"
    ),
)
