"""Lists of approvals over REST: search, filters and orders."""

from tests.each import each
from tests.server.server_process import Running


async def test_search_filter_and_order_questions(server: Running) -> None:
    for order in ("Q-11", "Q-12"):
        await server.asked(await server.begin(f"Refund {order}.", ("refund", {"order": order, "amount": 5.0})))
    client = await server.client("operator_all")

    async def list_titles(**query: str) -> list[str]:
        answer = await client.get("/v1/approvals", params={"q": "q-1", **query})
        return [row["title"].split(",")[0] for row in answer.json()["approvals"]]

    assert await list_titles() == ["refund: order=Q-11", "refund: order=Q-12"]
    assert await list_titles(sort="newest") == ["refund: order=Q-12", "refund: order=Q-11"]
    assert await list_titles(q="q-12 refund", tool="refund", risk="network") == ["refund: order=Q-12"]
    assert await list_titles(rule="no-such-rule") == []
    assert await list_titles(created_before="2001-01-01T00:00:00Z") == []


@each(
    "query, field",
    [
        ("sort=risk", "sort"),
        ("sort=deadline&status=REJECTED", "sort"),
        ("created_before=yesterday", "created_before"),
        (f"q={'x' * 201}", "q"),
    ],
)
async def test_wrong_filters_name_their_field(server: Running, query: str, field: str) -> None:
    answer = await (await server.client("operator_all")).get(f"/v1/approvals?{query}")

    assert answer.status_code == 422
    assert field in answer.json()["error"]["details"]["fields"][0]["field"]
