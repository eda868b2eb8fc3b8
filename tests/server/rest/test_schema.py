"""The API is what its description says, whoever asks and whatever they send: no 5xx, no status, type or body that is
not in OpenAPI. The requests are made by schemathesis from the description, some of them wrong on purpose; where an
address has ids, some are those of things that are there.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis import checks as all_checks
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi import checks as openapi_checks

from tests.patience import HANG_SECONDS
from tests.server.server_process import NOTE, RENAME, REPORT, running_server
from tests.soak.budget import Budget

_all: Any = all_checks
_openapi: Any = openapi_checks
_CHECKS: Any = [
    _all.not_a_server_error,
    _openapi.status_code_conformance,
    _openapi.content_type_conformance,
    _openapi.response_headers_conformance,
    _openapi.response_schema_conformance,
]
_SUPPRESSED = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
#: They answer for as long as there is something to tell.
_STREAMS = {"streamRun", "streamAll"}
ROLES = ("", "agent", "operator_all", "auditor_all", "admin_all")


class Known(NamedTuple):
    base: str
    keys: dict[str, str]
    description: dict[str, Any]
    #: By the name of a parameter, ids of things that are there.
    ids: dict[str, list[str]]


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Generator[Known]:
    """A server in a thread of its own, with runs that wait and runs that are over."""
    ready: list[Known] = []
    is_ready, is_over = threading.Event(), threading.Event()

    async def serve(folder: Path) -> None:
        async with running_server(folder) as server:
            waiting = [await server.asked(await server.begin(text)) for text in (NOTE, RENAME)]
            done = await server.begin(REPORT)
            await server.status(done, "COMPLETED")
            client = await server.client("admin_all")
            artifacts = (await client.get(f"/v1/runs/{done}/artifacts")).json()["artifacts"]
            ids = {
                "run_id": [done, *(asked["run_id"] for asked in waiting)],
                "action_id": [asked["action_id"] for asked in waiting],
                "call_id": ["c0"],
                "artifact_id": [artifacts[0]["artifact_id"]],
                "agent": ["shop", "other"],
            }
            keys = {role: await server.key(role) for role in ROLES if role}
            ready.append(Known(server.base, keys, (await client.get("/openapi.json")).json(), ids))
            is_ready.set()
            await asyncio.to_thread(is_over.wait)

    def run() -> None:
        try:
            asyncio.run(serve(tmp_path_factory.mktemp("server")))
        finally:
            is_ready.set()

    thread = threading.Thread(target=run)
    thread.start()
    is_ready.wait(HANG_SECONDS)
    try:
        yield ready[0]
    finally:
        is_over.set()
        thread.join(HANG_SECONDS)


def cases_of(operation: Any, known: Known) -> st.SearchStrategy[Any]:
    """Requests as the description has them, and wrong ones; with ids of things that are there, and made up ones."""
    found: list[st.SearchStrategy[Any]] = []
    named = [each.name for each in operation.path_parameters]
    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
        with suppress(Exception):  # nothing can be wrong about some of them
            found.append(operation.as_strategy(mode))
    there = {name: known.ids[name][0] for name in named if name in known.ids}
    if len(there) == len(named) and named:
        found += [operation.as_strategy(GenerationMode.POSITIVE, path_parameters=there)] * 2
    return st.one_of(found)


def asking(cases: st.SearchStrategy[Any], ask: Callable[[Any], None], *, at_random: bool) -> None:
    chosen = settings(
        max_examples=3, deadline=None, database=None, derandomize=not at_random, suppress_health_check=_SUPPRESSED
    )

    @chosen
    @given(cases)
    def asked(case: Any) -> None:
        ask(case)

    asked()


def fuzz(known: Known, *, at_random: bool = False) -> Counter[str]:
    """Return how many answers each role got. The requests are always the same unless they are random.

    Each request is made by all roles one after the other: making it up takes longer than answering it.
    """
    schema: Any = schemathesis.openapi.from_dict(known.description, config=SchemathesisConfig())
    answers: Counter[str] = Counter()

    def ask(case: Any, session: requests.Session) -> None:
        for role in ROLES:
            headers = {"Authorization": f"Bearer {known.keys[role]}"} if role else {}
            answer = case.call(base_url=known.base, headers=headers, session=session)
            answers[role] += 1
            case.validate_response(answer, checks=_CHECKS)

    with requests.Session() as session:
        session.trust_env = False
        for result in schema.get_all_operations():
            operation = result.ok()
            if operation.definition.raw["operationId"] not in _STREAMS:
                asking(cases_of(operation, known), partial(ask, session=session), at_random=at_random)
    return answers


def test_every_answer_is_one_that_the_description_has(known: Known) -> None:
    answers = fuzz(known)

    assert {role for role in ROLES if answers[role] > 100} == {*ROLES}


@pytest.mark.soak
def test_every_answer_is_one_that_the_description_has_for_long(known: Known, budget: Budget) -> None:
    for _ in budget.rounds():
        assert fuzz(known, at_random=True)["admin_all"] > 100
