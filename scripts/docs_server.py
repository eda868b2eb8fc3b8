"""The generated parts of the docs about a server: its settings, who may do what, its limits, its REST API."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from interlock.audit.schemas import SCHEMAS
from interlock.oauth.providers import OAuthProvider
from interlock.server.core.audit_sinks import destination
from interlock.server.core.identity import login_throttle, sessions
from interlock.server.core.identity.oidc import RoleRule, SignInSettings
from interlock.server.core.identity.permissions import (
    PERMISSIONS,
    RELATIONSHIPS,
    Operation,
    PermissionScope,
    Relationship,
)
from interlock.server.core.identity.principal import Role
from interlock.server.core.notices import channel_settings
from interlock.server.core.settings import (
    AgentTable,
    ArtifactsTable,
    DatabaseTable,
    GatewayTable,
    McpTable,
    RetentionTable,
    ServerTable,
    WorkerTable,
)
from interlock.server.core.triggers import webhooks
from interlock.server.core.triggers.due_times import Schedule
from interlock.server.core.triggers.webhooks import Webhook
from interlock.server.rest import body, connections, limits
from interlock.server.rest.app import API_ROUTES
from interlock.server.rest.openapi import build_openapi
from interlock.server.rest.schemas.requests import InvokeAgentRequest

from .docs_tables import Field, amount, fields, table

EXAMPLES = Path(__file__).resolve().parent.parent / "examples" / "server"
#: The same, of a server; in `examples/server/`.
SERVER_EXAMPLES = ("client.py", "receiver.py", "serve.toml", "shop_agents.py")
#: The tables of `serve.toml`: how each is written, and what it is about.
SERVER_TABLES: tuple[tuple[str, type, str], ...] = (
    ("[server]", ServerTable, "The server itself."),
    ("[agents.NAME]", AgentTable, "An agent, under the name that runs, keys and lists know."),
    ("[[schedules]]", Schedule, "A run by the clock."),
    ("[[webhooks]]", Webhook, "A run because another system says so: `POST /hooks/NAME`."),
    ("[[forward]]", destination.HecDestination, 'Audit events, to Splunk: `kind = "hec"`.'),
    ("[[forward]]", destination.WebhookDestination, 'To anybody who takes a signed POST: `kind = "webhook"`.'),
    ("[[forward]]", destination.SyslogDestination, 'To a collector of syslog: `kind = "syslog"`.'),
    ("[[forward]]", destination.FileDestination, 'To a file: `kind = "file"`.'),
    ("[notices]", channel_settings.NoticesTable, "How people learn of questions: [notices](notices.md)."),
    ("[[notices.routes]]", channel_settings.NoticeRoute, "Which questions go to a channel."),
    ("[[notices.channels]]", channel_settings.WebhookChannel, 'A signed webhook: `kind = "webhook"`.'),
    ("[[notices.channels]]", channel_settings.EmailChannel, 'E-mail: `kind = "email"`.'),
    ("[[notices.channels]]", channel_settings.SlackChannel, 'A channel of Slack: `kind = "slack"`.'),
    ("[[notices.channels]]", channel_settings.TeamsChannel, 'A channel of Microsoft Teams: `kind = "teams"`.'),
    ("[[notices.channels]]", channel_settings.PushChannel, 'Browsers: `kind = "push"`.'),
    ("[[notices.channels]]", channel_settings.NtfyChannel, 'A topic of ntfy: `kind = "ntfy"`.'),
    ("[gateway]", GatewayTable, "MCP servers that are served to MCP clients at `/mcp`."),
    (
        "[database]",
        DatabaseTable,
        "Everything in Postgres, shared by several servers. Without it: files of one server.",
    ),
    ("[worker]", WorkerTable, "How the server continues runs of a log in Postgres."),
    ("[artifacts]", ArtifactsTable, "Where large outputs are stored."),
    ("[retention]", RetentionTable, "When runs that are over are archived and erased. Durations are like `30d`."),
    ("[mcp]", McpTable, "MCP servers whose tools agents of this server use."),
    ("[[providers]]", OAuthProvider, "Where users consent to tools acting for them."),
    ("[sign_in]", SignInSettings, "Signing in to the console with an identity provider."),
    ("[[sign_in.roles]]", RoleRule, "Who has this value in this claim, alone or in a list, has the role."),
)
#: What keys are for that say nothing themselves.
SERVER_KEYS: Mapping[str, str] = {
    "host": "Where to listen. Elsewhere than on this machine it needs an account first.",
    "tls_certificate": "A PEM file, for TLS without a proxy; with `tls_key`.",
    "tls_key": "A PEM file.",
    "four_eyes": "`off`, `high_risk` or `all`: which questions need a second person.",
    "consent_seconds": "The same for consents.",
    "checkpoint_seconds": "How often it is signed how far runs are.",
    "description": "What people read about it.",
    "on_rejection": "After a rejection or a timeout: `continue`, `degrade` or `fail`. None: the agent's, or `fail`.",
    "mode": "The permission mode of its runs: `read_only`, `default`, `accept_edits`, `contained`, `trusted`.",
    "workspace": "The folder that it works in.",
    "name": "Letters, digits, `-`, `_`; it is in ids and in the log.",
    "agent": "Whose run it is.",
    "task": "Task for the agent.",
    "timezone": "For `cron`; a name like `Europe/Zurich`.",
    "enabled": "`false`: it rests.",
    "secret_env": "The variable that has the shared secret, or:",
    "secret_file": "the file that has it.",
    "token_env": "The variable that has the token, or:",
    "token_file": "the file that has it.",
    "max_body_bytes": "Of a request.",
    "schema": "In whose words: `interlock`, `splunk_hec`, `ecs`, `ocsf`, `cef`.",
    "allow_plain": "Also without TLS.",
    "allow_private": "Also this machine and private networks. Metadata services are never called.",
    "url": "Where to.",
    "index": "Of Splunk.",
    "NoticesTable.channels": "Each is a table `[[notices.channels]]`.",
    "NoticesTable.routes": "Each is a table `[[notices.routes]]`. Without one, nothing is sent.",
    "NoticeRoute.channel": "The name of the channel.",
    "NoticeRoute.kinds": "`approval`, `input` or `consent`: only these. Only the user of a run gets the last.",
    "EmailChannel.secret_file": "the file that has it.",
    "NtfyChannel.topic": "Who knows the topic of a public server can read it: choose one that cannot be guessed.",
    "TeamsChannel.url_file": "the file that has it.",
    "signing_secret_file": "The file that has it.",
    "ServerTable.requests_per_second": "Requests that one key or person may make over time.",
    "ServerTable.request_burst": "And at once.",
    "Schedule.cron": "As in `*/5 * * * *`, in its time zone; or:",
    "Schedule.every_seconds": "every so many seconds, counted from 1970.",
    "Webhook.scheme": "`interlock`, or `github` for `X-Hub-Signature-256`, as GitHub and others sign.",
    "HecDestination.url": "As in `https://splunk.example.com:8088/services/collector/event`.",
    "HecDestination.schema": "Splunk takes no other.",
    "OAuthProvider.client_secret_env": "The variable that has its secret, if it has one; or:",
    "OAuthProvider.client_secret_file": "the file that has it.",
    "SyslogDestination.host": "Of the collector.",
    "SyslogDestination.port": "Of the collector.",
    "transport": "`udp`, `tcp` or `tls`. No transport of syslog confirms, and UDP may lose.",
    "facility": "As in RFC 5424.",
    "path": "Absolute.",
    "client_id": "As it is registered there.",
    "issuer": "Whose endpoints are looked up; or name them:",
    "authorization_endpoint": "Where people are sent.",
    "token_endpoint": "Where codes become tokens.",
    "revocation_endpoint": "Where tokens are taken back.",
    "token_params": "The same, to the token endpoint.",
    "claim": "Of the signed identity.",
    "value": "What it has to be, or to have.",
    "role": "`operator`, `auditor` or `admin`.",
}
#: What somebody who may do an operation may do, in words.
OPERATIONS: Mapping[Operation, str] = {
    Operation.LIST_RUNS: "see lists of agents, runs and what happens in them",
    Operation.LIST_QUESTIONS: "see the inbox",
    Operation.READ_STATISTICS: "see figures: outcomes, waiting times, cost, budgets, rules that ask, errors",
    Operation.READ_RUN: "see a run: events, state, calls, actions, artifacts",
    Operation.READ_QUESTION: "see a question as the inbox shows it",
    Operation.CREATE_RUN: "begin a run",
    Operation.CANCEL_RUN: "cancel a run",
    Operation.SEND_MESSAGE: "send a message to a conversation",
    Operation.STOP_AGENT: "end all runs of an agent at once",
    Operation.SWITCH_AGENT: "switch an agent off and on",
    Operation.SWITCH_ALL_AGENTS: "switch all agents off and on",
    Operation.LIST_TRIGGERS: "list schedules and webhooks",
    Operation.PAUSE_TRIGGER: "pause and resume schedules and webhooks",
    Operation.DECIDE: "approve, reject",
    Operation.ASSIGN: "say who is to answer a question",
    Operation.COMMENT: "comment on a question, for people only",
    Operation.UNDO_RUN: "undo what a run changed in its workspace, and preview that",
    Operation.ANSWER: "provide a value, or refuse to",
    Operation.CONSENT: "give a consent, or refuse it",
    Operation.OWN_CONSENTS: "see what oneself consented to, and take it back",
    Operation.READ_POLICY: "see, explain and backtest the policy of an agent",
    Operation.KEEP_RULE: "keep a rule with an approval, for every agent that uses the policy file",
    Operation.LIST_SERVERS: "see the list of MCP servers",
    Operation.READ_SERVERS: "see an MCP server of an agent, its tools and what changed in them",
    Operation.ACCEPT_TOOLS: "accept definitions of MCP tools that changed",
    Operation.EXPORT_RUN: "export a run",
    Operation.FORWARD_RUN: "send a run to a destination again",
    Operation.VERIFY_RUN: "verify a run",
    Operation.VERIFY_SERVER: "verify everything",
    Operation.READ_CHECKPOINTS: "see signed checkpoints",
    Operation.READ_FORWARDERS: "see how forwarding goes",
    Operation.RETRY_DEAD_LETTERS: "send events again that a destination rejected",
    Operation.READ_JOURNAL: "see the journal",
    Operation.READ_NOTICES: "see the channels of notices, and what became of notices",
    Operation.MANAGE_NOTICES: "try a channel, and send dead letters again",
    Operation.READ_KEYS: "see the list of keys",
    Operation.MANAGE_KEYS: "make and revoke keys",
    Operation.READ_ACCOUNTS: "see the list of accounts",
    Operation.MANAGE_ACCOUNTS: "make and change accounts",
    Operation.OWN_IDENTITY: "see who one is; sign out",
    Operation.OWN_ACCOUNT: "change one's own password, end one's own sessions, and manage one's own passkeys",
    Operation.READ_PUBLISHED: "see the public keys of checkpoints",
}
REACHES: Mapping[PermissionScope, str] = {
    PermissionScope.NONE: "",
    PermissionScope.CREATED: "made by it",
    PermissionScope.OWN: "own agents",
    PermissionScope.LIST: "own agents",
    PermissionScope.ALL: "owns all",
}
WITHOUT_ROLES: Mapping[Relationship, str] = {
    Relationship.AUTHENTICATED: "everybody",
    Relationship.PERSON: "every person",
    Relationship.REQUESTER: "whom the run acts for",
    Relationship.INVOLVED: "whom the run acts for, or who made it",
}


def _max_length(model: type[msgspec.Struct], name: str) -> int:
    schema = msgspec.json.schema(model)["$defs"][model.__name__]
    return schema["properties"][name]["maxLength"]


#: Limits of the server, with what they are about. What can be set is in the settings.
SERVER_LIMITS = (
    ("a body of a request", body.MAX_BODY_BYTES, "bytes"),
    ("the body of a webhook", webhooks.MAX_BODY_BYTES, "bytes"),
    ("time for a body to arrive", body.BODY_SECONDS, "seconds"),
    ("time for a client to take a piece of an answer", connections.SEND_SECONDS, "seconds"),
    ("requests at the same moment, of everybody together", limits.MAX_CONCURRENT_REQUESTS, ""),
    ("characters of a task", _max_length(InvokeAgentRequest, "task"), ""),
    ("failed sign-ins from one address before it has to wait", login_throttle.FREE_FAILURES, ""),
    (
        "failed sign-ins to one account before addresses that are new to it have to wait",
        login_throttle.FREE_FAILURES_PER_ACCOUNT,
        "",
    ),
    ("the longest such wait", login_throttle.MAX_WAIT_SECONDS, "seconds"),
    ("a sign-in, without a request", sessions.IDLE_NS / 1e9, "seconds"),
    ("a sign-in, at most", sessions.LIFETIME_NS / 1e9, "seconds"),
    ("sign-ins of one person at a time", sessions.MAX_SESSIONS_PER_PERSON, ""),
)


def server_settings() -> str:
    """Every key of `serve.toml`."""
    parts: list[str] = []
    for written, kind, about in SERVER_TABLES:
        parts += [f"**`{written}`** {about}", table(("key", "default", "what"), _setting_rows(kind))]
    return "\n\n".join(parts)


def _setting_rows(kind: type) -> list[tuple[str, ...]]:
    defaults = {field.name: field for field in msgspec.structs.fields(kind)}
    told = {field.name: field.meaning for base in reversed(kind.__mro__[:-2]) for field in _own_fields(base)}
    rows: list[tuple[str, ...]] = []
    for name, field in defaults.items():
        meaning = told.get(name, "")
        if meaning in {"", "See `Reach`."}:
            meaning = SERVER_KEYS.get(name, "")
        rows.append((f"`{name}`", _set_to(field), SERVER_KEYS.get(f"{kind.__name__}.{name}") or meaning))
    return rows


def _own_fields(kind: type) -> list[Field]:
    return fields(kind) if kind.__module__.startswith("interlock.") else []


def _set_to(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    value: Any = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    shown_value = msgspec.json.encode(value, order="deterministic").decode() if value not in ("", None, (), {}) else ""
    return f"`{shown_value}`" if shown_value else "none"


def server_permissions() -> str:
    """Who may do what, as the server's own table says it."""
    rows = [
        (f"`{operation}`", _in_words(operation), *(REACHES[row[role]] for role in Role), _unbound(operation))
        for operation, row in PERMISSIONS.items()
    ]
    return table(("operation", "to", *(f"`{role}`" for role in Role), "without a role"), rows)


