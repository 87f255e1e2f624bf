"""HostAPIService as the stand-in host serves it.

A call goes: tokens, rights of the manifest, fields, then the answer that the test gave for it, or
the stand-in's own.
"""

import asyncio
import inspect
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import grpc
from google.protobuf import message_factory
from google.protobuf.message import Message
from grpc import aio
from runmesh.v1 import host_api_pb2

from runner_sdk._standin.active_run import ActiveRun
from runner_sdk._standin.fields import check_fields
from runner_sdk._standin.needs import refusal_for_rights, refusal_for_scope
from runner_sdk._standin.refusals import refused, status_of
from runner_sdk._standin.world import World
from runner_sdk.errors import HostCallError

_SERVICE = host_api_pb2.DESCRIPTOR.services_by_name["HostAPIService"]

_CANCELLATION_SECONDS = 0.01

Answer: TypeAlias = Message | list[Message] | HostCallError | Callable[[Any], Any]
"""A response, a list of them for a stream, an error, or a function of the request that returns one.

CreateArtifact's function is given the list of its requests."""


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
    """Answers the calls of runners.

    Args:
        world: What it answers from.
        state_scopes: The scopes of state that the agent's policy grants.
    """

    def __init__(self, world: World, *, state_scopes: frozenset[int]) -> None:
        self.instance_token = f"rmi_{secrets.token_urlsafe(32)}"
        self.calls: list[HostCall] = []
        self.world = world
        self._state_scopes = state_scopes
        self._handlers = world.handlers()
        self._runs: dict[str, ActiveRun] = {}
        self._answers: dict[str, Answer] = {}

    def answer(self, method: str, answer: Answer) -> None:
        """Says how a call is answered from now on."""
        if method not in _SERVICE.methods_by_name:
            raise ValueError(f"HostAPIService has no call {method!r}")
        self._answers[method] = answer

    def issue(self, run: ActiveRun) -> str:
        """Makes the run token of a run."""
        token = f"rmr_{secrets.token_urlsafe(32)}"
        self._runs[token] = run
        return token

    def revoke(self, token: str) -> None:
        """Ends a run token's life, and the calls that are served for it."""
        run = self._runs.pop(token, None)
        if run is not None:
            run.end()

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
            return await self._serve(name, request, context)

        async def serve_stream(request: Any, context: Any) -> None:
            await self._serve(name, request, context)

        return make(
            serve_stream if method.server_streaming else serve_unary,
            request_deserializer=message_factory.GetMessageClass(method.input_type).FromString,
            response_serializer=lambda response: response.SerializeToString(),
        )

    async def _serve(self, name: str, request: Any, context: Any) -> Any:
        """Answers a call; it ends with its run."""
        metadata = dict(context.invocation_metadata() or ())
        token = str(metadata.get("authorization", "")).removeprefix("Bearer ")
        run = self._runs.get(token)
        if run is None or metadata.get("runmesh-instance") != self.instance_token:
            await _refuse(context, _unauthenticated())
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a handler runs in one
        run.serving.add(task)
        try:
            return await self._reply(name, run, request, context, metadata)
        except HostCallError as error:
            await _refuse(context, error)
        except asyncio.CancelledError:
            if not run.over:
                raise
            task.uncancel()
            await _refuse(context, _unauthenticated())
        finally:
            run.serving.discard(task)

    async def _reply(
        self, name: str, run: ActiveRun, request: Any, context: Any, metadata: Mapping[str, Any]
    ) -> Any:
        lacking = refusal_for_rights(name, run, request)
        if lacking is not None:
            raise lacking
        if not isinstance(request, Message):
            request = [part async for part in request]
            # gRPC says that a cancelled upload ended before it says that it was cancelled.
            await asyncio.sleep(_CANCELLATION_SECONDS)
        remaining: float | None = context.time_remaining()
        if remaining is not None and remaining > 1e6:
            remaining = None
        self.calls.append(HostCall(name, run.context.run_id, request, metadata, remaining))
        answer = await self._answer(name, run, request)
        if isinstance(answer, HostCallError):
            raise answer
        if _SERVICE.methods_by_name[name].server_streaming:
            await _write_all(answer, context)
            return None
        return answer

    async def _answer(self, name: str, run: ActiveRun, request: Any) -> Any:
        answer = self._answers.get(name)
        if answer is None:
            return self._own_answer(name, run, request)
        if callable(answer):
            answer = answer(request)
            return await answer if inspect.isawaitable(answer) else answer
        return answer

    def _own_answer(self, name: str, run: ActiveRun, request: Any) -> Any:
        if isinstance(request, Message):
            check_fields(request)
            lacking = refusal_for_scope(run, request, self._state_scopes)
            if lacking is not None:
                raise lacking
        return self._handlers[name](run, request)


async def _write_all(responses: Any, context: Any) -> None:
    if isinstance(responses, AsyncIterator):
        async for response in responses:
            await context.write(response)
    else:
        for response in responses:
            await context.write(response)


async def _refuse(context: Any, error: HostCallError) -> NoReturn:
    await context.abort_with_status(status_of(error))
    raise AssertionError("abort_with_status does not return")


def _unauthenticated() -> HostCallError:
    return refused(
        "UNAUTHENTICATED",
        "the run token or the instance token is missing, wrong, or of a run that ended",
    )
