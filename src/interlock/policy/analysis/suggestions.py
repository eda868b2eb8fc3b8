"""Rule suggestions: the narrowest rules for what people keep approving.

For commands: the exact words; else the words of their kind, as they are suggested with a question; else the words that
several of them begin with, at least two. For other tools: the exact arguments; else the files of one kind in a folder;
else the folder. A candidate is loaded like an entry of a policy file and asked about every question of the past, and it
is dropped when it would have let through anything that a person refused. Questions that a rule asked are no reason for
another rule: to allow does not undo an ask.
"""

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from posixpath import basename, dirname
from typing import TypeAlias

import msgspec

from ...domain import json
from ...domain.decision import Verdict
from ...domain.tool import JsonObject, declared_paths
from ...rendering.text import pluralize
from ..engine.paths import PathResolver
from ..engine.rule_policy import RulePolicy
from ..engine.suggested_rule import find_file_kind
from ..files.problems import PolicyFileError
from ..files.saved_rules import load_rule
from ..interface import PolicyEvent
from ..shell.command import make_word_set
from ..shell.command_facts import find_command_kind
from ..shell.programs import TABLES
from .recorded_calls import RecordedCall

_MAX_SUGGESTIONS = 50
_MAX_EXAMPLES = 3
_MAX_EXAMPLE_CHARS = 1_000
_PREFIX_WORDS = (6, 5, 4, 3, 2)
_GLOB = re.compile(r"[*?\[\]!\\]")
_VERSION = re.compile(r"[-.0-9]+$")

#: Second words that only say that something else follows.
_RUNNER_SUBCOMMANDS = make_word_set("run exec dlx x start shell eval do call -c -e -m -r --")


class RuleSuggestion(msgspec.Struct, frozen=True, kw_only=True):
    """A suggested rule, and how many past questions it would have answered."""

    #: An entry of `rules` in a policy file.
    rule: JsonObject
    #: How many questions of the past it would have answered, out of how many.
    covers: int
    out_of: int
    #: How many of those a person had refused; with any, a rule is not suggested.
    denied: int = 0


class _PastRequest(msgspec.Struct, frozen=True):
    """A question of the past."""

    call: RecordedCall
    event: PolicyEvent
    #: The same for requests that every rule treats alike.
    key: bytes
    #: What it would have run that nothing allowed; None when that is no plain list of words.
    commands: tuple[tuple[str, ...], ...] | None

    @property
    def is_approved(self) -> bool:
        return self.call.said == "granted" and self.is_answerable

    @property
    def is_answerable(self) -> bool:
        """True when it was asked because no rule matched."""
        return self.call.decision.verdict is Verdict.ASK and not self.call.decision.rule_ids


#: The conditions of a rule that lets this request through, and examples for it; None when there is none of this kind.
_CandidateConditions: TypeAlias = tuple[JsonObject, list[JsonObject]] | None
_Strategy: TypeAlias = Callable[[_PastRequest], _CandidateConditions]


def find_suggestions(
    calls: Iterable[RecordedCall], min_count: int = 3, is_timed_out: Callable[[], bool] = lambda: False
) -> list[RuleSuggestion]:
    """Return suggested rules. Those that would have answered most come first. After the time is over, no further rule
    is tried.
    """
    asked = [call for call in calls if call.decision.verdict in (Verdict.ASK, Verdict.REQUEST_INPUT)]
    by_tool: dict[str, list[_PastRequest]] = defaultdict(list)
    commands = _CommandCache()
    for call in asked:
        if call.event is not None:
            key = _request_key(call.event)
            by_tool[call.tool].append(_PastRequest(call, call.event, key, commands.get(call.event, key)))
    # What cannot be looked at may have been refused, so nothing wide is said about its tool.
    unseen = {call.tool for call in asked if call.event is None and _was_rejected(call)}
    found = [
        msgspec.structs.replace(suggestion, out_of=len(asked))
        for tool, requests in by_tool.items()
        for suggestion in _suggest_for_tool(
            requests, _STRATEGIES[:1] if tool in unseen else _STRATEGIES, max(min_count, 1), is_timed_out
        )
    ]
    return sorted(found, key=lambda each: (-each.covers, each.rule["id"]))[:_MAX_SUGGESTIONS]


class AskingRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that asked, and what people answered. No suggested rule answers for it: to allow does not undo an ask."""

    rule_id: str
    asked: int
    approved: int
    #: Refused, or approved with other arguments.
    rejected: int


def count_asking_rules(calls: Iterable[RecordedCall]) -> list[AskingRule]:
    """Return the rules that asked. Those that asked most come first."""
    asked: Counter[str] = Counter()
    approved: Counter[str] = Counter()
    rejected: Counter[str] = Counter()
    for call in calls:
        if call.decision.verdict in (Verdict.ASK, Verdict.REQUEST_INPUT):
            rules = set(call.decision.rule_ids)
            asked.update(rules)
            approved.update(rules if call.said == "granted" else ())
            rejected.update(rules if _was_rejected(call) else ())
    return [
        AskingRule(rule_id=rule_id, asked=asked[rule_id], approved=approved[rule_id], rejected=rejected[rule_id])
        for rule_id in sorted(asked, key=lambda rule_id: (-asked[rule_id], rule_id))[:_MAX_SUGGESTIONS]
    ]


class RuleCoverage(msgspec.Struct, frozen=True):
    """How many recorded calls a rule would have allowed, and how many of those a person had rejected."""

    total: int
    allowed: int
    rejected: int


def measure_coverage(rule: JsonObject, calls: Iterable[RecordedCall], max_calls: int) -> RuleCoverage:
    """Return what a rule alone would have allowed of the last calls that were decided. Raise `PolicyFileError` for one
    that is invalid.
    """
    policy = RulePolicy([load_rule(rule)])
    decided = [call for call in calls if call.said != "none" or call.decision.verdict is not Verdict.ASK][-max_calls:]
    allowed = [call for call in decided if call.event is not None and _is_allowed(policy, call.event)]
    return RuleCoverage(len(decided), len(allowed), sum(map(_was_rejected, allowed)))


def describe_coverage(rule: JsonObject, found: RuleCoverage | None) -> str:
    """Return where a rule would hold, and what it would have allowed; None: that is not known."""
    where = f"Only in {rule['workspace']}. " if "workspace" in rule else ""
    if found is None:
        return where.strip()
    if not found.total:
        return f"{where}No call was recorded before."
    rejected = f", and {found.rejected:,} of them had been rejected" if found.rejected else ""
    last = pluralize(found.total, "recorded call")
    return f"{where}It would have allowed {found.allowed:,} of the last {last}{rejected}."


def _was_rejected(call: RecordedCall) -> bool:
    return call.said in ("rejected", "edited")


def _request_key(event: PolicyEvent) -> bytes:
    situation = event.situation
    about = (situation.agent, situation.mode, situation.interactive, situation.workspace, situation.requester)
    return json.encode_sorted((event.tool_name, event.arguments, *about))


def _suggest_for_tool(
    requests: Sequence[_PastRequest], strategies: Iterable[_Strategy], min_count: int, is_timed_out: Callable[[], bool]
) -> Iterator[RuleSuggestion]:
    """Yield suggestions for one tool, from narrow to wide: what a narrow rule covers is no reason for a wider one."""
    answered: set[bytes] = set()
    for strategy in strategies:
        approved = [request for request in requests if request.is_approved and request.key not in answered]
        for group in _group_requests(approved, strategy, min_count):
            if is_timed_out():
                return
            if sum(request.key not in answered for request in group.requests) < min_count:
                continue
            rule = _build_rule(group)
            covered = _find_covered(rule, requests)
            refused = any(_was_rejected(request.call) for request in covered)
            if refused or sum(request.is_approved for request in covered) < min_count:
                continue
            yield RuleSuggestion(rule=rule, covers=sum(request.is_answerable for request in covered), out_of=0)
            answered |= {request.key for request in covered}


class _RequestGroup(msgspec.Struct, frozen=True):
    """Requests that one rule would let through."""

    conditions: JsonObject
    requests: list[_PastRequest] = msgspec.field(default_factory=list[_PastRequest])
    examples: list[JsonObject] = msgspec.field(default_factory=list[JsonObject])


def _group_requests(requests: Iterable[_PastRequest], strategy: _Strategy, min_count: int) -> list[_RequestGroup]:
    """Return the groups, the largest first."""
    groups: dict[bytes, _RequestGroup] = {}
    for request in requests:
        narrowed = strategy(request)
        if narrowed is not None:
            conditions, examples = narrowed
            group = groups.setdefault(json.encode_sorted(conditions), _RequestGroup(conditions))
            group.requests.append(request)
            group.examples.extend(each for each in examples if each not in group.examples)
            del group.examples[_MAX_EXAMPLES:]
    frequent = [group for group in groups.values() if len(group.requests) >= min_count]
    return sorted(frequent, key=lambda group: -len(group.requests))[:_MAX_SUGGESTIONS]


def _build_rule(group: _RequestGroup) -> JsonObject:
    tool = group.requests[0].event.tool
    origin: JsonObject = {}
    if tool.origin != "local" and not tool.name.startswith("mcp__"):
        origin = {"origin": tool.origin, **({"server": tool.source} if tool.source else {})}
    about = {"decision": "allow", "tools": tool.name, **origin, **group.conditions}
    short = [each for each in group.examples if len(json.encode(each)) <= _MAX_EXAMPLE_CHARS]
    return {
        "id": f"suggested-{sha256(json.encode_sorted(about)).hexdigest()[:8]}",
        **about,
        "reason": f"People said yes to this {len(group.requests)} times.",
        **({"matches": [{"tool": tool.name, **origin, **each} for each in short]} if short else {}),
    }


def _find_covered(entry: JsonObject, requests: Iterable[_PastRequest]) -> list[_PastRequest]:
    """Return the questions that the rule would have approved."""
    if _GLOB.search(entry.get("server", "")):
        return []
    try:
        policy = RulePolicy([load_rule(entry)])
    except PolicyFileError:
        return []
    is_covered: dict[bytes, bool] = {}
    for request in requests:
        if request.key not in is_covered and (_was_rejected(request.call) or _can_cover(entry, request)):
            is_covered[request.key] = _is_allowed(policy, request.event)
    return [request for request in requests if is_covered.get(request.key)]


def _can_cover(entry: JsonObject, request: _PastRequest) -> bool:
    """Return False quickly for a command that begins with other words, without parsing a script again."""
    if "command" not in entry:
        return True
    patterns: list[tuple[str, ...]] = [tuple(each["words"]) for each in entry["command"]]
    commands = request.commands or ()
    return bool(commands) and all(any(argv[: len(words)] == words for words in patterns) for argv in commands)


def _is_allowed(policy: RulePolicy, event: PolicyEvent) -> bool:
    parts = policy.evaluate_parts(event)
    return any(part.rule_decisions for part in parts) and all(part.decision.verdict is Verdict.ALLOW for part in parts)


class _CommandCache:
    """What requests would run, each read once however often it came."""

    def __init__(self) -> None:
        self._without_rules = RulePolicy()
        self._known: dict[bytes, tuple[tuple[str, ...], ...] | None] = {}

    def get(self, event: PolicyEvent, key: bytes) -> tuple[tuple[str, ...], ...] | None:
        if "command" not in event.tool.resources.values():
            return ()
        if key not in self._known:
            self._known[key] = self._find_commands(event)
        return self._known[key]

    def _find_commands(self, event: PolicyEvent) -> tuple[tuple[str, ...], ...] | None:
        found: set[tuple[str, ...]] = set()
        for part in self._without_rules.evaluate_parts(event):
            command = part.part.command
            if part.decision.verdict is Verdict.ALLOW:
                continue
            if command is None or part.part.opaque or command.wrappers or command.assignments or command.globs:
                return None
            found.add(command.argv)
        # In a rule, the word `*` is any word.
        return tuple(sorted(found)) if found and not any("*" in argv for argv in found) else None


def _match_exactly(request: _PastRequest) -> _CandidateConditions:
    if request.commands is None:
        return None
    if request.commands:
        commands = [{"words": list(argv), "exact": True} for argv in request.commands]
        return {"command": commands}, [{"command": shlex.join(argv)} for argv in request.commands]
    arguments = request.event.arguments
    tests = {name: {"is": value} for name, value in arguments.items()}
    # To name some arguments would also allow others beside them.
    conditions: JsonObject = {"arguments": tests, "when": f"size(arguments) == {len(arguments)}"}
    return conditions, [{"arguments": arguments}]


def _match_kind(request: _PastRequest) -> _CandidateConditions:
    kinds = sorted({find_command_kind(argv) for argv in request.commands or ()})
    if not kinds or () in kinds:
        return None
    examples = [{"command": shlex.join(argv)} for argv in request.commands or ()]
    return {"command": [{"words": list(kind)} for kind in kinds]}, examples


def _match_prefix(count: int, request: _PastRequest) -> _CandidateConditions:
    if request.commands is None or len(request.commands) != 1:
        return None
    (argv,) = request.commands
    if len(argv) < count or _is_prefix_too_broad(argv):
        return None
    return {"command": [{"words": list(argv[:count])}]}, [{"command": shlex.join(argv)}]


def _is_prefix_too_broad(argv: tuple[str, ...]) -> bool:
    program = argv[0]
    names = {program.lower(), _VERSION.sub("", program.lower())}
    return (
        basename(program) != program or not names.isdisjoint(TABLES.general_programs) or argv[1] in _RUNNER_SUBCOMMANDS
    )


def _match_file_kind(request: _PastRequest) -> _CandidateConditions:
    places = _list_places(request)
    glob = find_file_kind(places)
    return ({"path": glob}, [{"path": place} for place in places]) if "/" in glob else None


def _match_folder(request: _PastRequest) -> _CandidateConditions:
    places = _list_places(request)
    folders = {dirname(place or "") for place in places}
    folder = folders.pop() if len(folders) == 1 else ""
    hidden = any(name.startswith(".") for name in folder.split("/"))
    if not folder or hidden or _GLOB.search(folder):
        return None
    return {"path": f"{folder}/*"}, [{"path": place} for place in places]


def _list_places(request: _PastRequest) -> list[str | None]:
    """Return where the paths of a call lead, from the workspace on; None is outside of it."""
    event = request.event
    if request.commands != () or not event.situation.workspace:
        return []
    resolver = PathResolver(event.situation.workspace)
    paths = declared_paths(event.tool, event.arguments)
    return [place.relative for path in paths for place in resolver.resolve(path, writes=True).targets]


_STRATEGIES: tuple[_Strategy, ...] = (
    _match_exactly,
    _match_kind,
    *(partial(_match_prefix, count) for count in _PREFIX_WORDS),
    _match_file_kind,
    _match_folder,
)
