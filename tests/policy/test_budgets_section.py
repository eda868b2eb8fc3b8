"""The section `budgets` of a policy file: what it says, what is wrong with it, and where it counts."""

from pathlib import Path

import pytest

from interlock import MemoryLog, Rule, RulePolicy, ToolRuntime, tool
from interlock.domain.errors import ConfigurationError
from interlock.policy import BudgetRule, EgressRule, PolicyFiles, check_file, example_event, explain, load_policy
from interlock.policy.files.problems import PolicyFileError
from interlock.testing import FakeClock
from tests.support import call

#: As they were before there were budgets.
DIGEST = "sha256:c4d6c4500aea9da1de298400e5249c3ef29d231f35b83d593524c1b71e2c5fa5"
EGRESS_DIGEST = "sha256:544f43388521afdc71a9fbdbd15c9fd3b6c3127d5292ae79192580cce23d8416"


def write(folder: Path, budgets: str, name: str = "policy.yaml") -> Path:
    path = folder / name
    path.write_text(f"version: 1\nbudgets:\n{budgets}")
    return path


def test_short_and_long_entries_are_read(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
  - {id: calls, max: 20}
  - {id: refunds, sum: amount, max: 500.5, per: [agent, requester], window: week, tools: "refund*", then: ask,
     reason: Big.}
  - {id: tokens, of: tokens, max: 1e6, per: requester, window: month, agent: [desk, "help-*"]}
""",
    )

    assert load_policy(path).budgets == (
        BudgetRule(id="calls", limit=20, layer="user rule"),
        BudgetRule(
            id="refunds",
            limit=500.5,
            measure="sum",
            argument="amount",
            per=("agent", "requester"),
            window="week",
            tools=("refund*",),
            then="ask",
            reason="Big.",
            layer="user rule",
        ),
        BudgetRule(
            id="tokens",
            limit=1_000_000,
            measure="tokens",
            per=("requester",),
            window="month",
            agents=("desk", "help-*"),
            layer="user rule",
        ),
    )
    assert len(check_file(path).budgets) == 3


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("{id: a}", "max: this key is missing"),
        ("{max: 1}", "id: this key is missing"),
        ("{id: a b, max: 1}", "id: letters, digits, `.`, `_` and `-`, at most 100, and a letter or digit first"),
        ("{id: a, max: -1}", "max: it should be greater than or equal to 0"),
        ("{id: a, max: 10000000000000}", "max: it should be less than or equal to 1000000000000"),
        ("{id: a, max: many}", "max: it should be a valid number"),
        ("{id: a, max: true}", "max: it should be a valid number"),
        ("{id: a, max: 1, maximum: 2}", "maximum: there is no such key. Did you mean `max`?"),
        ("{id: a, max: 1, of: dollars}", "of: it should be 'calls', 'tokens' or 'cost'"),
        ("{id: a, max: 1, of: calls, sum: amount}", "a budget has either of or sum"),
        ("{id: a, max: 1, sum: 'a..b'}", "sum is the dotted name of an argument, such as amount or items.price"),
        ("{id: a, max: 1, per: team}", "per: it should be 'agent', 'requester' or 'tool'"),
        ("{id: a, max: 1, per: [agent, agent]}", "per names something twice"),
        ("{id: a, max: 1, window: year}", "window: it should be 'hour', 'day', 'week' or 'month'"),
        ("{id: a, max: 1, then: allow}", "then: it should be 'deny' or 'ask'"),
        ("{id: a, max: 1, of: tokens, tools: x}", "a budget of tokens is about model requests, so no tools can be "),
        ("{id: a, max: 1, of: cost, then: ask}", "then: ask is for calls; without cost left a run ends"),
    ],
)
def test_problems_name_their_line(tmp_path: Path, entry: str, problem: str) -> None:
    with pytest.raises(PolicyFileError) as refused:
        load_policy(write(tmp_path, f"  - {entry}\n"))

    [found] = refused.value.problems
    assert problem in str(found)
    assert found.line == 3


def test_id_given_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PolicyFileError, match=r"policy.yaml:4: .*the budget a is given twice"):
        load_policy(write(tmp_path, "  - {id: a, max: 1}\n  - {id: a, max: 2}\n"))


def test_id_of_two_layers_is_refused(tmp_path: Path) -> None:
    user = write(tmp_path, "  - {id: a, max: 1}\n", "user.yaml")
    files = PolicyFiles(user=user, project=write(tmp_path, "  - {id: a, max: 2}\n", "project.yaml"))

    assert files.problems[0].reason == "Every budget needs an id of its own; not so: a"
    assert files.budgets == ()
    assert files.evaluate(example_event("read_file", {"path": "a"})).verdict == "deny"


def test_project_file_may_have_budgets(tmp_path: Path) -> None:
    assert len(load_policy(write(tmp_path, "  - {id: a, max: 1}\n"), "project").budgets) == 1


def test_budgets_of_all_layers_count_and_reload(tmp_path: Path) -> None:
    user = write(tmp_path, "  - {id: a, max: 1}\n", "user.yaml")
    files = PolicyFiles(user=user, project=write(tmp_path, "  - {id: b, max: 2}\n", "project.yaml"))
    before, budgets = files.digest, files.budgets
    user.write_text("version: 1\n")
    files.reload()

    assert [rule.id for rule in budgets] == ["a", "b"]
    assert [(rule.id, rule.layer) for rule in files.budgets] == [("b", "project rule")]
    assert files.digest != before


async def test_raised_limit_counts_after_reload(tmp_path: Path) -> None:
    path = write(tmp_path, "  - {id: a, max: 1}\n")
    files = PolicyFiles(user=path)

    @tool
    def look() -> str:
        return "seen"

    async with ToolRuntime(tools=[look], policy=files, log=MemoryLog(), clock=FakeClock()) as runtime:
        codes = [(await runtime.execute([call(name, "look")])).observations[0].code for name in ("c1", "c2")]
        write(tmp_path, "  - {id: a, max: 2}\n")
        files.reload()
        codes += [(await runtime.execute([call(name, "look")])).observations[0].code for name in ("c3", "c4")]

    assert codes == ["ok", "budget_exceeded", "ok", "budget_exceeded"]


def test_digest_without_budgets_is_that_of_before() -> None:
    """Approvals that were given before there were budgets stay valid."""
    rules = [Rule(id="a", verdict="ask", tools="refund", path="src/**", reason="Because.")]
    egress = [EgressRule(verdict="allow", hosts="a.com", ports=80)]

    assert RulePolicy([Rule(id="a", verdict="allow", tools="x")]).digest == DIGEST
    assert RulePolicy(rules, egress=egress, budgets=[]).digest == EGRESS_DIGEST


def test_digest_covers_budgets() -> None:
    budgets = [BudgetRule(id=name, limit=limit) for name, limit in (("a", 1), ("b", 1))]
    raised = [BudgetRule(id="a", limit=2), budgets[1]]

    digests = {RulePolicy(budgets=each).digest for each in ([], budgets, budgets[::-1], raised, budgets[:1])}

    assert len(digests) == 4


def test_wrong_budgets_of_code_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"^Budget 'a': the limit -1 is not between 0 and 1,000,000,000,000$"):
        RulePolicy(budgets=[BudgetRule(id="a", limit=-1)])


def test_explain_says_which_budgets_count() -> None:
    budgets = [
        BudgetRule(id="amount", measure="sum", argument="amount", limit=100, tools=("refund",)),
        BudgetRule(id="calls", limit=20, per=("requester",), then="ask"),
        BudgetRule(id="other", limit=20, tools=("mail",)),
        BudgetRule(id="tokens", limit=20, measure="tokens"),
    ]
    policy = RulePolicy(budgets=budgets)

    small, large, none = (explain(policy, example_event("refund", {"amount": amount})) for amount in (5, 101, None))

    calls = "calls: at most 20 calls a day per requester, tools *; this call needs 1; over the limit it is asked about"
    about = "amount: at most 100 of amount a day, tools refund; this call needs"
    assert small.budgets == (f"{about} 5; over the limit it is refused", calls)
    assert large.budgets == (f"{about} 101, more than the limit; over the limit it is refused", calls)
    assert none.budgets == ("amount: the call is refused: `amount` is not a number", calls)
