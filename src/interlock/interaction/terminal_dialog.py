"""The dialog about one question, its keys and what each covers. Only an explicit approval of what was shown in full
approves.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
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
from ..rendering.prompt import get_command, render_prompt
from ..rendering.question import DisplayLine, render_fact, render_facts, render_question, render_text
from .terminal_screen import MAX_EDITED_BYTES, Screen


class Key(NamedTuple):
    """A key of the dialog."""

    key: str
    #: In the list of keys, and in the explanation.
    short: str
    covers: str


KEYS = (
    Key("y", "once", "this call, once, exactly as it is shown"),
    Key("a", "always", "whatever the rule covers that you are shown, here and from now on; you may change it before"),
    Key("n", "no", "nothing runs, and the model gets your reason; the end of input means the same"),
    Key("e", "edit", "you change the arguments, see the result, and are asked again"),
    Key("d", "details", "everything that is known about the call, page by page"),
    Key("s", "this run", "this call and the very same call again until the run ends"),
    Key("w", "for minutes", "the same as s, for as many minutes as you say"),
    Key("?", "keys", "this list"),
)
#: The keys of the line of choices; the others are in the list of keys.
_CHOICES = "yaned"
#: The scope of an approval by this key.
SCOPE_OF_KEY: dict[str, ApprovalScope] = {"y": "once", "s": "run", "w": "window", "a": "rule"}
#: A risk fact with one of these beginnings of words is high: an approval takes a part of the hash, not only a key.
HIGH_RISK_WORDS = (
    *("delet", "destroy", "discard", "eras", "wipe", "overwrit", "drops", "irrevers", "cannot be undone", "force"),
    *("credential", "secret", "privilege", "root", "sudo", "outside the workspace", "publish", "deploy", "payment"),
)


def find_high_risk(question: Question) -> str:
    """Return the first risk fact that is high; empty when none is, or when the call was tried: then the facts say what
    it might do, and the question shows what it does.
    """
    if question.trial is not None:
        return ""
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
            APPROVAL_SCOPES.index(SCOPE_OF_KEY[key.key]) <= widest and (key.key != "a" or bool(question.suggested_rule))
        )
    )


def format_choices(question: Question, width: int, *, is_fully_shown: bool = True) -> str:
    """Return the line of choices, which fits the width. What was not shown in full cannot be approved yet."""
    choices = [f"{key.key} {key.short}" for key in available_keys(question) if key.key in _CHOICES]
    if not is_fully_shown:
        choices = ["n no", "e edit", "d show all first"]
    wide = f"{'  '.join(choices)}: "
    return wide if len(wide) < width else f"{' '.join(choices)}: "


def render_details(question: Question, width: int) -> Iterator[DisplayLine]:
    """Yield everything that is known about a question, and what an approval is bound to."""
    yield from render_question(question, width).lines
    bound = question.bound
    yield from render_facts("an approval is bound to", _describe_binding(question), width - 1)
    if bound.policy:
        yield from render_fact("policy", bound.policy, width - 1)
    if bound.tool_version or bound.tool_definition:
        yield from render_fact("tool version", f"{bound.tool_version} {bound.tool_definition}".strip(), width - 1)
    yield from render_fact(
        "run, call, question", f"{question.run_id}, {question.call_id}, {question.action_id}", width - 1
    )
    yield from render_key_list(question, width - 1)


def render_key_list(question: Question, width: int) -> list[DisplayLine]:
    """Render what each available key does."""
    lines = (f"{key.key}, {key.short}: {key.covers}" for key in available_keys(question))
    return render_facts("keys", lines, width, "hint")


def _describe_binding(question: Question) -> Iterator[str]:
    environment = question.bound.surroundings
    yield "the tool as it is declared, its arguments, the run, the policy and the sandbox"
    if environment.cwd:
        yield "the working directory and the environment that are shown"
    if environment.existing_files:
        yield "the content of the files that are shown"
    if environment.unbound_files:
        yield "NOT to the files shown as not fixed"
    if question.trial is not None:
        yield "exactly the effect that it had in its trial; it does not run again"
    if environment.unnamed_code:
        yield "NOT to code of the workspace that the call does not name"


MAX_MINUTES = 24 * 60
CONFIRMING_CHARS = 4
_NANOSECONDS_PER_MINUTE = 60_000_000_000


class ChangedRule(NamedTuple):
    """A rule as a person wrote it, and why it cannot be saved; empty when it can."""

    rule: str
    problem: str = ""


class DialogSupport:
    """What a dialog knows about rules and tools: here nothing, so rules are shown as they are in the policy file."""

    def format_rule(self, rule: str) -> str:
        """Return a rule as text for a person, in one line where that is possible."""
        return rule

    def parse_rule(self, text: str, suggested: str) -> ChangedRule:
        """Return the rule of a text that a person wrote in place of the suggested one."""
        return ChangedRule(text, "" if text == suggested else "Only the suggested rule can be kept here.")

    def preview_rule(self, rule: str) -> str:
        """Return what the rule would have allowed before; empty where that is not known."""
        return ""

    def check_arguments(self, tool_name: str, arguments: JsonObject) -> str:
        """Return why edited arguments do not fit the tool; empty when they do. They are validated again later."""
        return ""


def run_dialog(question: Question, screen: Screen, by: str, now: Callable[[], int], support: DialogSupport) -> Answer:
    """Run the dialog and return the answer. `now` is nanoseconds since 1970."""
    dialog = ApprovalDialog(question, screen, by, now, support)
    return dialog.ask_for_value() if question.kind == "input" else dialog.ask_for_approval()


class ApprovalDialog:
    """The dialog about one question."""

    def __init__(
        self, question: Question, screen: Screen, by: str, now: Callable[[], int], support: DialogSupport
    ) -> None:
        self._asked = question
        #: What would be approved: the question, or the question with edited arguments.
        self._question = question
        self._screen = screen
        self._width = screen.width - 1
        self._by = by
        self._now = now
        self._support = support
        self._old_content = read_old_content(question)
        self._is_fully_shown = False
        self._keys: dict[str, Callable[[], Answer | None]] = {
            "y": lambda: self._approve("once"),
            "s": lambda: self._approve("run"),
            "w": self._approve_for_minutes,
            "a": self._approve_with_rule,
            "n": self._reject_with_reason,
            "e": self._edit,
            "d": self._show_details,
            "?": lambda: self._screen.show(render_key_list(self._question, self._width)),
        }

    def ask_for_approval(self) -> Answer:
        """Show the question and handle keys until there is an answer. The question and its choices come last."""
        while True:
            self._show_prompt()
            is_shown = self._is_fully_shown
            keys = [key.key for key in available_keys(self._question) if is_shown or key.key not in SCOPE_OF_KEY]
            choices = format_choices(self._question, self._screen.width, is_fully_shown=is_shown)
            key = self._screen.read_key(choices, "".join(keys))
            if key is None:
                return self._reject("The input ended without an answer.")
            answer = self._keys[key]()
            if answer is not None:
                return answer

    def ask_for_value(self) -> Answer:
        """Ask for a value. It is also the approval, so everything is shown first."""
        if not self._show_pages(render_question(self._question, self._screen.width).lines):
            return self._reject("The call was not looked at to its end.")
        self._print("Type text as it is, or = and JSON for anything else. Enter alone refuses.")
        while True:
            reply = self._screen.read("Value: ")
            if not reply:
                return self._reject("No value was given.")
            answer = self._parse_value(reply)
            if answer is not None:
                return answer

    def _approve(self, scope: ApprovalScope, **details: Any) -> Answer | None:
        if not self._confirm_high_risk():
            self._print("That is not how the hash begins. Nothing was approved.", "warning")
            return None
        edited = None if self._question is self._asked else self._question.arguments
        return Answer(approved=True, by=self._by, scope=scope, arguments=edited, channel="terminal", **details)

    def _confirm_high_risk(self) -> bool:
        risk = find_high_risk(self._question)
        if not risk:
            return True
        self._screen.show(render_fact("high risk", risk, self._width, "warning"))
        self._screen.show(render_fact("hash", self._question.payload_hash, self._width, "hash"))
        start = self._question.payload_hash.rpartition(":")[2][:CONFIRMING_CHARS]
        reply = self._screen.read(f"To approve, type the first {CONFIRMING_CHARS} characters of the hash: ")
        return bool(start) and reply is not None and reply.strip().lower() == start.lower()

    def _approve_for_minutes(self) -> Answer | None:
        reply = self._screen.read(f"For how many minutes (1 to {MAX_MINUTES})? ") or ""
        if not re.fullmatch(r"[0-9]{1,4}", reply.strip()) or not 1 <= int(reply) <= MAX_MINUTES:
            self._print("That is not a number of minutes. Nothing was approved.", "warning")
            return None
        return self._approve("window", until=self._now() + int(reply) * _NANOSECONDS_PER_MINUTE)

    def _approve_with_rule(self) -> Answer | None:
        """Show the rule, let the person change it, and save it when they confirm what they were shown."""
        support, rule = self._support, self._question.suggested_rule
        shown = support.format_rule(rule)
        while True:
            self._screen.show(render_facts("always allow here", shown.split("\n"), self._width, "warning"))
            if preview := support.preview_rule(rule):
                self._print(preview)
            self._print("Enter saves it for every agent with this policy file, Esc goes back.")
            text = self._screen.edit_line("allow: ", shown) if _is_plain(shown) else self._confirm_rule(shown)
            if text is None:
                self._print("No rule is saved, and nothing was approved.")
                return None
            if text == shown:
                return self._approve("rule", rule=rule)
            changed = support.parse_rule(text, self._question.suggested_rule)
            if changed.problem:
                self._print(escape_invisible(changed.problem), "warning")
            else:
                rule, shown = changed.rule, text

    def _confirm_rule(self, shown: str) -> str | None:
        return shown if self._confirm("Save it? y yes  n no: ") else None

    def _reject_with_reason(self) -> Answer:
        return self._reject((self._screen.read("Reason for the model (Enter: none): ") or "").strip())

    def _edit(self) -> Answer | None:
        command = get_command(self._question)
        if command is not None and _escape_unseen(command) != command:
            command = None  # An editor would not show what is in it.
        indent = 2 if self._screen.has_editor else None
        text = command if command is not None else _to_editable_json(self._question.arguments, indent)
        while True:
            edited = self._prompt_text(text, is_command=command is not None)
            if edited is None:
                self._print("The arguments stay as they are.")
                return None
            problem, text = self._apply_edit(edited, is_command=command is not None), edited
            if not problem:
                return None
            self._screen.show(render_fact("these cannot be the arguments", problem, self._width, "warning"))
            if not self._confirm("Edit again? y yes  n no: "):
                self._print("The arguments stay as they are.")
                return None

    def _prompt_text(self, text: str, *, is_command: bool) -> str | None:
        if self._screen.has_editor:
            edited = self._screen.edit(text, "command.sh" if is_command else "arguments.json")
            # Editors end the last line.
            return edited if edited is None or text.endswith("\n") else edited.removesuffix("\n")
        if _is_plain(text):
            return self._screen.edit_line("$ " if is_command else "> ", text)
        self._screen.show(render_text(f"as JSON: {_to_editable_json(self._question.arguments, None)}", self._width))
        return self._screen.read("The new arguments as one line of JSON (Enter keeps them): ") or None

    def _apply_edit(self, text: str, *, is_command: bool) -> str:
        """Make the text the command or the arguments. Return why it cannot be used, or empty."""
        try:
            arguments = {**self._question.arguments, "command": text} if is_command else json.parse(text)
            json.check_value(arguments)
            if not isinstance(arguments, dict):
                return "they are not an object"
            question = _with_arguments(self._asked, cast(JsonObject, arguments))
        except json.InvalidJsonError as error:
            return str(error)
        if question.payload_hash == self._question.payload_hash:
            self._print("Nothing was changed.")
            return ""
        if problem := self._support.check_arguments(question.tool_name, question.arguments):
            return problem
        self._question = question
        self._old_content, self._is_fully_shown = read_old_content(question), False
        if question is not self._asked:
            self._print(
                "These are YOUR arguments. Risk, rules and files are those of the original call; after your approval "
                "the edited call is validated and evaluated again.",
                "warning",
            )
        return ""

    def _show_details(self) -> None:
        self._is_fully_shown |= self._show_pages(list(render_details(self._question, self._screen.width)))

    def _parse_value(self, reply: str) -> Answer | None:
        value: Any = reply
        if reply.startswith("="):
            try:
                value = json.parse(reply[1:])
                json.check_value(value)
            except json.InvalidJsonError as error:
                self._print(f"That is not JSON: {escape_invisible(str(error))}", "warning")
                return None
            if value is None:
                self._print("null is no value.", "warning")
                return None
        elif escape_invisible(reply) != reply:
            self._screen.show(render_fact("the value has parts that are not seen", reply, self._width, "warning"))
            if not self._confirm("Use it? y yes  n no: "):
                return None
        return Answer(approved=True, value=value, by=self._by, channel="terminal")

    def _show_prompt(self) -> None:
        display = render_prompt(self._question, self._screen.width, self._screen.height, self._old_content)
        self._screen.show([DisplayLine("", "fact"), *display.lines])
        self._is_fully_shown |= display.hidden_lines == 0

    def _show_pages(self, lines: Sequence[DisplayLine]) -> bool:
        """Show everything page by page. Return False if the person stopped before the end."""
        page = max(5, self._screen.height - 2)
        self._screen.show([DisplayLine("", "fact")])
        for start in range(0, len(lines), page):
            self._screen.show(lines[start : start + page])
            left = len(lines) - start - page
            if left > 0:
                key = self._screen.read_key(f"[{left:,} more: space, a all, q stop] ", " aq")
                if key in (None, "q"):
                    self._print("Stopped before the end.", "warning")
                    return False
                if key == "a":
                    self._screen.show(lines[start + page :])
                    break
        return True

    def _confirm(self, prompt: str) -> bool:
        return self._screen.read_key(prompt, "yn") == "y"

    def _reject(self, reason: str) -> Answer:
        return Answer(approved=False, reason=reason, by=self._by, channel="terminal")

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
    # What the original call did in its trial says nothing about another one.
    return msgspec.structs.replace(
        asked, arguments=arguments, payload_hash=new_hash, scope="once", suggested_rule="", trial=None
    )


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _to_editable_json(arguments: JsonObject, indent: int | None) -> str:
    """Return JSON for a person, with invisible characters escaped."""
    return _escape_unseen(dumps(arguments, ensure_ascii=False, indent=indent))


def _escape_unseen(text: str) -> str:
    return re.sub(
        r"[^\n -~]", lambda match: match[0] if escape_invisible(match[0]) == match[0] else json_escape(match[0]), text
    )


def read_old_content(question: Question) -> str | None:
    """Return the text of the file that the call would replace; None unless it is the one that the question is bound
    to.
    """
    path, environment = question.arguments.get("path"), question.bound.surroundings
    asked = next((file for file in environment.existing_files if file.path == path), None)
    if asked is None or question.tool_name != "write_file":
        return None
    try:
        opened = os.open(os.path.join(environment.cwd, asked.path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(opened, "rb") as file:
            content = file.read(MAX_EDITED_BYTES + 1)
        return content.decode() if sha256(content).hexdigest() == asked.sha256 else None
    except (OSError, ValueError):
        return None
