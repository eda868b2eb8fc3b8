"""A client of the REST API of a server: start runs, follow them, answer what they ask."""

from .async_client import AsyncClient
from .errors import (
    ApiError,
    AuthenticationError,
    ClientError,
    ConflictError,
    ConnectionFailedError,
    InvalidRequestError,
    NotFoundError,
    PermissionDeniedError,
    RateLimitedError,
    ServerUnavailableError,
    UnexpectedResponseError,
)
from .events import ModelDelta, ModelRestarted, StreamEnd, StreamItem, ToolProgress
from .models import (
    Approval,
    ApprovalDetail,
    ApprovalPage,
    ApprovalReview,
    DecisionReceipt,
    EventPage,
    MessageReceipt,
    RecordedEvent,
    Run,
    RunPage,
    StatisticsReport,
)
from .requests import RetryPolicy
from .sync_client import Client

__all__ = [
    "ApiError",
    "Approval",
    "ApprovalDetail",
    "ApprovalPage",
    "ApprovalReview",
    "AsyncClient",
    "AuthenticationError",
    "Client",
    "ClientError",
    "ConflictError",
    "ConnectionFailedError",
    "DecisionReceipt",
    "EventPage",
    "InvalidRequestError",
    "MessageReceipt",
    "ModelDelta",
    "ModelRestarted",
    "NotFoundError",
    "PermissionDeniedError",
    "RateLimitedError",
    "RecordedEvent",
    "RetryPolicy",
    "Run",
    "RunPage",
    "ServerUnavailableError",
    "StatisticsReport",
    "StreamEnd",
    "StreamItem",
    "ToolProgress",
    "UnexpectedResponseError",
]
