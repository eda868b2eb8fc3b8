"""Pages: templates, and what all of them are given.

Templates escape everything, and make all text visible first (`markup.finalized`): what somebody forgot to think about
is shown harmlessly. A name that a template misspells is an error.
"""

import asyncio
from pathlib import Path
from typing import Any, cast

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

from ..core.identity.permissions import Operation, may, visible
from ..core.identity.principal import Principal, Role
from ..core.identity.sessions import SignedIn
from ..core.service import Service
from . import markup, times
from .assets import Assets

_FOLDER = Path(__file__).parent / "templates"

#: Scripts, styles and connections are ours only; nothing inline, no plugin, no frame, no text that becomes script.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; require-trusted-types-for 'script'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class NavEntry(msgspec.Struct, frozen=True):
    name: str
    path: str
    icon: str
    #: Whoever has one of these sees it; None: everybody.
    roles: frozenset[Role] | None = None


NAV = (
    NavEntry("Dashboard", "/console/", "home"),
    NavEntry("Runs", "/console/runs", "runs"),
    NavEntry("Inbox", "/console/inbox", "inbox"),
    NavEntry("Policy", "/console/policy", "policy", frozenset((Role.OPERATOR, Role.AUDITOR, Role.ADMIN))),
    NavEntry("Consents", "/console/consents", "consents"),
    NavEntry("Audit", "/console/audit", "audit", frozenset((Role.OPERATOR, Role.AUDITOR, Role.ADMIN))),
    NavEntry("Admin", "/console/admin", "admin", frozenset((Role.AUDITOR, Role.ADMIN))),
)


class Pages:
    def __init__(self, service: Service, assets: Assets) -> None:
        self._service = service
        self._environment = Environment(
            loader=FileSystemLoader(_FOLDER),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=markup.finalized,
            auto_reload=False,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        cast(dict[str, Any], self._environment.globals)["asset"] = assets.url
        self._environment.filters |= {
            "shown": markup.shown,
            "line": markup.shown_line,
            "marked": markup.marked,
            "exact": markup.exact,
            "segment": markup.segment,
            "iso": times.iso,
            "clock": times.clock,
        }

    async def page(
        self, request: Request, visitor: SignedIn, template: str, *, status: int = 200, **values: Any
    ) -> HTMLResponse:
        """A page for somebody who is signed in."""
        who = visitor.principal
        seen = visible(who)
        waiting = await self._service.index.open_questions(seen.agents, seen.person)
        frame: dict[str, Any] = {
            "me": who,
            "csrf": visitor.csrf,
            "nav": [entry for entry in NAV if _sees(who, entry)],
            "here": _here(request.url.path),
            "waiting": waiting["approval"] + waiting["input"],
            "position": getattr(request.state, "live_after", self._service.index.position),
            "now": self._service.now(),
        }
        if taken := frame.keys() & values.keys():
            raise ValueError(f"{template} is given what its frame has: {', '.join(sorted(taken))}")
        # In a thread: what a page shows may be long, and everybody else would wait.
        return await asyncio.to_thread(self._made, template, status, frame | values)

    def open_page(self, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
        """A page for anybody."""
        return self._made(template, status, {"me": None, **values})

    def _made(self, template: str, status: int, values: dict[str, Any]) -> HTMLResponse:
        html = self._environment.get_template(template).render(values)
        # What is half a character can be asked for in an address; it must not keep a page from being sent.
        return HTMLResponse(html.encode("utf-8", "replace"), status, HEADERS)


def _sees(who: Principal, entry: NavEntry) -> bool:
    if entry.name == "Admin":
        return may(who, Operation.READ_ACCOUNTS)
    return entry.roles is None or not entry.roles.isdisjoint(who.roles)


def _here(path: str) -> str:
    """The entry that a page belongs to."""
    inside = [entry.path for entry in NAV if entry.path != NAV[0].path and path.startswith(entry.path)]
    return inside[0] if inside else NAV[0].path
