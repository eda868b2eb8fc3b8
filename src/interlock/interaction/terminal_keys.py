"""The words of a conversation at a terminal: the keys, what each covers, and what counts as high risk."""

from collections.abc import Iterator
from typing import NamedTuple

from ..domain.call import Question
from ..domain.decision import SCOPES, Scope
from ..rendering.question import Line, fact, facts, held_back, words


class Key(NamedTuple):
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
#: The scope that a yes by this key has.
SCOPE_OF_KEY: dict[str, Scope] = {"y": "once", "s": "run", "w": "window", "r": "rule"}
#: A risk fact with one of these beginnings of words is high: a yes takes a part of the hash, not only a key.
HIGH_RISK = (
    *("delet", "destroy", "discard", "eras", "wipe", "overwrit", "drops", "irrevers", "cannot be undone", "force"),
    *("credential", "secret", "privilege", "root", "sudo", "outside the workspace", "publish", "deploy", "payment"),
)


def high_risk(question: Question) -> str:
    """The first risk fact that is high; empty when none is."""
    for told in question.risk:
        said = f" {told.lower()}"
        if any(f" {word}" in said for word in HIGH_RISK):
            return told
    return ""


def open_keys(question: Question) -> tuple[Key, ...]:
    """The keys that this question takes."""
    widest = SCOPES.index(question.scope)
    return tuple(
        key
        for key in KEYS
        if key.key not in SCOPE_OF_KEY
        or (SCOPES.index(SCOPE_OF_KEY[key.key]) <= widest and (key.key != "r" or bool(question.suggested_rule)))
    )


def key_list(question: Question, width: int) -> list[Line]:
    return words(" | ".join(f"{key.key} {key.short}" for key in open_keys(question)), width)


def explain(question: Question, width: int) -> list[Line]:
    """Which rule asks and why, what the risk is, what holds the call back, and what each answer covers."""
    return [line for section in _explained(question, width) for line in section]


def _explained(question: Question, width: int) -> Iterator[list[Line]]:
    bound = question.bound
    rules = question.rule_ids or ("no rule; the tool's declared risk asks",)
    yield facts("asked by the rules", rules, width)
    yield fact("layer", question.layer or "default", width)
    yield fact("reason", question.reason or question.prompt, width)
    yield facts("risk", question.risk or ("none was named",), width, "risk")
    yield fact("sandbox", held_back(bound.surroundings.sandbox), width)
    yield fact("run, call, question", f"{question.run_id}, {question.call_id}, {question.action_id}", width)
    yield facts("an approval is bound to", _bound_to(question), width)
    if bound.policy:
        yield fact("policy", bound.policy, width)
    if bound.tool_version or bound.tool_definition:
        yield fact("tool version", f"{bound.tool_version} {bound.tool_definition}".strip(), width)
    yield facts("answers", (f"{key.key} {key.short}: {key.covers}" for key in open_keys(question)), width, "hint")


def _bound_to(question: Question) -> Iterator[str]:
    around = question.bound.surroundings
    yield "the tool as it is declared, its arguments, the run, the policy and the sandbox"
    if around.cwd:
        yield "the working directory and the environment that are shown"
    if len(around.files) > len(around.unbound):
        yield "the content of the files that are shown"
    if around.unbound:
        yield "NOT to what is shown as not held fast"
    if around.unnamed_code:
        yield "NOT to code of the workspace that the call does not name"
