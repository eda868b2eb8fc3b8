"""What a policy knows about a tool in a mode before it sees the arguments, and how it judges a call from there."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ...domain.decision import QUESTIONS, Decision, Verdict, strictest
from ...domain.tool import JsonObject, Mode, Risk, ToolDefinition
from ..interface import PolicyEvent
from ..shell.match import program_name, words_within
from .combine import combined, refused
from .compiled import Compiled
from .index import Index
from .modes import by_default, refused_by_mode
from .rule import Default
from .subject import Resources, Subject, subjects

_MAX_NAMED = 5
_READ = frozenset({Risk.READ})


class Judged(msgspec.Struct, frozen=True):
    """One part of a call, and what was said about it."""

    subject: Subject
    #: By every rule that spoke, and by the mode where it refuses.
    said: tuple[Decision, ...]
    decision: Decision


class Fallback(msgspec.Struct, frozen=True):
    """What a policy says where no rule does, and the digest that stands in its decisions."""

    default: Default
    digest: str


class Plan:
    def __init__(
        self,
        tool: ToolDefinition,
        mode: Mode,
        rules: Sequence[Compiled],
        resources: Resources,
        fallback: Fallback,
    ) -> None:
        self.tool, self._mode, self._resources = tool, mode, resources
        self._default: Default = fallback.default
        self._digest = fallback.digest
        digest = fallback.digest
        conditional = [rule for rule in rules if rule.conditional]
        self._decisions = {rule.id: rule.decision(tool, digest) for rule in rules}
        self._unconditional = tuple(self._decisions[rule.id] for rule in rules if not rule.conditional)
        self._index = Index(conditional)
        self._needs_arguments = bool(resources) or any(rule.arguments for rule in conditional)
        self._doubtful = [rule for rule in conditional if rule.about_resources and rule.wide]
        self._programs = _by_program(self._doubtful)
        #: The decision, where it does not depend on what the call would do.
        self.settled = self._settled() if not conditional else None

    def judge(self, event: PolicyEvent, now: Callable[[], int]) -> list[Judged]:
        arguments = event.arguments if self._needs_arguments else {}
        holds = _Conditions(event, now)
        found = list[Judged]()
        for subject in subjects(event, self._resources, arguments):
            if not subject.is_hidden:
                found.append(self._judge(subject, arguments, holds))
            elif said := [each for each in self._said(subject, arguments, holds) if each.verdict is not Verdict.ALLOW]:
                # What another command may start is named only where a rule refuses it or asks about it.
                found.append(Judged(subject, tuple(said), combined(said)))
        return found

    def _judge(self, subject: Subject, arguments: JsonObject, holds: "_Conditions") -> Judged:
        said = [*self._unconditional, *self._said(subject, arguments, holds)]
        refusal = refused_by_mode(self._mode, subject.risk)
        if refusal is not None:
            said.append(self._named(refusal))
        return Judged(subject, tuple(said), self._decide(subject, said))

    def _said(self, subject: Subject, arguments: JsonObject, holds: "_Conditions") -> list[Decision]:
        """What rules about paths, commands, hosts and arguments say."""
        said = list[Decision]()
        for rule in self._index.found(subject, arguments):
            if _fits(rule, subject, arguments):
                said += holds.said(rule, self._decisions[rule.id])
        doubtful = self._doubtful if subject.opaque else self._mentioned(subject)
        return said + self._doubt(doubtful, arguments, holds) if doubtful else said

    def _decide(self, subject: Subject, said: list[Decision]) -> Decision:
        """Only an allow loosens: without one, what asks or refuses adds to the default and never takes from it."""
        if any(each.verdict is Verdict.ALLOW for each in said):
            return combined(said)
        default = self._named(by_default(self._default, self._mode, subject))
        return strictest((combined(said), default)) if said else default

    def _named(self, decision: Decision) -> Decision:
        """A decision of no rule, in the name of the policy."""
        return msgspec.structs.replace(decision, policy_digest=self._digest) if self._digest else decision

    def _settled(self) -> Decision | None:
        subject = Subject(risk=self.tool.risk)
        depends = any(kind == "command" for _, kind in self._resources) or self._mode is Mode.ACCEPT_EDITS
        if depends and not (self._unconditional and (self._mode is not Mode.READ_ONLY or self.tool.risk <= _READ)):
            return None
        decision = self._judge(subject, {}, _Conditions(None, int)).decision
        # A question names what the call would touch, and the rule that would do instead.
        asked_alike = bool(self._unconditional) and not self._resources
        return decision if decision.verdict not in QUESTIONS or asked_alike else None

    def _mentioned(self, subject: Subject) -> list[Compiled]:
        """Rules about a command whose words all stand among those of another: it may well start it."""
        if not self._programs or subject.command is None or subject.risk <= _READ:
            return []
        words = words_within(subject.command)
        rules = {rule.id: rule for word in words for rule in self._programs.get(word, ()) if rule.is_within(words)}
        return list(rules.values())

    def _doubt(self, rules: Sequence[Compiled], arguments: JsonObject, holds: "_Conditions") -> list[Decision]:
        """Said about what is not known for sure: any of these rules might be about it."""
        said = [
            (rule, decision)
            for rule in rules
            if rule.fits_arguments(arguments)
            for decision in holds.said(rule, self._decisions[rule.id])
        ]
        if not said:
            return []
        names = [rule.id for rule, _ in said[:_MAX_NAMED]]
        more = f" and {len(said) - _MAX_NAMED} more" if len(said) > _MAX_NAMED else ""
        layers = dict.fromkeys(decision.layer for _, decision in said)
        doubt = Decision(
            verdict=Verdict.ASK,
            reason=f"It cannot be shown that this is not what {', '.join(names)}{more} is about.",
            rule_ids=tuple(names),
            layer=", ".join(layers),
            risk=tuple(sorted(self.tool.risk)),
            policy_digest=self._digest,
            scope="run",
        )
        return [doubt]


def _by_program(rules: Sequence[Compiled]) -> dict[str, list[Compiled]]:
    found: dict[str, list[Compiled]] = {}
    for rule in rules:
        for pattern in rule.commands:
            found.setdefault(program_name(pattern.words[0]), []).append(rule)
    return found


class _Conditions:
    """The conditions that do not depend on the part of the call, each asked at most once."""

    def __init__(self, event: PolicyEvent | None, now: Callable[[], int]) -> None:
        self._event = event
        self._now = now
        self._said: dict[str, tuple[Decision, ...]] = {}

    def said(self, rule: Compiled, decision: Decision) -> tuple[Decision, ...]:
        """What the rule says: nothing when it has ended or its condition does not hold."""
        if rule.id not in self._said:
            self._said[rule.id] = self._ask(rule, decision)
        return self._said[rule.id]

    def _ask(self, rule: Compiled, decision: Decision) -> tuple[Decision, ...]:
        assert self._event is not None  # noqa: S101 - without an event there are no conditional rules
        if rule.expires_at and self._now() >= rule.expires_at:
            return ()
        if not rule.fits_agent(self._event.situation.agent):
            return ()
        holds: Any = True
        if rule.when is not None:
            try:
                holds = rule.when(self._event)
            except Exception as error:
                return (refused(decision, f"raised {type(error).__name__}"),)
        if holds is False:
            return ()
        return (decision,) if holds is True else (refused(decision, f"returned a {type(holds).__name__}"),)


def _fits(rule: Compiled, subject: Subject, arguments: JsonObject) -> bool:
    """Do the conditions on the arguments hold? Those on paths were looked at when the rule was found."""
    if rule.commands and (subject.command is None or not rule.fits_command(subject.command)):
        return False
    if not rule.wide and rule.about_resources and not _may_be_allowed(rule, subject):
        return False
    if rule.hosts and not rule.fits_hosts(subject):
        return False
    return rule.fits_arguments(arguments)


def _may_be_allowed(rule: Compiled, subject: Subject) -> bool:
    """To allow a path or a host is not to allow whatever a command may do there."""
    return not subject.opaque and (bool(rule.commands) or subject.command is None or subject.risk <= _READ)
