"""A month of runs, as the log has them: for charts. Always the same for one time."""

from random import Random

from interlock.domain import event as facts
from interlock.domain.call import Answer, Question
from interlock.domain.event import Event, Fact, LogEntry, encode_event, genesis_hash, next_hash
from interlock.domain.messages import Usage
from interlock.domain.observation import Observation
from interlock.domain.outcome import Failure
from interlock.storage.event_log import EventLog

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
