"""What every call passes: a span, a look at its credentials, and the mapping of errors.

call ──> span ──> who is it? ──> servicer
  ^                                 |
  └── status with details <── HostError, or INTERNAL with fixed text for anything else
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
import grpc.aio

from host_service.authorization.attach_tokens import AttachGrants
from host_service.authorization.callers import Caller, CallerDirectory, Role
from host_service.authorization.tokens import RunAccess, RunTokens
from host_service.capabilities.gate import Gate
from host_service.errors import (
    HostError,
    NotImplementedHere,
    Unauthenticated,
)
from host_service.status import abort
from host_service.store_failures import STORE_FAILURES, meaning_of
from host_service.telemetry import Telemetry
from host_service.unreadable import require_readable, tolerant_deserializer
from stores.records import AttachTokenRecord

if TYPE_CHECKING:
    # A generic to mypy alone.
    Handler = grpc.RpcMethodHandler[Any, Any]

_log = logging.getLogger("runmesh.calls")

Context = grpc.aio.ServicerContext[Any, Any]

_EVERYBODY = frozenset(Role)
_SENDERS = frozenset({Role.INGRESS, Role.OPERATOR})
_READERS = frozenset({Role.VIEWER, Role.OPERATOR})
_OPERATORS = frozenset({Role.OPERATOR})

#: Who may call what, of the services that take API keys. What is not listed here takes an operator.
ROLES: Mapping[str, frozenset[Role]] = {
    "/runmesh.v1.GatewayService/Dispatch": _SENDERS,
    "/runmesh.v1.GatewayService/SubmitEvent": _SENDERS,
    "/runmesh.v1.GatewayService/CancelRun": _SENDERS,
    "/runmesh.v1.GatewayService/CreateArtifact": _SENDERS,
    "/runmesh.v1.GatewayService/WatchRun": _EVERYBODY,
    "/runmesh.v1.GatewayService/GetRun": _EVERYBODY,
    "/runmesh.v1.GatewayService/PageConversation": _EVERYBODY,
    "/runmesh.v1.GatewayService/ReadArtifact": _EVERYBODY,
    "/runmesh.v1.GatewayService/ListRuns": _READERS,
    "/runmesh.v1.DiscoveryService/ListRunners": _READERS,
    "/runmesh.v1.DiscoveryService/Handshake": _EVERYBODY,
    "/runmesh.admin.v1.AdminService/GetAgent": _READERS,
    "/runmesh.admin.v1.AdminService/ListAgents": _READERS,
    "/runmesh.admin.v1.AdminService/ListBindings": _READERS,
    "/runmesh.admin.v1.AdminService/GetModel": _READERS,
    "/runmesh.admin.v1.AdminService/ListModels": _READERS,
    "/runmesh.admin.v1.AdminService/GetToolServer": _READERS,
    "/runmesh.admin.v1.AdminService/ListToolServers": _READERS,
    "/runmesh.admin.v1.AdminService/ListToolServerStatuses": _READERS,
    "/runmesh.admin.v1.AdminService/GetKnowledgeBase": _READERS,
    "/runmesh.admin.v1.AdminService/ListKnowledgeBases": _READERS,
    "/runmesh.admin.v1.AdminService/ListDocuments": _READERS,
    "/runmesh.admin.v1.AdminService/CountDocuments": _READERS,
    "/runmesh.admin.v1.AdminService/SearchKnowledge": _READERS,
    "/runmesh.admin.v1.AdminService/GetPolicy": _READERS,
    "/runmesh.admin.v1.AdminService/ListPolicies": _READERS,
    "/runmesh.admin.v1.AdminService/GetPluginSettings": _READERS,
    "/runmesh.admin.v1.AdminService/ListPluginSettings": _READERS,
    "/runmesh.admin.v1.AdminService/ListActions": _READERS,
    "/runmesh.admin.v1.AdminService/GetAction": _READERS,
    "/runmesh.admin.v1.AdminService/GetHost": _READERS,
    "/runmesh.admin.v1.AdminService/ExplainRun": _READERS,
}

_HOST_API = "/runmesh.v1.HostAPIService/"
_ATTACH = "/runmesh.v1.AttachService/"
# Agents, bindings, keys and runners belong to no workspace or bot: they lie beyond every limit.
_BEYOND_WORKSPACES = ("/runmesh.admin.v1.AdminService/", "/runmesh.v1.DiscoveryService/")
_OPEN = ("/grpc.health.v1.", "/grpc.reflection.", "/grpc.channelz.")

_caller: ContextVar[Caller] = ContextVar("runmesh_caller")
_access: ContextVar[RunAccess] = ContextVar("runmesh_access")
_attach_token: ContextVar[AttachTokenRecord] = ContextVar("runmesh_attach_token")


def current_caller() -> Caller:
    """Return who makes the call that is being served."""
    return _caller.get()


def current_access() -> RunAccess:
    """Return the access of the run whose runner makes the call that is being served."""
    return _access.get()


def current_attach_token() -> AttachTokenRecord:
    """Return the attach token with which the call that is being served was made."""
    return _attach_token.get()


class Authentication:
    """Tells who makes a call, by the service that is called.

    Args:
        callers: Knows API keys.
        tokens: Knows run tokens.
        attach: Knows attach tokens.
        gate: Hears of calls whose tokens do not hold.
    """

    def __init__(
        self, *, callers: CallerDirectory, tokens: RunTokens, attach: AttachGrants, gate: Gate
    ) -> None:
        self._callers = callers
        self._tokens = tokens
        self._attach = attach
        self._gate = gate

    async def admit(self, method: str, metadata: Mapping[str, str]) -> None:
        """Note who makes this call, for `current_caller` and its like.

        Raises:
            Unauthenticated, Unauthorized: They may not.
        """
        if method.startswith(_OPEN):
            return
        authorization = metadata.get("authorization")
        if method.startswith(_HOST_API):
            try:
                access = self._tokens.check(
                    authorization=authorization, instance_token=metadata.get("runmesh-instance")
                )
            except Unauthenticated as error:
                self._gate.refuse(method.rpartition("/")[2], error)
                raise
            _access.set(access)
            return
        if method.startswith(_ATTACH):
            try:
                token = await self._attach.identify(authorization)
            except Unauthenticated as error:
                self._gate.refuse(method.rpartition("/")[2], error)
                raise
            _attach_token.set(token)
            return
        caller = await self._callers.identify(authorization)
        rpc = method.rpartition("/")[2]
        caller.require(ROLES.get(method, _OPERATORS), rpc)
        if method.startswith(_BEYOND_WORKSPACES):
            caller.require_unlimited(rpc)
        _caller.set(caller)


class EdgeInterceptor(grpc.aio.ServerInterceptor):
    """Wraps every method that the host serves.

    Args:
        authentication: Tells who calls.
        telemetry: Makes spans.
    """

    def __init__(self, *, authentication: Authentication, telemetry: Telemetry) -> None:
        self._authentication = authentication
        self._telemetry = telemetry
        self._wrapped: dict[str, Handler] = {}
        self._active = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def active(self) -> int:
        """How many calls are being served."""
        return self._active

    async def idle(self) -> None:
        """Return once no call is served, those included that were ended and still clean up."""
        await self._idle.wait()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Return the wrapped handler of a method; made once."""
        method = handler_call_details.method
        wrapped = self._wrapped.get(method)
        if wrapped is None:
            handler = await continuation(handler_call_details)
            if handler is None or method.startswith(_OPEN):
                return handler
            wrapped = self._wrapped[method] = self._wrap(method, handler)
        return wrapped

    def _wrap(self, method: str, handler: Handler) -> Handler:
        make: Any
        serve: Any
        if handler.request_streaming and handler.response_streaming:
            make, serve = grpc.stream_stream_rpc_method_handler, handler.stream_stream
        elif handler.request_streaming:
            make, serve = grpc.stream_unary_rpc_method_handler, handler.stream_unary
        elif handler.response_streaming:
            make, serve = grpc.unary_stream_rpc_method_handler, handler.unary_stream
        else:
            make, serve = grpc.unary_unary_rpc_method_handler, handler.unary_unary
        service, _, name = method.lstrip("/").rpartition("/")
        read = tolerant_deserializer(handler)

        async def edge(request: Any, context: Context) -> Any:
            metadata = _text_metadata(context)
            self._active += 1
            self._idle.clear()
            try:
                with self._telemetry.call_span(service, name, metadata):
                    await self._authentication.admit(method, metadata)
                    require_readable(request)
                    return await serve(request, context)
            except HostError as error:
                await abort(context, error)
            except (asyncio.CancelledError, grpc.aio.AbortError):
                raise
            except STORE_FAILURES as error:
                _log.warning("%s cannot be served now: %s", method, error)
                await abort(context, meaning_of(error))
            except Exception:  # noqa: BLE001 - whatever it is, the caller hears of it in fixed words
                _log.exception("%s failed", method)
                await abort(
                    context, HostError("something failed inside the host; its log says what")
                )
            finally:
                self._active -= 1
                if not self._active:
                    self._idle.set()

        return make(edge, read, handler.response_serializer)  # type: ignore[no-any-return]


def _text_metadata(context: Context) -> Mapping[str, str]:
    return {
        key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)
    }


def refuse_missing(servicer: type) -> type:
    """Give every method that a servicer class does not have itself an answer: NOT_IMPLEMENTED."""
    # The generated class: last but `object`, which may have others of ours before it.
    base = servicer.__mro__[-2]
    for name in vars(base):
        if name.startswith("_") or getattr(servicer, name) is not getattr(base, name):
            continue
        setattr(servicer, name, _refusal(f"{base.__name__.removesuffix('Servicer')}.{name}"))
    return servicer


def _refusal(rpc: str) -> Callable[[Any, Any, Context], Awaitable[NoReturn]]:
    async def refuse(_self: object, _request: object, _context: Context) -> NoReturn:
        raise NotImplementedHere(rpc)

    return refuse


__all__ = [
    "ROLES",
    "Authentication",
    "Context",
    "EdgeInterceptor",
    "current_access",
    "current_attach_token",
    "current_caller",
    "refuse_missing",
]
