"""What every adapter must hold to, whatever its framework: twenty rows and the reuse of call ids."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ...audit.verify import verify
from ...domain.errors import ConfigurationError
from ...domain.event import InvocationStarted, decode_event
from ...gate.gate import Gate
from ...policy.engine.rule import Rule
from ...policy.engine.rule_policy import RulePolicy
from ...runs.inbox import Inbox
from ...storage.file_artifacts import FileArtifacts
from ...storage.sqlite.log import SqliteLog
from ..conformance.suite import ConformanceSuite
from .harness import DONE, AdapterHarness, SampleTools, Script, ScriptedCall, Turn, open_gate

_PAY: Script = ((ScriptedCall("c1", "pay", 5),),)


class AdapterConformance(ConformanceSuite):
    """Subclass it, and define `harness`. A row that does not apply needs a reason in `harness.not_applicable`."""

    @pytest.fixture
    def harness(self) -> AdapterHarness:
        """Return the harness of the adapter."""
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def _applicable(self, harness: AdapterHarness, request: pytest.FixtureRequest) -> None:
        reason = harness.not_applicable.get(request.node.originalname)
        if reason is not None:
            assert len(reason) > 10, "a row that does not apply needs a reason"
            pytest.skip(f"{harness.framework}: {reason}")

    @pytest.fixture
    def tools(self, tmp_path: Path) -> SampleTools:
        return SampleTools(tmp_path)

    async def test_an_allowed_call_runs(self, harness: AdapterHarness, tools: SampleTools) -> None:
        script = ((ScriptedCall("c1", "look", 1),),)

        turn = await _start(harness, tools, script)

        assert (turn.text, tools.effects) == (DONE, ["look 1"])
        assert "saw 1" in turn.read["c1"]

    async def test_the_model_reads_a_denial_and_goes_on(self, harness: AdapterHarness, tools: SampleTools) -> None:
        script = ((ScriptedCall("c1", "pay", 500),), (ScriptedCall("c2", "look", 2),))

        turn = await _start(harness, tools, script)

        assert (turn.text, tools.effects) == (DONE, ["look 2"])
        assert "Above the limit." in turn.read["c1"]

    async def test_arguments_that_do_not_fit_never_ask(self, harness: AdapterHarness, tools: SampleTools) -> None:
        turn = await _start(harness, tools, ((ScriptedCall("c1", "pay", "lots"),),))

        assert (turn.text, tools.effects, await _questions(harness, tools)) == (DONE, [], [])
        assert turn.read["c1"]

    async def test_a_question_pauses_the_agent(self, harness: AdapterHarness, tools: SampleTools) -> None:
        turn = await _start(harness, tools, _PAY)

        assert (turn.text, tools.effects) == ("", [])
        (question,) = await _questions(harness, tools)
        assert (question.tool_name, question.arguments) == ("pay", {"amount": 5})

    async def test_an_early_resume_stays_paused(self, harness: AdapterHarness, tools: SampleTools) -> None:
        turn = await _start(harness, tools, _PAY)
        (asked,) = await _questions(harness, tools)

        turn = await _resume(harness, tools, _PAY, turn.saved)
        turn = await _resume(harness, tools, _PAY, turn.saved)

        assert (turn.text, tools.effects) == ("", [])
        assert [question.action_id for question in await _questions(harness, tools)] == [asked.action_id]

    async def test_an_approval_elsewhere_runs_it_once(self, harness: AdapterHarness, tools: SampleTools) -> None:
        turn = await _start(harness, tools, _PAY)
        await _answer(harness, tools)

        turn = await _resume(harness, tools, _PAY, turn.saved)

        assert (turn.text, tools.paid) == (DONE, [5])
        assert "paid 5" in turn.read["c1"]

    async def test_a_rejection_elsewhere_is_read_with_its_reason(
        self, harness: AdapterHarness, tools: SampleTools
    ) -> None:
        turn = await _start(harness, tools, _PAY)
        await _answer(harness, tools, approved=False, reason="not this month")

        turn = await _resume(harness, tools, _PAY, turn.saved)

        assert (turn.text, tools.paid) == (DONE, [])
        assert "not this month" in turn.read["c1"]

    async def test_a_rejection_stands_when_the_policy_would_allow_it_now(
        self, harness: AdapterHarness, tools: SampleTools
    ) -> None:
        turn = await _start(harness, tools, _PAY)
        await _answer(harness, tools, approved=False, reason="not this month")

        async with open_gate(tools.folder, policy=RulePolicy([Rule(id="all", verdict="allow")])) as gate:
            turn = await harness.resume(gate, _PAY, tools, turn.saved)

        assert (turn.text, tools.paid) == (DONE, [])
        assert "not this month" in turn.read["c1"]

    async def test_edited_arguments_are_what_runs(self, harness: AdapterHarness, tools: SampleTools) -> None:
        turn = await _start(harness, tools, _PAY)
        await _answer(harness, tools, arguments={"amount": 3})

        turn = await _resume(harness, tools, _PAY, turn.saved)

        assert (turn.text, tools.paid) == (DONE, [3])
        assert "paid 3" in turn.read["c1"]

    async def test_state_that_is_resumed_three_times_runs_it_once(
        self, harness: AdapterHarness, tools: SampleTools
    ) -> None:
        saved = (await _start(harness, tools, _PAY)).saved
        await _answer(harness, tools)

        turns = [await _resume(harness, tools, _PAY, saved) for _ in range(3)]

        assert (turns[0].text, tools.paid) == (DONE, [5])

    async def test_altered_arguments_are_refused(self, harness: AdapterHarness, tools: SampleTools) -> None:
        turn = await _start(harness, tools, _PAY)
        await _answer(harness, tools)

        altered = harness.alter(turn.saved, "c1", 90, tools)
        await _resume(harness, tools, _PAY, altered)

        assert tools.paid == []

    async def test_an_approval_of_the_framework_alone_runs_nothing(
        self, harness: AdapterHarness, tools: SampleTools
    ) -> None:
        turn = await _start(harness, tools, _PAY)

        turn = await _resume(harness, tools, _PAY, turn.saved, approve=True)

        assert (turn.text, tools.paid, len(await _questions(harness, tools))) == ("", [], 1)

    async def test_a_killed_effect_is_not_repeated(self, harness: AdapterHarness, tools: SampleTools) -> None:
        words = [sys.executable, "-m", "interlock.testing.adapters.harness", harness.reference, str(tools.folder)]
        ended = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True, check=False)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        assert tools.paid == [5]

        async with open_gate(tools.folder) as gate:
            turn = await harness.recover(gate, _PAY, tools)

        questions = await _questions(harness, tools)
        assert tools.paid == [5]
        read = turn.read.get("c1", "")
        # A framework that never makes the call again says it itself.
        assert "outcome_unknown" in read or "outcome is unknown" in read or "unknown" in questions[0].prompt

    async def test_two_questions_have_their_own_answers(self, harness: AdapterHarness, tools: SampleTools) -> None:
        script = ((ScriptedCall("c1", "pay", 5), ScriptedCall("c2", "pay", 7)),)
        turn = await _start(harness, tools, script)
        for _ in range(2):  # one after the other, where a framework pauses at each
            for question in await _questions(harness, tools):
                await _answer(
                    harness, tools, approved=question.arguments["amount"] == 7, amount=question.arguments["amount"]
                )
            turn = await _resume(harness, tools, script, turn.saved)
            if turn.text:
                break

        assert (turn.text, tools.paid) == (DONE, [7])
        assert "paid 7" in turn.read["c2"]
        assert "paid" not in turn.read["c1"]

    async def test_results_of_siblings_survive_the_pause(self, harness: AdapterHarness, tools: SampleTools) -> None:
        script = ((ScriptedCall("c1", "look", 1), ScriptedCall("c2", "pay", 5)),)
        turn = await _start(harness, tools, script)
        await _answer(harness, tools)

        turn = await _resume(harness, tools, script, turn.saved)

        assert (turn.text, sorted(tools.effects)) == (DONE, ["look 1", "pay 5"])
        assert "saw 1" in turn.read["c1"]
        assert "paid 5" in turn.read["c2"]

    async def test_a_nested_agent_asks_and_goes_on(self, harness: AdapterHarness, tools: SampleTools) -> None:
        async with open_gate(tools.folder) as gate:
            turn = await harness.start_nested(gate, tools)
        assert (turn.text, tools.paid) == ("", [])
        async with SqliteLog(tools.folder / "state" / "runs.db") as log:
            inbox = Inbox(log, FileArtifacts(tools.folder / "state" / "runs.db.artifacts"))
            (question,) = await inbox.pending()
            await inbox.approve(question, by="ada")

        async with open_gate(tools.folder) as gate:
            turn = await harness.resume_nested(gate, tools, turn.saved)

        assert (turn.text, tools.paid) == (DONE, [5])

    async def test_control_flow_of_the_framework_passes(self, harness: AdapterHarness, tools: SampleTools) -> None:
        async with open_gate(tools.folder) as gate:
            await harness.check_control_flow(gate, tools)

    async def test_twenty_calls_run_at_the_same_time(self, harness: AdapterHarness, tools: SampleTools) -> None:
        script = (tuple(ScriptedCall(f"c{at}", "meet", at) for at in range(1, 21)),)

        turn = await _start(harness, tools, script)

        assert turn.text == DONE
        assert all("met" in turn.read[f"c{at}"] for at in range(1, 21))

    async def test_tools_that_the_provider_runs_are_not_silent(
        self, harness: AdapterHarness, tools: SampleTools
    ) -> None:
        async with open_gate(tools.folder) as gate:
            await harness.check_provider_tools(gate)

    async def test_a_misspelt_option_fails_loudly(self, harness: AdapterHarness, tools: SampleTools) -> None:
        async with open_gate(tools.folder, risk={"loook": "read"}) as gate:
            with pytest.raises(ConfigurationError, match="look"):
                await harness.start(gate, ((ScriptedCall("c1", "look", 1),),), tools)
        assert tools.effects == []

    async def test_the_log_verifies_and_each_effect_has_its_approval(
        self, harness: AdapterHarness, tools: SampleTools
    ) -> None:
        turn = await _start(harness, tools, _PAY)
        await _answer(harness, tools)
        await _resume(harness, tools, _PAY, turn.saved)

        run_id = harness.run_id
        async with SqliteLog(tools.folder / "state" / "runs.db") as log:
            entries = await log.read(run_id)
        facts = [decode_event(entry).fact for entry in entries]
        started = [fact for fact in facts if isinstance(fact, InvocationStarted)]
        assert verify(entries, run_id).ok
        assert [bool(fact.action_id) for fact in started] == [True]
        assert getattr(facts[0], "settings", {}).get("framework") == harness.framework

    async def test_a_reused_call_id_is_another_call(self, harness: AdapterHarness, tools: SampleTools) -> None:
        script = ((ScriptedCall("c1", "look", 1),), (ScriptedCall("c1", "look", 2),))

        turn = await _start(harness, tools, script)

        assert (turn.text, tools.effects) == (DONE, ["look 1", "look 2"])


async def _start(harness: AdapterHarness, tools: SampleTools, script: Script) -> Turn:
    async with open_gate(tools.folder) as gate:
        return await harness.start(gate, script, tools)


async def _resume(
    harness: AdapterHarness, tools: SampleTools, script: Script, saved: str, *, approve: bool = False
) -> Turn:
    async with open_gate(tools.folder) as gate:
        return await harness.resume(gate, script, tools, saved, approve=approve)


async def _questions(harness: AdapterHarness, tools: SampleTools) -> list[Any]:
    async with Gate(tools.folder / "state") as gate:
        return await gate.questions(harness.run_id)


async def _answer(
    harness: AdapterHarness, tools: SampleTools, *, approved: bool = True, amount: int | None = None, **fields: Any
) -> None:
    """Answer as another process does: over the log, without the framework."""
    async with SqliteLog(tools.folder / "state" / "runs.db") as log:
        inbox = Inbox(log, FileArtifacts(tools.folder / "state" / "runs.db.artifacts"))
        for question in await inbox.pending(harness.run_id):
            if amount is None or question.arguments == {"amount": amount}:
                await (inbox.approve if approved else inbox.reject)(question, by="ada", **fields)
