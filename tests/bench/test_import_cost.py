"""What an import loads: a program pays for what it takes."""

import json
import subprocess
import sys
from typing import get_args

import pytest

from interlock.cli.options import PermissionModeName
from interlock.domain.tool import PermissionMode

_LOADED = "import json, sys\n{}\nprint(json.dumps(sorted(sys.modules)))"
_HELP = """
import contextlib, io
from interlock.cli.main import main
sys.argv = ["interlock", *{!r}]
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main()
"""

#: With those of the standard library, which differ a little between versions of Python.
MAX_MODULES = 260
_SERVERS = {"http.server", "socketserver", "xmlrpc", "wsgiref", "aiohttp", "starlette", "uvicorn"}
_SDKS = {"anthropic", "httpx", "mcp", "openai", "opentelemetry.sdk", "requests"}
_DATABASES = {"_sqlite3", "psycopg", "sqlite3"}


def loaded(statement: str) -> set[str]:
    """The modules of a fresh interpreter after a statement, without those that it has anyway."""
    return _modules(statement) - _modules("pass")


def _modules(statement: str) -> set[str]:
    command = [sys.executable, "-c", _LOADED.format(statement)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=30)
    return set(json.loads(done.stdout))


def test_importing_the_package_loads_nothing_but_itself() -> None:
    modules = loaded("import interlock")

    assert {name for name in modules if name.startswith("interlock.")} == set()
    assert modules.isdisjoint(
        {"asyncio", "msgspec", "opentelemetry", "pydantic", "pydantic_core", "socket", "subprocess"}
    )
    assert modules.isdisjoint(_SERVERS | _SDKS | _DATABASES)


@pytest.mark.parametrize("statement", ["from interlock import ToolRuntime, tool", "import interlock.runtime"])
def test_the_runtime_loads_no_server_sdk_or_database(statement: str) -> None:
    modules = loaded(statement)

    assert "interlock.runtime" in modules
    assert modules.isdisjoint(_SERVERS | _SDKS | _DATABASES)


def test_an_import_loads_no_part_that_only_some_programs_use() -> None:
    """Rules, parsers of commands, telemetry, the executor of handlers, and what a first model of pydantic loads."""
    modules = loaded("from interlock import Agent, Runner, tool")

    assert {name for name in modules if name.startswith("interlock.policy.")} == {"interlock.policy.interface"}
    assert modules.isdisjoint({"email", "importlib.metadata", "opentelemetry", "re2", "tree_sitter", "zipfile"})
    assert modules.isdisjoint(
        {"interlock.registry.signature", "interlock.sandbox.handlers", "interlock.telemetry.otel"}
    )
    assert modules.isdisjoint({"annotated_types", "pydantic", "pydantic_core"})
    assert modules.isdisjoint({"difflib", "ipaddress", "pathlib", "random", "rfc8785", "shlex", "urllib.parse"})
    assert len(modules) <= MAX_MODULES


def test_a_run_without_commands_loads_no_parser_of_commands_and_no_telemetry() -> None:
    modules = loaded(
        "from interlock import Agent, Runner, ScriptedModel\n"
        "with Runner(Agent(provider=ScriptedModel(['done']))) as runner:\n"
        "    runner.run_sync('Do nothing.')"
    )

    assert "interlock.policy.engine.rule_policy" in modules
    assert modules.isdisjoint({"interlock.policy.shell.bash", "opentelemetry", "tree_sitter"})


@pytest.mark.parametrize("command", ["", "run", "chat"])
def test_help_loads_the_declarations_of_its_command_alone(command: str) -> None:
    modules = loaded(_HELP.format([*command.split(), "--help"]))

    declared = {f"interlock.cli.commands.{command}", "interlock.cli.options"} if command else {"interlock.cli.demo"}
    assert {name for name in modules if name.startswith("interlock.")} == {
        "interlock.cli",
        "interlock.cli.commands",
        "interlock.cli.exit_codes",
        "interlock.cli.main",
        "interlock.domain",
        "interlock.domain.errors",
        *declared,
    }
    assert modules.isdisjoint({"asyncio", "msgspec", "pydantic", "rich", "sqlite3"})


def test_help_names_every_permission_mode() -> None:
    assert get_args(PermissionModeName) == tuple(PermissionMode)


def test_the_database_is_loaded_by_the_name_that_needs_it() -> None:
    assert "sqlite3" in loaded("from interlock import SqliteLog")


def test_the_gateway_answers_first_without_the_sdk() -> None:
    modules = loaded("import interlock.cli.commands.gateway")

    assert "interlock.mcp.gateway.first_answers" in modules
    assert modules.isdisjoint({"httpx2", "interlock.gate.gate", "mcp", "mcp_types", "starlette", "uvicorn"})
