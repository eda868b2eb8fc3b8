"""`when`: conditions in CEL."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.domain.decision import Verdict
from interlock.domain.errors import ConfigurationError
from interlock.domain.tool import CallContext, PermissionMode
from interlock.policy.engine.example_event import example_event
from interlock.policy.engine.rule import Rule
from interlock.policy.engine.rule_policy import RulePolicy
from interlock.policy.files.cel import FUNCTIONS, compile_condition
from interlock.policy.interface import PolicyEvent
from tests.each import each
from tests.patience import HANG_SECONDS

SITUATION = CallContext(
    run_id="run_1", agent="builder", mode=PermissionMode.TRUSTED, interactive=True, workspace="/work", requester="ann"
)


def event(**arguments: object) -> PolicyEvent:
    declared = {"risk": ("write", "network"), "origin": "mcp", "source": "fs"}
    return example_event("send", arguments, SITUATION, **declared)  # pyright: ignore[reportArgumentType]


@each(
    "text",
    [
        "tool == 'send'",
        "arguments.count > 2 && arguments.to[0] == 'bob'",
        "arguments.to.exists(name, name.startsWith('b'))",
        "has(arguments.count) && !has(arguments.other)",
        "agent == 'builder' && mode == 'trusted' && interactive",
        "origin == 'mcp' && server == 'fs' && requester == 'ann' && workspace == '/work'",
        "risk == ['network', 'write']",
        "'write' in risk && size(arguments.to) == 2",
        "arguments.text.startsWith('a') && arguments.text.endsWith('a')",
    ],
)
def test_a_condition_sees_the_call_and_its_situation(text: str) -> None:
    holds = compile_condition(text)

    assert holds(event(count=3, to=["bob", "eve"], text="aaa")) is True


@pytest.mark.parametrize("text", ["1", "tool", "arguments.missing > 1", "arguments.count + 'a' == ''", "1 / 0 == 1"])
def test_a_condition_that_gives_no_yes_or_no_refuses_the_call(text: str) -> None:
    rule = Rule(id="r", verdict="allow", when=compile_condition(text), when_source=text)
    decision = RulePolicy([rule]).evaluate(event(count=3))

    assert (decision.verdict, decision.rule_ids) == (Verdict.DENY, ("r",))


@each(
    ("text", "words"),
    [
        ("arguments.text.matches('^a+$')", "when has no matches: its cost has no bound"),
        ("tool ==", "when is not CEL: 1:8: Syntax error"),
        ("", "when is not CEL"),
        ("tol == 'x'", "when knows no 'tol'; it knows agent, arguments"),
        ("now() > 1", "when knows no function 'now'"),
        ("tool == '" + "a" * 1_000 + "'", "at most 1,000 characters"),
        ("!" * 250 + "true", "200 words and signs"),
        ("1" + "+1" * 250 + " == 1", "200 words and signs"),
        ("arguments.a.all(x, arguments.a.all(y, x == y))", "once at most"),
        ("[tool].map(x, x + x).map(x, x + x) == []", "once at most"),
        ("arguments.a.map // \n (x, arguments.a.map(y, y)) == []", "once at most"),
    ],
)
def test_a_condition_that_cannot_work_or_may_cost_much_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        compile_condition(text)


@each("name", sorted(FUNCTIONS))
def test_a_function_that_is_said_to_be_known_is(name: str) -> None:
    compile_condition(f"{name}(tool) == {name}(tool)")


@settings(deadline=None)
@given(st.text(max_size=40) | st.text("toarguments.()[]{}'\"+-*/=!<>&|?:0123 ", max_size=40))
def test_any_text_is_a_condition_or_is_refused(text: str) -> None:
    try:
        holds = compile_condition(text)
    except ConfigurationError:
        return
    RulePolicy([Rule(id="r", verdict="allow", when=holds, when_source=text)]).evaluate(event(a=1))


def test_the_library_is_loaded_by_the_first_rule_that_needs_it() -> None:
    script = """
import sys
from interlock.policy.files.policy_files import read_layer
read_layer("a.yaml", "user", b"version: 1\\ndeny: [bash]")
assert "cel" not in sys.modules
read_layer("a.yaml", "user", b"version: 1\\ndeny: [{when: interactive}]")
assert "cel" in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=HANG_SECONDS)


def test_a_library_that_is_missing_or_fails_is_a_problem_of_the_file_and_ends_nothing() -> None:
    script = """
import sys, types
from interlock.domain.errors import ConfigurationError
from interlock.policy.files.cel import compile_condition
from interlock.policy.engine.example_event import example_event

class PanicException(BaseException): ...

def panic(*given):
    raise PanicException

def refused(work, words):
    try:
        work()
    except ConfigurationError as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)

sys.modules["cel"] = None
refused(lambda: compile_condition("interactive"), "install interlock[policy]")
program = types.SimpleNamespace(execute=panic, references=lambda: {"variables": [], "functions": []})
sys.modules["cel"] = types.SimpleNamespace(compile=lambda text: program)
condition = compile_condition("interactive")
refused(lambda: condition(example_event("x", {})), "library failed")
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=HANG_SECONDS)
