"""Routes: a typed function, the operation that it needs, and the type of its response.

Arguments of a handler are read by name and type: those in the path; `query` and `body` as structs; those annotated with
`Header`; any other is one of the query string. A handler returns a row of the response type, or a finished response.
`openapi` describes all of this from the same types.
"""

from collections.abc import Awaitable, Callable, Mapping
from inspect import Parameter, signature
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ..core.identity.permissions import Operation
from .body import read_json_body, validate
from .caller import PublicCall, authorize, get_service, limit_address
from .responses import json_response, to_builder

#: The version of the API, with which its paths begin.
API_PREFIX = "/v1"
#: Where a request has what comes from each place.
_ATTRIBUTES = {"path": "path_params", "header": "headers", "query": "query_params"}
_Handler = TypeVar("_Handler", bound=Callable[..., Awaitable[Any]])


class Header(NamedTuple):
    """The header that an argument comes from."""

    name: str


class HandlerArguments:
    """The arguments of a handler, and where each comes from."""

    def __init__(self, handler: Callable[..., Any], path: str, loose: str = "query") -> None:
        types = get_type_hints(handler, include_extras=True)
        self.query: type[msgspec.Struct] | None = types.get("query")
        self.body: type[msgspec.Struct] | None = types.get("body")
        self._lists = _list_fields(self.query) if self.query else frozenset[str]()
        #: By name in the request: `path`, `header`, `query` or `form`.
        self.places: dict[str, str] = {}
        fields: list[Any] = []
        for name, parameter in list(signature(handler).parameters.items())[1:]:
            if name in ("query", "body"):
                continue
            header = _find_header(types[name])
            place = "path" if f"{{{name}}}" in path or f"{{{name}:" in path else "header" if header else loose
            encoded = header.name if header else name
            self.places[encoded] = place
            default = {} if parameter.default is Parameter.empty else {"default": parameter.default}
            fields.append((name, types[name], msgspec.field(name=encoded, **default)))
        self.model: type[msgspec.Struct] = msgspec.defstruct("Arguments", fields, kw_only=True)

    def read(self, request: Request, form: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the arguments, without the body. Raise `ApiError` 422 for what is missing or wrong."""
        arguments = self._read_places(request, form or {}) if self.places else {}
        if self.query:
            query = request.query_params
            values = {name: query.getlist(name) if name in self._lists else query[name] for name in query}
            arguments["query"] = validate(self.query, values, strict=False)
        return arguments

    def _read_places(self, request: Request, form: Mapping[str, Any]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, place in self.places.items():
            source = form if place == "form" else getattr(request, _ATTRIBUTES[place])
            if name in source:
                values[name] = source[name]
        return msgspec.structs.asdict(validate(self.model, values, strict=False))


class ApiRoute(Route):
    """A route of the API."""

    def __init__(  # noqa: PLR0913 - what a route is declared with
        self,
        method: str,
        path: str,
        handler: Callable[..., Awaitable[Any]],
        *,
        tag: str,
        operation: Operation | None,
        returns: Any,
        status: int = 200,
        responses: Mapping[int, dict[str, Any]] | None = None,
        openapi: Mapping[str, Any] | None = None,
        hidden: bool = False,
        limited: bool = True,
        alias_of: str = "",
    ) -> None:
        super().__init__(path, self._respond, methods=[method], name=handler.__name__, include_in_schema=not hidden)
        self.methods = {method}
        self.app = self._serve
        self.method, self.handler, self.tag = method, handler, tag
        #: The versioned path that this is another path of; empty: it is none.
        self.alias_of = alias_of
        #: None: it is public, or authenticates in its own way.
        self.operation = operation
        #: The type of its response, or several; other responses, and what else its description says.
        self.returns: Any = returns
        self.status, self.responses, self.openapi = status, responses or {}, openapi or {}
        self.arguments = HandlerArguments(handler, path)
        self._build = to_builder(returns)
        self._limited = limited

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a request. The application converts errors, for all routes."""
        response = await self._respond(Request(scope, receive, send))
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        if self.operation is not None:
            call: PublicCall = await authorize(request, self.operation)
        else:
            call = PublicCall(request, get_service(request))
            if self._limited:
                limit_address(request)
        arguments = self.arguments.read(request)
        if self.arguments.body is not None:
            arguments["body"] = await read_json_body(request, self.arguments.body)
        result = await self.handler(call, **arguments)
        if isinstance(result, Response):
            return result
        if self.returns is None:
            return Response(status_code=self.status)
        return json_response(result if self._build is None else self._build(result), self.status)


class Routes(list[ApiRoute]):
    """The routes of one module, below a prefix."""

    def __init__(self, tag: str, prefix: str = API_PREFIX) -> None:
        super().__init__()
        self._tag, self._prefix = tag, prefix

    def __call__(
        self,
        method: str,
        path: str,
        operation: Operation | None,
        returns: Any = None,
        alias: str = "",
        **options: Any,
    ) -> Callable[[_Handler], _Handler]:
        """Declare a route. `returns`: the type of its response; None: it has no body, or is not JSON. `alias`: another
        path, without the prefix, for the same handler.
        """
        full_path = self._prefix + path
        options |= {"tag": self._tag, "operation": operation, "returns": returns}

        def add(handler: _Handler) -> _Handler:
            self.append(ApiRoute(method, full_path, handler, **options))
            if alias:
                self.append(ApiRoute(method, alias, handler, alias_of=full_path, **options))
            return handler

        return add


def _find_header(argument_type: Any) -> Header | None:
    found = get_args(argument_type) if get_origin(argument_type) is Annotated else ()
    return next((each for each in found if isinstance(each, Header)), None)


def _list_fields(model: type[msgspec.Struct]) -> frozenset[str]:
    """Return the fields that may be given several times."""
    return frozenset(field.encode_name for field in msgspec.structs.fields(model) if _is_list(field.type))


def _is_list(field_type: Any) -> bool:
    return get_origin(field_type) is list or any(map(_is_list, get_args(field_type)))
