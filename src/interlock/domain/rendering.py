r"""Rendering of observations: for the model as runtime facts and quoted output, for a person as one line.

The model's view is a line of JSON with what the runtime knows, then the tool's output in an envelope:

    {"type":"tool.observation","tool":"bash","ok":true,"summary":"2 lines"}
    <untrusted_tool_output trust="tool_output_untrusted" format="text">
    | first line of output
    | second line
    </untrusted_tool_output>

Every line of output follows the margin, so nothing in it begins a line: it cannot close the envelope,
open another, start a chat turn or pass for the facts. `neutralize` also disarms what could act
inside a line: invisible characters (shown as `\u{200b}`), the tokens of chat templates, and everything
that looks like a `<` when the text mentions the envelope. Other text passes unchanged, but CRLF becomes LF.

An envelope protects readers, parsers and logs. It does not make a model obey; the policy decides what may run.
"""

import re
from functools import lru_cache
from typing import get_args
from unicodedata import normalize

import msgspec

from .attachments import ATTACHMENT
from .json import escape_surrogates
from .observation import TRUST_LABEL, Observation
from .outcome import TOOL_OUTPUT, Failure, display_side_effects
from .tool import OutputFormat

ENVELOPE_TAG = "untrusted_tool_output"
_FORMATS = get_args(OutputFormat)
MAX_USER_CHARS = 240

#: Invisible characters and those that move other text, as the inside of a character class: controls but tab and
#: newline, format characters, line and paragraph separators, surrogates, private use, fillers, noncharacters, tags.
INVISIBLE_CHARACTERS = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5"
    r"\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\uf8ff\ufdd0-\ufdef\ufe00-\ufe0d\ufeff\uffa0"
    r"\ufff0-\ufffb\ufffe\uffff\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0000-\U0010ffff"
)
_LESS = r"<\u02c2\u1438\u2039\u226e\u2329\u276c\u276e\u2770\u27e8\u3008\ufe64\uff1c"
_BAR = r"|\uff5c"
_BRACKET = r"\[\ufe47\uff3b"

#: Chat templates, after their first character.
_AFTER_LESS = (
    rf"[{_BAR}][\w\u2581./:-]{{1,64}}[{_BAR}]"
    r"|</?SYS>"
    r"|/?(?i:s|bos|eos|pad|unk|sop|eop|\w+_token|\w+_of_(?:turn|text|image|audio)|tool_(?:calls?|response|results?)|think"
    r"|function_(?:calls|results)|system(?:-reminder|_instruction)?)\s*>"
)
_AFTER_BRACKET = (
    r"/?(?:INST|SYS|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_\w+|ARGS|CALL_ID|IMG\w*|BOS|EOS|PAD|UNK|CLS|SEP|[gs]?MASK|THINK)"
    r"[\]\uff3d\ufe48]"
)
#: An emoji may be followed by one variation selector; more of them carry hidden text.
_STRAY_SELECTOR = r"(?<=[\ufe0e\ufe0f])(?<![\u203c-\u3299\U0001f000-\U0001faff][\ufe0e\ufe0f])"

