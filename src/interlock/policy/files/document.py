"""The schema of policy files as types: the keys, their values, and the JSON schema for editors.

Whether a rule makes sense is decided later, in `layer_compiler.py`; here a file has the right shape, or is rejected
with the line.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias, cast, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)
from pydantic_core import PydanticCustomError

from ...domain.budget import MAX_AMOUNT, BudgetSubject, BudgetWindow
from ...domain.decision import ApprovalScope, Approver
from ...domain.suggestions import suggest_name
from ...domain.tool import Repeat, ResourceKind, ToolOrigin
from ...domain.trial import AskTime
from ..engine.rule import Access, DefaultVerdict
from .problems import MAX_PROBLEMS, PolicyFileError, PolicySource

SCHEMA_ID = "https://json-schema.org/draft/2020-12/schema"

ShortList: TypeAlias = Literal["deny", "ask", "allow"]
SHORT_LISTS: tuple[ShortList, ...] = ("deny", "ask", "allow")


def _value_kind(value: Any) -> str:
    """Return which form of a value is meant, so that its problems are reported for that form."""
    return "text" if isinstance(value, str) else "list" if isinstance(value, list) else "mapping"


def _argument_kind(value: Any) -> str:
    return (
        "test" if isinstance(value, dict) and {"is", "glob", "regex"} & cast(dict[str, Any], value).keys() else "exact"
    )


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _empty_list(value: Any) -> Any:
    """Read a key with nothing but comments under it as an empty list."""
    return [] if value is None else value


Text = Annotated[str, StringConstraints(max_length=2_000)]
Pattern = Annotated[str, StringConstraints(min_length=1, max_length=1_000)]


def _one_or_many(item: Mapping[str, Any]) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [{**item}, {"type": "array", "items": {**item}, "minItems": 1}]})


ModeWord: TypeAlias = Literal["read_only", "default", "accept_edits", "contained", "trusted"]
RiskWord: TypeAlias = Literal["read", "write", "execute", "network", "delegate"]
_LIST_LIMITS = Field(min_length=1, max_length=1_000)
Patterns: TypeAlias = Annotated[
    list[Pattern], BeforeValidator(_as_list), _LIST_LIMITS, _one_or_many({"type": "string", "minLength": 1})
]
Modes: TypeAlias = Annotated[
    list[ModeWord], BeforeValidator(_as_list), _LIST_LIMITS, _one_or_many({"enum": list(get_args(ModeWord))})
]
Risks: TypeAlias = Annotated[
    list[RiskWord], BeforeValidator(_as_list), _LIST_LIMITS, _one_or_many({"enum": list(get_args(RiskWord))})
]

#: Keys that may be present without a value. Any other without a value would be a condition that went missing.
_MAY_BE_EMPTY = {
    "value",
    "resources",
    "effects",
    "egress",
    "budgets",
    "deny",
    "ask",
    "allow",
    "rules",
    "matches",
    "does_not_match",
}


class _StrictModel(BaseModel):
    # Most processes read no policy file: its models are built with the first one.
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)

    @field_validator("*", mode="before")
    @classmethod
    def _require_value(cls, value: Any, field: ValidationInfo) -> Any:
        if value is None and field.field_name not in _MAY_BE_EMPTY:
            raise PydanticCustomError("empty_key", "this key has no value")
        return value


class CommandEntry(_StrictModel):
    """A command by its words: `is` is a whole command; `words` its first words, or with `exact` all of them."""

    whole: Pattern | None = Field(None, alias="is", description="The whole command.", examples=["npm test"])
    words: list[Annotated[str, StringConstraints(max_length=1_000)]] | None = Field(
        None, min_length=1, max_length=200, description="Its words, one by one; `*` is any one word."
    )
    exact: bool = Field(False, description="With `words`: these words and no more.")


class ArgumentEntry(_StrictModel):
    """A test of one argument: exactly one of `is`, `glob` and `regex`."""

    value: Any = Field(None, alias="is", description="Exactly this value.")
    glob: Annotated[str, StringConstraints(max_length=1_000)] | None = Field(
        None, description="The whole text, with `*`, `?` and `[abc]`."
    )
    regex: Pattern | None = Field(None, description="RE2, found anywhere in the text unless it is anchored.")


class Example(_StrictModel):
    """A call that a rule is, or is not, about."""

    tool: Pattern = Field(description="The name of the tool.", examples=["bash"])
    arguments: dict[str, Any] = Field({}, description="Its arguments.")
    path: Pattern | None = Field(None, description="A path that it names.")
    command: Pattern | None = Field(None, description="A command that it would run.")
    host: Pattern | None = Field(None, description="A host or URL that it names.")
    risk: Risks | None = Field(None, description="The risks that the tool declares.")
    origin: ToolOrigin | None = Field(None, description="Where the tool comes from.")
    server: Text | None = Field(None, description="The MCP server, skill folder or extension.")
    agent: Text | None = Field(None, description="The name of the agent.")
    mode: ModeWord | None = Field(None, description="The permission mode.")
    interactive: bool | None = Field(None, description="Is a person there?")


CommandItem: TypeAlias = Annotated[
    Annotated[Pattern, Tag("text")] | Annotated[CommandEntry, Tag("mapping")], Discriminator(_value_kind)
]
CommandField: TypeAlias = Annotated[
    Annotated[Pattern, Tag("text")]
    | Annotated[CommandEntry, Tag("mapping")]
    | Annotated[Annotated[list[CommandItem], Field(min_length=1, max_length=1_000)], Tag("list")],
    Discriminator(_value_kind),
]
ArgumentField: TypeAlias = Annotated[
    Annotated[ArgumentEntry, Tag("test")] | Annotated[Any, Tag("exact")], Discriminator(_argument_kind)
]
ExampleItem: TypeAlias = Annotated[
    Annotated[Pattern, Tag("text")] | Annotated[Example, Tag("mapping")], Discriminator(_value_kind)
]
Examples: TypeAlias = Annotated[list[ExampleItem], BeforeValidator(_empty_list), Field(max_length=1_000)]
Duration: TypeAlias = Annotated[
    Annotated[float, Tag("number")] | Annotated[str, Tag("text")],
    Discriminator(lambda value: "text" if isinstance(value, str) else "number"),
]
Identifier = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]


class _Conditions(_StrictModel):
    tools: Patterns | None = Field(
        None,
        description="Names of tools, with `*`, `?` and `[abc]`; or one `Tool(pattern)`.",
        examples=["bash", ["read_file", "grep"], "bash(npm test)"],
    )
    origin: ToolOrigin | None = Field(None, description="Only tools that come from there.")
    server: Patterns | None = Field(None, description="Only tools of these MCP servers, skills or extensions. Globs.")
    risk: Risks | None = Field(None, description="Tools with any of these risks; to allow: with none but these.")
    path: Patterns | None = Field(
        None,
        description="Globs of paths that the call names, as in a `.gitignore`, from the workspace on.",
        examples=["secrets/**", ".env"],
    )
    access: Access | None = Field(None, description="With `path`: only what reads there, or what may write there.")
    command: CommandField | None = Field(
        None,
        description="The first words of a command, or `{is: ...}` for a whole one, or a list of these.",
        examples=["git push", {"is": "npm test"}],
    )
    host: Patterns | None = Field(
        None, description="`example.com`; `*.example.com` is it and everything under it.", examples=["*.example.com"]
    )
    arguments: Annotated[dict[Pattern, ArgumentField], Field(max_length=100)] = Field(
        {}, description="By dotted name: a value, or `{is: ...}`, `{glob: ...}`, `{regex: ...}`."
    )
    agent: Patterns | None = Field(None, description="Only calls of these agents. Globs.")
    workspace: Patterns | None = Field(None, description="Only in these workspaces: absolute folders.")
    mode: Modes | None = Field(None, description="Only in these permission modes.")
    interactive: bool | None = Field(
        None, description="Only when a person can be asked (true), or only when not (false)."
    )
    when: Pattern | None = Field(
        None,
        description="A CEL expression over tool, arguments, agent, mode, interactive, origin, server, risk, requester "
        "and workspace.",
        examples=["size(arguments.recipients) > 10"],
    )
    reason: Text = Field("", description="For the person who is asked or refused.")
    message: Text = Field("", description="For the model: what to do instead.")
    prompt: Text = Field("", description="With ask and request_input: the question.")
    title: Text = Field(
        "",
        description="With ask and request_input: the title of the question, with `{argument}` or `{argument.field}`.",
        examples=["Refund {amount} {currency} for order {order_id}"],
    )
    scope: ApprovalScope | None = Field(
        None, description="With ask: the widest scope that an approval may have. The default is run."
    )
    ask: AskTime | None = Field(
        None,
        description="With ask: before the call runs, or after a trial that shows its effect. The default is before.",
        examples=["after"],
    )
    answer_within: Duration | None = Field(
        None, description="How long the question stays open: seconds, or a text.", examples=[300, "2h", "7d"]
    )
    approver: Approver | None = Field(
        None,
        description="With ask and request_input: who may answer. `client` also accepts what an MCP client, a coding "
        "agent or a framework claims its user answered. The default is person. Never client in a project file.",
    )
    expires: Text | None = Field(None, description="When the rule ends, RFC 3339.", examples=["2030-01-31T12:00:00Z"])
    matches: Examples = Field([], description="Calls that this rule is about. Checked when the file is read.")
    does_not_match: Examples = Field([], description="Calls that it is not about. Checked when the file is read.")


class ShortEntry(_Conditions):
    """A rule without its decision, which the list says that it stands in."""

    id: Identifier | None = Field(None, description="A name of its own; made from what it says when it is left out.")


class RuleEntry(_Conditions):
    """A rule. It is about a call when everything that it names fits."""

    id: Identifier = Field(description="A name of its own.")
    decision: Literal["allow", "ask", "deny", "request_input"] = Field(
        description="deny beats request_input, which beats ask, which beats allow."
    )
    target_arg: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = Field(
        None, description="With request_input: the argument that the person's value becomes."
    )


Entry: TypeAlias = ShortEntry | RuleEntry
ShortItem: TypeAlias = Annotated[
    Annotated[Pattern, Tag("text")] | Annotated[ShortEntry, Tag("mapping")], Discriminator(_value_kind)
]
ShortItems: TypeAlias = Annotated[list[ShortItem], BeforeValidator(_empty_list)]


class ResourceEntry(_StrictModel):
    """Resources that the arguments of tools from other sources name."""

    tools: Pattern = Field(description="A glob of tool names.", examples=["mcp__fs__*"])
    arguments: dict[Pattern, ResourceKind] = Field(
        min_length=1, max_length=100, description="By dotted name.", examples=[{"path": "path", "uri": "host"}]
    )


class EffectEntry(_StrictModel):
    """The effect of other people's tools, which happens once."""

    tools: Pattern = Field(description="A glob of tool names.", examples=["mcp__shop__refund"])
    key: Annotated[str, StringConstraints(min_length=1, max_length=500)] | None = Field(
        None,
        description="Identifies the effect: text with `{argument}` or `{argument.field}`. Default: the tool's own key.",
        examples=["refund:{order}"],
    )
    repeat: Repeat = Field("ask", description="What happens to a call whose effect happened before.")
    repeat_after: Duration | None = Field(
        None, description="After this time the effect may happen again: seconds, or a text.", examples=["24h"]
    )


