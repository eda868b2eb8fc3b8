"""`interlock policy` on budgets: check, rules, explain, backtest, and what was used."""

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import Run
from .scripts import calls, write_script

POLICY = """
version: 1
budgets:
  - {id: looks, max: 2, window: month, tools: list_dir, per: [agent, requester]}
  - {id: tokens, of: tokens, max: 1000000}
"""
LOOKS: list[tuple[str, dict[str, Any]]] = [("list_dir", {})] * 3


@pytest.fixture
def budgets(home: Path, tmp_path: Path) -> Path:
    path = tmp_path / "budgets.yaml"
    path.write_text(POLICY)
    return path


def test_budgets_are_checked_listed_and_explained(run: Run, budgets: Path) -> None:
    assert run("check", budgets).stdout == f"{budgets}: valid, 0 rules, 2 budgets\n"
    assert run("rules", "--user", budgets).stdout.splitlines() == [
        "user rule: looks: budget deny at most 2 calls a month per agent, requester, tools list_dir",
        "user rule: tokens: budget deny at most 1,000,000 tokens a day",
    ]
    assert json.loads(run("rules", "--user", budgets, "--json").stdout)[1] == {
        "layer": "user",
        "id": "tokens",
        "decision": "deny",
        "about": "at most 1,000,000 tokens a day",
    }
    assert (
        "  budget: looks: at most 2 calls a month per agent, requester, tools list_dir; this call needs 1; "
        "over the limit it is refused\n"
    ) in run("explain", "list_dir", "{}", "--policy", budgets).stdout


def test_wrong_budget_names_its_line(run: Run, budgets: Path) -> None:
    budgets.write_text(POLICY.replace("max: 2", "max: two"))

    result = run("check", budgets)

    assert (result.exit_code, result.stderr) == (1, f"{budgets}:4: max: it should be a valid number\n")


def test_use_is_shown_after_runs(run: Run, cli: Run, budgets: Path, tmp_path: Path) -> None:
    script = write_script(tmp_path / "script.json", calls(*LOOKS), "Done.")
    before = run("budgets", "--user", budgets)
    done = json.loads(cli("run", "Look.", "--script", script, "--policy", budgets, "--json").stdout)

    result, shown = run("budgets", "--user", budgets), json.loads(run("budgets", "--user", budgets, "--json").stdout)

    assert before.stdout.splitlines()[0].startswith("looks: nothing used; at most 2 calls a month")
    # Calls of one turn reserve their shares at the same time.
    assert sorted(call["code"] for call in done["calls"]) == ["budget_exceeded", "ok", "ok"]
    looks, tokens = result.stdout.splitlines()
    assert ": 2 of 2 calls a month (100 %), resets at " in looks
    assert tokens.startswith("tokens: all: 0 of 1,000,000 tokens a day (0 %)")
    assert (shown["unused"], [(each["id"], each["used"], each["limit"]) for each in shown["budgets"]]) == (
        [],
        [("looks", 2.0, 2.0), ("tokens", 0.0, 1_000_000.0)],
    )


def test_backtest_counts_budgets(run: Run, cli: Run, budgets: Path, tmp_path: Path) -> None:
    script = write_script(tmp_path / "script.json", calls(*LOOKS), "Done.")
    cli("run", "Look.", "--script", script)

    result = run("backtest", budgets)

    assert "allow -> deny (budget:looks): list_dir {" in result.stdout
    assert "budget looks (at most 2 calls a month per agent, requester, tools list_dir): 2 fit, 1 would not; " in (
        result.stdout
    )
    assert json.loads(run("backtest", budgets, "--json").stdout)["budgets"][0]["exceeded"] == 1


@pytest.mark.usefixtures("home")
def test_policy_without_budgets_says_so(run: Run, tmp_path: Path) -> None:
    plain = tmp_path / "plain.yaml"
    plain.write_text("version: 1\n")

    result = run("budgets", "--user", plain)

    assert (result.stdout, result.stderr) == ("", "The policy has no budgets.\n")