#: Most text is decided by the first two: visible ASCII without `<`, `[` and `&`, and a header without tags. The others
#: have large classes: compiled when first used.
_suspect = re.compile(r"[^\t\n -%'-;=-Z\\-~]").search
#: The same for longer text: what is left without these bytes, and the other characters, where they are few.
_HARMLESS = bytes(code for code in range(128) if _suspect(chr(code)) is None)
_TOKEN_STARTS = b"<[&"
_ASCII_RUN = r"[\x00-\x7f]+"
_MIN_LONG_CHARS, _MAX_OTHERS = 512, 32
_header_suspect = re.compile(r"[<\x7f]|\[(?=/?[A-Zgs])|[^\x00-\x7f]").search
_SUSPECT = rf"[{INVISIBLE_CHARACTERS}{_LESS}{_BRACKET}\ufe0e\ufe0f&]"
#: The one character to escape. It starts with a plain class, which is what makes the search fast.
_UNSAFE = (
    rf"[{INVISIBLE_CHARACTERS}{_LESS}{_BRACKET}\ufe0e\ufe0f](?:(?<![{_LESS}{_BRACKET}\ufe0e\ufe0f])|{_STRAY_SELECTOR}"
    rf"|(?<=[{_LESS}])(?={_AFTER_LESS})|(?<=[{_BRACKET}])(?={_AFTER_BRACKET}))"
)
_UNSAFE_VISIBLE = rf"[<\[](?:(?<=<)(?={_AFTER_LESS})|(?<=\[)(?={_AFTER_BRACKET}))"
_UNSAFE_IN_HEADER = rf"[{INVISIBLE_CHARACTERS}{_LESS}]|[{_BRACKET}](?={_AFTER_BRACKET})"
_OPENING = rf"[{_LESS}]|&(?=(?i:lt|#0*60|#x0*3c)\b)"
_UNCOUNTED = rf"[{INVISIBLE_CHARACTERS}\ufe0e\ufe0f\u0300-\u036f]+"
_TAG_MENTION = r"untrusted[\W_]{0,3}tool[\W_]{0,3}output"
#: Cyrillic, Greek and Armenian letters that look like those of the tag.
_LOOKALIKES = str.maketrans(
    "\u0435\u043e\u0440\u0455\u0442\u0433\u043f\u0501\u03c5\u03bf\u03c4\u03c1\u0578\u057d", "eopstrnduotpnu"
)
_encode = msgspec.json.Encoder().encode

_DENIALS = {
    "policy_denied": "Denied by policy",
    "user_denied": "Denied by user",
    "approval_unavailable": "Approval unavailable",
    "approval_expired": "Approval expired",
}
#: Facts about the output, which go with it.
_OUTPUT_FACTS = frozenset({"preview", "truncated", "artifacts", "nextHint", "suggestedNextTool"})
#: What a denial reports of its decision: key in `Failure.details`, key in the message.
_DENIAL_DETAILS = (("reason", "reason"), ("rule_ids", "ruleIds"), ("layer", "layer"), ("advice", "advice"))


def render_for_model(observation: Observation) -> str:
    """Return the text of the tool message: the runtime's facts, then the output in its envelope."""
    failure = observation.failure
    if failure is not None and failure.code in _DENIALS:
        return _encode_header(_denial_fields(observation, failure))
    if (
        failure is None
        and observation.size is None
        and observation.exit_code is None
        and observation.next_tool is None
        and observation.kind == "tool"
        and not (observation.summary or observation.side_effects or observation.artifacts or observation.next_hint)
    ):  # success is all there is to report, so every observation of the tool begins alike
        header = _bare_header(observation.tool)
    else:
        header = _encode_header(_header_fields(observation))
    content = observation.content
    if content is None or not content.text:
        return header
    text = content.text if _suspect(content.text) is None else neutralize(content.text)
    quoted = text.replace("\n", "\n| ") if "\n" in text else text
    format = content.format if content.format in _FORMATS else "text"
    return f'{header}\n<{ENVELOPE_TAG} trust="{TRUST_LABEL}" format="{format}">\n| {quoted}\n</{ENVELOPE_TAG}>'


class RenderedOutput(msgspec.Struct, frozen=True):
    """The parts of a tool message: the runtime's facts, and the tool's output without its envelope."""

    facts: dict[str, object]
    output: str
    #: The artifact that already has the output, because it was cut; empty for none.
    artifact_id: str


class _RenderedArtifacts(msgspec.Struct):
    truncated: bool = False
    artifacts: list[dict[str, str]] = []


_decode_facts = msgspec.json.Decoder(dict[str, object]).decode
_decode_artifacts = msgspec.json.Decoder(_RenderedArtifacts).decode


def split_rendered(text: str) -> RenderedOutput | None:
    """Split what `render_for_model` made. Return None if there is no output in it."""
    header, _, envelope = text.partition("\n")
    if not envelope:
        return None
    try:
        facts, kept = _decode_facts(header), _decode_artifacts(header)
    except msgspec.MsgspecError:
        return None
    found = [ref["id"] for ref in kept.artifacts if ref["kind"] == TOOL_OUTPUT] or [ref["id"] for ref in kept.artifacts]
    output = "\n".join(line[2:] for line in envelope.split("\n")[1:-1])
    return RenderedOutput(facts, output, found[0] if found and kept.truncated else "")


