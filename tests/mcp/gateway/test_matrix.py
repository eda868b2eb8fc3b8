"""Every way that a question can end, over both transports and at both protocol eras."""

from pathlib import Path
from typing import Any

import pytest

from tests.mcp.gateway.support import (
    ASK_CLIENT,
    ERAS,
    TRANSPORTS,
    Era,
    Payments,
    Transport,
    answering,
    connect,
    decide,
    open_server,
    serve,
    text_of,
)

PENDING = "PENDING: pay waits for approval"


@pytest.mark.requirement("P29")
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    ("policy", "elicit", "shown", "paid"),
    [
        pytest.param(ASK_CLIENT, answering("accept", "approve"), "paid 5", [5], id="approve"),
        pytest.param(ASK_CLIENT, answering("accept", "deny"), "A person", [], id="deny"),
        pytest.param(ASK_CLIENT, answering("cancel"), PENDING, [], id="cancel"),
        pytest.param(ASK_CLIENT, None, PENDING, [], id="cannot ask"),
        pytest.param(None, answering("accept", "approve"), PENDING, [], id="forged accept"),
    ],
)
async def test_questions_over_every_transport(  # noqa: PLR0917 - the dimensions
    tmp_path: Path, transport: Transport, era: Era, policy: Any, elicit: Any, shown: str, paid: list[int]
) -> None:
    payments = Payments(tmp_path)
    async with (
        open_server(tmp_path, payments, policy=policy) as (gate, server),
        serve(server, transport) as target,
        connect(target, era, elicit) as client,
    ):
        result = await client.call_tool("pay", {"amount": 5})
        assert (shown in text_of(result), payments.paid) == (True, paid)
        if shown == PENDING:
            await decide(gate)
            done = await client.call_tool("pay", {"amount": 5})
            assert (text_of(done), payments.paid) == ("paid 5", [5])
