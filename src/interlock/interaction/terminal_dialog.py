"""The conversation about one question. It ends in an answer, and only a clear yes to what was shown in full is one."""

import re
from collections.abc import Callable
from json import dumps
from typing import Any, cast

import msgspec

from ..domain import json
from ..domain.call import Answer, Question
from ..domain.decision import Scope
from ..domain.payload import Payload, canonical_payload, hash_payload
from ..domain.rendering import json_escape
from ..domain.tool import JsonObject
from ..rendering.question import Line, fact, facts, render, words
from ..rendering.visible import visible
from .terminal_keys import SCOPE_OF_KEY, explain, high_risk, key_list, open_keys
from .terminal_screen import Screen

MAX_MISTAKES = 3
MAX_MINUTES = 24 * 60
CONFIRMING_CHARS = 4
MIN_PAYLOAD_LINES = 40
_NANOSECONDS_PER_MINUTE = 60_000_000_000


def only_suggested(rule: str, suggested: str) -> str:
    """Return why a typed rule may not be kept, where rules cannot be compared."""
    return "" if rule == suggested else "Only the suggested rule can be kept here."


def converse(
    question: Question,
    screen: Screen,
    by: str,
    now: Callable[[], int],
    find_rule_problem: Callable[[str, str], str] = only_suggested,
) -> Answer:
    """`now` is nanoseconds since 1970."""
    talk = Conversation(question, screen, by, now, find_rule_problem)
    return talk.ask_for_value() if question.kind == "input" else talk.ask_for_approval()


