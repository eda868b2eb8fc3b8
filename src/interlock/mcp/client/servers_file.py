"""The servers file: which MCP servers there are, how they are started or reached, and what they may do.

Two formats are read. `mcp.toml` has a table for each server, with unknown keys refused:

    [servers.fs]
    command = ["mcp-server-filesystem", "."]
    sandbox = { write = ["."] }
    trust = "declared"

A JSON file with `mcpServers`, as MCP clients have it, works as it is, and takes the same keys beside `command`, `args`,
`env`, `url` and `headers`. Secrets are in neither: variables and headers name environment variables.
"""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast, get_args
from urllib.parse import urlsplit

import msgspec

from ...domain import json
from ...domain.errors import ConfigurationError
from ...domain.hosts import parse_address
from ...domain.tool import Consent
from ...rendering.text import describe_unknown

Trust: TypeAlias = Literal["none", "declared"]
PinMode: TypeAlias = Literal["locked", "first_use", "off"]
Relay: TypeAlias = Literal["elicitation", "sampling", "roots"]

_MAX_FILE_BYTES = 1 << 20
_MAX_SERVERS = 64
_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
MAX_NAME_CHARS = 24
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER_NAME = re.compile(r"[A-Za-z0-9-]{1,100}")
#: Set by the protocol and by HTTP itself.
_RESERVED_HEADERS = frozenset(
    {"host", "content-length", "content-type", "accept", "connection", "transfer-encoding", "mcp-session-id"}
)
#: Of other clients: said by them about themselves, or known from the other keys.
_IGNORED_JSON_KEYS = frozenset({"type", "transport", "description", "autoApprove", "alwaysAllow", "disabled"})
_DEFAULT_TIMEOUT_SECONDS = 120.0
_MAX_TIMEOUT_SECONDS = 3600


class ServerSandbox(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a server that is started here can access, beside the programs of the system."""

    #: The folder that it may write, relative to the workspace: `.` for all of it. Empty: none.
    write: tuple[str, ...] = ()
    #: The hosts that it reaches, through a proxy. Empty: none.
    network: tuple[str, ...] = ()
    #: Folders beside the workspace that it may read, absolute.
    read: tuple[str, ...] = ()


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One server, as the file has it."""

    name: str
    #: The program and its arguments; empty for a server that is reached by `url`.
    command: tuple[str, ...] = ()
    url: str = ""
    #: None: it runs without a sandbox, as this process does.
    sandbox: ServerSandbox | None = ServerSandbox()
    #: What its annotations are worth: nothing, or the defaults of its tools' risks.
    trust: Trust = "none"
    pins: PinMode = "first_use"
    #: Patterns of the names of its tools that are used.
    tools: tuple[str, ...] = ("*",)
    relay: tuple[Relay, ...] = ()
    #: By the name that the server sees: the name of the environment variable that has the value.
    env: Mapping[str, str] = {}
    #: By name: text with `${VARIABLE}`.
    headers: Mapping[str, str] = {}
    #: What its tools need of the user that a run acts for: then each user has a connection with their own token.
    consent: Consent | None = None
    timeout_seconds: float = _DEFAULT_TIMEOUT_SECONDS

    @property
    def is_local(self) -> bool:
        """True if it is a program that is started here."""
        return bool(self.command)

    @property
    def has_network(self) -> bool:
        """True if it can reach other hosts."""
        return self.sandbox is None or bool(self.sandbox.network) or not self.is_local

    def read_environment(self) -> dict[str, str]:
        """Return the variables of the server. Raise `ConfigurationError` for one that is not set."""
        return {name: _read_variable(self.name, variable) for name, variable in self.env.items()}

    def read_headers(self) -> dict[str, str]:
        """Return the headers of requests. Raise `ConfigurationError` for a variable that is not set."""
        return {
            name: _VARIABLE.sub(lambda match: _read_variable(self.name, match[1]), text)
            for name, text in self.headers.items()
        }

    def list_secrets(self) -> list[str]:
        """Return the values of all its variables that are set: none of them may be shown."""
        named = {*self.env.values(), *(name for text in self.headers.values() for name in _VARIABLE.findall(text))}
        return [value for name in sorted(named) if (value := os.environ.get(name))]


def read_servers_file(path: str | os.PathLike[str]) -> tuple[ServerConfig, ...]:
    """Read a servers file, `.toml` or `.json`. Raise `ConfigurationError` for anything that is not understood."""
    place = Path(path)
    try:
        content = place.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"The servers file {place} cannot be read: {error.strerror}.") from None
    if len(content) > _MAX_FILE_BYTES:
        raise ConfigurationError(f"{place} has {len(content):,} bytes; the limit is {_MAX_FILE_BYTES:,}.")
    try:
        entries = _read_json(content) if place.suffix == ".json" else _read_toml(content)
        servers = tuple(_read_server(name, entry) for name, entry in entries)
    except ConfigurationError as error:
        raise ConfigurationError(f"{place}: {error}") from None
    return check_servers(servers)


