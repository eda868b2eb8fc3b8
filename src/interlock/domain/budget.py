"""Budgets for teams: how much the calls and model requests of many runs may use in a calendar window.

Amounts are whole millionths, so that sums are exact in every ledger. Windows are calendar hours, days, weeks (from
Monday) and months in UTC: a budget starts again at a known time, and one number per window is all that is stored.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import msgspec

from .. import lazy_module, lazy_pattern
from .errors import ConfigurationError
from .json import JsonObject, validate_fields
from .tool import CallContext, ToolDefinition, values_at

if TYPE_CHECKING:
    import json
else:
    json = lazy_module("json")

BudgetMeasure: TypeAlias = Literal["calls", "sum", "tokens", "cost"]
BudgetWindow: TypeAlias = Literal["hour", "day", "week", "month"]
BudgetSubject: TypeAlias = Literal["agent", "requester", "tool"]

#: What model requests use. The others are about calls.
MODEL_MEASURES: tuple[BudgetMeasure, ...] = ("tokens", "cost")
#: The code of what a budget refuses: calls and model requests.
BUDGET_EXCEEDED = "budget_exceeded"
#: The code of what is refused because the use of a budget is not known.
BUDGET_UNAVAILABLE = "budget_unavailable"
#: The layer of decisions about budgets; after another one where both ask.
BUDGET_LAYER = "budget"
#: The rule of a decision that a ledger without an answer made.
UNAVAILABLE_RULE = "interlock:budget-unavailable"
_RULE_PREFIX = "budget:"

_UNIT = 1_000_000
#: The largest limit and the largest amount of one call. Sums of them fit the integers of every database.
MAX_AMOUNT = 10**12
_MAX_SUBJECT_CHARS = 500
_MAX_NUMBER_CHARS = 40
_MAX_VALUES = 1_000
_NS = 1_000_000_000
_is_id = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}").fullmatch


class BudgetRule(msgspec.Struct, frozen=True, kw_only=True):
    """Limit what calls or model requests use in each calendar window.

    BudgetRule(id="refunds-a-day", tools=("refund",), per=("agent", "requester"), limit=20)
    """

    id: str
    #: At most this much in a window: calls, tokens, cost, or the sum of an argument.
    limit: float
    measure: BudgetMeasure = "calls"
    #: With `sum`: the dotted name of the argument that is summed.
    argument: str = ""
    #: Who has a budget of their own: every agent, requester or tool, or each combination. Empty: one for all.
    per: tuple[BudgetSubject, ...] = ()
    window: BudgetWindow = "day"
    #: Globs of the tools whose calls count.
    tools: tuple[str, ...] = ("*",)
    #: Globs of the agents whose calls and requests count. Empty: all.
    agents: tuple[str, ...] = ()
    #: What happens to a call that does not fit: it is denied, or a person is asked.
    then: Literal["deny", "ask"] = "deny"
    #: For the person who is asked or refused.
    reason: str = ""
    layer: str = "project rule"

    @property
    def rule_id(self) -> str:
        """The name of the budget among the rules of a decision."""
        return f"{_RULE_PREFIX}{self.id}"

    @property
    def unit(self) -> str:
        """What is counted, for people."""
        return f"of {self.argument}" if self.measure == "sum" else "of cost" if self.measure == "cost" else self.measure

    def applies_to(self, agent: str) -> bool:
        """Return True if calls and requests of this agent count."""
        return not self.agents or any(fnmatchcase(agent, pattern) for pattern in self.agents)

    def matches_call(self, tool: ToolDefinition, situation: CallContext) -> bool:
        """Return True if calls of this tool count."""
        if self.measure in MODEL_MEASURES or not self.applies_to(situation.agent):
            return False
        names = (tool.name, f"mcp__{tool.source}__{tool.source_name}") if tool.source_name else (tool.name,)
        return any(fnmatchcase(name, pattern) for name in names for pattern in self.tools)

    def describe(self) -> str:
        """Describe the budget in one line."""
        what = "" if self.measure in MODEL_MEASURES else f", tools {' | '.join(self.tools)}"
        agents = f", agents {' | '.join(self.agents)}" if self.agents else ""
        per = f" per {', '.join(self.per)}" if self.per else ""
        return f"at most {self.limit:,.15g} {self.unit} a {self.window}{per}{what}{agents}"


class BudgetKey(msgspec.Struct, frozen=True, gc=False, order=True):
    """One counter of a ledger: a budget, in a window, for a subject. Times are seconds since 1970."""

    budget: str
    #: What is counted, so that a budget that counts something else from now on begins at 0.
    measure: str
    #: The values of `per`, as a JSON object.
    subject: str
    starts_at: int
    ends_at: int


class BudgetCharge(msgspec.Struct, frozen=True, gc=False):
    """What a call or a model request is about to use, in millionths."""

    key: BudgetKey
    amount: int
    #: The largest sum. None: the amount is added in any case.
    limit: int | None = None

    def fits(self, used: int) -> bool:
        """Return True if the amount stays within the limit after what was used. Nothing always fits."""
        return self.limit is None or not self.amount or used + self.amount <= self.limit


class BudgetUse(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The use of a budget, as a decision found it."""

    id: str
    #: Used in the window before this call, and needed by it.
    used: float
    limit: float
    needed: float
    unit: str = "calls"
    window: BudgetWindow = "day"
    #: When the window ends, in nanoseconds since 1970.
    resets_at: int = 0
    #: Whose budget: agent, requester, tool. Empty: of all.
    subject: dict[str, str] = {}

    def __post_init__(self) -> None:
        validate_fields(self)

    @property
    def rule_id(self) -> str:
        """The name of the budget among the rules of a decision."""
        return f"{_RULE_PREFIX}{self.id}"

    def describe(self) -> str:
        """Describe used, limit and reset time in one sentence."""
        whose = "".join(f" for {name} {value or '(none)'}" for name, value in self.subject.items())
        until = datetime.fromtimestamp(self.resets_at / _NS, UTC).strftime("%Y-%m-%d %H:%M UTC")
        return (
            f"Budget {self.id}{whose}: {self.used:,.15g} of {self.limit:,.15g} {self.unit} a {self.window} are used, "
            f"and this needs {self.needed:,.15g}. It resets at {until}."
        )


