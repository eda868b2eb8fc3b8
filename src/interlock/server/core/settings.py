"""Server settings: one TOML file, every key of which has a default. No secret is in it: it says where they are.

[server]
port = 8321
four_eyes = "high_risk"

[agents.support]
object = "shop.agents:support"

[[schedules]]
name = "nightly"
agent = "support"
task = "Look for orders that hang."
cron = "0 3 * * *"
"""

import re
import tomllib
from collections.abc import Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec

from ...domain.decision import FailurePolicy
from ...domain.errors import ConfigurationError
from ...domain.ids import is_valid_name
from ...domain.tool import PermissionMode
from ...oauth.providers import OAuthProvider
from ...policy.files.values import parse_duration
from .audit_sinks.destination import Destination, check_destinations
from .identity.oidc import SignInSettings
from .identity.permissions import FourEyes
from .notices.channel_settings import NoticesTable
from .triggers.due_times import Schedule, check_schedules
from .triggers.webhooks import Webhook

_Seconds: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=31_536_000)]
_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
_Port: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=65_535)]
#: How settings are called whose value is the path of a file.
_FILE_KEY_SUFFIXES = ("_file", "path", "tls_certificate", "tls_key")
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


#: With what paths of the server itself begin: the path of `public_url` cannot, because a proxy may strip it or not.
OWN_SEGMENTS = frozenset(
    (".well-known", "console", "consents", "health", "hooks", "mcp", "metrics", "openapi.json", "runs", "session", "v1")
)
_PUBLIC_PATH = re.compile(r"(?:/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+")
_MAX_QUEUE_CHARS = 128
_MIN_RETENTION_SECONDS = 3_600.0


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class ServerTable(_Table, frozen=True, kw_only=True):
    """The table `[server]`."""

    host: str = "127.0.0.1"
    #: 0: any that is free.
    port: _Port = 8321
    #: The public address, where there is a proxy in front: `https://interlock.example.com`, or with a path:
    #: `https://tools.example.com/interlock`.
    public_url: str = ""
    #: Addresses of proxies that are trusted for the client address (`X-Forwarded-For`), such as `127.0.0.1`.
    trusted_proxies: tuple[str, ...] = ()
    #: More names that a request may be for.
    hosts: tuple[str, ...] = ()
    tls_certificate: str = ""
    tls_key: str = ""
    four_eyes: FourEyes = "high_risk"
    #: How long people have for an answer. Nothing: no limit.
    approval_seconds: _Seconds | None = None
    consent_seconds: _Seconds | None = None
    #: Questions that one run may have open; further calls that need an answer are refused.
    max_open_questions: _Count = 20
    checkpoint_seconds: _Seconds = 60.0
    #: A file outside, to which signed checkpoints are added.
    checkpoint_file: str = ""
    #: Runs that are driven at once. One that waits for a person does not count.
    max_live_runs: _Count = 1_000
    #: Handlers of tools that run at once, in all runs of all agents.
    max_handlers: _Count = 128
    #: Streams of events that are read at once, at most 600: other requests need connections, too.
    max_readers: Annotated[int, msgspec.Meta(ge=1, le=600)] = 100
    #: Requests per second that one key or person may make over time, and at once.
    requests_per_second: _Count = 50
    request_burst: _Count = 200
    #: How long calls under way may take when the server stops.
    stop_seconds: _Seconds = 10.0

    @property
    def is_loopback(self) -> bool:
        """True if the server only listens on this machine."""
        return self.host in _LOOPBACK

    @property
    def public_path(self) -> str:
        """The path of `public_url`, like `/interlock`; empty: it has none."""
        return urlsplit(self.public_url).path.rstrip("/")


class DatabaseTable(_Table, frozen=True, kw_only=True):
    """The table `[database]`: runs, accounts and everything else in Postgres, shared by servers on several hosts."""

    #: The environment variable with the URL, which may have a password.
    url_env: str = "INTERLOCK_DATABASE_URL"
    #: The schema that `interlock database migrate` created.
    schema: str = "interlock"
    #: Queries at once, of the log and of the server's own tables each.
    readers: Annotated[int, msgspec.Meta(ge=1, le=50)] = 4

    def read_url(self, environ: Mapping[str, str]) -> str:
        """Return the URL. Raise `ConfigurationError` where there is none."""
        url = environ.get(self.url_env, "").strip()
        if not url:
            raise ConfigurationError(
                f"[database] needs the URL of a Postgres database in the environment variable {self.url_env}, which is "
                "not set. Expected: postgresql://user@host/database"
            )
        return url


class AgentTable(_Table, frozen=True, kw_only=True):
    """A table `[agents.<name>]`."""

    #: `package.module:name` of an `Agent`, a `ServedAgent`, or a function that makes one. Modules of the current folder
    #: are found after installed ones.
    object: str
    description: str = ""
    on_rejection: FailurePolicy | None = None
    mode: PermissionMode | None = None
    workspace: str = ""
    #: The queue of its runs in a log that many hosts share. Empty: what the agent declares, or `default`.
    queue: str = ""
    #: The window of its model in tokens. Nothing: what the agent declares.
    window_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None


