"""What an imported policy decides, by the engine itself."""

from typing import Any

from interlock.domain.tool import CallContext, PermissionMode
from interlock.policy.engine.example_event import example_event
from interlock.policy.engine.rule import CommandPattern, Rule
from interlock.policy.engine.rule_policy import RulePolicy
from interlock.policy.importers.policy_draft import ImportResult, as_list

_SAME = ("id", "tools", "risk", "origin", "server", "path", "access", "host", "agent", "mode", "interactive", "reason")


def rules(imported: ImportResult) -> list[dict[str, Any]]:
    """Without ids and reasons, where they do not matter."""
    return [
        {key: value for key, value in rule.items() if key not in ("id", "reason")}
        for rule in imported.document["rules"]
    ]


def policy(imported: ImportResult) -> RulePolicy:
    document = imported.document
    return RulePolicy([_rule(rule) for rule in document["rules"]], default=document["default"])


def _rule(rule: dict[str, Any]) -> Rule:
    same = {key: rule[key] for key in _SAME if key in rule}
    given = rule.get("command")
    commands = None if given is None else [_pattern(each) for each in as_list(given)]
    return Rule(verdict=rule["decision"], command=commands, **same)


def _pattern(command: Any) -> str | CommandPattern:
    match command:
        case {"is": text}:
            return CommandPattern(tuple(text.split()), exact=True)
        case {"words": words, "exact": exact}:
            return CommandPattern(tuple(words), exact)
        case _:
            return command


def verdict(imported: ImportResult, tool: str, mode: PermissionMode = PermissionMode.DEFAULT, **options: Any) -> str:
    """What happens to a call; `origin` and `source` say where its tool comes from."""
    where = {key: options.pop(key) for key in ("origin", "source", "risk", "resources") if key in options}
    situation = CallContext(run_id="run_1", workspace="/work/project", mode=mode)
    return policy(imported).evaluate(example_event(tool, options, situation=situation, **where)).verdict
