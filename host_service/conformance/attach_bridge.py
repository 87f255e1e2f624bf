"""Lets a runner attach to the kit, and serves it at a socket, as if it had been dialled.

::

    checks --> RunService, DiscoveryService, health --> bridge --> AttachService <-- the runner

So the same checks hold for attached runners. What an attached runner is never asked (a handshake by
another host, reflection) those checks leave out.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message
from grpc_health.v1 import health_pb2
from runmesh.v1 import attach_pb2, discovery_pb2, run_pb2

from host_service.conformance.attached_stream import AttachedStream, Lost
from host_service.registry.channel import SERVER_OPTIONS

# A runner that lost its stream is back by then, or it is not coming.
_COMES_BACK_SECONDS = 3.0
_LAST_WORDS_SECONDS = 0.1
_CODES = {code.value[0]: code for code in grpc.StatusCode}

_Context = grpc.aio.ServicerContext[Any, Any]


class AttachBridge:
    """One attached runner, to be dialled.

    Args:
        local_address: Where the checks dial it: a unix socket.

    Attributes:
        token: The attach token that the runner must present.
        breaches: What the runner did on its stream that the contract does not allow.
        attachments: How often a runner attached.
        results: How many results have come, of all runs.
    """

    def __init__(self, local_address: str) -> None:
        self.token = secrets.token_urlsafe(24)
        self.address = local_address
        self.attach_address = ""
        self.breaches: list[str] = []
        self.attachments = 0
        self.results = 0
        self._stream: AttachedStream | None = None
        self._changed = asyncio.Condition()
        self._outer = grpc.aio.server(options=SERVER_OPTIONS)
        self._local = grpc.aio.server(options=SERVER_OPTIONS)

    @property
    def environment(self) -> dict[str, str]:
        """What tells a runner made with an SDK to attach here."""
        return {"RUNMESH_ATTACH": self.attach_address, "RUNMESH_ATTACH_TOKEN": self.token}

    async def start(self, listen: str = "127.0.0.1:0") -> None:
        """Lets runners attach at an address; of `127.0.0.1:0` the port is chosen by the system."""
        attach: Any = grpc.stream_stream_rpc_method_handler(
            self._attach, response_serializer=attach_pb2.AttachResponse.SerializeToString
        )
        self._outer.add_generic_rpc_handlers((_service("AttachService", Attach=attach),))
        port = self._outer.add_insecure_port(listen)
        host = listen.rpartition(":")[0]
        self.attach_address = listen if listen.startswith("unix:") else f"{host}:{port}"
        self._local.add_generic_rpc_handlers(
            (
                _service(
                    "DiscoveryService",
                    Handshake=_unary(self._handshake, discovery_pb2.HandshakeRequest),
                    ListRunners=_unary(self._list_runners, discovery_pb2.ListRunnersRequest),
                ),
                _service(
                    "RunService",
                    Run=grpc.unary_stream_rpc_method_handler(
                        self._run, request_deserializer=run_pb2.RunRequest.FromString
                    ),
                    Interrupt=_unary(self._interrupt, run_pb2.InterruptRequest),
                ),
                grpc.method_handlers_generic_handler(
                    "grpc.health.v1.Health",
                    {"Check": _unary(self._check, health_pb2.HealthCheckRequest)},
                ),
            )
        )
        self._local.add_insecure_port(self.address)
        await self._outer.start()
        await self._local.start()

    async def close(self) -> None:
        """Ends the stream and both servers."""
        await asyncio.gather(
            self._local.stop(_LAST_WORDS_SECONDS), self._outer.stop(_LAST_WORDS_SECONDS)
        )

    async def attached(
        self, timeout_seconds: float | None, *, after: int = 0
    ) -> AttachedStream | None:
        """Waits until a runner is attached; None: none came in this time.

        Args:
            timeout_seconds: How long to wait; None: for ever.
            after: How many attachments before it do not count.
        """
        try:
            async with asyncio.timeout(timeout_seconds), self._changed:
                await self._changed.wait_for(
                    lambda: self._stream is not None and self.attachments > after
                )
        except TimeoutError:
            return None
        return self._stream

    async def drop(self) -> None:
        """Ends the stream, as a network does that fails."""
        if self._stream is not None:
            self._stream.end()
            async with self._changed:
                await self._changed.wait_for(lambda: self._stream is None)

    async def _attach(self, _: object, context: _Context) -> None:
        given = {str(key): str(value) for key, value in context.invocation_metadata() or ()}
        if given.get("authorization") != f"Bearer {self.token}":
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "another attach token")
        hello = _read(await context.read())
        if hello is None or not hello.HasField("hello"):
            self.breaches.append("a first message that is no hello")
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "hello: the first message")
        stream = AttachedStream(hello.hello, note=self.breaches.append)
        self.attachments += 1
        await self._show(stream)
        writer = asyncio.create_task(stream.write_all(context.write))
        reader = asyncio.create_task(self._take_all(stream, context))
        ended = asyncio.create_task(stream.ended.wait())
        try:
            await asyncio.wait({writer, reader, ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (writer, reader, ended):
                task.cancel()
            await asyncio.gather(writer, reader, ended, return_exceptions=True)
            stream.lose()
            if self._stream is stream:
                await self._show(None)
        if stream.ended.is_set():
            await context.abort(grpc.StatusCode.UNAVAILABLE, "attach again")

    async def _take_all(self, stream: AttachedStream, context: _Context) -> None:
        while True:
            data = await context.read()
            if not isinstance(data, bytes):
                return
            message = _read(data)
            if message is None:
                self.breaches.append(f"{len(data)} bytes that are no AttachRequest")
                return
            self.results += len(message.results.results)
            stream.take(message)

    async def _show(self, stream: AttachedStream | None) -> None:
        async with self._changed:
            self._stream = stream
            self._changed.notify_all()

    async def _there(self, context: _Context) -> AttachedStream:
        stream = self._stream or await self.attached(_COMES_BACK_SECONDS)
        if stream is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "no runner is attached")
        return stream

    async def _handshake(
        self, request: discovery_pb2.HandshakeRequest, context: _Context
    ) -> Message:
        hello = (await self._there(context)).hello
        answer = discovery_pb2.HandshakeResponse()
        answer.CopyFrom(hello.handshake)
        common = [each for each in request.protocol_versions if each in hello.protocol_versions]
        answer.protocol_version = common[0] if common else ""
        return answer

    async def _list_runners(
        self, _: discovery_pb2.ListRunnersRequest, context: _Context
    ) -> Message:
        return discovery_pb2.ListRunnersResponse(runners=(await self._there(context)).hello.runners)

    async def _check(self, _: health_pb2.HealthCheckRequest, context: _Context) -> Message:
        stream = self._stream
        if stream is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "no runner is attached")
        answer = health_pb2.HealthCheckResponse
        status = answer.SERVING if stream.is_serving else answer.NOT_SERVING
        response: Message = answer(status=status)
        return response

    async def _interrupt(self, request: run_pb2.InterruptRequest, context: _Context) -> Message:
        stream = await self._there(context)
        if not any(each.capabilities.interrupt for each in stream.hello.runners):
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no runner has `interrupt`")
        return run_pb2.InterruptResponse(was_active=await stream.interrupt(request))

    async def _run(self, request: run_pb2.RunRequest, context: _Context) -> None:
        stream = await self._there(context)
        run = stream.open(request, dict(_texts(context)))
        try:
            while True:
                up = await run.next()
                if isinstance(up, attach_pb2.AttachRunEnded):
                    break
                response = run_pb2.RunResponse(results=up.results)
                await context.write(response.SerializeToString())
                run.give_back(len(up.results))
        except Lost:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the attached stream has ended")
        except BaseException:
            # Nobody reads on: the call was cancelled, or its deadline has passed.
            run.cancel()
            raise
        if up.status_code:
            code = _CODES.get(up.status_code, grpc.StatusCode.UNKNOWN)
            await context.abort(code, up.status_message)


def _texts(context: _Context) -> list[tuple[str, str]]:
    return [
        (str(key), value)
        for key, value in context.invocation_metadata() or ()
        if isinstance(value, str) and key == "traceparent"
    ]


def _read(data: object) -> attach_pb2.AttachRequest | None:
    try:
        return attach_pb2.AttachRequest.FromString(data) if isinstance(data, bytes) else None
    except DecodeError:
        return None


def _service(name: str, **methods: Any) -> grpc.GenericRpcHandler:
    return grpc.method_handlers_generic_handler(f"runmesh.v1.{name}", methods)


def _unary(handler: Callable[..., Any], request: type[Message]) -> Any:
    return grpc.unary_unary_rpc_method_handler(
        handler,
        request_deserializer=request.FromString,
        response_serializer=lambda message: message.SerializeToString(),
    )