def _split_hosts(value: Any) -> Any:
    return [host.strip() for host in value.split(",")] if isinstance(value, str) else value


def _one_as_list(value: Any) -> Any:
    return [value] if isinstance(value, int) else value


_PORT_SCHEMA: Mapping[str, Any] = {"type": "integer", "minimum": 1, "maximum": 65_535}
Hosts: TypeAlias = Annotated[
    list[Pattern], BeforeValidator(_split_hosts), _LIST_LIMITS, _one_or_many({"type": "string", "minLength": 1})
]
Ports: TypeAlias = Annotated[
    list[Annotated[int, Field(ge=1, le=65_535)]],
    BeforeValidator(_one_as_list),
    _LIST_LIMITS,
    _one_or_many(_PORT_SCHEMA),
]


class EgressEntry(_StrictModel):
    """Hosts that commands reach through the proxy: exactly one of `allow`, `ask` and `deny`."""

    allow: Hosts | None = Field(
        None,
        description="Hosts that every command can reach; a text may name several. Not in a project file.",
        examples=["pypi.org, files.pythonhosted.org"],
    )
    ask: Hosts | None = Field(None, description="Hosts that a person is asked about, call by call.")
    deny: Hosts | None = Field(None, description="Hosts that no command can reach, whatever else is allowed.")
    ports: Ports | None = Field(None, description="The default is 80 and 443; with deny it is every port.")
    methods: Patterns | None = Field(
        None, description="Only requests with these HTTP methods.", examples=[["GET", "HEAD"]]
    )
    credential: Pattern | None = Field(
        None,
        description="The environment variable of Interlock with a secret that the proxy adds to requests.",
        examples=["GITHUB_TOKEN"],
    )
    header: Pattern | None = Field(
        None, description="The header of the credential, which is `{}`.", examples=["X-Api-Key: {}"]
    )
    id: Identifier | None = Field(None, description="A name of its own; made from what it says when it is left out.")