class Conversation:
    def __init__(
        self,
        question: Question,
        screen: Screen,
        by: str,
        now: Callable[[], int],
        find_rule_problem: Callable[[str, str], str],
    ) -> None:
        self._asked = question
        #: What a yes would be for: the question, or the question with edited arguments.
        self._question = question
        self._screen = screen
        self._width = screen.width - 1
        self._by = by
        self._now = now
        self._find_rule_problem = find_rule_problem
        self._seen_all = False
        self._mistakes = 0
        self._keys: dict[str, Callable[[], Answer | None]] = {
            "y": lambda: self._yes("once"),
            "s": lambda: self._yes("run"),
            "w": self._yes_for_minutes,
            "r": self._yes_with_rule,
            "n": self._no_with_reason,
            "e": self._edit,
            "v": self._view_all,
            "?": self._explain,
        }

    def ask_for_approval(self) -> Answer:
        self._show_what_fits()
        while True:
            self._screen.show(key_list(self._question, self._width))
            said = self._screen.read("Approve? [y/N] ")
            if said is None:
                return self._no("The input ended without an answer.")
            answer = self._heard(said.strip().lower())
            if answer is not None:
                return answer

    def ask_for_value(self) -> Answer:
        """The value is the yes, so everything is shown first."""
        if not self._shown_in_full():
            return self._no("The call was not looked at to its end.")
        self._say("Type text as it is, or = and JSON for anything else. Enter alone refuses.")
        while True:
            said = self._screen.read("Value: ")
            if not said:
                return self._no("No value was given.")
            answer = self._value(said)
            if answer is not None:
                return answer

    def _heard(self, said: str) -> Answer | None:
        key = {"yes": "y", "no": "n"}.get(said, said)
        if not key:
            return self._no("")
        if all(key != open_key.key for open_key in open_keys(self._question)):
            return self._mistake(f"{visible(said[:20])} is not one of the keys.")
        if key in SCOPE_OF_KEY and not self._seen_all:
            self._say("Not all of it was shown. Press v to see all of it first.", "warning")
            return None
        return self._keys[key]()

    def _yes(self, scope: Scope, **details: Any) -> Answer | None:
        if not self._confirmed():
            return self._mistake("That is not how the hash begins. Nothing was approved.")
        edited = None if self._question is self._asked else self._question.arguments
        return Answer(approved=True, by=self._by, scope=scope, arguments=edited, **details)

    def _confirmed(self) -> bool:
        told = high_risk(self._question)
        if not told:
            return True
        self._screen.show(fact("high risk", told, self._width, "warning"))
        start = self._question.payload_hash.rpartition(":")[2][:CONFIRMING_CHARS]
        said = self._screen.read(f"To approve, type the first {CONFIRMING_CHARS} characters of the hash: ")
        return bool(start) and said is not None and said.strip().lower() == start.lower()

    def _yes_for_minutes(self) -> Answer | None:
        said = self._screen.read(f"For how many minutes (1 to {MAX_MINUTES})? ") or ""
        if not re.fullmatch(r"[0-9]{1,4}", said.strip()) or not 1 <= int(said) <= MAX_MINUTES:
            return self._mistake("That is not a number of minutes. Nothing was approved.")
        return self._yes("window", until=self._now() + int(said) * _NANOSECONDS_PER_MINUTE)

    def _yes_with_rule(self) -> Answer | None:
        rule = self._question.suggested_rule
        while True:
            self._screen.show(facts("this rule would be saved", rule.split("\n"), self._width, "warning"))
            self._say("It holds for every agent that uses the same policy file.", "warning")
            said = self._screen.read("Save it? [y/N], or type a narrower rule: ")
            key = (said or "").strip().lower()
            if key in {"", "n", "no"}:
                self._say("No rule is saved, and nothing was approved.")
                return None
            if key in {"y", "yes"}:
                return self._yes("rule", rule=rule)
            typed = (said or "").strip()
            problem = self._find_rule_problem(typed, self._question.suggested_rule)
            if problem:
                self._say(visible(problem), "warning")
            else:
                rule = typed

    def _no_with_reason(self) -> Answer:
        return self._no((self._screen.read("Reason, for the model (Enter for none): ") or "").strip())

    def _edit(self) -> Answer | None:
        text = _editable(self._question.arguments, indent=2 if self._screen.has_editor else None)
        while True:
            edited = self._typed_or_edited(text)
            if edited is None:
                self._say("The arguments stay as they are.")
                return None
            problem, text = self._take(edited), edited
            if not problem:
                return None
            self._screen.show(fact("these cannot be the arguments", problem, self._width, "warning"))
            if not self._sure("Edit again? [y/N] "):
                self._say("The arguments stay as they are.")
                return None

    def _typed_or_edited(self, text: str) -> str | None:
        if self._screen.has_editor:
            return self._screen.edit(text)
        self._screen.show(words(f"as JSON: {text}", self._width))
        return self._screen.read("The new arguments as one line of JSON (Enter keeps them): ") or None

    def _take(self, text: str) -> str:
        """Makes the text the arguments and shows them, or says why it cannot."""
        try:
            arguments = json.parse(text)
            json.check(arguments)
            if not isinstance(arguments, dict):
                return "they are not an object"
            question = _edited(self._asked, cast(JsonObject, arguments))
        except json.BadJson as error:
            return str(error)
        if question.payload_hash == self._question.payload_hash:
            self._say("Nothing was changed.")
            return ""
        self._question = question
        self._shown_in_full()
        if question is not self._asked:
            self._say(
                "These are YOUR arguments. Risk, rules and files are those of the call as it was asked; after a yes it "
                "is checked and judged again.",
                "warning",
            )
        return ""

    def _view_all(self) -> None:
        self._shown_in_full()

    def _explain(self) -> None:
        self._screen.show(explain(self._question, self._width))

    def _value(self, said: str) -> Answer | None:
        value: Any = said
        if said.startswith("="):
            try:
                value = json.parse(said[1:])
                json.check(value)
            except json.BadJson as error:
                return self._mistake(f"That is not JSON: {visible(str(error))}")
            if value is None:
                return self._mistake("null is no value.")
        elif visible(said) != said:
            self._screen.show(fact("the value has parts that are not seen", said, self._width, "warning"))
            if not self._sure("Use it? [y/N] "):
                return self._mistake("It is not used.")
        return Answer(approved=True, value=value, by=self._by)

    def _show_what_fits(self) -> None:
        facts_only = render(msgspec.structs.replace(self._question, arguments={}), self._screen.width, 0)
        room = self._screen.height - len(facts_only.lines)
        display = render(self._question, self._screen.width, max(MIN_PAYLOAD_LINES, room))
        self._screen.show([Line("", "fact"), *display.lines])
        self._seen_all = display.hidden_lines == 0

    def _shown_in_full(self) -> bool:
        """Page by page. False when the person stopped before the end."""
        lines = render(self._question, self._screen.width).lines
        page = max(10, self._screen.height - 2)
        self._seen_all = False
        self._screen.show([Line("", "fact")])
        for start in range(0, len(lines), page):
            self._screen.show(lines[start : start + page])
            left = len(lines) - start - page
            if left > 0:
                said = self._screen.read(f"[{left:,} more lines: Enter goes on, a shows all of them, q stops] ")
                if said is None or said.strip().lower() == "q":
                    self._say("Stopped before the end.", "warning")
                    return False
                if said.strip().lower() == "a":
                    self._screen.show(lines[start + page :])
                    break
        self._seen_all = True
        return True

    def _sure(self, prompt: str) -> bool:
        return (self._screen.read(prompt) or "").strip().lower() in {"y", "yes"}

    def _mistake(self, what: str) -> Answer | None:
        self._say(what, "warning")
        self._mistakes += 1
        return self._no("Three answers were not understood.") if self._mistakes >= MAX_MISTAKES else None

    def _no(self, reason: str) -> Answer:
        return Answer(approved=False, reason=reason, by=self._by)

    def _say(self, text: str, style: Any = "hint") -> None:
        self._screen.show(words(text, self._width, style))


def _edited(asked: Question, arguments: JsonObject) -> Question:
    """The question for other arguments. It takes only a yes for once: more was offered for the arguments as asked."""
    if json.encode_sorted(arguments) == json.encode_sorted(asked.arguments):
        return asked
    payload = Payload(asked.run_id, asked.call_id, asked.tool_name, arguments, asked.bound, asked.expires_at)
    new_hash = hash_payload(canonical_payload(payload))
    return msgspec.structs.replace(asked, arguments=arguments, payload_hash=new_hash, scope="once", suggested_rule="")


def _editable(arguments: JsonObject, indent: int | None) -> str:
    """JSON for a person, with everything as an escape that nobody would see in it."""
    text = dumps(arguments, ensure_ascii=False, indent=indent)
    return re.sub(r"[^\n -~]", lambda match: match[0] if visible(match[0]) == match[0] else json_escape(match[0]), text)