class WorkerTable(_Table, frozen=True, kw_only=True):
    """The table `[worker]`: how a process continues runs of a log that many hosts share."""

    #: A process takes only runs of its queues.
    queues: tuple[str, ...] = ("default",)
    #: How many runs it continues at once.
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 50
    #: Seconds without a heartbeat after which other processes take its runs over.
    lease_seconds: Annotated[float, msgspec.Meta(ge=1, le=600)] = 6.0
    #: Seconds that the database may be gone before writes fail.
    patience_seconds: Annotated[float, msgspec.Meta(ge=0)] = 20.0


class ArtifactsTable(_Table, frozen=True, kw_only=True):
    """The table `[artifacts]`: where large outputs are stored. Credentials of S3 come from the environment."""

    #: `postgres` (the default of a log in Postgres), `files` (that of a log in a file), or `s3`.
    kind: Literal["", "postgres", "files", "s3"] = ""
    #: Of `files`: the folder. Empty: beside the log.
    folder: str = ""
    #: Of `s3`: the bucket, which has to exist.
    bucket: str = ""
    #: Of `s3`: the folder in the bucket.
    prefix: str = ""
    #: Of `s3`: the URL of a compatible store. Empty: AWS.
    endpoint: str = ""
    #: Of `s3`: the region of the bucket. Empty: `AWS_REGION`.
    region: str = ""

    def __post_init__(self) -> None:
        """Reject settings of another kind, and a bucket that is missing."""
        if (self.kind == "s3") != bool(self.bucket):
            raise ConfigurationError('[artifacts] bucket and kind = "s3" belong together.')
        if self.kind != "s3" and (self.prefix or self.endpoint or self.region):
            raise ConfigurationError('[artifacts] prefix, endpoint and region need kind = "s3".')
        if self.folder and self.kind != "files":
            raise ConfigurationError('[artifacts] folder needs kind = "files".')


def _parse_age(name: str, text: str) -> float:
    try:
        return (parse_duration(text) or 0.0) if text else 0.0
    except ConfigurationError as error:
        raise ConfigurationError(f"[retention] {name}: {error}.") from None


class RetentionTable(_Table, frozen=True, kw_only=True):
    """The table `[retention]`: when runs that are over are archived and erased. Durations are like `30d`."""

    #: Runs that ended this long ago are moved to files. Empty: never.
    archive_after: str = ""
    #: Runs that ended this long ago are erased, also from the archive. Empty: never.
    erase_after: str = ""
    #: The folder of the archives, an absolute path.
    folder: str = ""
    #: With Postgres: the environment variable with the URL of the role that owns the tables.
    owner_url_env: str = "INTERLOCK_OWNER_URL"

    def __post_init__(self) -> None:
        """Reject durations that cannot be meant, and a folder that is missing."""
        archive, erase = self.archive_seconds, self.erase_seconds
        for name, seconds in (("archive_after", archive), ("erase_after", erase)):
            if 0 < seconds < _MIN_RETENTION_SECONDS:
                raise ConfigurationError(f"[retention] {name} has to be at least 1h.")
        if archive and erase and erase <= archive:
            raise ConfigurationError("[retention] erase_after has to be longer than archive_after.")
        if bool(archive) != bool(self.folder) or not Path(self.folder or "/").is_absolute():
            raise ConfigurationError("[retention] archive_after needs folder, an absolute path, and folder needs it.")

    @property
    def archive_seconds(self) -> float:
        """The age at which a run is archived; 0: never."""
        return _parse_age("archive_after", self.archive_after)

    @property
    def erase_seconds(self) -> float:
        """The age at which a run is erased; 0: never."""
        return _parse_age("erase_after", self.erase_after)

    @property
    def is_active(self) -> bool:
        """True if runs are archived or erased."""
        return bool(self.archive_after or self.erase_after)

    def read_owner_url(self, environ: Mapping[str, str]) -> str:
        """Return the URL of the owner. Raise `ConfigurationError` where there is none."""
        url = environ.get(self.owner_url_env, "").strip()
        if not url:
            raise ConfigurationError(
                "[retention] removes events, which needs the role that owns the tables. Put its URL into the "
                f"environment variable {self.owner_url_env}, which is not set."
            )
        return url


class GatewayTable(_Table, frozen=True, kw_only=True):
    """The table `[gateway]`: MCP servers that are served at `/mcp`."""

    #: The file with the servers, as for `interlock gateway --servers`.
    servers_path: str
    #: The policy file of the gateway. Empty: tools that only read are allowed, everything else requires approval.
    policy_path: str = ""
    #: The folder that the servers work in. Empty: an empty one.
    workspace: str = ""
    #: How long a call waits for approval before its client gets PENDING.
    hold_seconds: Annotated[float, msgspec.Meta(ge=0, le=3_600)] = 50.0
    #: Whether the answers of clients' users count: `off`, `claim` (with `approver: client`) or `trusted`.
    elicit: Literal["off", "claim", "trusted"] = "claim"