Subjects: TypeAlias = Annotated[
    list[BudgetSubject], BeforeValidator(_as_list), _LIST_LIMITS, _one_or_many({"enum": list(get_args(BudgetSubject))})
]


class BudgetEntry(_StrictModel):
    """What calls or model requests may use in a calendar window (UTC), shared by all runs."""

    id: Identifier = Field(description="A name of its own. What was used is counted under it.")
    max: Annotated[float, Field(ge=0, le=MAX_AMOUNT, allow_inf_nan=False)] = Field(
        description="At most this much in a window.", examples=[20]
    )
    of: Literal["calls", "tokens", "cost"] | None = Field(
        None, description="What is counted. The default is calls; tokens and cost are those of model requests."
    )
    sum: Pattern | None = Field(
        None, description="Instead of `of`: the dotted name of an argument that is summed.", examples=["amount"]
    )
    per: Subjects | None = Field(
        None,
        description="Who has a budget of their own: each agent, requester or tool, or each combination. "
        "Left out: one budget for all.",
        examples=[["agent", "requester"]],
    )
    window: BudgetWindow = Field("day", description="The calendar window in UTC. A week begins on Monday.")
    tools: Patterns | None = Field(None, description="Only calls of these tools. Globs.", examples=["refund"])
    agent: Patterns | None = Field(None, description="Only calls and requests of these agents. Globs.")
    then: Literal["deny", "ask"] = Field("deny", description="What happens to a call that does not fit.")
    reason: Text = Field("", description="For the person who is asked or refused.")


