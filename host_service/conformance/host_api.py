"""HostAPIService as the kit serves it: looks at every call's tokens, and answers like a poor host.

A run is given a model where its manifest asks for one, state, and storage; it is given no tools, no
knowledge and no history. What it was not given is NOT_FOUND, as any host says it.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
from google.protobuf import any_pb2
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status
from runmesh.v1 import host_api_pb2, types_pb2

from host_service.certificates.files import ListenFiles
from host_service.certificates.serving import ServerCertificates
from host_service.registry.channel import SERVER_OPTIONS

#: The one model that runs are given.
MODEL_ID = "conformance-model"

_SERVICE = host_api_pb2.DESCRIPTOR.services_by_name["HostAPIService"]
_CODES = {
    "UNAUTHENTICATED": grpc.StatusCode.UNAUTHENTICATED,
    "NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "CONFLICT": grpc.StatusCode.ABORTED,
    "NOT_IMPLEMENTED": grpc.StatusCode.UNIMPLEMENTED,
}

_Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(slots=True, kw_only=True)
class Grant:
    """What one run may reach the host with, and what became of it.

    Attributes:
        run_id: The run.
        label: What the run was for, to tell of it.
        run_token: As handed over with the run.
        instance_token: As handed over with the run.
        address: Where the run was told to call.
        released: Cleared to make the run wait for its answers.
        ended_at: When the kit saw the run end, by the monotonic clock; None: it is under way.
        calls: How many calls came with its tokens.
    """

    run_id: str
    label: str
    address: str
    run_token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    instance_token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    released: asyncio.Event = field(default_factory=asyncio.Event)
    ended_at: float | None = None
    calls: int = 0


@dataclass(frozen=True, slots=True)
class HostCall:
    """A call that a runner made to the kit's host.

    Attributes:
        method: Such as `GetState`.
        address: Which host it came to.
        authorization: The metadata of that name; None: there was none.
        instance: The metadata `runmesh-instance`; None: there was none.
        at: When, by the monotonic clock.
        grant: Whose run token it carried; None: nobody's.
        under_way: Names of the runs that were under way at that host.
    """

    method: str
    address: str
    authorization: str | None
    instance: str | None
    at: float
    grant: Grant | None
    under_way: tuple[str, ...]


class KitHost:
    """One host: an address, the runs it has given out, and the calls that came.

    Args:
        calls: Where calls are noted; several hosts may share it.
    """

    def __init__(self, calls: list[HostCall]) -> None:
        self.host_id = f"conformance-{secrets.token_hex(4)}"
        self.address = ""
        self.calls = calls
        self.grants: dict[str, Grant] = {}
        self._values: dict[tuple[str, ...], tuple[bytes, int]] = {}
        self._server = grpc.aio.server(options=SERVER_OPTIONS)
        self._server.add_generic_rpc_handlers((_Handlers(self),))

    async def start(self, address: str, tls: ListenFiles | None = None) -> None:
        """Serves at a gRPC address; of `127.0.0.1:0` the port is chosen by the system.

        Args:
            address: `HOST:PORT`, or `unix:/path`, where there is never TLS.
            tls: What it shows; None: it has no TLS.

        Raises:
            CertificateUnusable: It cannot be shown.
            RuntimeError: Somebody else listens there.
        """
        if address.startswith("unix:"):
            self._server.add_insecure_port(address)
            self.address = address
        else:
            if tls is None:
                port = self._server.add_insecure_port(address)
            else:
                credentials = ServerCertificates(tls).grpc_credentials()
                port = self._server.add_secure_port(address, credentials)
            self.address = f"{address.rpartition(':')[0]}:{port}"
        await self._server.start()

    async def close(self) -> None:
        """Ends it, and calls that are still open."""
        await self._server.stop(None)

    def grant(self, run_id: str, label: str) -> Grant:
        """Makes the two tokens of a run."""
        grant = Grant(run_id=run_id, label=label, address=self.address)
        grant.released.set()
        self.grants[grant.run_token] = grant
        return grant

    async def admit(self, method: str, context: _Context) -> Grant:
        """Notes a call, and refuses one whose tokens are not those of a run under way."""
        given = {str(key): str(value) for key, value in context.invocation_metadata() or ()}
        authorization, instance = given.get("authorization"), given.get("runmesh-instance")
        grant = self.grants.get((authorization or "").removeprefix("Bearer "))
        under_way = [each.label for each in self.grants.values() if each.ended_at is None]
        call = HostCall(
            method, self.address, authorization, instance, time.monotonic(), grant, tuple(under_way)
        )
        self.calls.append(call)
        if grant is None or grant.instance_token != instance or grant.ended_at is not None:
            await refuse(context, "UNAUTHENTICATED", "the tokens are not those of a run under way")
        grant.calls += 1  # type: ignore[union-attr]  # refusing raises
        await grant.released.wait()  # type: ignore[union-attr]
        return grant  # type: ignore[return-value]

    async def answer(self, method: str, request: Any, grant: Grant, context: _Context) -> Message:
        """Answers a call that has one answer."""
        make = _ANSWERS.get(method)
        if make is not None:
            return make(request)
        if method == "InvokeModel" and request.model_id == MODEL_ID:
            return host_api_pb2.InvokeModelResponse(message=_said(), finish_reason="stop")
        if method.endswith(("State", "Storage")):
            return await self._keep(method, request, grant, context)
        if method in {"CreateArtifact", "RequestAction"}:
            await refuse(context, "NOT_IMPLEMENTED", "the conformance kit has no such thing")
        await refuse(context, "NOT_FOUND", "the run was given no such thing")
        raise AssertionError

    async def _keep(self, method: str, request: Any, grant: Grant, context: _Context) -> Message:
        """Answers a call about state or storage."""
        verb, kind = (
            (method[:-5], "State") if method.endswith("State") else (method[:-7], "Storage")
        )
        place = (kind, grant.run_id, str(request.scope if kind == "State" else request.area))
        answer: Any = GetMessageClass(_SERVICE.methods_by_name[method].output_type)()
        if verb == "List":
            return answer  # type: ignore[no-any-return]
        key = (*place, request.key)
        before = self._values.get(key)
        if verb == "Delete":
            answer.existed = self._values.pop(key, None) is not None
        elif verb == "Set":
            value = request.value_json.encode() if kind == "State" else request.value
            version = before[1] + 1 if before else 1
            if kind == "State":
                if request.HasField("expected_version") and request.expected_version != version - 1:
                    await refuse(context, "CONFLICT", "the version is stale")
                answer.version = version
            self._values[key] = (value, version)
        elif before is None:
            await refuse(context, "NOT_FOUND", f"there is no value under {request.key!r}")
        elif kind == "State":
            answer.entry.key, answer.entry.value_json = request.key, before[0].decode()
            answer.entry.version = before[1]
        else:
            answer.value = before[0]
        return answer  # type: ignore[no-any-return]

    async def stream(self, method: str, request: Any, context: _Context) -> AsyncIterator[Message]:
        """Answers a call that has a stream of answers."""
        if method == "PullSteering":
            return
        if method != "StreamModel" or request.model_id != MODEL_ID:
            await refuse(context, "NOT_FOUND", "the run was given no such thing")
        message = _said()
        yield host_api_pb2.StreamModelResponse(
            delta=host_api_pb2.ModelDelta(text=message.parts[0].text)
        )
        yield host_api_pb2.StreamModelResponse(
            end=host_api_pb2.ModelEnd(finish_reason="stop", message=message)
        )


class _Handlers(grpc.GenericRpcHandler):
    """Every method of the service, made from the contract itself."""

    def __init__(self, host: KitHost) -> None:
        self._handlers = {
            f"/{_SERVICE.full_name}/{method.name}": _handler(host, method)
            for method in _SERVICE.methods
        }

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        return self._handlers.get(handler_call_details.method)


def _handler(host: KitHost, method: MethodDescriptor) -> Any:
    async def one(request: Any, context: _Context) -> Message:
        grant = await host.admit(method.name, context)
        if method.client_streaming:
            async for _ in request:
                pass
        return await host.answer(method.name, request, grant, context)

    async def many(request: Any, context: _Context) -> AsyncIterator[Message]:
        await host.admit(method.name, context)
        async for each in host.stream(method.name, request, context):
            yield each

    coding: Mapping[str, Any] = {
        "request_deserializer": GetMessageClass(method.input_type).FromString,
        "response_serializer": lambda message: message.SerializeToString(),
    }
    if method.client_streaming:
        return grpc.stream_unary_rpc_method_handler(one, **coding)
    if method.server_streaming:
        return grpc.unary_stream_rpc_method_handler(many, **coding)
    return grpc.unary_unary_rpc_method_handler(one, **coding)


async def refuse(context: _Context, reason: str, message: str) -> None:
    """Ends a call with an error in the contract's form; never returns."""
    info = any_pb2.Any()
    info.Pack(error_details_pb2.ErrorInfo(reason=reason, domain="runmesh"))
    code = _CODES[reason]
    status = status_pb2.Status(code=code.value[0], message=message, details=[info])
    await context.abort_with_status(rpc_status.to_status(status))


def _said() -> types_pb2.ChatMessage:
    return types_pb2.ChatMessage(
        role=types_pb2.CHAT_ROLE_ASSISTANT,
        parts=[types_pb2.ContentPart(text="A model's answer, made by the conformance kit.")],
    )


_ANSWERS: Mapping[str, Callable[[Any], Message]] = {
    "GetPrompt": lambda _: host_api_pb2.GetPromptResponse(),
    "ListKnowledgeBases": lambda _: host_api_pb2.ListKnowledgeBasesResponse(),
    "PageHistory": lambda _: host_api_pb2.PageHistoryResponse(),
    "SearchHistory": lambda _: host_api_pb2.SearchHistoryResponse(),
    "PageEvents": lambda _: host_api_pb2.PageEventsResponse(),
    "AcknowledgeSteering": lambda _: host_api_pb2.AcknowledgeSteeringResponse(),
}
