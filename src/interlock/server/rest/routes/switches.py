"""Switches: agents off and on, schedules and webhooks paused and resumed. Every change needs a reason."""

from collections.abc import Sequence
from typing import Any

from ...core.identity.permissions import Operation
from ...core.runs.agent_switches import AgentSwitchResult
from ..caller import Call
from ..routing import Routes
from ..schemas.requests import SwitchOffRequest, SwitchRequest
from ..schemas.triggers import PauseResult, ScheduleList, WebhookList

route = Routes("switches")


@route("POST", "/agents/{agent}/switch-off", Operation.SWITCH_AGENT, AgentSwitchResult)
async def switch_agent_off(call: Call, agent: str, body: SwitchOffRequest) -> AgentSwitchResult:
    """Refuse new runs of the agent on every server, and cancel its runs, or hold them."""
    return await call.service.agent_switches.switch_off(
        call.principal, agent, body.reason, cancel_runs=body.cancel_runs
    )


@route("POST", "/agents/{agent}/switch-on", Operation.SWITCH_AGENT, AgentSwitchResult)
async def switch_agent_on(call: Call, agent: str, body: SwitchRequest) -> AgentSwitchResult:
    """Take new runs of the agent again, and continue those that were held."""
    return await call.service.agent_switches.switch_on(call.principal, agent, body.reason)


@route("POST", "/agents/switch-off", Operation.SWITCH_ALL_AGENTS, AgentSwitchResult)
async def switch_all_agents_off(call: Call, body: SwitchOffRequest) -> AgentSwitchResult:
    """Refuse new runs of all agents on every server, and cancel all runs, or hold them."""
    return await call.service.agent_switches.switch_off(call.principal, "", body.reason, cancel_runs=body.cancel_runs)


@route("POST", "/agents/switch-on", Operation.SWITCH_ALL_AGENTS, AgentSwitchResult)
async def switch_all_agents_on(call: Call, body: SwitchRequest) -> AgentSwitchResult:
    """Take new runs again. Agents that were switched off by themselves stay off."""
    return await call.service.agent_switches.switch_on(call.principal, "", body.reason)


@route("GET", "/schedules", Operation.LIST_TRIGGERS, ScheduleList)
async def list_schedules(call: Call) -> dict[str, Sequence[Any]]:
    """List the schedules of your agents, with their next and last runs."""
    return {"schedules": await call.service.trigger_service.list_schedules(call.principal)}


@route("POST", "/schedules/{name}/pause", Operation.PAUSE_TRIGGER, PauseResult)
async def pause_schedule(call: Call, name: str, body: SwitchRequest) -> PauseResult:
    """Pause a schedule on every server. What is due meanwhile is not made up for."""
    changed = await call.service.trigger_service.pause(call.principal, "schedule", name, body.reason)
    return PauseResult(name=name, paused=True, changed=changed)


@route("POST", "/schedules/{name}/resume", Operation.PAUSE_TRIGGER, PauseResult)
async def resume_schedule(call: Call, name: str, body: SwitchRequest) -> PauseResult:
    """Resume a schedule: it counts from now on."""
    changed = await call.service.trigger_service.resume(call.principal, "schedule", name, body.reason)
    return PauseResult(name=name, paused=False, changed=changed)


@route("GET", "/webhooks", Operation.LIST_TRIGGERS, WebhookList)
async def list_webhooks(call: Call) -> dict[str, Sequence[Any]]:
    """List the webhooks of your agents, with their last runs and refused deliveries."""
    return {"webhooks": await call.service.trigger_service.list_webhooks(call.principal)}


@route("POST", "/webhooks/{name}/pause", Operation.PAUSE_TRIGGER, PauseResult)
async def pause_webhook(call: Call, name: str, body: SwitchRequest) -> PauseResult:
    """Pause a webhook on every server: deliveries are refused with 409."""
    changed = await call.service.trigger_service.pause(call.principal, "webhook", name, body.reason)
    return PauseResult(name=name, paused=True, changed=changed)


@route("POST", "/webhooks/{name}/resume", Operation.PAUSE_TRIGGER, PauseResult)
async def resume_webhook(call: Call, name: str, body: SwitchRequest) -> PauseResult:
    """Resume a webhook."""
    changed = await call.service.trigger_service.resume(call.principal, "webhook", name, body.reason)
    return PauseResult(name=name, paused=False, changed=changed)