def _in_words(operation: Operation) -> str:
    if operation not in OPERATIONS:
        raise RuntimeError(f"OPERATIONS in scripts/docs_server.py has no words for {operation}")
    return OPERATIONS[operation]


def _unbound(operation: Operation) -> str:
    return WITHOUT_ROLES[RELATIONSHIPS[operation]] if operation in RELATIONSHIPS else ""


def server_limits() -> str:
    return table(("limit", "is"), [(what, amount(number, unit)) for what, number, unit in SERVER_LIMITS])


def export_schemas() -> str:
    rows = [
        (f"`{name}`", schema.about, f"`{schema.form}`", "yes" if schema.render is None else "no")
        for name, schema in SCHEMAS.items()
    ]
    return table(("schema", "what", "format", "can be verified"), rows)


def rest_reference() -> str:
    """Every address of the API, as its own description has it."""
    paths: dict[str, dict[str, dict[str, Any]]] = _description()["paths"]
    told = [(path, method, answer) for path, row in paths.items() for method, answer in row.items()]
    if not any("x-interlock-operation" in answer for _, _, answer in told):
        raise RuntimeError("the description of the API does not say who may call what")
    rows = [
        (
            f"`{method.upper()} {path}`",
            _described(answer),
            ", ".join(_asked(answer)),
            f"`{answer['x-interlock-operation']}`" if "x-interlock-operation" in answer else "anybody",
            _answered(answer),
        )
        for path, method, answer in told
    ]
    return table(("request", "does", "takes", "who", "answers"), rows)