def check_servers(servers: tuple[ServerConfig, ...]) -> tuple[ServerConfig, ...]:
    """Check that there are not too many servers, and no two of one name."""
    if len(servers) > _MAX_SERVERS:
        raise ConfigurationError(f"{len(servers)} servers are more than the limit of {_MAX_SERVERS}.")
    names = [server.name for server in servers]
    if double := next((name for name in names if names.count(name) > 1), ""):
        raise ConfigurationError(f"Two servers would be called {double!r}. Rename one of them.")
    return servers


def _read_toml(content: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        document = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigurationError(f"It is no TOML: {error}.") from None
    for key in document:
        if key != "servers":
            raise ConfigurationError(describe_unknown("key", key, ("servers",)))
    for name, entry in _table(document.get("servers", {}), "servers").items():
        yield _check_name(name), _table(entry, f"servers.{name}")


def _read_json(content: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        document = json.parse(content)
    except json.InvalidJsonError as error:
        raise ConfigurationError(f"It is no JSON: {error}.") from None
    document = _table(document, "the file")
    if "mcpServers" not in document:
        raise ConfigurationError('It has no "mcpServers".')
    for name, value in _table(document["mcpServers"], "mcpServers").items():
        entry = _table(value, f"mcpServers.{name}")
        if entry.get("type") == "sse" or entry.get("transport") == "sse":
            raise ConfigurationError(f"{name}: HTTP with SSE is not supported; use streamable HTTP.")
        if entry.get("disabled") is True:
            continue
        if isinstance(entry.get("command"), str):
            entry["command"] = [entry["command"], *_texts(entry.pop("args", []), name, "args")]
        kept = {key: each for key, each in entry.items() if key not in _IGNORED_JSON_KEYS}
        yield _check_name(re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")), kept


#: What the table of a server may have.
KEYS = (
    *("command", "url", "sandbox", "trust", "pins", "tools", "relay"),
    *("env", "headers", "consent", "timeout"),
)


def _read_server(name: str, entry: dict[str, Any]) -> ServerConfig:
    for key in entry:
        if key not in KEYS:
            raise ConfigurationError(f"server {name}: {describe_unknown('key', key, KEYS)}")
    command, url = entry.get("command"), entry.get("url", "")
    if (command is None) == (not url):
        raise ConfigurationError(f"server {name}: give either command or url.")
    for key in ("sandbox", "env") if url else ("headers", "consent"):
        if key in entry:
            raise ConfigurationError(f"server {name}: {key} is for servers with {'command' if url else 'url'}.")
    config = ServerConfig(
        name=name,
        command=_read_command(command, name) if command is not None else (),
        url=_read_url(url, name) if url else "",
        sandbox=_read_sandbox(entry.get("sandbox", {}), name),
        trust=_choice(entry, "trust", get_args(Trust), "none", name),
        pins=_choice(entry, "pins", get_args(PinMode), "first_use", name),
        tools=_texts(entry.get("tools", ["*"]), name, "tools"),
        relay=cast(Any, _choices(entry.get("relay", []), get_args(Relay), name, "relay")),
        env=_read_env(entry.get("env", []), name),
        headers=_read_headers(entry.get("headers", {}), name),
        consent=_read_consent(entry.get("consent"), name),
        timeout_seconds=_read_timeout(entry.get("timeout", _DEFAULT_TIMEOUT_SECONDS), name),
    )
    if config.consent is not None and any(key.lower() == "authorization" for key in config.headers):
        raise ConfigurationError(f"server {name}: consent brings the header Authorization; leave it out of headers.")
    return config


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME_CHARS:
        raise ConfigurationError(
            f"{name[:100]!r} cannot be the name of a server: a letter, then letters, digits and single underscores, "
            f"lower case, {MAX_NAME_CHARS} characters at most."
        )
    return name


def _read_command(command: object, name: str) -> tuple[str, ...]:
    words = _texts(command, name, "command")
    if not words or not words[0]:
        raise ConfigurationError(f"server {name}: command is empty.")
    return words


def _read_url(url: object, name: str) -> str:
    parts = urlsplit(url) if isinstance(url, str) else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(f"server {name}: url must be an address such as https://example.com/mcp.")
    if parts.username or parts.password:
        raise ConfigurationError(f"server {name}: url has a user or a password; name a variable in headers instead.")
    address = parse_address(parts.hostname)
    is_here = parts.hostname == "localhost" if address is None else address.is_loopback
    if parts.scheme == "http" and not is_here:
        raise ConfigurationError(f"server {name}: http:// is for this host only; use https://.")
    return cast(str, url)


def _read_sandbox(value: object, name: str) -> ServerSandbox | None:
    if value == "off":
        return None
    table = _table(value, f'sandbox of server {name} (a table, or "off")')
    fields = ServerSandbox.__struct_fields__
    for key in table:
        if key not in fields:
            raise ConfigurationError(f"server {name}: sandbox: {describe_unknown('key', key, fields)}")
    found = {key: _texts(each, name, f"sandbox.{key}") for key, each in table.items()}
    sandbox = ServerSandbox(**found)
    if len(sandbox.write) > 1:
        raise ConfigurationError(f'server {name}: sandbox.write names one folder, such as ["."].')
    if relative := next((path for path in sandbox.read if not os.path.isabs(os.path.expanduser(path))), ""):
        raise ConfigurationError(f"server {name}: sandbox.read has {relative!r}, which is no absolute path.")
    return sandbox


def _read_env(value: object, name: str) -> dict[str, str]:
    if isinstance(value, list):
        named = {each: each for each in _texts(cast(object, value), name, "env")}
    else:
        named = {}
        for key, text in _table(value, f"env of server {name}").items():
            match = _VARIABLE.fullmatch(text) if isinstance(text, str) else None
            if match is None:
                raise ConfigurationError(
                    f"server {name}: env.{key} has a value in the file. "
                    f'Set the variable in your environment and write "${{{key}}}".'
                )
            named[key] = match[1]
    for key in named:
        if not _VARIABLE_NAME.fullmatch(key):
            raise ConfigurationError(f"server {name}: env has {key!r}, which is no name of a variable.")
    return named


def _read_headers(value: object, name: str) -> dict[str, str]:
    headers: dict[str, str] = {}
    for key, text in _table(value, f"headers of server {name}").items():
        if not _HEADER_NAME.fullmatch(key) or key.lower() in _RESERVED_HEADERS:
            raise ConfigurationError(f"server {name}: the header {key!r} cannot be set.")
        if not isinstance(text, str) or not _VARIABLE.search(text):
            raise ConfigurationError(
                f"server {name}: headers.{key} names no variable. "
                'Set one in your environment and write, for example, "Bearer ${TOKEN}".'
            )
        headers[key] = text
    return headers


def _read_consent(value: object, name: str) -> Consent | None:
    if value is None:
        return None
    table = _table(value, f"consent of server {name}")
    for key in table:
        if key not in ("provider", "scopes"):
            raise ConfigurationError(f"server {name}: consent: {describe_unknown('key', key, ('provider', 'scopes'))}")
    provider = table.get("provider")
    if not isinstance(provider, str) or not provider:
        raise ConfigurationError(f"server {name}: consent needs a provider.")
    return Consent(provider=provider, scopes=_texts(table.get("scopes", []), name, "consent.scopes"))


def _read_timeout(value: object, name: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= _MAX_TIMEOUT_SECONDS:
        raise ConfigurationError(f"server {name}: timeout is a number of seconds, {_MAX_TIMEOUT_SECONDS} at most.")
    return float(value)


def _choice(entry: dict[str, Any], key: str, choices: tuple[Any, ...], default: Any, name: str) -> Any:
    value = entry.get(key, default)
    if value not in choices:
        raise ConfigurationError(f"server {name}: {describe_unknown(key, value, choices)}")
    return value


def _choices(value: object, choices: tuple[str, ...], name: str, key: str) -> tuple[str, ...]:
    texts = _texts(value, name, key)
    for text in texts:
        if text not in choices:
            raise ConfigurationError(f"server {name}: {describe_unknown(key, text, choices)}")
    return texts


def _texts(value: object, name: str, key: str) -> tuple[str, ...]:
    items = cast(list[object], value) if isinstance(value, list) else [None]
    if not all(isinstance(item, str) and "\0" not in item for item in items):
        raise ConfigurationError(f"server {name}: {key} must be a list of texts.")
    return tuple(cast(list[str], items))


def _table(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigurationError(f"{what} must be a table.")
    return dict(cast(dict[str, Any], value))


def _read_variable(server: str, name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise ConfigurationError(f"server {server}: the environment variable {name} is not set.")
    return value