class PolicyDocument(_StrictModel):
    """A policy of Interlock."""

    version: Annotated[int, Field(ge=1, le=1), WithJsonSchema({"const": 1})] = Field(
        description="The version of this format."
    )
    default: DefaultVerdict | None = Field(
        None, description="What happens where no rule speaks. Never allow in a project file."
    )
    resources: Annotated[list[ResourceEntry], BeforeValidator(_empty_list)] = Field(
        [], description="What the arguments of other people's tools name. Not in a project file."
    )
    effects: Annotated[list[EffectEntry], BeforeValidator(_empty_list)] = Field(
        [], description="The effects of other people's tools that happen once. Not in a project file."
    )
    egress: Annotated[list[EgressEntry], BeforeValidator(_empty_list)] = Field(
        [],
        description="Hosts that commands can reach. What no rule names cannot be reached.",
        examples=[[{"allow": "pypi.org, files.pythonhosted.org"}]],
    )
    budgets: Annotated[list[BudgetEntry], BeforeValidator(_empty_list), Field(max_length=100)] = Field(
        [],
        description="What calls and model requests may use in a window.",
        examples=[[{"id": "refunds-a-day", "tools": "refund", "per": "requester", "max": 20}]],
    )
    deny: ShortItems = Field(
        [], description="What is refused.", examples=[["bash(git reset --hard)", {"path": ".env"}]]
    )
    ask: ShortItems = Field([], description="What a person is asked about.", examples=[["bash(git push:*)"]])
    allow: ShortItems = Field(
        [], description="What may run. Not in a project file.", examples=[["read_file", "bash(npm test)"]]
    )
    rules: Annotated[list[RuleEntry], BeforeValidator(_empty_list)] = Field([], description="Rules in full.")