#: Only where an observation has an attachment, or its output says so.
ATTACHMENT_MARK = f'"kind":"{ATTACHMENT}"'


def find_attachments(text: str) -> list[str]:
    """Return the artifacts of the attachments in what `render_for_model` made. Only the runtime's own line counts."""
    try:
        kept = _decode_artifacts(text.partition("\n")[0])
    except msgspec.MsgspecError:
        return []
    return [ref["id"] for ref in kept.artifacts if ref.get("kind") == ATTACHMENT and "id" in ref]


def render_trimmed(rendered: RenderedOutput, artifact_id: str) -> str:
    """Return the line that replaces a tool message whose output is left out: its facts, and where the output is."""
    facts = {key: value for key, value in rendered.facts.items() if key not in _OUTPUT_FACTS}
    omitted = facts.get("omittedBytes")
    size_bytes = len(rendered.output.encode(errors="surrogatepass"))
    facts["omittedBytes"] = size_bytes + (omitted if isinstance(omitted, int) else 0)
    facts["artifact"] = {"kind": TOOL_OUTPUT, "id": artifact_id}
    facts["nextHint"] = "The output was left out to save space. Read it again with read_artifact."
    return _encode_header(facts)


@lru_cache(maxsize=1024)
def _bare_header(tool: str) -> str:
    return _encode_header({"type": "tool.observation", "tool": tool, "ok": True})


def render_for_user(observation: Observation) -> str:
    """Return one short line for a person, without terminal control sequences."""
    failure = observation.failure
    text = observation.user_text.strip() or observation.summary.strip() or (failure.message.strip() if failure else "")
    line = " ".join(neutralize(text or f"{observation.tool}: {observation.code}").split())
    return truncate(line, MAX_USER_CHARS)


def truncate(text: str, max_chars: int) -> str:
    """Return the text, or its beginning with an ellipsis: never more characters than that."""
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"


def render_untrusted_tool_message(tool_name: str, text: str, format: str = "text") -> str:
    """Return the envelope alone, for output that has no observation."""
    attributes = f'format="{_escape_attribute(format)}" tool="{_escape_attribute(tool_name)}"'
    opening = f'<{ENVELOPE_TAG} trust="{TRUST_LABEL}" {attributes}>'
    quoted = neutralize(text).replace("\n", "\n| ")
    return f"{opening}\n| {quoted}\n</{ENVELOPE_TAG}>"


def neutralize(text: str) -> str:
    r"""Escape everything invisible, and every token of a template or the envelope, as `\u{..}`."""
    if len(text) >= _MIN_LONG_CHARS:
        suspects = text.encode("ascii", "replace").translate(None, _HARMLESS)
        others = "" if text.isascii() else "".join(set(re.sub(_ASCII_RUN, "", text)))
        is_visible = not suspects.translate(None, _TOKEN_STARTS) and len(others) <= _MAX_OTHERS
        if is_visible and not (others and re.search(_SUSPECT, others)):
            return _neutralize_visible(text, others) if suspects else text
    if _suspect(text) is None or (not text.isascii() and re.search(_SUSPECT, text) is None):
        return text
    if "\r\n" in text:
        text = text.replace("\r\n", "\n")
    escaped = re.sub(_UNSAFE, _escape_match, text)
    folded = text.lower() if escaped == text and text.isascii() else _fold(text)
    return re.sub(_OPENING, _escape_match, escaped) if re.search(_TAG_MENTION, folded) else escaped


def _neutralize_visible(text: str, others: str) -> str:
    """Neutralize a text without invisible characters, and without any that look like a `<` or `[`.

    Args:
        text: The text.
        others: Its characters beyond ASCII, each once.
    """
    escaped, folded = re.sub(_UNSAFE_VISIBLE, _escape_match, text), text
    for character in others:
        folded = folded.replace(character, _fold(character))
    folded = folded.lower()
    has_mention = "untrusted" in folded and re.search(_TAG_MENTION, folded)
    return re.sub(_OPENING, _escape_match, escaped) if has_mention else escaped