def is_budget_rule(rule_id: str) -> bool:
    """Return True if a rule id of a decision names a budget."""
    return rule_id.startswith(_RULE_PREFIX)


def to_millionths(amount: float | str | Decimal) -> int:
    """Return an amount in millionths, rounded up. Raise `ValueError` unless it is a number from 0 to 10^12."""
    try:
        exact = Decimal(str(amount))
        if not 0 <= exact <= MAX_AMOUNT:
            raise ValueError(f"{amount!r:.40} is not between 0 and {MAX_AMOUNT:,}")
    except InvalidOperation:  # not a number at all, or NaN
        raise ValueError(f"{amount!r:.40} is not a number") from None
    return int((exact * _UNIT).to_integral_value(ROUND_CEILING))


def from_millionths(amount: int) -> float:
    """Return an amount as it is shown."""
    return amount / _UNIT


def find_window(window: BudgetWindow, now: int) -> tuple[int, int]:
    """Return the start and the end, in seconds since 1970, of the window with this time, which is in nanoseconds."""
    at = datetime.fromtimestamp(now // _NS, UTC).replace(minute=0, second=0)
    if window == "hour":
        end = at + timedelta(hours=1)
    else:
        at = at.replace(hour=0)
        if window == "day":
            end = at + timedelta(days=1)
        elif window == "week":
            at -= timedelta(days=at.weekday())
            end = at + timedelta(days=7)
        else:
            at = at.replace(day=1)
            end = (at + timedelta(days=31)).replace(day=1)
    return int(at.timestamp()), int(end.timestamp())


def make_key(rule: BudgetRule, situation: CallContext, tool: str, now: int) -> BudgetKey:
    """Return the counter of a budget that a call or a model request counts to."""
    names = {"agent": situation.agent, "requester": situation.requester, "tool": tool}
    subject = json.dumps({name: names[name] for name in sorted(rule.per)})
    if len(subject) > _MAX_SUBJECT_CHARS:
        digest = {name: f"sha256:{sha256(json.dumps(names[name]).encode()).hexdigest()}" for name in sorted(rule.per)}
        subject = json.dumps(digest)
    return BudgetKey(rule.id, make_measure(rule), subject, *find_window(rule.window, now))


def make_measure(rule: BudgetRule) -> str:
    """Return what a budget counts, as its counters name it."""
    return f"{rule.measure}:{rule.argument}/{rule.window}" if rule.measure == "sum" else f"{rule.measure}/{rule.window}"


def sum_argument(rule: BudgetRule, arguments: JsonObject) -> int:
    """Return the summed argument of a call in millionths. Raise `ValueError` when it has no such number."""
    values = list(values_at(arguments, rule.argument.split(".")))
    if not values or len(values) > _MAX_VALUES:
        raise ValueError(f"the call has {'too many values' if values else 'no value'} at `{rule.argument}`")
    total = 0
    for value in values:
        is_text = isinstance(value, str) and len(value) <= _MAX_NUMBER_CHARS
        if isinstance(value, bool) or not (is_text or isinstance(value, int | float)):
            raise ValueError(f"`{rule.argument}` is not a number")
        total += to_millionths(value)
    if total > MAX_AMOUNT * _UNIT:
        raise ValueError(f"the values of `{rule.argument}` are more than {MAX_AMOUNT:,}")
    return total


def charge_call(
    rule: BudgetRule, tool: ToolDefinition, arguments: JsonObject, situation: CallContext, now: int
) -> BudgetCharge:
    """Return what a call uses of a budget. Raise `ValueError` when that is not known."""
    amount = sum_argument(rule, arguments) if rule.measure == "sum" else _UNIT
    return BudgetCharge(make_key(rule, situation, tool.name, now), amount, to_millionths(rule.limit))


def make_use(rule: BudgetRule, charge: BudgetCharge, used: int) -> BudgetUse:
    """Return the use of a budget for a decision."""
    return BudgetUse(
        id=rule.id,
        used=from_millionths(used),
        limit=rule.limit,
        needed=from_millionths(charge.amount),
        unit=rule.unit,
        window=rule.window,
        resets_at=charge.key.ends_at * _NS,
        subject=json.loads(charge.key.subject),
    )


def check_budget(rule: BudgetRule) -> None:
    """Raise `ConfigurationError` when a budget cannot be declared like this."""
    _check_words(rule)
    if not _is_id(rule.id):
        raise ConfigurationError("the id of a budget is up to 100 letters, digits, dots, underscores and hyphens")
    try:
        to_millionths(rule.limit)
    except ValueError as error:
        raise ConfigurationError(f"the limit {error}") from None
    if (rule.measure == "sum") != bool(rule.argument) or not all(rule.argument.split(".") if rule.argument else "-"):
        raise ConfigurationError("sum is the dotted name of an argument, such as amount or items.price")
    if rule.measure in MODEL_MEASURES:
        _check_model_budget(rule)
    if not rule.tools or not all((*rule.tools, *rule.agents)):
        raise ConfigurationError("name at least one tool, and no empty pattern")


def _check_words(rule: BudgetRule) -> None:
    allowed: Sequence[tuple[str, Any, tuple[Any, ...]]] = (
        ("of", rule.measure, get_args(BudgetMeasure)),
        ("window", rule.window, get_args(BudgetWindow)),
        ("then", rule.then, ("deny", "ask")),
        *(("per", subject, get_args(BudgetSubject)) for subject in rule.per),
    )
    for name, value, words in allowed:
        if value not in words:
            raise ConfigurationError(f"{name} is one of {', '.join(words)}, not {value!r:.40}")
    if len(set(rule.per)) != len(rule.per):
        raise ConfigurationError("per names something twice")


def _check_model_budget(rule: BudgetRule) -> None:
    if rule.tools != ("*",) or "tool" in rule.per:
        raise ConfigurationError(f"a budget of {rule.measure} is about model requests, so no tools can be named")
    if rule.then != "deny":
        raise ConfigurationError(f"then: ask is for calls; without {rule.measure} left a run ends")
