"""Destinations of events, as configured. Secrets are referenced, never included."""

import re
from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from ....domain.errors import ConfigurationError
from ....domain.event import EVENT_TYPES
from ....domain.suggestions import find_near_name
from ..addresses import NetworkAccess, find_host_problem
from ..safe_http import find_url_problem

DestinationSchema: TypeAlias = Literal["interlock", "splunk_hec", "ecs", "ocsf", "cef"]

#: Facilities of RFC 5424 for local use.
FACILITIES = {"user": 1, "daemon": 3, "auth": 4, "authpriv": 10, "audit": 13} | {f"local{n}": 16 + n for n in range(8)}

is_destination_name = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}").fullmatch


class _Destination(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    name: str
    schema: DestinationSchema = "interlock"
    #: Only events of runs of these agents. None: of all.
    agents: frozenset[str] | None = None
    #: Only events of these types, such as `approval.granted`. None: of all.
    events: frozenset[str] | None = None


class _RemoteDestination(_Destination, frozen=True, kw_only=True, forbid_unknown_fields=True):
    #: Also without TLS.
    allow_plain: bool = False
    allow_private: bool = False
    #: Certificates to trust instead of those of the system, for a receiver with its own certificate.
    ca_file: str = ""

    @property
    def network_access(self) -> NetworkAccess:
        return NetworkAccess(allow_plain=self.allow_plain, allow_private=self.allow_private)


class HecDestination(_RemoteDestination, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="hec"):
    """Splunk's HTTP Event Collector: `https://splunk.example:8088/services/collector/event`."""

    url: str
    schema: DestinationSchema = "splunk_hec"
    token_env: str = ""
    token_file: str = ""
    index: str = ""


class WebhookDestination(_RemoteDestination, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="webhook"):
    """One event per line, signed as in `webhook_signature.py`."""

    url: str
    secret_env: str = ""
    secret_file: str = ""


class SyslogDestination(_RemoteDestination, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="syslog"):
    """RFC 5424. UDP may lose messages, and no transport of syslog confirms them."""

    host: str
    port: int = 6514
    transport: Literal["udp", "tcp", "tls"] = "tls"
    facility: str = "audit"


class FileDestination(_Destination, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="file"):
    """One event per line, appended."""

    path: str


Destination: TypeAlias = HecDestination | WebhookDestination | SyslogDestination | FileDestination


def get_destination_kind(destination: Destination) -> str:
    """Return the kind of a destination, as in the settings."""
    return str(destination.__struct_config__.tag)


def check_destinations(destinations: Sequence[Destination]) -> None:
    """Raise `ConfigurationError` if a destination is invalid or its name is not unique."""
    names: set[str] = set()
    for destination in destinations:
        if problem := "another one has the same name" if destination.name in names else _find_problem(destination):
            raise ConfigurationError(f'The destination "{destination.name[:64]}" cannot work: {problem}.')
        names.add(destination.name)


def _find_problem(destination: Destination) -> str:
    if not is_destination_name(destination.name):
        return "a name has up to 64 lower-case letters, digits, - and _"
    if unknown := sorted((destination.events or frozenset()) - EVENT_TYPES):
        near = find_near_name(unknown[0], EVENT_TYPES)
        return f"there is no event {unknown[0][:64]!r}" + (f"; did you mean {near!r}?" if near else "")
    match destination:
        case HecDestination():
            wrong = "it takes the schema splunk_hec only" if destination.schema != "splunk_hec" else ""
            return wrong or _find_url_problem(destination.url, destination.network_access)
        case WebhookDestination():
            return _find_url_problem(destination.url, destination.network_access)
        case SyslogDestination():
            return _find_syslog_problem(destination)
        case FileDestination():
            return (
                "" if destination.path.startswith("/") and "\0" not in destination.path else "its path is not absolute"
            )


def _find_url_problem(url: str, access: NetworkAccess) -> str:
    problem = find_url_problem(url, access)
    return f"its URL is not one that can be called: {problem}" if problem else ""


def _find_syslog_problem(destination: SyslogDestination) -> str:
    if destination.facility not in FACILITIES:
        return f"its facility is none of {', '.join(FACILITIES)}"
    if not 0 < destination.port < 1 << 16:
        return "its port is none"
    if destination.transport != "tls" and not destination.allow_plain:
        return f"{destination.transport} is not encrypted, which needs `allow_plain = true`"
    problem = find_host_problem(destination.host)
    return f"its host cannot be called: {problem}" if problem else ""
