"""The keys of the terminal dialog, what each covers, and what counts as high risk."""

from collections.abc import Iterator
from typing import NamedTuple

from ..domain.call import Question
from ..domain.decision import APPROVAL_SCOPES, ApprovalScope
from ..rendering.question import DisplayLine, describe_sandbox, render_fact, render_facts, render_text


class Key(NamedTuple):
    """A key of the dialog."""

    key: str
    #: In the list of keys, and in the explanation.
    short: str
    covers: str


KEYS = (
    Key("y", "once", "this call, once, exactly as it is shown"),
    Key("s", "this run", "this call and the very same call again until the run ends"),
    Key("w", "for minutes", "the same as s, for as many minutes as you say"),
    Key("r", "save a rule", "whatever the rule covers that you are shown, from now on; you may narrow it"),
    Key("n", "no", "nothing runs, and the model is told why; so do Enter alone and the end of the input"),
    Key("e", "edit", "you change the arguments, see the result in full, and are asked again"),
    Key("v", "view all", "every line of it, page by page"),
    Key("?", "explain", "this text"),
)
#: The scope of an approval by this key.
SCOPE_OF_KEY: dict[str, ApprovalScope] = {"y": "once", "s": "run", "w": "window", "r": "rule"}
#: A risk fact with one of these beginnings of words is high: an approval takes a part of the hash, not only a key.
HIGH_RISK_WORDS = (
    *("delet", "destroy", "discard", "eras", "wipe", "overwrit", "drops", "irrevers", "cannot be undone", "force"),
    *("credential", "secret", "privilege", "root", "sudo", "outside the workspace", "publish", "deploy", "payment"),
)


def find_high_risk(question: Question) -> str:
    """Return the first risk fact that is high; empty when none is."""
    for risk in question.risk:
        said = f" {risk.lower()}"
        if any(f" {word}" in said for word in HIGH_RISK_WORDS):
            return risk
    return ""


def available_keys(question: Question) -> tuple[Key, ...]:
    """Return the keys that apply to this question."""
    widest = APPROVAL_SCOPES.index(question.scope)
    return tuple(
        key
        for key in KEYS
        if key.key not in SCOPE_OF_KEY
        or (
            APPROVAL_SCOPES.index(SCOPE_OF_KEY[key.key]) <= widest and (key.key != "r" or bool(question.suggested_rule))
        )
    )


def render_keys(question: Question, width: int) -> list[DisplayLine]:
    return render_text(" | ".join(f"{key.key} {key.short}" for key in available_keys(question)), width)


def render_explanation(question: Question, width: int) -> list[DisplayLine]:
    """Return the rule that asks and why, the risk, the confinement, and what each answer covers."""
    return [line for section in _explanation_sections(question, width) for line in section]


def _explanation_sections(question: Question, width: int) -> Iterator[list[DisplayLine]]:
    bound = question.bound
    rules = question.rule_ids or ("no rule; the tool's declared risk asks",)
    yield render_facts("asked by the rules", rules, width)
    yield render_fact("layer", question.layer or "default", width)
    yield render_fact("reason", question.reason or question.prompt, width)
    yield render_facts("risk", question.risk or ("none was named",), width, "risk")
    yield render_fact("sandbox", describe_sandbox(bound.surroundings.sandbox), width)
    yield render_fact("run, call, question", f"{question.run_id}, {question.call_id}, {question.action_id}", width)
    yield render_facts("an approval is bound to", _describe_binding(question), width)
    if bound.policy:
        yield render_fact("policy", bound.policy, width)
    if bound.tool_version or bound.tool_definition:
        yield render_fact("tool version", f"{bound.tool_version} {bound.tool_definition}".strip(), width)
    yield render_facts(
        "answers", (f"{key.key} {key.short}: {key.covers}" for key in available_keys(question)), width, "hint"
    )


def _describe_binding(question: Question) -> Iterator[str]:
    environment = question.bound.surroundings
    yield "the tool as it is declared, its arguments, the run, the policy and the sandbox"
    if environment.cwd:
        yield "the working directory and the environment that are shown"
    if len(environment.files) > len(environment.unbound_files):
        yield "the content of the files that are shown"
    if environment.unbound_files:
        yield "NOT to what is shown as not held fast"
    if environment.unnamed_code:
        yield "NOT to code of the workspace that the call does not name"
