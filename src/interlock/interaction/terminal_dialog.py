"""The dialog about one question, its keys and what each covers. Only an explicit approval of what was shown in full
approves.
"""

import re
from collections.abc import Callable, Iterator
from json import dumps
from typing import Any, NamedTuple, cast

import msgspec

from ..domain import json
from ..domain.call import Answer, Question
from ..domain.decision import APPROVAL_SCOPES, ApprovalScope
from ..domain.payload import Payload, canonical_payload, hash_payload
from ..domain.rendering import json_escape
from ..domain.tool import JsonObject
from ..rendering.escaping import escape_invisible
from ..rendering.question import DisplayLine, describe_sandbox, render_fact, render_facts, render_question, render_text
from .terminal_screen import Screen


class Key(NamedTuple):
    """A key of the dialog."""

    key: str
    #: In the list of keys, and in the explanation.
    short: str
    covers: str


KEYS = (
    Key("y", "once", "this call, once, exactly as it is shown"),
    Key("s", "this run", "this call and the very same call again until the run ends"),
    Key("w", "for minutes", "the same as s, for as many minutes as you say"),
    Key("r", "save a rule", "whatever the rule covers that you are shown, from now on; you may narrow it"),
    Key("n", "no", "nothing runs, and the model gets the reason; Enter alone and end of input mean the same"),
    Key("e", "edit", "you change the arguments, see the result in full, and are asked again"),
    Key("v", "view all", "every line of it, page by page"),
    Key("?", "explain", "this text"),
)
#: The scope of an approval by this key.
SCOPE_OF_KEY: dict[str, ApprovalScope] = {"y": "once", "s": "run", "w": "window", "r": "rule"}
#: A risk fact with one of these beginnings of words is high: an approval takes a part of the hash, not only a key.
HIGH_RISK_WORDS = (
    *("delet", "destroy", "discard", "eras", "wipe", "overwrit", "drops", "irrevers", "cannot be undone", "force"),
    *("credential", "secret", "privilege", "root", "sudo", "outside the workspace", "publish", "deploy", "payment"),
)


def find_high_risk(question: Question) -> str:
    """Return the first risk fact that is high; empty when none is."""
    for risk in question.risk:
        said = f" {risk.lower()}"
        if any(f" {word}" in said for word in HIGH_RISK_WORDS):
            return risk
    return ""


def available_keys(question: Question) -> tuple[Key, ...]:
    """Return the keys that apply to this question."""
    widest = APPROVAL_SCOPES.index(question.scope)
    return tuple(
        key
        for key in KEYS
        if key.key not in SCOPE_OF_KEY
        or (
            APPROVAL_SCOPES.index(SCOPE_OF_KEY[key.key]) <= widest and (key.key != "r" or bool(question.suggested_rule))
        )
    )


def render_keys(question: Question, width: int) -> list[DisplayLine]:
    """Render the line of available keys."""
    return render_text(" | ".join(f"{key.key} {key.short}" for key in available_keys(question)), width)


def render_explanation(question: Question, width: int) -> list[DisplayLine]:
    """Return the rule that asks and why, the risk, the confinement, and what each answer covers."""
    return [line for section in _explanation_sections(question, width) for line in section]


def _explanation_sections(question: Question, width: int) -> Iterator[list[DisplayLine]]:
    bound = question.bound
    rules = question.rule_ids or ("no rule; the tool's declared risk asks",)
    yield render_facts("asked by the rules", rules, width)
    yield render_fact("layer", question.layer or "default", width)
    yield render_fact("reason", question.reason or question.prompt, width)
    yield render_facts("risk", question.risk or ("none was named",), width, "risk")
    yield render_fact("sandbox", describe_sandbox(bound.surroundings.sandbox), width)
    yield render_fact("run, call, question", f"{question.run_id}, {question.call_id}, {question.action_id}", width)
    yield render_facts("an approval is bound to", _describe_binding(question), width)
    if bound.policy:
        yield render_fact("policy", bound.policy, width)
    if bound.tool_version or bound.tool_definition:
        yield render_fact("tool version", f"{bound.tool_version} {bound.tool_definition}".strip(), width)
    yield render_facts(
        "answers", (f"{key.key} {key.short}: {key.covers}" for key in available_keys(question)), width, "hint"
    )


def _describe_binding(question: Question) -> Iterator[str]:
    environment = question.bound.surroundings
    yield "the tool as it is declared, its arguments, the run, the policy and the sandbox"
    if environment.cwd:
        yield "the working directory and the environment that are shown"
    if len(environment.files) > len(environment.unbound_files):
        yield "the content of the files that are shown"
    if environment.unbound_files:
        yield "NOT to the files shown as not fixed"
    if environment.unnamed_code:
        yield "NOT to code of the workspace that the call does not name"


MAX_MISTAKES = 3
MAX_MINUTES = 24 * 60
CONFIRMING_CHARS = 4
MIN_PAYLOAD_LINES = 40
_NANOSECONDS_PER_MINUTE = 60_000_000_000


