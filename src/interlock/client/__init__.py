"""A client of the REST API of a server: start runs, follow them, answer what they ask.

`Client` is for ordinary programs, `AsyncClient` for asyncio; both have the same methods. They need
`pip install 'interlock[client]'`.
"""

from .. import lazy_package

_NAMES = {
    "client.async_client": ("AsyncClient",),
    "client.errors": (
        "ApiError",
        "AuthenticationError",
        "ClientError",
        "ConflictError",
        "ConnectionFailedError",
        "InvalidRequestError",
        "NotFoundError",
        "PermissionDeniedError",
        "RateLimitedError",
        "ServerUnavailableError",
        "UnexpectedResponseError",
    ),
    "client.events": ("ModelDelta", "ModelRestarted", "StreamEnd", "StreamItem", "ToolProgress"),
    "client.models": (
        "Approval",
        "ApprovalDetail",
        "ApprovalPage",
        "ApprovalReview",
        "Assignment",
        "Budget",
        "BudgetList",
        "DecisionReceipt",
        "EventPage",
        "MessageReceipt",
        "RecordedEvent",
        "Run",
        "RunPage",
        "StatisticsReport",
    ),
    "client.requests": ("RetryPolicy",),
    "client.sync_client": ("Client",),
}

lazy_package(__name__, _NAMES)
