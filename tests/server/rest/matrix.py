"""Who may do what, as a table: every address, for everybody, with what is theirs and with what is somebody else's.

A cell is the status of the answer. Requests are made so that whoever may, gets an answer that changes nothing: a wrong
hash (409), a run that is over (409), a body or a name that cannot be (422, 404). So 401, 403 and, with what is somebody
else's, 404 are refusals; everything else was let through.

`own`: a run of the agent `shop`, made by the key `agent` for the person `sam`. `other`: one of the agent `other`, made
by another key for somebody else. The keys `agent` to `admin` are for `shop` alone, those with `_all` for all agents;
`sam` is a person without any role, who signed in.
"""

from typing import Any, NamedTuple

WHO = ("", "agent", "operator", "auditor", "admin", "operator_all", "auditor_all", "admin_all", "sam")


class Row(NamedTuple):
    method: str
    path: str
    own: str
    #: Empty: it is not about a run or an agent.
    other: str = ""
    body: dict[str, Any] | None = None


#                        none agnt oper audi admi op.a au.a ad.a sam
_OPEN_200 = "            200  200  200  200  200  200  200  200  200"
_OPEN_404 = "            404  404  404  404  404  404  404  404  404"
_OPEN_409 = "            409  409  409  409  409  409  409  409  409"
_OPEN_422 = "            422  422  422  422  422  422  422  422  422"
_LISTS = "               401  200  200  200  200  200  200  200  200"
_INBOX = "               401  403  200  200  200  200  200  200  200"
_READ_OWN = "            401  200  200  200  200  200  200  200  200"
_READ_OTHER = "          401  404  404  404  404  200  200  200  404"
_ASKED_OWN = "           401  403  200  200  200  200  200  200  200"
_MAKE_OWN = "            401  422  422  403  422  422  403  422  403"
_MAKE_OTHER = "          401  403  403  403  403  422  403  422  403"
_CANCEL_OWN = "          401  409  409  403  409  409  403  409  409"
# Without a reason nothing is stopped.
_STOP_OWN = "            401  403  422  403  422  422  403  422  403"
_STOP_OTHER = "          401  403  403  403  403  422  403  422  403"
# Of those who may, nobody may now: the run waits for an answer.
_MESSAGE_OWN = "         401  409  403  403  403  403  403  403  409"
_MESSAGE_OTHER = "       401  404  404  404  404  403  403  403  404"
_CANCEL_OTHER = "        401  404  404  404  404  409  403  409  404"
_DECIDE_OWN = "          401  403  409  403  409  409  403  409  403"
_DECIDE_OTHER = "        401  404  404  404  404  409  403  409  404"
_MANY = "                401  403  200  403  200  200  403  200  403"
# To an account that there is not, and without a text.
_ASSIGN_OWN = "          401  403  422  403  422  422  403  422  403"
_ASSIGN_OTHER = "        401  404  404  404  404  422  403  422  404"
_COMMENT_OWN = "         401  403  422  422  422  422  422  422  422"
_COMMENT_OTHER = "       401  404  404  404  404  422  422  422  404"
# The question is one for approval: whoever may consent is told that there is none for consent.
_CONSENT_OWN = "         401  403  403  403  403  403  403  403  404"
_CONSENT_OTHER = "       401  404  404  404  404  403  403  403  404"
_PERSON_200 = "          401  403  403  403  403  403  403  403  200"
_PERSON_404 = "          401  403  403  403  403  403  403  403  404"
_PERSON_409 = "          401  403  403  403  403  403  403  403  409"
_PERSON_422 = "          401  403  403  403  403  403  403  403  422"
_EXPORT_OWN = "          401  403  403  200  200  403  200  200  403"
_EXPORT_OTHER = "        401  404  404  404  404  403  200  200  404"
_FORWARD_OWN = "         401  403  403  404  404  403  404  404  403"
_FORWARD_OTHER = "       401  404  404  404  404  403  404  404  404"
_VERIFY_OWN = "          401  403  200  200  200  200  200  200  403"
_POLICY_OWN = "          401  403  200  200  200  200  200  200  403"
_POLICY_OTHER = "        401  403  403  403  403  200  200  200  403"
_SERVER = "              401  403  403  403  403  403  200  200  403"
_NOTICES = "             401  403  403  403  403  200  200  200  403"
_SERVERS = "             401  403  200  200  200  200  200  200  403"
_NO_SINK = "             401  403  403  403  403  403  404  404  403"
_NO_TRIGGER = "          401  403  404  404  404  404  404  404  403"
_NO_SERVER = "           401  404  404  404  404  404  404  404  404"
_ADMIN_422 = "           401  403  403  403  403  403  403  422  403"
_ADMIN_404 = "           401  403  403  403  403  403  403  404  403"
_KNOWN = "               401  200  200  200  200  200  200  200  200"
_SIGN_OUT = "            401  204  204  204  204  204  204  204  204"
# Without a cookie, the page that loads the address again.
_CALLBACK = "            200  200  200  200  200  200  200  200  404"

