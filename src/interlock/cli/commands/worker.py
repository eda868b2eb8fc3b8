"""`interlock worker`: resume runs of a log in Postgres, beside workers on other hosts."""

import asyncio
import logging
import os
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from ... import lazy_module
from ...domain.errors import ConfigurationError, LogError
from ..config import artifact_stores
from ..config.user_paths import find_user_paths
from ..display.output import echo, echo_error
from ..exit_codes import ExitCode, format_exit_codes
from ..options import DATABASE_VARIABLE, create_app, option
from ..session.terminal import signal_handlers

if TYPE_CHECKING:
    from ...engine import advance as engine_advance
    from ...engine import metrics as engine_metrics
    from ...engine import postgres as engine_postgres
    from ...engine import switches as engine_switches
    from ...server.core import mcp_servers
    from ...server.core import settings as server_settings
    from ...server.core.runs import agent_loading, agent_runners
    from ...server.core.runs.served_agent import ServedAgent
    from ...storage.postgres import log as postgres_log
    from ..session import metrics_server
else:
    engine_advance = lazy_module("...engine.advance", __package__)
    engine_metrics = lazy_module("...engine.metrics", __package__)
    engine_postgres = lazy_module("...engine.postgres", __package__)
    engine_switches = lazy_module("...engine.switches", __package__)
    mcp_servers = lazy_module("...server.core.mcp_servers", __package__)
    server_settings = lazy_module("...server.core.settings", __package__)
    agent_loading = lazy_module("...server.core.runs.agent_loading", __package__)
    agent_runners = lazy_module("...server.core.runs.agent_runners", __package__)
    postgres_log = lazy_module("...storage.postgres.log", __package__)
    metrics_server = lazy_module("..session.metrics_server", __package__)

_EXITS = format_exit_codes(
    ok="stopped by a signal",
    usage="the worker could not start",
    unavailable="the database was gone for longer than --patience; start it again",
)
_CONNECTIONS = 4
#: How long closing may take when the database is gone.
_CLOSE_SECONDS = 5.0

app = create_app(_EXITS)