class McpTable(_Table, frozen=True, kw_only=True):
    """The table `[mcp]`: MCP servers whose tools agents of this server use."""

    #: The file with the servers: an `mcp.toml`, or a JSON file with `mcpServers`.
    servers_path: str = ""
    #: The folder that the servers work in. Empty: none.
    workspace: str = ""
    #: The agents that get the tools, each with connections of its own.
    agents: tuple[str, ...] = ()


class ServerSettings(_Table, frozen=True, kw_only=True):
    """The settings of a server."""

    server: ServerTable = ServerTable()
    agents: dict[str, AgentTable] = {}
    schedules: tuple[Schedule, ...] = ()
    webhooks: tuple[Webhook, ...] = ()
    forward: tuple[Destination, ...] = ()
    notices: NoticesTable = NoticesTable()
    providers: tuple[OAuthProvider, ...] = ()
    sign_in: SignInSettings | None = None
    gateway: GatewayTable | None = None
    #: None: files of one server.
    database: DatabaseTable | None = None
    mcp: McpTable = McpTable()
    worker: WorkerTable = WorkerTable()
    artifacts: ArtifactsTable = ArtifactsTable()
    retention: RetentionTable = RetentionTable()

    @property
    def own_paths(self) -> tuple[str, ...]:
        """Files named here (keys, certificates, secrets, checkpoints), which no tool may access."""
        sign_in = () if self.sign_in is None else (self.sign_in.provider,)
        gateway = () if self.gateway is None else (self.gateway,)
        tables = (
            self.server,
            self.mcp,
            *self.webhooks,
            *self.forward,
            *self.notices.channels,
            *self.providers,
            *sign_in,
            *gateway,
        )
        named = ((table, name) for table in tables for name in table.__struct_fields__)
        paths = (str(getattr(table, name)) for table, name in named if name.endswith(_FILE_KEY_SUFFIXES))
        return tuple(filter(None, (*paths, self.retention.folder)))

    def __post_init__(self) -> None:
        server = self.server
        check_schedules(self.schedules)
        check_destinations(self.forward)
        if bool(server.tls_certificate) != bool(server.tls_key):
            raise ConfigurationError("[server] tls_certificate and tls_key belong together.")
        if server.public_url and not _is_public_url(server.public_url):
            raise ConfigurationError(
                '[server] public_url has to be like "https://interlock.example.com" or '
                '"https://tools.example.com/interlock".'
            )
        if server.public_path.partition("/")[2].partition("/")[0] in OWN_SEGMENTS:
            raise ConfigurationError(
                f"[server] public_url cannot have the path {server.public_path}, which begins like a path of the "
                "server itself. Choose another one."
            )
        for queue in (*self.worker.queues, *filter(None, (agent.queue for agent in self.agents.values()))):
            if not is_valid_name(queue) or len(queue) > _MAX_QUEUE_CHARS:
                raise ConfigurationError(f"{queue[:40]!r} cannot be the name of a queue.")
        if not self.worker.queues:
            raise ConfigurationError("[worker] queues needs at least one. `--no-worker` starts a server without any.")
        for proxy in server.trusted_proxies:
            if not _is_network(proxy):
                raise ConfigurationError(f"[server] trusted_proxies has {proxy!r}, which is no address and no network.")


def _is_public_url(url: str) -> bool:
    """Return True if a URL is a scheme and a host, perhaps with a port and a plain path, and nothing else."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return False
    bare = f"[{host}]" if ":" in host else host
    exact = f"{parts.scheme}://{bare}" + (f":{port}" if port is not None else "")
    path = parts.path.rstrip("/")
    return (
        bool(host)
        and parts.scheme in ("http", "https")
        and url.rstrip("/") == url[: len(exact)] + path
        and url[: len(exact)].lower() == exact
        and (not path or _PUBLIC_PATH.fullmatch(path) is not None)
    )


def _is_network(text: str) -> bool:
    try:
        ip_network(text)
    except ValueError:
        return False
    return True


def parse_settings(tables: Mapping[str, Any]) -> ServerSettings:
    """Parse the tables of a configuration file."""
    try:
        return msgspec.convert(tables, ServerSettings)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{error}.{_hint_at_secrets(str(error))}") from None


def read_settings(path: Path) -> ServerSettings:
    """Read a settings file. Raise `ConfigurationError` for what cannot be read or cannot work."""
    try:
        with path.open("rb") as file:
            return parse_settings(tomllib.load(file))
    except RecursionError:
        raise ConfigurationError(f"{path} is nested too deep (nested_too_deep). Nothing was started.") from None
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}. Nothing was started.") from None
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error} Nothing was started.") from None


def _hint_at_secrets(problem: str) -> str:
    if "secret" not in problem and "token" not in problem:
        return ""
    return " Secrets are named by environment variable or file (`secret_env`, `token_file`, ...), never written down."
