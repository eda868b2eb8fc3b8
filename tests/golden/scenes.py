"""Scripted runs that are the same every time: no files, no threads, a clock of their own. Public names only."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from itertools import islice
from typing import Any, TypeAlias

from interlock import (
    Agent,
    Answer,
    Attachment,
    CallbackInteractionProvider,
    CallContext,
    Clock,
    Consent,
    ConsentBinding,
    ContextPolicy,
    FailSafeConfig,
    HeadlessInteractionProvider,
    Limits,
    LogEntry,
    MemoryLog,
    ModelRequest,
    Question,
    Rule,
    RulePolicy,
    Runner,
    ScriptedFault,
    ScriptedModel,
    ScriptedTurn,
    ToolContext,
    ToolIntent,
    ToolRuntime,
    Trial,
    TriedChange,
    Usage,
    fork,
    tool,
    tool_call,
)
from interlock.policy import BudgetRule

Runs: TypeAlias = dict[str, list[LogEntry]]
SECOND = 1_000_000_000
HANG_SECONDS = 30


class Time:
    """A clock that moves by a millisecond whenever it is read, and by more when a scene says so."""

    def __init__(self) -> None:
        self.now = 1_600_000_000 * SECOND

    def read(self) -> int:
        self.now += 1_000_000
        return self.now

    def clock(self) -> Clock:
        return Clock(now=self.read, elapsed=lambda: 0)


def call(call_id: str, tool_name: str, /, **arguments: Any) -> ToolIntent:
    return ToolIntent(call_id=call_id, tool_name=tool_name, arguments=arguments)


def runtime(log: MemoryLog, time: Time | None = None, **options: Any) -> ToolRuntime:
    """Open a run in a folder that is the same everywhere: approvals are bound to it."""
    given: dict[str, Any] = {"policy": RulePolicy(RULES), "clock": (time or Time()).clock(), **options}
    return ToolRuntime(log=log, workspace="/", **given)


def runner(agent: Agent, log: MemoryLog, **options: Any) -> Runner:
    return Runner(agent, log=log, clock=Time().clock(), workspace="/", **options)


@tool(risk="read")
async def look(what: str) -> str:
    """Look at something."""
    return f"saw {what}"


@tool(risk="write")
async def send(to: str, text: str = "hi") -> str:
    """Send a text."""
    return f"sent {text} to {to}"


@tool(risk="write")
async def wipe(what: str) -> str:
    """Remove something."""
    return f"wiped {what}"


@tool(risk="execute", max_output_chars=400)
async def fail(why: str) -> str:
    """Fail."""
    raise ValueError(why * 200)


@tool(risk="read", timeout_seconds=0.02)
async def hang(what: str) -> str:
    """Take forever."""
    await asyncio.Event().wait()
    return what


NO_WIPE = Rule(id="no-wipe", verdict="deny", tools="wipe", reason="Nothing is removed.", advice="Ask first.")
RULES = (
    NO_WIPE,
    Rule(id="ask-send", verdict="ask", tools="send", reason="A person looks.", scope="run", answer_within_seconds=60),
    Rule(id="ask-where", verdict="request_input", tools="place", target_arg="where", prompt="Where?"),
    Rule(id="may-fail", verdict="allow", tools=["fail", "look", "hang"]),
)


async def effects() -> Runs:
    """Have one effect, and be asked whether to have it again."""

    @tool(risk="write", effect="paid:{order}")
    async def pay(order: int) -> str:
        """Pay an order."""
        return f"paid {order}"

    log, nobody = MemoryLog(), HeadlessInteractionProvider("wait")
    async with runtime(log, tools=[pay], policy=RulePolicy(), interaction=nobody, run_id="run_effects") as run:
        for call_id in ("first", "again"):
            paused = await run.execute([call(call_id, "pay", order=7)])
            await run.decide(paused.questions[0].action_id, approved=call_id == "first", by="ana")
            await run.resume()
        await run.complete()
    return {"effects": await log.read("run_effects")}


async def approvals() -> Runs:
    """Approve, reject, edit, let expire, grant for the run, give and refuse a value, and change the policy."""
    time, log = Time(), MemoryLog()

    @tool(risk="read")
    async def place(where: str) -> str:
        """Go somewhere."""
        return f"at {where}"

    options: dict[str, Any] = {
        **{"run_id": "run_approvals", "agent": "clerk", "requester": "user:ada", "tools": [send, place]},
        **{"interaction": HeadlessInteractionProvider("wait"), "limits": Limits(approval_seconds=3600)},
    }
    async with runtime(log, time, **options) as run:
        names = ("approved", "rejected", "edited", "expired")
        asked = await run.execute([call(name, "send", to=name) for name in names])
        actions = {question.call_id: question.action_id for question in asked.questions}
        await run.decide(actions["approved"], approved=True, by="bea", reason="Fine.")
        await run.decide(actions["rejected"], approved=False, by="bea", reason="Not to them.")
        await run.decide(actions["edited"], approved=True, by="bea", arguments={"to": "carl", "text": "hello"})
        await run.resume()
        time.now += 61 * SECOND
        await run.resume()
        [question] = (await run.execute([call("granted", "send", to="dan")])).questions
        await run.decide(question.action_id, approved=True, by="bea", scope="run")
        await run.resume()
        await run.execute([call("covered", "send", to="dan"), call("place", "place", where="?")])
        [question] = await run.questions()
        await run.decide(question.action_id, approved=True, by="bea", value="Bern")
        await run.resume()
        [question] = (await run.execute([call("refused", "place", where="?")])).questions
        await run.decide(question.action_id, approved=False, by="bea", reason="Stay.")
        await run.resume()
        [question] = (await run.execute([call("voided", "send", to="eve")])).questions
        await run.decide(question.action_id, approved=True, by="bea")
    stricter = RulePolicy([*RULES, Rule(id="more", verdict="deny", tools="other")])
    async with runtime(log, time, policy=stricter, **options) as run:
        [question] = (await run.resume()).questions
        await run.decide(question.action_id, approved=False, by="bea")
        await run.resume()
        await run.complete("Done.")
    return {"approvals": await log.read("run_approvals")}


async def batches() -> Runs:
    """Calls of every outcome: allowed, denied, asked, invalid, unknown, malformed, repeated, failed, timed out and
    cancelled, and a batch that ends its run."""
    log, started = MemoryLog(), asyncio.Event()

    @tool(risk="read")
    async def wait(what: str) -> str:
        """Wait until it is cancelled."""
        started.set()
        await asyncio.Event().wait()
        return what

    def answer(question: Question) -> Answer:
        return Answer(approved=question.arguments["to"] == "bob", by="ann", reason="Said ann.")

    options: dict[str, Any] = {
        "tools": [look, send, wipe, fail, hang, wait],
        "interaction": CallbackInteractionProvider(answer),
        "limits": Limits(drain_seconds=1, max_argument_bytes=2000, max_event_input_bytes=200),
    }
    async with runtime(log, run_id="run_batches", **options) as run:
        await run.execute(
            [
                call("allowed", "look", what="tea"),
                call("denied", "wipe", what="tea"),
                call("asked", "send", to="bob"),
                call("rejected", "send", to="eve"),
                call("invalid", "look", where="here"),
                call("unknown", "looked", what="tea"),
                ToolIntent(call_id="malformed", tool_name="look", arguments="{not json"),
                call("allowed", "look", what="tea"),
                call("failed", "fail", why="no luck "),
            ]
        )
        await run.execute([call("allowed", "look", what="tea"), call("denied", "look", what="coffee")])
        await run.execute([call("long", "look", what="x" * 500), call("too_long", "look", what="x" * 3000)])
        await run.execute([call("timeout", "hang", what="tea")])
        running = asyncio.create_task(
            run.execute([call("cancelled", "wait", what="a"), call("beside", "look", what="b")])
        )
        async with asyncio.timeout(HANG_SECONDS):
            await started.wait()
            run.cancel_call("cancelled")
            await running
        await run.cancel("Enough.")
    degrades = FailSafeConfig(tool_failure_policy="degrade")
    async with runtime(log, run_id="run_degraded", fail_safe=degrades, **options) as run:
        await run.execute([call("failed", "fail", why="no luck "), call("after", "look", what="tea")])
    return {"batches": await log.read("run_batches"), "batches.degraded": await log.read("run_degraded")}


async def recovered() -> Runs:
    """A process is gone while five calls run. The next one says which outcome is unknown, finds out, or repeats."""
    first, second, asked = MemoryLog(), MemoryLog(), MemoryLog()
    begun = list[str]()
    is_alive = [False]

    async def act(what: str) -> str:
        begun.append(what)
        if not is_alive[0]:
            await asyncio.Event().wait()
        return f"{what} is done"

    def happened(arguments: dict[str, Any]) -> bool:
        return arguments["what"] == "booked"

    tools = [
        tool(act, name="post", description="Post.", risk="write", concurrency="safe"),
        tool(act, name="put", description="Put.", risk="write", concurrency="safe", idempotent=True),
        tool(act, name="book", description="Book.", risk="write", concurrency="safe", reconcile=happened),
        tool(act, name="see", description="See.", risk="read"),
    ]
    calls = [
        *(
            call("unknown", "post", what="posted"),
            call("repeated", "put", what="put"),
            call("read", "see", what="seen"),
        ),
        *(call("happened", "book", what="booked"), call("not_happened", "book", what="lost")),
    ]

    options: dict[str, Any] = {"run_id": "run_recovered", "tools": tools, "policy": RulePolicy((), default="allow")}
    async with runtime(first, **options) as run:
        running = asyncio.create_task(run.execute(calls))
        async with asyncio.timeout(HANG_SECONDS):
            while len(begun) < len(calls):
                await asyncio.wait([running], timeout=0.01)
        for copy in (second, asked):
            copy.append(run.run_id, await first.read(run.run_id))
        running.cancel()
        await asyncio.wait([running])
    is_alive[0] = True
    async with runtime(second, **options) as run:
        await run.resume()
        await run.complete()
    again = CallbackInteractionProvider(lambda question: Answer(approved=True, by="ann"))
    asks = FailSafeConfig(unknown_outcome_policy="ask")
    async with runtime(asked, interaction=again, fail_safe=asks, **options) as run:
        await run.resume()
    return {"recovered": await second.read(run.run_id), "recovered.asked": await asked.read(run.run_id)}


def agent(name: str, *turns: ScriptedTurn, **declared: Any) -> Agent:
    about: dict[str, Any] = {"policy": RulePolicy(RULES), **declared}
    return Agent(name=name, provider=ScriptedModel(turns, by_position=True), **about)


def turn(*calls: tuple[str, str, dict[str, Any]], text: str = "") -> ScriptedTurn:
    return ScriptedTurn(
        text=text, calls=tuple(tool_call(name, **arguments, call_id=call_id) for call_id, name, arguments in calls)
    )


class Access:
    """Tokens by tool, as the user gives them. Implements `Consents`."""

    can_ask = True

    def __init__(self) -> None:
        self.tokens: dict[str, str] = {}

    async def token(self, binding: ConsentBinding, consent: Consent) -> str | None:
        return self.tokens.get(binding.tool)


def mailer() -> Agent:
    @tool(risk="read", consent=Consent(provider="mail", scopes=("mail.read",)))
    async def read_mail(context: ToolContext) -> str:
        """Read the mail."""
        return f"{len(context.access_token)} mails"

    @tool(risk="read", consent=Consent(provider="mail", scopes=("mail.send",)))
    async def write_mail(to: str, context: ToolContext) -> str:
        """Write a mail."""
        return f"written to {to}"

    calls = turn(("granted", "read_mail", {}), ("refused", "write_mail", {"to": "bob"}))
    return agent("mailer", calls, ScriptedTurn(text="Done."), tools=[read_mail, write_mail])


async def consents() -> Runs:
    """A user consents to one tool and refuses another."""
    log, access = MemoryLog(), Access()
    async with runner(mailer(), log, consents=access, requester="user:ada") as runs:
        handle = await runs.start("Read it, and answer.", run_id="run_consents", created_by="key:bot")
        for question in (await handle.result()).questions:
            is_granted = question.call_id == "granted"
            access.tokens |= {question.tool_name: "opaque"} if is_granted else {}
            await handle.decide(question.action_id, approved=is_granted, by="user:ada")
        await handle.resume()
        await handle.result()
    return {"consents": await log.read("run_consents")}


def boss() -> Agent:
    helper = agent(
        "helper", turn(("inner", "send", {"to": "bob"})), ScriptedTurn(text="Bob has it."), tools=[send, wipe]
    )
    asks = turn(("outer", "ask_helper", {"task": "Write to Bob."}), ("own", "look", {"what": "tea"}))
    rest = ScriptedTurn(text="It is done.")
    return agent("boss", asks, turn(("last", "wipe", {"what": "tea"})), rest, tools=[look, wipe, helper.as_tool()])


async def nested() -> Runs:
    """An agent asks another one, whose call waits for a person: both runs wait, and both go on."""
    log = MemoryLog()
    async with runner(boss(), log) as runs:
        handle = await runs.start("Tell Bob.", run_id="run_nested")
        while questions := (await handle.result()).questions:
            for question in questions:
                await handle.decide(question.action_id, approved=True, by="ann")
            await handle.resume()
        [child] = [run_id for run_id in await log.run_ids() if run_id != "run_nested"]
    return {"nested": await log.read("run_nested"), "nested.child": await log.read(child)}


def reception() -> Agent:
    turns = (turn(("over", "handoff_to_billing", {"reason": "Money."}), text="One moment."),)
    rest = (
        turn(("looked", "look", {"what": "invoice"}), ("gone", "wipe", {"what": "invoice"})),
        ScriptedTurn(text="Paid."),
    )
    billing = agent("billing", *turns, *rest, tools=[look, wipe], instructions="You know them.", policy=None)
    return agent("reception", *turns, *rest, handoffs=(billing,), instructions="Find out what it is about.")


async def handoff() -> Runs:
    """An agent hands the conversation over; the person goes on talking, and ends it."""
    log = MemoryLog()
    async with runner(reception(), log, chat=True) as runs:
        handle = await runs.start("Is it paid?", run_id="run_handoff")
        await handle.result()
        await handle.cancel("Goodbye.", by="user:ada")
        await handle.result()
    return {"handoff": await log.read("run_handoff")}


def sender() -> Agent:
    first = turn(("looked", "look", {"what": "tea"}), ("sent", "send", {"to": "bob"}), text="I look first.")
    return agent(
        "sender",
        first,
        ScriptedTurn(text="All tests pass. Bob has it."),
        ScriptedTurn(text="Bob has it."),
        tools=[look, send],
    )


async def remembering() -> Runs:
    """A run records what the program that started it needs to resume it."""
    log = MemoryLog()
    async with runner(agent("keeper", ScriptedTurn(text="Done.")), log) as runs:
        settings = {"model": "some-model", "policy": "/etc/policy.yaml"}
        await (await runs.start("Remember.", run_id="run_remembering", settings=settings)).result()
    return {"remembering": await log.read("run_remembering")}


async def attached() -> Runs:
    """A user and a tool attach images."""
    content = "47494638396101000100800000ffffff0000002c00000000010001000002024401003b"
    log, pixel = MemoryLog(), Attachment(bytes.fromhex(content), "a.gif")

    @tool(risk="read")
    async def take_picture() -> list[str | Attachment]:
        """Take a picture."""
        return ["Taken.", pixel]

    looks = ScriptedTurn(calls=(tool_call("take_picture", call_id="picture_1"),))
    provider = ScriptedModel([looks, ScriptedTurn(text="Two pixels.")], by_position=True)
    watcher = Agent(name="watcher", provider=provider, tools=[take_picture], policy=RulePolicy(RULES))
    async with runner(watcher, log) as runs:
        await (await runs.start(["What is this?", pixel], run_id="run_attached")).result()
    return {"attached": await log.read("run_attached")}


class _Trials:
    """Tries calls: `nothing` has no effect."""

    def find_obstacle(self, arguments: dict[str, Any], situation: CallContext) -> str:
        return "it is long" if arguments["what"] == "long" else ""

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> Trial:
        if arguments["what"] == "nothing":
            return Trial(digest="0" * 64, outcome="exit 0 after 0.1 s")
        change = TriedChange("a.txt", "modified", "+1 -1")
        return Trial(
            digest="1" * 64,
            outcome="exit 0 after 0.1 s",
            changes=(change,),
            change_count=1,
            diff="diff a.txt\n@@ -1 +1 @@\n-x\n+y",
            output="done",
            hosts=("example.com",),
        )

    def find_drift(self, digest: str) -> tuple[Any, ...]:
        return ()

    def was_applied(self, digest: str) -> bool | None:
        return None

    def discard(self, digest: str) -> None: ...


async def tried() -> Runs:
    """Try calls before a person is asked about their effects."""

    @tool(risk="execute", trial=_Trials())
    async def build(what: str) -> str:
        return f"built {what}"

    log, people = MemoryLog(), [Answer(approved=True, by="ada"), Answer(approved=False, by="ada", reason="No.")]

    async def answer(question: Question) -> Answer:
        return people.pop(0)

    asked = CallbackInteractionProvider(answer)
    options: dict[str, Any] = {"tools": [build], "interaction": asked, "run_id": "run_tried"}
    async with runtime(log, **options) as run:
        await run.execute([call("c1", "build", what="it"), call("c2", "build", what="nothing")])
        await run.execute([call("c3", "build", what="long")])
        await run.complete("Done.")
    return {"tried": await log.read("run_tried")}


async def forked() -> Runs:
    """A run waits for a person and is forked; the yes in one of them does not count in the other."""
    log = MemoryLog()
    async with runner(sender(), log) as runs:
        handle = await runs.start("Write to Bob.", run_id="run_first")
        [question] = (await handle.result()).questions
        await handle.decide(question.action_id, approved=True, by="ann", scope="run")
        await fork(log, "run_first", new_run_id="run_forked")
        await handle.resume()
        await handle.result()
        other = await runs.open("run_forked")
        [question] = (await other.result()).questions
        await other.decide(question.action_id, approved=False, by="ann", reason="Once is enough.")
        await other.resume()
        await other.result()
    return {"forked.from": await log.read("run_first"), "forked": await log.read("run_forked")}


@tool(risk="read", max_output_chars=4_000)
async def list_files(folder: str) -> str:
    """List many files."""
    return "\n".join(f"{folder}/{number:03}.txt" for number in range(150))


def lister() -> Agent:
    """An agent that lists nine folders. One of its requests is refused as too long."""
    listed = (
        ScriptedTurn(calls=(tool_call("list_files", folder=f"f{number}", call_id=f"list_{number}"),))
        for number in range(9)
    )
    refused = ScriptedTurn(fault=ScriptedFault(message="It is too long.", code="context_length_exceeded"))
    turns = iter([*islice(listed, 7), refused, *listed, ScriptedTurn(text="Nine.")])
    summary = ScriptedTurn(text="Some folders are listed.", usage=Usage(input_tokens=900, output_tokens=40))

    def answer(request: ModelRequest) -> ScriptedTurn:
        return next(turns) if request.tools else summary

    return Agent(
        name="lister",
        provider=ScriptedModel([answer] * 20),
        tools=[list_files],
        policy=RulePolicy(RULES),
        context=ContextPolicy(window_tokens=3_000, keep_turns=2),
    )


async def compacted() -> Runs:
    """Older outputs are left out, then summarized, and a request is refused as too long."""
    log = MemoryLog()
    async with runner(lister(), log) as runs:
        await (await runs.start("List nine folders.", run_id="run_compacted")).result()
    return {"compacted": await log.read("run_compacted")}


async def claimed() -> Runs:
    """A client answers for its user: taken where the rule that asked says so, and left to a person elsewhere."""
    log = MemoryLog()
    policy = RulePolicy([Rule(id="ask-send", verdict="ask", tools="send", approver="client"), NO_WIPE])
    asks = HeadlessInteractionProvider("wait")
    async with runtime(log, tools=[send, look], policy=policy, interaction=asks, run_id="run_claimed") as run:
        for call_id, approved in (("claimed", True), ("declined", False)):
            [question] = (await run.execute([call(call_id, "send", to="ann")])).questions
            await run.decide(
                question.action_id, approved=approved, by="ada", channel="elicitation", assurance="claimed"
            )
            await run.resume()
        [question] = (await run.execute([call("proved", "send", to="bob")])).questions
        await run.decide(question.action_id, approved=True, by="user:bea", channel="console")
        await run.resume()
        await run.complete()
    return {"claimed": await log.read("run_claimed")}


@tool(risk="write", title="Refund {amount} {currency} for order {order}", key_facts=("amount", "order"))
def refund(order: str, amount: float, currency: str = "EUR") -> str:
    """Pay money back."""
    return f"Paid back {amount} {currency} for {order}."


async def titled() -> Runs:
    """Questions with a title: of the tool, of the rule that asks, and a default one."""
    log = MemoryLog()
    rules = [Rule(id="large", verdict="ask", tools="refund", title="Large refund: {amount} {currency}"), NO_WIPE]
    asks = HeadlessInteractionProvider("wait")
    for run_id, policy in (("run_titled", RulePolicy([NO_WIPE])), ("run_titled.rule", RulePolicy(rules))):
        async with runtime(log, tools=[send, refund], policy=policy, interaction=asks, run_id=run_id) as run:
            calls = [call("paid", "refund", order="O-1", amount=542.5), call("sent", "send", to="ann\u202e")]
            for question in (await run.execute(calls)).questions:
                await run.decide(question.action_id, approved=True, by="user:bea", channel="console")
            await run.resume()
            await run.complete()
    return {"titled": await log.read("run_titled"), "titled.rule": await log.read("run_titled.rule")}


async def conversed() -> Runs:
    """A conversation over REST: its second message has the key of its request."""
    log = MemoryLog()
    talker = agent("talker", turn(text="Hello."), turn(text="Again."))
    async with runner(talker, log) as runs:
        await (await runs.start("Hi.", run_id="run_conversed", settings={"chat": "true"})).result()
        await runs.add_message("run_conversed", "Hi again.", by="user:ada", key="0" * 32)
        await (await runs.open("run_conversed")).result()
    return {"conversed": await log.read("run_conversed")}


async def budgeted() -> Runs:
    """Calls within a budget, over one that asks, and over one that denies."""
    log = MemoryLog()
    budgets = [
        BudgetRule(id="amount", measure="sum", argument="amount", per=("requester",), limit=100, then="ask"),
        BudgetRule(id="calls", tools=("refund",), window="month", limit=2),
    ]
    policy = RulePolicy([Rule(id="refunds", verdict="allow", tools="refund")], budgets=budgets)
    asks = HeadlessInteractionProvider("wait")
    given: dict[str, Any] = {"tools": [refund], "policy": policy, "interaction": asks, "requester": "user:ada"}
    async with runtime(log, run_id="run_budgeted", **given) as run:
        await run.execute([call("within", "refund", order="O-1", amount=60)])
        (question,) = (await run.execute([call("over", "refund", order="O-2", amount=60)])).questions
        await run.decide(question.action_id, approved=True, by="user:bea", channel="console")
        await run.resume()
        await run.execute([call("third", "refund", order="O-3", amount=0)])
        await run.complete()
    return {"budgeted": await log.read("run_budgeted")}


Scene: TypeAlias = Callable[[], Coroutine[Any, Any, Runs]]
SCENES: tuple[Scene, ...] = (
    approvals,
    effects,
    batches,
    recovered,
    consents,
    nested,
    handoff,
    forked,
    compacted,
    remembering,
    attached,
    tried,
    claimed,
    titled,
    conversed,
    budgeted,
)
#: By log: the agent whose run it is, for replays with its tools and policy.
AGENTS: Mapping[str, Callable[[], Agent]] = {
    "consents": mailer,
    "nested": boss,
    "handoff": reception,
    "forked.from": sender,
    "forked": sender,
    "compacted": lister,
}
