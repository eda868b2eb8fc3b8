"""A month of runs, as the log has them, for charts; and one run that has everything. Always the same for one time."""

from random import Random
from typing import Literal

from interlock.domain import event as facts
from interlock.domain.call import Answer, Question
from interlock.domain.decision import Decision, Verdict
from interlock.domain.event import Event, Fact, LogEntry, encode_event, genesis_hash, next_hash
from interlock.domain.json import JsonObject
from interlock.domain.messages import Usage
from interlock.domain.observation import Content, Observation
from interlock.domain.outcome import Failure
from interlock.storage.event_log import EventLog

STORY = "run_story"
_TASK = "Mia's order A-1042 arrived broken. Look at it, and put it right."
_DONE = "Mia has half of her money back, and the page of claims names photos. All done."
_DIFF = """--- a/pages/claims.html
+++ b/pages/claims.html
@@ -1,4 +1,5 @@
 <h1>Claims</h1>
-<p>Write to us.</p>
+<p>Write to us, with the number of your order.</p>
+<p>Add photos of what is broken.</p>
 <p>We answer within two days.</p>
"""
_SECOND = 1_000_000_000
_HOUR = 3_600 * _SECOND
_AGENTS = (("shop", 5), ("support", 3), ("billing", 2), ("research", 1))
_RULES = (("refunds-over-20", 6), ("outgoing-mail", 4), ("publish-pages", 2), ("", 1))
_CODES = (("tool_failed", 5), ("schema_invalid", 4), ("timed_out", 2), ("policy_denied", 3), ("stale_file_baseline", 1))


async def write_history(log: EventLog, now: int, hours: int = 30 * 24, per_hour: float = 2.5) -> int:
    """Write runs that ended in these hours, more of them by day. Return how many."""
    random = Random(7)
    written = 0
    for back in range(hours, 0, -1):
        start = now - back * _HOUR
        is_day = 7 <= start // _HOUR % 24 < 19
        for _ in range(round(random.random() * per_hour * (2 if is_day else 0.4))):
            run = _Run(f"run_past_{written:06d}", start + random.randrange(3_000) * _SECOND)
            for fact in _facts(random, run):
                run.add(fact)
            appended = log.append(run.run_id, run.entries)
            if appended is not None:
                await appended
            written += 1
    return written


async def write_story(log: EventLog, now: int) -> None:
    """Write a run with calls, a person who edits one of them, a diff, a child run and a fork."""
    run = _Run(STORY, now - 1_500 * _SECOND)
    run.add(facts.RunStarted(schema=1, agent="shop", requester="user:sam", created_by="key:agent"))
    run.add(
        facts.UserMessageReceived(
            text="Mia's order A-1042 arrived broken. Look at it, and put it right.", by="user:sam"
        )
    )
    _say(run, "I look at the order first.", 1, tokens=1_840, seconds=2)
    _call(run, "c1", "lookup", {"order": "A-1042"}, "A-1042: paid 42.00 EUR, delivered on Tuesday, parcel damaged")
    _say(run, "The parcel was damaged. I give her the money back.", 1, tokens=2_310, seconds=3)
    _ask(run, "c2", {"order": "A-1042", "amount": 42.0, "note": "Arrived broken."}, {"amount": 21.0})
    _run_call(run, "c2", "refund", "refunded 21.0 for A-1042", action_id="act_story")
    _say(run, "Now the page says how such a claim is made.", 1, tokens=2_655, seconds=2)
    _call(run, "c3", "edit_page", {"path": "pages/claims.html"}, _DIFF, format="diff")
    _say(
        run,
        "Mia has half of her money back, and the page of claims names photos. All done.",
        0,
        tokens=2_902,
        seconds=4,
    )
    run.add(
        facts.RunCompleted(message="Mia has half of her money back, and the page of claims names photos. All done.")
    )
    inside = _Run(f"{STORY}.research", run.at)
    inside.add(
        facts.RunStarted(
            schema=1,
            agent="research",
            requester="user:sam",
            parent_run_id=STORY,
            parent_call_id="c1",
            created_by="key:agent",
        )
    )
    inside.add(facts.UserMessageReceived(text="Which parcels of Tuesday were damaged?"))
    inside.add(facts.RunCompleted(message="Three."))
    fork = _Run("run_story_again", run.at)
    fork.add(facts.RunStarted(schema=1, agent="shop", requester="user:sam", forked_from=STORY, forked_at=4))
    fork.add(facts.UserMessageReceived(text=_TASK))
    fork.add(facts.RunCancelled(message="Not needed.", by="user:olga"))
    for each in (run, inside, fork):
        appended = log.append(each.run_id, each.entries)
        if appended is not None:
            await appended


def _say(run: "_Run", text: str, call_count: int, *, tokens: int, seconds: int) -> None:
    run.add(
        facts.ModelRequested(menu_digest="0" * 64, message_count=1, agent="shop", provider="openai", model="gpt-5-mini")
    )
    run.at += seconds * _SECOND
    usage = Usage(input_tokens=tokens, output_tokens=len(text), cost=tokens * 2e-6)
    run.add(facts.ModelResponded(text=text, call_count=call_count, usage=usage, duration_ms=seconds * 1e3))
    if call_count:
        run.add(facts.BatchStarted(call_count=call_count))


def _propose(run: "_Run", call_id: str, tool: str, arguments: JsonObject, verdict: Verdict) -> None:
    run.add(facts.CallProposed(call_id=call_id, tool=tool, raw_input=arguments))
    run.add(facts.CallValidated(call_id=call_id, ok=True))
    run.add(facts.PolicyEvaluated(call_id=call_id, tool=tool, decision=Decision(verdict=verdict, reason="A rule.")))


