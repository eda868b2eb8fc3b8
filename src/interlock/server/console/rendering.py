"""Renders pages: templates, and their common context.

Templates escape everything, and make all text visible first (`markup.finalize_value`): what was not considered
is shown harmlessly. A name that a template misspells is an error.
"""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any, cast, get_args

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

from ...history.run_view import RunEventType
from ...rendering import times
from ...rendering.events import describe_channel
from ...rendering.run_states import ACTION_STATES, RUN_STATES
from ..core.identity.permissions import Operation, get_visibility, is_allowed
from ..core.identity.principal import Principal, Role
from ..core.identity.sessions import AuthenticatedSession
from ..core.service import Service
from . import markup
from .addresses import build_template_extension
from .assets import Assets
from .views.charts import format_cost

_TEMPLATE_FOLDER = Path(__file__).parent / "templates"

#: Scripts, styles and connections are ours only; nothing inline, no plugin, no frame, no text that becomes script.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; require-trusted-types-for 'script'"
)
#: What pages say otherwise than other answers (`rest/security.py`).
PAGE_HEADERS = {"Content-Security-Policy": CONTENT_SECURITY_POLICY, "Referrer-Policy": "same-origin"}


class NavEntry(msgspec.Struct, frozen=True):
    """An entry of the navigation."""

    name: str
    path: str
    icon: str
    #: The roles that see it; None: all.
    roles: frozenset[Role] | None = None


NAV_ENTRIES = (
    NavEntry("Dashboard", "/console/", "home"),
    NavEntry("Agents", "/console/agents", "spark"),
    NavEntry("Runs", "/console/runs", "runs"),
    NavEntry("Inbox", "/console/inbox", "inbox"),
    NavEntry("Policy", "/console/policy", "policy", frozenset((Role.OPERATOR, Role.AUDITOR, Role.ADMIN))),
    NavEntry("Servers", "/console/servers", "servers", frozenset((Role.OPERATOR, Role.AUDITOR, Role.ADMIN))),
    NavEntry("Consents", "/console/consents", "consents"),
    NavEntry("Notices", "/console/notices", "notices"),
    NavEntry("Audit", "/console/audit", "audit", frozenset((Role.OPERATOR, Role.AUDITOR, Role.ADMIN))),
    NavEntry("Admin", "/console/admin", "admin", frozenset((Role.AUDITOR, Role.ADMIN))),
)

#: Pages that belong to an entry of another path; empty: to none.
_SUBPAGES = {"/console/triggers": "/console/agents", "/console/sinks": "/console/audit", "/console/account": ""}


class PageRenderer:
    """Renders pages from templates."""

    def __init__(self, service: Service, assets: Assets) -> None:
        self._service = service
        self._environment = Environment(
            loader=FileSystemLoader(_TEMPLATE_FOLDER),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=markup.finalize_value,
            auto_reload=False,
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[build_template_extension(path)] if (path := service.settings.server.public_path) else [],
        )
        event_types = " ".join(get_args(RunEventType))
        cast(dict[str, Any], self._environment.globals).update(
            asset=assets.url, event_types=event_types, RUN_STATES=RUN_STATES, ACTION_STATES=ACTION_STATES
        )
        self._environment.filters |= {
            "shown": markup.render_text,
            "line": markup.render_line,
            "lines": markup.render_paragraph,
            "marked": markup.mark_escapes,
            "exact": markup.escape_exact,
            "segment": markup.quote_segment,
            "iso": partial(times.format_rfc3339, digits=0),
            "clock": times.format_utc,
            "channel": describe_channel,
            "cost": format_cost,
        }

    async def render_page(
        self, request: Request, visitor: AuthenticatedSession, template: str, *, status: int = 200, **values: Any
    ) -> HTMLResponse:
        """Render a page for a signed-in user."""
        principal = visitor.principal
        visibility = get_visibility(principal)
        pending = await self._service.index.count_open_questions(visibility.agents, visibility.person)
        frame: dict[str, Any] = {
            "me": principal,
            "csrf": visitor.csrf,
            "nav": [entry for entry in NAV_ENTRIES if _can_see(principal, entry)],
            "here": _find_active_path(request.url.path),
            "waiting": pending["approval"] + pending["input"],
            "position": getattr(request.state, "live_after", self._service.index.position),
            "now": self._service.now(),
        }
        if reserved := frame.keys() & values.keys():
            raise ValueError(f"{template} is given what its frame has: {', '.join(sorted(reserved))}")
        # In a thread: a page may be long, and would block others.
        return await asyncio.to_thread(self._render, template, status, frame | values)

    def render_public_page(self, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
        """Render a page without a user."""
        return self._render(template, status, {"me": None, **values})

    def _render(self, template: str, status: int, values: dict[str, Any]) -> HTMLResponse:
        html = self._environment.get_template(template).render(values)
        # What is half a character can be asked for in an address; it must not keep a page from being sent.
        return HTMLResponse(html.encode("utf-8", "replace"), status, PAGE_HEADERS)


def _can_see(principal: Principal, entry: NavEntry) -> bool:
    if entry.name == "Admin":
        return is_allowed(principal, Operation.READ_ACCOUNTS)
    return entry.roles is None or not entry.roles.isdisjoint(principal.roles)


def _find_active_path(path: str) -> str:
    """Return the navigation entry that a page belongs to."""
    for subpage, owner in _SUBPAGES.items():
        if path.startswith(subpage):
            return owner
    inside = [entry.path for entry in NAV_ENTRIES if entry.path != NAV_ENTRIES[0].path and path.startswith(entry.path)]
    return inside[0] if inside else NAV_ENTRIES[0].path
