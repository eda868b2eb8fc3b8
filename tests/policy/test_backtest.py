"""Which decisions of recorded runs would be others under a policy."""

from pathlib import Path

from interlock import ArgumentIs, Rule, RulePolicy
from interlock.domain.decision import Decision, Verdict
from interlock.domain.tool import PermissionMode
from interlock.policy.analysis.backtest import Backtest, DecisionChange, SkippedCalls, backtest
from interlock.policy.analysis.recorded_calls import RecordedCall, read_recorded_calls
from interlock.policy.files.policy_files import PolicyFiles

from .recorded_runs import commands, no, record

NO_PUSH = Rule(id="no-push", verdict="deny", tools="bash", command="git push", reason="Ask Ann to push.")
NPM = Rule(id="npm", verdict="allow", tools="bash", command="npm test")
NEVER = Rule(id="never", verdict="deny", tools="bash", command="mkfs")


async def test_it_says_what_flips_what_stays_and_which_rules_never_fire() -> None:
    calls = await commands("npm test", "git push origin", "make", "ls")

    result = backtest(RulePolicy([NO_PUSH, NPM, NEVER]), calls)

    npm, push = result.flips
    assert npm == DecisionChange(
        run_id=calls[0].run_id,
        call_id="call_0",
        tool="bash",
        arguments={"command": "npm test"},
        was=Verdict.ASK,
        was_rules=(),
        now=Verdict.ALLOW,
        now_rules=("npm",),
        reason="Rule npm says allow.",
        said="granted",
    )
    assert (push.was, push.now, push.now_rules, push.reason) == ("ask", "deny", ("no-push",), "Ask Ann to push.")
    assert (npm.looser, push.looser) == (True, False)
    assert (result.unchanged, result.never_fired, result.skipped) == (2, ("never",), ())


async def test_the_policy_that_was_in_force_flips_nothing() -> None:
    policy = RulePolicy([NO_PUSH, NPM])
    events = await record(
        [("bash", {"command": text}) for text in ("npm test", "git push", "cat .env", "x=$(y) z")]
        + [("write_file", {"path": "../a"}), ("send_mail", {"to": "ann"})],
        no,
        policy=policy,
    )

    assert backtest(policy, read_recorded_calls(events)) == Backtest(flips=(), unchanged=6, never_fired=(), skipped=())


async def test_rules_about_the_situation_hold_as_it_was_then() -> None:
    calls = await commands("make", mode="trusted") + await commands("make", mode="default")

    flips = backtest(RulePolicy([Rule(id="careful", verdict="ask", mode=PermissionMode.TRUSTED)]), calls).flips

    assert [(flip.run_id, flip.was, flip.now) for flip in flips] == [(calls[0].run_id, "allow", "ask")]


async def test_calls_that_cannot_be_judged_again_are_counted_with_the_reason() -> None:
    lost = RecordedCall(
        run_id="r", call_id="c", tool="t", decision=Decision(verdict=Verdict.DENY, reason=""), lost="it was redacted"
    )

    result = backtest(RulePolicy([NPM]), [lost, lost])

    assert result == Backtest(
        flips=(), unchanged=0, never_fired=("npm",), skipped=(SkippedCalls("it was redacted", 2),)
    )


async def test_what_a_tool_said_itself_stands_under_every_policy() -> None:
    (call,) = await commands("make")
    limited = RecordedCall(
        run_id="r",
        call_id="c",
        tool="bash",
        decision=Decision(verdict=Verdict.DENY, reason="too much", layer="tool limit"),
        event=call.event,
    )

    assert backtest(RulePolicy([Rule(id="all", verdict="allow")]), [limited]).flips == ()


async def test_the_layers_of_files_are_judged_together(tmp_path: Path) -> None:
    user, project = tmp_path / "user.yaml", tmp_path / "project.yaml"
    user.write_text("version: 1\ndefault: deny\n")
    project.write_text("version: 1\nask: [bash]\n")
    calls = await commands("make")

    (flip,) = backtest(PolicyFiles(user=user, project=project), calls).flips

    assert (flip.was, flip.now) == (Verdict.ASK, Verdict.DENY)


async def test_rules_about_arguments_are_asked_about_the_arguments_with_their_defaults() -> None:
    rule = Rule(id="hello", verdict="deny", arguments={"subject": ArgumentIs("hello")})
    calls = read_recorded_calls(await record([("send_mail", {"to": "ann"})]))

    assert [flip.now_rules for flip in backtest(RulePolicy([rule]), calls).flips] == [("hello",)]