def _call(
    run: "_Run", call_id: str, tool: str, arguments: JsonObject, text: str, *, format: Literal["text", "diff"] = "text"
) -> None:
    _propose(run, call_id, tool, arguments, Verdict.ALLOW)
    _run_call(run, call_id, tool, text, format=format)


def _ask(run: "_Run", call_id: str, arguments: JsonObject, edited: JsonObject) -> None:
    _propose(run, call_id, "refund", arguments, Verdict.ASK)
    question = Question(
        action_id="act_story",
        run_id=run.run_id,
        call_id=call_id,
        tool_name="refund",
        kind="approval",
        prompt="Refund 42.00 EUR?",
        title="Refund 42.00 EUR for order A-1042",
        arguments=arguments,
        payload_hash="sha256:" + "0" * 64,
        rule_ids=("refunds-over-20",),
        asked_at=run.at,
        agent="shop",
        capability="refund A-1042",
    )
    run.add(facts.ApprovalRequested(call_id=call_id, question=question))
    run.add(facts.RunPaused(kind="approval", waiting=(call_id,)))
    run.at += 740 * _SECOND
    answer = Answer(approved=True, by="user:olga", reason="Half is enough.", arguments=arguments | edited)
    run.add(facts.ApprovalGranted(call_id=call_id, action_id=question.action_id, answer=answer))
    run.add(facts.RunResumed())


def _run_call(
    run: "_Run", call_id: str, tool: str, text: str, *, action_id: str = "", format: Literal["text", "diff"] = "text"
) -> None:
    started = facts.InvocationStarted(
        invocation_id=f"i_{call_id}",
        call_id=call_id,
        tool=tool,
        executor="local",
        tool_version="1",
        timeout_seconds=30,
        action_id=action_id,
    )
    run.add(started)
    run.add(facts.InvocationCompleted(invocation_id=f"i_{call_id}", call_id=call_id, exit="ok", duration_ms=1_000.0))
    content = Content(format=format, text=text)
    observation = Observation(call_id=call_id, tool=tool, ok=True, summary="Done.", content=content)
    run.add(facts.CallObserved(observation_id=f"o_{call_id}", observation=observation))


class _Run:
    def __init__(self, run_id: str, at: int) -> None:
        self.run_id, self.at = run_id, at
        self.entries: list[LogEntry] = []
        self._head = genesis_hash(run_id)

    def add(self, fact: Fact) -> None:
        body = encode_event(Event(len(self.entries), self.run_id, self.at, self.run_id, None, fact))
        self._head = next_hash(self._head, body)
        self.entries.append(LogEntry(self.run_id, len(self.entries), body, self._head))
        self.at += _SECOND


def _facts(random: Random, run: _Run) -> list[Fact]:
    agent = _choose(random, _AGENTS)
    usage = Usage(
        input_tokens=random.randrange(800, 9_000),
        output_tokens=random.randrange(50, 900),
        cost=round(random.random() * 0.09, 4),
    )
    found: list[Fact] = [
        facts.RunStarted(schema=1, agent=agent, requester="mia", created_by="key:web"),
        facts.UserMessageReceived(text=f"Answer the customer about order A-{random.randrange(1_000, 9_000)}."),
        facts.ModelResponded(usage=usage, duration_ms=900.0),
    ]
    if random.random() < 0.18:
        code = _choose(random, _CODES)
        failure = Failure.from_code(code, "It did not succeed.")
        observation = Observation(call_id="c0", tool="lookup", ok=False, summary="No.", failure=failure)
        found.append(facts.CallObserved(observation_id="obs_c0", observation=observation))
    if random.random() < 0.45:
        return [*found, *_asked(random, run)]
    end = random.random()
    if end < 0.06:
        return [*found, facts.RunFailed(message="The model gave no answer.")]
    if end < 0.10:
        return [*found, facts.RunCancelled(message="Stopped by hand.", by="user:olga")]
    return [*found, facts.RunCompleted(message="Done.")]


def _asked(random: Random, run: _Run) -> list[Fact]:
    rule, action_id = _choose(random, _RULES), f"act_{run.run_id}"
    waited = min(int(random.lognormvariate(5.2, 1.1)), 12_000)
    question = Question(
        action_id=action_id,
        run_id=run.run_id,
        call_id="c1",
        tool_name="refund",
        kind="approval",
        prompt="May it?",
        arguments={"order": "A-1", "amount": 20},
        payload_hash="sha256:0",
        rule_ids=(rule,) if rule else (),
        asked_at=run.at - waited * _SECOND,
        agent="shop",
        capability="refund A-1",
    )
    asked = [
        facts.CallProposed(call_id="c1", tool="refund"),
        facts.ApprovalRequested(call_id="c1", question=question),
    ]
    end = random.random()
    if end < 0.12:
        answer = Answer(approved=False, by="user:olga", reason="Not covered.")
        rejected = facts.ApprovalRejected(call_id="c1", action_id=action_id, answer=answer)
        return [*asked, rejected, facts.RunFailed(message="A person declined refund.", code="user_denied")]
    if end < 0.16:
        answer = Answer(approved=False, by="", expired=True)
        expired = facts.ApprovalExpired(call_id="c1", action_id=action_id, answer=answer)
        return [*asked, expired, facts.RunFailed(message="No answer in time.", code="approval_expired")]
    granted = facts.ApprovalGranted(call_id="c1", action_id=action_id, answer=Answer(approved=True, by="user:olga"))
    return [*asked, granted, facts.RunCompleted(message="Refunded.")]


def _choose(random: Random, weighted: tuple[tuple[str, int], ...]) -> str:
    return random.choices([name for name, _ in weighted], [weight for _, weight in weighted])[0]