def _description() -> dict[str, Any]:
    return build_openapi(API_ROUTES)


def openapi_text() -> str:
    """The OpenAPI description, the same as a server's `/openapi.json`."""
    return f"{json.dumps(_description(), indent=1, ensure_ascii=False)}\n"


def _described(answer: Mapping[str, Any]) -> str:
    return " ".join(str(answer.get("description") or answer["summary"].capitalize()).split()).rstrip(".")


def _asked(answer: Mapping[str, Any]) -> Iterator[str]:
    for given in answer.get("parameters", ()):
        if given["in"] != "path":
            yield f"`{given['name']}`"
    for media in answer.get("requestBody", {}).get("content", {}).values():
        name = media["schema"].get("$ref", "").rpartition("/")[2]
        yield f"a body: `{name}`" if name else "a body"


def _answered(answer: Mapping[str, Any]) -> str:
    """The status of an answer that is what was asked for, and its shape."""
    status, told = next((status, told) for status, told in answer["responses"].items() if status.startswith("2"))
    names = {media["schema"].get("$ref", "").rpartition("/")[2] for media in told.get("content", {}).values()}
    return " ".join([status, *(f"`{name}`" for name in sorted(names) if name)])


def rest_errors() -> str:
    """Every status that is not what was asked for, as the API describes it."""
    paths: dict[str, dict[str, dict[str, Any]]] = _description()["paths"]
    found = {
        status: told["description"]
        for row in paths.values()
        for answer in row.values()
        for status, told in answer["responses"].items()
        if status >= "4"
    }
    return table(("status", "means"), [(status, found[status]) for status in sorted(found)])


def server_example(name: str) -> str:
    language = {"py": "python", "toml": "toml"}[name.rpartition(".")[2]]
    return f"```{language}\n{(EXAMPLES / name).read_text('utf-8')}```"


BLOCKS: Mapping[str, Callable[[], str]] = {
    "export-schemas": export_schemas,
    "rest-errors": rest_errors,
    "rest-reference": rest_reference,
    "server-limits": server_limits,
    "server-permissions": server_permissions,
    "server-settings": server_settings,
    **{f"server-{name}": partial(server_example, name) for name in SERVER_EXAMPLES},
}