def parse_document(source: PolicySource) -> PolicyDocument:
    """Parse a policy file. Raise `PolicyFileError` with every problem of its shape."""
    value: object = source.value
    if not isinstance(value, dict):
        reason = "a policy has keys, beginning with `version: 1`" if value is not None else "the file is empty"
        raise PolicyFileError([source.make_problem((), reason)])
    try:
        return PolicyDocument.model_validate(value)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=True)[:MAX_PROBLEMS]
        problems = [source.make_problem(each["loc"], _error_message(each)) for each in found]
        raise PolicyFileError(sorted(dict.fromkeys(problems), key=lambda problem: problem.line)) from None


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema 2020-12 of policy files, for editors and other programs."""
    return {"$schema": SCHEMA_ID, **_without_nulls(PolicyDocument.model_json_schema(by_alias=True))}


def schema_text() -> str:
    """Return the schema as text, as stored in the docs."""
    return json.dumps(json_schema(), indent=2) + "\n"


def _without_nulls(schema: Any) -> Any:
    """Clean the schema: what may be left out may not be null, any of the shapes will do, and titles only repeat the
    keys.
    """
    if isinstance(schema, list):
        return [_without_nulls(item) for item in cast(list[Any], schema) if item != {"type": "null"}]
    if not isinstance(schema, dict):
        return schema
    cleaned = {
        "anyOf" if key == "oneOf" else key: _without_nulls(value)
        for key, value in cast(dict[str, Any], schema).items()
        if not (key == "title" and isinstance(value, str)) and not (key == "default" and value in (None, "", [], {}))
    }
    only = cleaned.get("anyOf", ())
    return {**cleaned.pop("anyOf")[0], **cleaned} if len(only) == 1 else cleaned


#: The valid keys under a key, for messages about unknown ones.
_MODELS_BY_KEY: Mapping[str, type[BaseModel]] = {
    "": PolicyDocument,
    "rules": RuleEntry,
    **dict.fromkeys(SHORT_LISTS, ShortEntry),
    "resources": ResourceEntry,
    "effects": EffectEntry,
    "egress": EgressEntry,
    "budgets": BudgetEntry,
    "matches": Example,
    "does_not_match": Example,
    "command": CommandEntry,
}


def _error_message(error: Any) -> str:
    text = error["msg"].replace("Input should", "it should").replace("Value error, ", "")
    text = _unknown_key(error) if error["type"] == "extra_forbidden" else _ERROR_MESSAGES.get(error["type"], text)
    tags = ("text", "mapping", "list", "test", "exact")
    keys = [part for part in error["loc"] if isinstance(part, str) and part not in tags]
    # The last key on the way is enough beside the line.
    return f"{keys[-1][:80]}: {text}" if keys and keys[-1] else text


def _unknown_key(error: Any) -> str:
    key = str(error["loc"][-1])
    shape = next(
        (_MODELS_BY_KEY[part] for part in reversed(error["loc"][:-1]) if part in _MODELS_BY_KEY), PolicyDocument
    )
    if "test" in error["loc"][:-1]:
        return "beside is, glob or regex there is nothing else; write {is: ...} around an object"
    names = [field.alias or name for name, field in shape.model_fields.items()]
    known = f"Known: {', '.join(names)}."
    return f"there is no such key. {suggest_name(key, names) or known}"


_ERROR_MESSAGES: Mapping[str, str] = {
    "missing": "this key is missing",
    "string_pattern_mismatch": "letters, digits, `.`, `_` and `-`, at most 100, and a letter or digit first",
    "model_type": "it should be a text or keys with values",
    "model_attributes_type": "it should be a text or keys with values",
    "list_type": "it should be a list",
    "empty_key": "this key has no value; take it out, or say what it is",
}