@app.command(epilog=_EXITS)
def worker(  # noqa: PLR0913, PLR0917 - the options of the command
    url: Annotated[
        str | None,
        option(
            "Database of the log. Default: that of [database] in the settings.",
            "--url",
            metavar="URL",
            envvar=DATABASE_VARIABLE,
        ),
    ] = None,
    agents: Annotated[
        list[str] | None,
        typer.Option("--agent", "-a", metavar="PLACE", help="Agent to serve, as package.module:name. Repeatable."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", metavar="FILE", help="Server settings: agents, [database], [worker]."),
    ] = None,
    schema: Annotated[
        str | None, option("Schema of the tables. Default: interlock.", "--database-schema", metavar="NAME")
    ] = None,
    queues: Annotated[
        list[str] | None, option("Queue to serve. Repeatable. Default: default.", "--queue", "-q", metavar="NAME")
    ] = None,
    concurrency: Annotated[
        int | None, option("Maximum number of runs at once. Default: 50.", min=1, max=10_000)
    ] = None,
    name: Annotated[str | None, option("Name of the worker in logs. Default: host and process.")] = None,
    lease: Annotated[
        float | None,
        option("Seconds without a heartbeat after which other workers take over. Default: 6.", min=1, max=600),
    ] = None,
    patience: Annotated[
        float | None, option("Seconds that the database may be gone before the worker exits. Default: 20.", min=0)
    ] = None,
    stop_seconds: Annotated[
        float, option("Seconds that running calls have when the worker is stopped. Default: 10.", min=0)
    ] = 10.0,
    metrics_port: Annotated[
        int | None,
        option("Serve /metrics and /health on this port of the loopback interface. Default: not at all.", min=0),
    ] = None,
) -> None:
    """Resume runs: those that were submitted, answered, are due, or were left behind by a worker that is gone.

    Any number of workers serve a queue. SIGTERM and SIGINT stop a worker: it takes no more runs, lets running calls
    finish, and leaves its runs to the others.
    """
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    logging.getLogger("procrastinate").setLevel(logging.CRITICAL)  # the engine reports what matters
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
    settings = _read_settings(config)
    served = _load_agents(settings, agents or [])
    database = settings.database or server_settings.DatabaseTable()
    if not url or database.url_env != DATABASE_VARIABLE:
        url = database.read_url(os.environ)
    schema = schema or database.schema
    options = {"queues": tuple(queues or ()), "concurrency": concurrency}
    options |= {"lease_seconds": lease, "patience_seconds": patience}
    table = msgspec.structs.replace(
        settings.worker, **{key: value for key, value in options.items() if value not in (None, ())}
    )
    name = name or f"{os.uname().nodename}:{os.getpid()}"
    with closing(
        artifact_stores.open_for_database(settings.artifacts, url, schema, table.patience_seconds)
    ) as artifacts:
        log = postgres_log.PostgresLog(
            url,
            schema=schema,
            lease_seconds=table.lease_seconds,
            patience_seconds=table.patience_seconds,
            readers=_CONNECTIONS,
        )
        limits = {} if config is None else agent_runners.build_options(settings)
        runners = agent_runners.AgentRunners(served, log, artifacts, None, **limits)
        _prepare_tools(runners, config)
        code = asyncio.run(_serve(log, runners, table, name=name, stop_seconds=stop_seconds, metrics_port=metrics_port))
    raise typer.Exit(code)


def _read_settings(config: Path | None) -> "server_settings.ServerSettings":
    try:
        return server_settings.ServerSettings() if config is None else server_settings.read_settings(config)
    except ModuleNotFoundError as missing:
        raise ConfigurationError(
            "A worker needs more than the command: pip install 'interlock[server,postgres]'"
        ) from missing


def _load_agents(settings: "server_settings.ServerSettings", references: Sequence[str]) -> "list[ServedAgent]":
    served = agent_loading.load_agents(settings.agents, references)
    if not served:
        raise ConfigurationError(
            "There is no agent to serve. Name one with --agent package.module:name or --config. Nothing was started."
        )
    if not settings.mcp.agents:
        return served
    return mcp_servers.add_mcp_tools(served, settings.mcp, str(find_user_paths().make_state_folder()))


def _prepare_tools(runners: "agent_runners.AgentRunners", config: Path | None) -> None:
    """Keep tools from the files of the user and of the worker, and let background tasks outlive it."""
    user_paths = find_user_paths()
    runners.protect_paths((*user_paths.own_paths, *(() if config is None else (str(config),))))
    if user_paths.tasks is not None:
        runners.use_task_folder(str(user_paths.tasks))


async def _serve(  # noqa: PLR0913 - every keyword is explicit
    log: "postgres_log.PostgresLog",
    runners: "agent_runners.AgentRunners",
    table: "server_settings.WorkerTable",
    *,
    name: str,
    stop_seconds: float,
    metrics_port: int | None,
) -> ExitCode:
    """Serve until a signal, or until the database is gone."""
    queues = table.queues
    engine = engine_postgres.PostgresEngine(log, name=name)
    read_switches = partial(_read_switches, log)
    advancer = engine_advance.RunAdvancer(runners.by_agent, engine_switches.WorkerRules(read_switches))
    stopped, code = asyncio.Event(), ExitCode.OK
    async with AsyncExitStack() as stack:
        stack.enter_context(signal_handlers(dict.fromkeys((signal.SIGTERM, signal.SIGINT), stopped.set)))
        if metrics_port is not None:
            metrics = engine_metrics.ProcessMetrics(log, *engine.list_gauges())
            port = await stack.enter_async_context(metrics_server.serve_metrics(metrics, metrics_port))
            echo(f"Metrics are at http://127.0.0.1:{port}/metrics.")
        serving = asyncio.create_task(engine.serve(advancer.advance, queues=queues, concurrency=table.concurrency))
        announcing = asyncio.create_task(_announce(engine.ready, name, list(runners.by_agent), queues))
        waiting = asyncio.create_task(stopped.wait())
        watching = asyncio.create_task(engine_switches.SwitchWatch(read_switches, runners.by_agent).run())
        try:
            await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                advancer.pause()
                await engine.stop(stop_seconds)
            await serving
        except LogError as error:
            echo_error(error)
            code = ExitCode.UNAVAILABLE
        finally:
            announcing.cancel()
            waiting.cancel()
            watching.cancel()
            with suppress(LogError, TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS if code else None):
                    await runners.close()
            await engine.stop(_CLOSE_SECONDS)
            await log.close()
    if not code:
        echo("Stopped.")
    return code


async def _read_switches(log: "postgres_log.PostgresLog") -> "list[engine_switches.SwitchedOffAgent]":
    rows = await log.queues.list_switched_off_agents()
    return [engine_switches.SwitchedOffAgent(name=row[0], actor=row[1], reason=row[2], at=row[3]) for row in rows]


async def _announce(ready: asyncio.Event, name: str, agents: Sequence[str], queues: Sequence[str]) -> None:
    await ready.wait()
    echo(f"Worker {name} serves {', '.join(agents)} on {', '.join(queues)}.")
