"""What an import loads: a program pays for what it takes."""

import json
import subprocess
import sys

import pytest

_LOADED = "import json, sys\n{}\nprint(json.dumps(sorted(sys.modules)))"

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


def test_the_database_is_loaded_by_the_name_that_needs_it() -> None:
    assert "sqlite3" in loaded("from interlock import SqliteLog")