def require_suggested_rule(rule: str, suggested: str) -> str:
    """Return why a typed rule may not be saved, where rules cannot be compared."""
    return "" if rule == suggested else "Only the suggested rule can be kept here."


def run_dialog(
    question: Question,
    screen: Screen,
    by: str,
    now: Callable[[], int],
    find_rule_problem: Callable[[str, str], str] = require_suggested_rule,
) -> Answer:
    """Run the dialog and return the answer. `now` is nanoseconds since 1970."""
    dialog = ApprovalDialog(question, screen, by, now, find_rule_problem)
    return dialog.ask_for_value() if question.kind == "input" else dialog.ask_for_approval()


class ApprovalDialog:
    """The dialog about one question."""

    def __init__(
        self,
        question: Question,
        screen: Screen,
        by: str,
        now: Callable[[], int],
        find_rule_problem: Callable[[str, str], str],
    ) -> None:
        self._asked = question
        #: What would be approved: the question, or the question with edited arguments.
        self._question = question
        self._screen = screen
        self._width = screen.width - 1
        self._by = by
        self._now = now
        self._find_rule_problem = find_rule_problem
        self._is_fully_shown = False
        self._mistake_count = 0
        self._keys: dict[str, Callable[[], Answer | None]] = {
            "y": lambda: self._approve("once"),
            "s": lambda: self._approve("run"),
            "w": self._approve_for_minutes,
            "r": self._approve_with_rule,
            "n": self._reject_with_reason,
            "e": self._edit,
            "v": self._view_all,
            "?": lambda: self._screen.show(render_explanation(self._question, self._width)),
        }

    def ask_for_approval(self) -> Answer:
        """Show the question and handle keys until there is an answer."""
        self._show_first_page()
        while True:
            self._screen.show(render_keys(self._question, self._width))
            reply = self._screen.read("Approve? [y/N] ")
            if reply is None:
                return self._reject("The input ended without an answer.")
            answer = self._handle_key(reply.strip().lower())
            if answer is not None:
                return answer

    def ask_for_value(self) -> Answer:
        """Ask for a value. It is also the approval, so everything is shown first."""
        if not self._show_all():
            return self._reject("The call was not looked at to its end.")
        self._print("Type text as it is, or = and JSON for anything else. Enter alone refuses.")
        while True:
            reply = self._screen.read("Value: ")
            if not reply:
                return self._reject("No value was given.")
            answer = self._parse_value(reply)
            if answer is not None:
                return answer

    def _handle_key(self, reply: str) -> Answer | None:
        key = {"yes": "y", "no": "n"}.get(reply, reply)
        if not key:
            return self._reject("")
        if all(key != open_key.key for open_key in available_keys(self._question)):
            return self._reject_after_mistakes(f"{escape_invisible(reply[:20])} is not one of the keys.")
        if key in SCOPE_OF_KEY and not self._is_fully_shown:
            self._print("Not all of it was shown. Press v to see all of it first.", "warning")
            return None
        return self._keys[key]()

    def _approve(self, scope: ApprovalScope, **details: Any) -> Answer | None:
        if not self._confirm_high_risk():
            return self._reject_after_mistakes("That is not how the hash begins. Nothing was approved.")
        edited = None if self._question is self._asked else self._question.arguments
        return Answer(approved=True, by=self._by, scope=scope, arguments=edited, **details)

    def _confirm_high_risk(self) -> bool:
        risk = find_high_risk(self._question)
        if not risk:
            return True
        self._screen.show(render_fact("high risk", risk, self._width, "warning"))
        start = self._question.payload_hash.rpartition(":")[2][:CONFIRMING_CHARS]
        reply = self._screen.read(f"To approve, type the first {CONFIRMING_CHARS} characters of the hash: ")
        return bool(start) and reply is not None and reply.strip().lower() == start.lower()

    def _approve_for_minutes(self) -> Answer | None:
        reply = self._screen.read(f"For how many minutes (1 to {MAX_MINUTES})? ") or ""
        if not re.fullmatch(r"[0-9]{1,4}", reply.strip()) or not 1 <= int(reply) <= MAX_MINUTES:
            return self._reject_after_mistakes("That is not a number of minutes. Nothing was approved.")
        return self._approve("window", until=self._now() + int(reply) * _NANOSECONDS_PER_MINUTE)

    def _approve_with_rule(self) -> Answer | None:
        rule = self._question.suggested_rule
        while True:
            self._screen.show(render_facts("this rule would be saved", rule.split("\n"), self._width, "warning"))
            self._print("It holds for every agent that uses the same policy file.", "warning")
            reply = self._screen.read("Save it? [y/N], or type a narrower rule: ")
            key = (reply or "").strip().lower()
            if key in {"", "n", "no"}:
                self._print("No rule is saved, and nothing was approved.")
                return None
            if key in {"y", "yes"}:
                return self._approve("rule", rule=rule)
            typed = (reply or "").strip()
            problem = self._find_rule_problem(typed, self._question.suggested_rule)
            if problem:
                self._print(escape_invisible(problem), "warning")
            else:
                rule = typed

    def _reject_with_reason(self) -> Answer:
        return self._reject((self._screen.read("Reason, for the model (Enter for none): ") or "").strip())

    def _edit(self) -> Answer | None:
        text = _to_editable_json(self._question.arguments, indent=2 if self._screen.has_editor else None)
        while True:
            edited = self._prompt_arguments(text)
            if edited is None:
                self._print("The arguments stay as they are.")
                return None
            problem, text = self._apply_edit(edited), edited
            if not problem:
                return None
            self._screen.show(render_fact("these cannot be the arguments", problem, self._width, "warning"))
            if not self._confirm("Edit again? [y/N] "):
                self._print("The arguments stay as they are.")
                return None

    def _prompt_arguments(self, text: str) -> str | None:
        if self._screen.has_editor:
            return self._screen.edit(text)
        self._screen.show(render_text(f"as JSON: {text}", self._width))
        return self._screen.read("The new arguments as one line of JSON (Enter keeps them): ") or None

    def _apply_edit(self, text: str) -> str:
        """Make the text the arguments and show them. Return why it cannot be used, or empty."""
        try:
            arguments = json.parse(text)
            json.check_value(arguments)
            if not isinstance(arguments, dict):
                return "they are not an object"
            question = _with_arguments(self._asked, cast(JsonObject, arguments))
        except json.InvalidJsonError as error:
            return str(error)
        if question.payload_hash == self._question.payload_hash:
            self._print("Nothing was changed.")
            return ""
        self._question = question
        self._show_all()
        if question is not self._asked:
            self._print(
                "These are YOUR arguments. Risk, rules and files are those of the original call; after your approval "
                "the edited call is validated and evaluated again.",
                "warning",
            )
        return ""

    def _view_all(self) -> None:
        self._show_all()

    def _parse_value(self, reply: str) -> Answer | None:
        value: Any = reply
        if reply.startswith("="):
            try:
                value = json.parse(reply[1:])
                json.check_value(value)
            except json.InvalidJsonError as error:
                return self._reject_after_mistakes(f"That is not JSON: {escape_invisible(str(error))}")
            if value is None:
                return self._reject_after_mistakes("null is no value.")
        elif escape_invisible(reply) != reply:
            self._screen.show(render_fact("the value has parts that are not seen", reply, self._width, "warning"))
            if not self._confirm("Use it? [y/N] "):
                return self._reject_after_mistakes("It is not used.")
        return Answer(approved=True, value=value, by=self._by)

    def _show_first_page(self) -> None:
        facts_only = render_question(msgspec.structs.replace(self._question, arguments={}), self._screen.width, 0)
        room = self._screen.height - len(facts_only.lines)
        display = render_question(self._question, self._screen.width, max(MIN_PAYLOAD_LINES, room))
        self._screen.show([DisplayLine("", "fact"), *display.lines])
        self._is_fully_shown = display.hidden_lines == 0

    def _show_all(self) -> bool:
        """Show everything page by page. Return False if the person stopped before the end."""
        lines = render_question(self._question, self._screen.width).lines
        page = max(10, self._screen.height - 2)
        self._is_fully_shown = False
        self._screen.show([DisplayLine("", "fact")])
        for start in range(0, len(lines), page):
            self._screen.show(lines[start : start + page])
            left = len(lines) - start - page
            if left > 0:
                reply = self._screen.read(f"[{left:,} more lines: Enter continues, a shows all of them, q stops] ")
                if reply is None or reply.strip().lower() == "q":
                    self._print("Stopped before the end.", "warning")
                    return False
                if reply.strip().lower() == "a":
                    self._screen.show(lines[start + page :])
                    break
        self._is_fully_shown = True
        return True

    def _confirm(self, prompt: str) -> bool:
        return (self._screen.read(prompt) or "").strip().lower() in {"y", "yes"}

    def _reject_after_mistakes(self, what: str) -> Answer | None:
        self._print(what, "warning")
        self._mistake_count += 1
        return self._reject("Three answers were not understood.") if self._mistake_count >= MAX_MISTAKES else None

    def _reject(self, reason: str) -> Answer:
        return Answer(approved=False, reason=reason, by=self._by)

    def _print(self, text: str, style: Any = "hint") -> None:
        self._screen.show(render_text(text, self._width, style))


def _with_arguments(asked: Question, arguments: JsonObject) -> Question:
    """Return the question for other arguments. It can be approved once only: wider scopes were for the original
    arguments.
    """
    if json.encode_sorted(arguments) == json.encode_sorted(asked.arguments):
        return asked
    payload = Payload(asked.run_id, asked.call_id, asked.tool_name, arguments, asked.bound, asked.expires_at)
    new_hash = hash_payload(canonical_payload(payload))
    return msgspec.structs.replace(asked, arguments=arguments, payload_hash=new_hash, scope="once", suggested_rule="")


def _to_editable_json(arguments: JsonObject, indent: int | None) -> str:
    """Return JSON for a person, with invisible characters escaped."""
    text = dumps(arguments, ensure_ascii=False, indent=indent)
    return re.sub(
        r"[^\n -~]", lambda match: match[0] if escape_invisible(match[0]) == match[0] else json_escape(match[0]), text
    )
