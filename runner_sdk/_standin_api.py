"""HostAPIService as the stand-in host serves it: tokens checked, answers from the test."""

import inspect
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import grpc
from google.protobuf import message_factory
from google.protobuf.message import Message
from grpc import aio
from runmesh.v1 import host_api_pb2

from runner_sdk._status import Status, refusal
from runner_sdk.errors import HostCallError

_SERVICE = host_api_pb2.DESCRIPTOR.services_by_name["HostAPIService"]

Answer: TypeAlias = Message | list[Message] | HostCallError | Callable[[Any], Any]
"""A response, a list of them for a stream, an error, or a function of the request that returns one.

CreateArtifact's function is given the list of its requests."""

_CODES: Mapping[str, grpc.StatusCode] = {
    "UNAUTHENTICATED": grpc.StatusCode.UNAUTHENTICATED,
    "UNAUTHORIZED": grpc.StatusCode.PERMISSION_DENIED,
    "NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "INVALID_ARGUMENT": grpc.StatusCode.INVALID_ARGUMENT,
    "PAYLOAD_TOO_LARGE": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "RATE_LIMITED": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "OVERLOADED": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "CONFLICT": grpc.StatusCode.ABORTED,
    "ALREADY_EXISTS": grpc.StatusCode.ALREADY_EXISTS,
    "SEQUENCE_COMPACTED": grpc.StatusCode.OUT_OF_RANGE,
    "DEADLINE_EXCEEDED": grpc.StatusCode.DEADLINE_EXCEEDED,
    "NOT_IMPLEMENTED": grpc.StatusCode.UNIMPLEMENTED,
    "UNAVAILABLE": grpc.StatusCode.UNAVAILABLE,
    "RUNTIME_ERROR": grpc.StatusCode.INTERNAL,
}


@dataclass(frozen=True, slots=True)
class HostCall:
    """A call that a runner made to the stand-in host.

    Attributes:
        method: Such as `GetPrompt`.
        run_id: Whose run token came with it.
        request: The request; a list of them for CreateArtifact.
        metadata: What came with it.
        remaining_seconds: Its deadline; None where it has none.
    """

    method: str
    run_id: str
    request: Any
    metadata: Mapping[str, str | bytes]
    remaining_seconds: float | None


class StandInApi:
    """Answers the calls of runners as a test says."""

    def __init__(self) -> None:
        self.instance_token = f"rmi_{secrets.token_urlsafe(32)}"
        self.calls: list[HostCall] = []
        self._run_of_token: dict[str, str] = {}
        self._answers: dict[str, Answer] = {}

    def answer(self, method: str, answer: Answer) -> None:
        """Says how a call is answered from now on."""
        if method not in _SERVICE.methods_by_name:
            raise ValueError(f"HostAPIService has no call {method!r}")
        self._answers[method] = answer

    def issue(self, run_id: str) -> str:
        """Makes the run token of a run."""
        token = f"rmr_{secrets.token_urlsafe(32)}"
        self._run_of_token[token] = run_id
        return token

    def revoke(self, token: str) -> None:
        """Ends a run token's life."""
        self._run_of_token.pop(token, None)

    def add_to(self, server: aio.Server) -> None:
        """Adds the service to a server."""
        handlers = {name: self._handler(name) for name in _SERVICE.methods_by_name}
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(_SERVICE.full_name, handlers),)
        )

    def _handler(self, name: str) -> Any:
        method = _SERVICE.methods_by_name[name]
        make = {
            (False, False): grpc.unary_unary_rpc_method_handler,
            (False, True): grpc.unary_stream_rpc_method_handler,
            (True, False): grpc.stream_unary_rpc_method_handler,
        }[method.client_streaming, method.server_streaming]

        async def serve_unary(request: Any, context: Any) -> Any:
            return await self._reply(name, request, context)

        async def serve_stream(request: Any, context: Any) -> AsyncIterator[Any]:
            for response in await self._reply(name, request, context):
                yield response

        return make(
            serve_stream if method.server_streaming else serve_unary,
            request_deserializer=message_factory.GetMessageClass(method.input_type).FromString,
            response_serializer=lambda response: response.SerializeToString(),
        )

    async def _reply(self, name: str, request: Any, context: Any) -> Any:
        metadata = dict(context.invocation_metadata() or ())
        token = str(metadata.get("authorization", "")).removeprefix("Bearer ")
        run_id = self._run_of_token.get(token)
        if run_id is None or metadata.get("runmesh-instance") != self.instance_token:
            await context.abort_with_status(
                refusal(
                    grpc.StatusCode.UNAUTHENTICATED,
                    "UNAUTHENTICATED",
                    "the run token or the instance token is missing, wrong, or of a run that ended",
                )
            )
        if not isinstance(request, Message):
            request = [part async for part in request]
        remaining: float | None = context.time_remaining()
        if remaining is not None and remaining > 1e6:
            remaining = None
        self.calls.append(HostCall(name, str(run_id), request, metadata, remaining))
        answer = await self._answer(name, request)
        if isinstance(answer, HostCallError):
            await context.abort_with_status(_status(answer))
        return answer

    async def _answer(self, name: str, request: Any) -> Any:
        answer = self._answers.get(name)
        if answer is None:
            return HostCallError(
                method=name,
                reason="NOT_IMPLEMENTED",
                message=f"the test has no answer: host.answer({name!r}, ...)",
            )
        if callable(answer):
            try:
                answer = answer(request)
                return await answer if inspect.isawaitable(answer) else answer
            except HostCallError as error:
                return error
        return answer


def _status(error: HostCallError) -> Status:
    return refusal(
        _CODES.get(error.reason, grpc.StatusCode.INTERNAL),
        error.reason,
        error.message,
        metadata=error.metadata,
        violations=error.violations,
        retry_after_seconds=error.retry_after_seconds,
    )