_BLANK = {"task": "  "}
_WRONG_HASH = {"payload_hash": "sha256:0"}
_UNKNOWN = {"action_id": "nobody", **_WRONG_HASH}
_BROWSER = {"channel": "none", "endpoint": "https://fcm.googleapis.com/x", "keys": {"p256dh": "x", "auth": "x"}}

MATRIX = (
    Row("GET", "/health/live", _OPEN_200),
    Row("GET", "/health/ready", _OPEN_200),
    Row("POST", "/hooks/{name}", _OPEN_404, body={}),
    Row("POST", "/v1/session", _OPEN_422, body={}),
    Row("GET", "/session/start", _OPEN_404),
    Row("GET", "/session/callback", _OPEN_404),
    Row("GET", "/v1/agents", _LISTS),
    Row("GET", "/v1/runs", _LISTS),
    Row("GET", "/v1/statistics", _INBOX),
    Row("GET", "/v1/budgets", _INBOX),
    Row("POST", "/v1/runs", _MAKE_OWN, _MAKE_OTHER, {"agent": "{agent}", **_BLANK}),
    Row("POST", "/v1/agents/{agent}/invoke", _MAKE_OWN, _MAKE_OTHER, _BLANK),
    Row("POST", "/v1/agents/{agent}/stop", _STOP_OWN, _STOP_OTHER, {"reason": "  "}),
    Row("POST", "/v1/agents/{agent}/switch-off", _STOP_OWN, _STOP_OTHER, {"reason": "  "}),
    Row("POST", "/v1/agents/{agent}/switch-on", _STOP_OWN, _STOP_OTHER, {"reason": "  "}),
    Row("POST", "/v1/agents/switch-off", _ADMIN_422, body={}),
    Row("POST", "/v1/agents/switch-on", _ADMIN_422, body={}),
    Row("GET", "/v1/schedules", _SERVERS),
    Row("POST", "/v1/schedules/{name}/pause", _NO_TRIGGER, body={"reason": "Why not."}),
    Row("POST", "/v1/schedules/{name}/resume", _NO_TRIGGER, body={"reason": "Why not."}),
    Row("GET", "/v1/webhooks", _SERVERS),
    Row("POST", "/v1/webhooks/{name}/pause", _NO_TRIGGER, body={"reason": "Why not."}),
    Row("POST", "/v1/webhooks/{name}/resume", _NO_TRIGGER, body={"reason": "Why not."}),
    Row("GET", "/v1/activity", _LISTS),
    Row("GET", "/v1/events/stream", _LISTS),
    Row("GET", "/v1/runs/{run_id}", _READ_OWN, _READ_OTHER),
    Row("POST", "/v1/runs/{run_id}/cancel", _CANCEL_OWN, _CANCEL_OTHER, {}),
    Row("POST", "/v1/runs/{run_id}/messages", _MESSAGE_OWN, _MESSAGE_OTHER, {"text": "Hurry up."}),
    # The run has changed no file.
    Row("GET", "/v1/runs/{run_id}/undo", _DECIDE_OWN, _DECIDE_OTHER),
    Row("POST", "/v1/runs/{run_id}/undo", _DECIDE_OWN, _DECIDE_OTHER, {"digest": "0"}),
    Row("GET", "/v1/runs/{run_id}/events", _READ_OWN, _READ_OTHER),
    Row("GET", "/v1/runs/{run_id}/events/stream", _READ_OWN, _READ_OTHER),
    Row("GET", "/v1/runs/{run_id}/state", _READ_OWN, _READ_OTHER),
    Row("GET", "/v1/runs/{run_id}/calls", _READ_OWN, _READ_OTHER),
    Row("GET", "/v1/runs/{run_id}/calls/{call_id}", _READ_OWN, _READ_OTHER),
    Row("GET", "/v1/runs/{run_id}/approvals", _READ_OWN, _READ_OTHER),
    Row("GET", "/v1/runs/{run_id}/approvals/{action_id}", _READ_OWN, _READ_OTHER),
    Row("GET", "/v1/runs/{run_id}/artifacts", _READ_OWN, _READ_OTHER),
    Row("GET", "/v1/runs/{run_id}/artifacts/{artifact_id}", _READ_OWN, _READ_OTHER),
    Row("GET", "/v1/approvals", _INBOX),
    Row("GET", "/v1/approvals/{action_id}", _ASKED_OWN, _READ_OTHER),
    Row("POST", "/v1/approvals/{action_id}/approve", _DECIDE_OWN, _DECIDE_OTHER, _WRONG_HASH),
    Row("POST", "/v1/approvals/{action_id}/reject", _DECIDE_OWN, _DECIDE_OTHER, {"reason": "No.", **_WRONG_HASH}),
    # Of the wrong kind: the question is one for approval.
    Row("POST", "/v1/approvals/{action_id}/answer", _DECIDE_OWN, _DECIDE_OTHER, {"value": 1}),
    # One that is unknown is skipped.
    Row("POST", "/v1/approvals/decisions", _MANY, body={"approved": True, "approvals": [_UNKNOWN]}),
    Row("PUT", "/v1/approvals/{action_id}/assignee", _ASSIGN_OWN, _ASSIGN_OTHER, {"account": "nobody"}),
    Row("GET", "/v1/approvals/{action_id}/comments", _ASKED_OWN, _READ_OTHER),
    Row("POST", "/v1/approvals/{action_id}/comments", _COMMENT_OWN, _COMMENT_OTHER, {"text": "  "}),
    Row("GET", "/v1/me/inbox-views", _PERSON_200),
    Row("PUT", "/v1/me/inbox-views/{name}", _PERSON_422, body={"query": 7}),
    Row("DELETE", "/v1/me/inbox-views/{name}", _PERSON_404),
    Row("GET", "/v1/consents", _PERSON_200),
    Row("GET", "/consents/callback", _CALLBACK),
    Row("POST", "/v1/consents/{action_id}/start", _CONSENT_OWN, _CONSENT_OTHER),
    Row("POST", "/v1/consents/{action_id}/reject", _CONSENT_OWN, _CONSENT_OTHER, {}),
    Row("DELETE", "/v1/consents/{provider}/{tool}", _PERSON_404),
    Row("GET", "/v1/runs/{run_id}/audit/export", _EXPORT_OWN, _EXPORT_OTHER),
    Row("GET", "/v1/runs/{run_id}/audit/verify", _VERIFY_OWN, _READ_OTHER),
    Row("POST", "/v1/runs/{run_id}/audit/forward", _FORWARD_OWN, _FORWARD_OTHER, {"destination": "nowhere"}),
    Row("GET", "/v1/audit/forwarders", _SERVER),
    Row("GET", "/v1/audit/forwarders/{name}/dead-letters", _NO_SINK),
    Row("POST", "/v1/audit/forwarders/{name}/dead-letters/{number}/retry", _ADMIN_404),
    Row("POST", "/v1/audit/forwarders/{name}/dead-letters/retry", _ADMIN_404),
    Row("GET", "/v1/audit/checkpoints", _SERVER),
    Row("GET", "/v1/audit/log", _SERVER),
    Row("GET", "/v1/audit/verify", _SERVER),
    Row("GET", "/v1/audit/keys", _KNOWN),
    Row("GET", "/v1/notices/channels", _NOTICES),
    Row("POST", "/v1/notices/channels/{name}/test", _ADMIN_404),
    Row("GET", "/v1/notices", _NOTICES),
    Row("POST", "/v1/notices/{number}/retry", _ADMIN_404),
    Row("POST", "/v1/notices/slack/{name}/interactions", _OPEN_404),
    Row("GET", "/v1/agents/{agent}/policy", _POLICY_OWN, _POLICY_OTHER),
    Row(
        "POST",
        "/v1/agents/{agent}/policy/explain",
        _POLICY_OWN,
        _POLICY_OTHER,
        {"tool": "lookup", "arguments": {"order": "7"}},
    ),
    Row("POST", "/v1/agents/{agent}/policy/backtest", _POLICY_OWN, _POLICY_OTHER, {"runs": 1}),
    Row("GET", "/v1/agents/{agent}/policy/suggestions", _POLICY_OWN, _POLICY_OTHER),
    Row("GET", "/v1/mcp/servers", _SERVERS),
    # No agent here uses one.
    Row("GET", "/v1/mcp/servers/{server_id}", _NO_SERVER, _NO_SERVER),
    Row("POST", "/v1/mcp/servers/{server_id}/accept", _NO_SERVER, _NO_SERVER, {"digest": "0"}),
    Row("GET", "/v1/keys", _SERVER),
    Row("POST", "/v1/keys", _ADMIN_422, body={}),
    Row("DELETE", "/v1/keys/{key_id}", _ADMIN_404),
    Row("GET", "/v1/accounts", _SERVER),
    Row("POST", "/v1/accounts", _ADMIN_422, body={}),
    Row("PATCH", "/v1/accounts/{name}", _ADMIN_404, body={}),
    Row("GET", "/v1/me", _KNOWN),
    Row("POST", "/v1/me/password", _PERSON_422, body={"current": "wrong", "new": "another password"}),
    Row("GET", "/v1/me/notices", _PERSON_200),
    # There is no channel, and no browser.
    Row("PUT", "/v1/me/notices/channels/{name}", _PERSON_404, body={"is_muted": True}),
    Row("POST", "/v1/me/notices/browsers", _PERSON_404, body=_BROWSER),
    Row("DELETE", "/v1/me/notices/browsers/{browser_id}", _PERSON_404),
    Row("POST", "/v1/me/notices/browsers/{browser_id}/test", _PERSON_404),
    Row("GET", "/v1/me/sessions", _PERSON_200),
    Row("DELETE", "/v1/me/sessions", _PERSON_200),
    Row("DELETE", "/v1/me/sessions/{name}", _PERSON_404),
    Row("GET", "/v1/me/passkeys", _PERSON_200),
    # The address of the server is no name.
    Row("POST", "/v1/me/passkeys/options", _PERSON_409, body={"password": "wrong"}),
    Row("POST", "/v1/me/passkeys", _PERSON_409, body={"name": "phone", "credential": {}}),
    Row("DELETE", "/v1/me/passkeys/{name}", _PERSON_404),
    Row("DELETE", "/v1/accounts/{name}/passkeys", _ADMIN_404),
    Row("POST", "/v1/session/passkey/options", _OPEN_409),
    Row("POST", "/v1/session/passkey", _OPEN_409, body={"credential": {}}),
    # Paths without a version, for the same handlers.
    Row("GET", "/runs", _LISTS),
    Row("GET", "/runs/{run_id}", _READ_OWN, _READ_OTHER),
    Row("GET", "/runs/{run_id}/events", _READ_OWN, _READ_OTHER),
    Row("GET", "/runs/{run_id}/actions/{action_id}", _READ_OWN, _READ_OTHER),
    Row("GET", "/runs/{run_id}/audit/export", _EXPORT_OWN, _EXPORT_OTHER),
    Row("DELETE", "/v1/session", _SIGN_OUT),
)