def json_escape(text: str) -> str:
    r"""Return every character as an ASCII JSON escape: `\\u003c`."""
    units = text.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _header_fields(observation: Observation) -> dict[str, object]:
    """Return the runtime's facts about the call, without empty ones."""
    facts: dict[str, object] = {"type": "tool.observation", "tool": observation.tool, "ok": observation.ok}
    if observation.kind != "tool":
        facts["kind"] = observation.kind
    failure = observation.failure
    if observation.summary and (failure is None or observation.summary != failure.message):
        facts["summary"] = observation.summary
    if failure is not None:
        _add_failure(facts, observation, failure)
    elif observation.side_effects:
        facts["sideEffects"] = observation.side_effects
    _add_output(facts, observation)
    if observation.next_tool is not None:
        hint = observation.next_tool
        facts["suggestedNextTool"] = {"tool": hint.tool, "inputHint": hint.input_hint}
    if observation.next_hint:
        facts["nextHint"] = observation.next_hint
    return facts


def _add_failure(facts: dict[str, object], observation: Observation, failure: Failure) -> None:
    facts["intentId"] = observation.call_id
    facts["phase"] = failure.phase.label
    facts["code"] = failure.code
    facts["message"] = failure.message
    facts["retryable"] = failure.retryable
    facts["sideEffects"] = display_side_effects(failure.side_effects or observation.side_effects)


def _add_output(facts: dict[str, object], observation: Observation) -> None:
    if observation.exit_code is not None:
        facts["exitCode"] = observation.exit_code
        if observation.duration_ms is not None:
            facts["durationMs"] = round(observation.duration_ms)
        if observation.failure is not None and "preview" in observation.facts:
            facts["preview"] = str(observation.facts["preview"])
    if observation.size is not None and observation.size.omitted > 0:
        facts["truncated"] = True
        facts["omittedBytes"] = observation.size.omitted
    if observation.artifacts:
        kept = [{"kind": ref.kind, "id": ref.id, "path": ref.path} for ref in observation.artifacts]
        facts["artifact"] = kept[0]
        facts["artifacts"] = kept


def _denial_fields(observation: Observation, failure: Failure) -> dict[str, object]:
    """Return the fields of a refusal, which says first and in fixed words that it is one."""
    facts: dict[str, object] = {
        "success": False,
        "error": _DENIALS[failure.code],
        "tool_call_id": observation.call_id,
        "type": "tool.observation",
        "tool": observation.tool,
        "ok": False,
        "phase": failure.phase.label,
        "code": failure.code,
        "message": failure.message,
        "retryable": failure.retryable,
        "sideEffects": display_side_effects(failure.side_effects),
    }
    if "nothing was executed" not in failure.message.lower():
        facts["message"] = f"{failure.message} Nothing was executed.".lstrip()
    for key, name in _DENIAL_DETAILS:
        if failure.details.get(key):
            facts[name] = failure.details[key]
    return facts


def _encode_header(facts: dict[str, object]) -> str:
    """Encode the facts as one line of JSON without tags, template tokens or invisible characters."""
    try:
        text = _encode(facts).decode()
    except UnicodeEncodeError:
        text = _encode(escape_surrogates(msgspec.to_builtins(facts))).decode()
    if _header_suspect(text) is None:
        return text
    return re.sub(_UNSAFE_IN_HEADER, lambda match: json_escape(match[0]), text)


def _escape_attribute(text: str) -> str:
    return re.sub(r"[^\w .:/@+-]", _escape_match, neutralize(text))


def _escape_match(match: re.Match[str]) -> str:
    return f"\\u{{{ord(match[0]):x}}}"


def _fold(text: str) -> str:
    """Return the text as a careless reader would compare it: one case, one width, no accents, nothing invisible."""
    return re.sub(_UNCOUNTED, "", normalize("NFKD", text)).casefold().translate(_LOOKALIKES)
