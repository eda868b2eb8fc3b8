"""The MCP gateway of `interlock serve`."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette

from ..domain.errors import ConfigurationError
from ..gate.gate import Gate
from ..pipeline.parts import Limits
from ..policy.files.policy_files import PolicyFiles
from ..server.core.service import Service
from ..server.core.settings import GatewayTable
from .config.policy_files import require_valid
from .session.policy_reload import reload_on_hangup

try:
    from ..mcp.client.toolbox import McpTools
    from ..mcp.gateway.asking import AskOptions
    from ..mcp.gateway.gateway import Gateway
    from ..mcp.gateway.http import HttpEndpoint
    from ..server.rest.mcp import GATEWAY_AGENT, mount_gateway
except ModuleNotFoundError as missing:
    raise ConfigurationError("[gateway] needs more than the server: pip install 'interlock[mcp]'") from missing


@asynccontextmanager
async def serve_gateway(app: Starlette, service: Service, table: GatewayTable, state: Path) -> AsyncGenerator[None]:
    """Serve the gateway of a server at `/mcp` while the server runs."""
    server = service.settings.server
    workspace = table.workspace or None
    policy = require_valid(PolicyFiles(user=table.policy_path)) if table.policy_path else None
    limits = Limits(
        approval_seconds=server.approval_seconds,
        consent_seconds=server.consent_seconds,
        max_open_questions=server.max_open_questions,
        four_eyes=server.four_eyes,
    )
    options = AskOptions(hold_seconds=table.hold_seconds, elicit=table.elicit, url=f"{service.public_url}/console")
    tools = McpTools.from_file(table.servers_path, workspace=workspace, state=state)
    tools.protect_paths((str(state), *service.settings.own_paths))
    service.mcp_servers.add(tools, GATEWAY_AGENT)
    async with AsyncExitStack() as opened:
        gate = Gate(log=service.log, artifacts=service.artifacts, policy=policy, workspace=workspace, limits=limits)
        await opened.enter_async_context(gate)
        gateway = Gateway(gate, tools, principal="", options=options, key_file=state / "gateway.key")
        await opened.enter_async_context(gateway)
        endpoint = HttpEndpoint(gateway.server)
        await opened.enter_async_context(endpoint.running())
        mount_gateway(app, endpoint)
        if policy is not None:
            opened.enter_context(reload_on_hangup(policy))
        yield
