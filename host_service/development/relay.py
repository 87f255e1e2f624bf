"""Attaches a process that listens: for plugins in a language that cannot attach by itself.

    host  <-- AttachService, opened here --  relay  -- RunService, as a host calls it -->  plugin

What the plugin sees is what it sees of a host: a handshake, runs as calls, interrupts, cancelled
calls. What the host sees is an attached instance. A plugin that attaches by itself does not listen,
and needs none of this.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from runmesh.v1 import attach_pb2, discovery_pb2, run_pb2
from runmesh.v1.discovery_pb2_grpc import DiscoveryServiceStub
from runmesh.v1.run_pb2_grpc import RunServiceStub

from host_service import __version__
from host_service.validation.wire_texts import DELIMITED, Entry, Malformed, entries, write_entries

_MESSAGE_BYTES = 16 * 1024 * 1024
_OPTIONS: tuple[tuple[str, int | str], ...] = (
    ("grpc.max_send_message_length", _MESSAGE_BYTES),
    ("grpc.max_receive_message_length", _MESSAGE_BYTES),
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
    ("grpc.default_authority", "localhost"),
)
_PROTOCOL_VERSIONS = ("1",)
_LOOK_SECONDS = 0.02
_CALL_SECONDS = 15.0

# Fields of AttachRequest and of AttachResults, which have one number by chance.
_RESULTS_FIELD = 2
_RUN_ID_FIELD = 1
_RUN = "/runmesh.v1.RunService/Run"
_ATTACH = "/runmesh.v1.AttachService/Attach"
# The end of a process is noticed within this time.
_EXIT_NOTICE_SECONDS = 0.3

_Send = Callable[[bytes], Awaitable[None]]


class Relay:
    """Attaches one process, for as long as `run` runs.

    Args:
        host: A channel to the host.
        token: The attach token.
        host_address: Where the plugin reaches the host.
        socket: Where the plugin will listen.
    """

    def __init__(
        self, *, host: grpc.aio.Channel, token: str, host_address: str, socket: Path
    ) -> None:
        self._host = host
        self._metadata = (("authorization", f"Bearer {token}"),)
        self._host_address = host_address
        self._socket = socket

    async def run(self) -> None:
        """Waits until the process listens, attaches it, and returns when the host ends that.

        Raises:
            grpc.aio.AioRpcError: The plugin, or the host, did not answer, or refused.
        """
        # A look takes microseconds, and nothing tells of it.
        while not self._socket.exists():  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_SECONDS)
        address = f"unix:{self._socket}"
        async with grpc.aio.insecure_channel(address, options=_OPTIONS) as channel:
            hello = await self._hello(channel)
            call: Any = self._host.stream_stream(_ATTACH)(metadata=self._metadata)
            try:
                await call.write(attach_pb2.AttachRequest(hello=hello).SerializeToString())
                welcome = (await _read(call)).welcome
                await _handshake(channel, welcome.host)
                await _Stream(call, channel, welcome.initial_credit).serve()
            finally:
                call.cancel()

    async def _hello(self, channel: grpc.aio.Channel) -> attach_pb2.AttachHello:
        greeting = discovery_pb2.HandshakeRequest(
            host_id="runmesh-dev",
            host_name="runmesh dev",
            host_version=__version__,
            protocol_versions=_PROTOCOL_VERSIONS,
        )
        introduction = await _handshake(channel, greeting)
        mesh = await DiscoveryServiceStub(channel).ListRunners(
            discovery_pb2.ListRunnersRequest(), timeout=_CALL_SECONDS
        )
        spoken = (introduction.protocol_version,) if introduction.protocol_version else ()
        introduction.protocol_version = ""
        return attach_pb2.AttachHello(
            protocol_versions=spoken,
            handshake=introduction,
            runners=mesh.runners,
            development=True,
            host_address=self._host_address,
        )


class _Stream:
    """The stream to the host, and the runs on it."""

    def __init__(self, call: Any, plugin: grpc.aio.Channel, initial_credit: int) -> None:
        self._call = call
        self._plugin = plugin
        self._runner = RunServiceStub(plugin)
        self._initial_credit = initial_credit
        self._runs: dict[str, _Run] = {}
        self._asking: set[asyncio.Task[None]] = set()
        # One message at a time: that is what a stream of gRPC takes.
        self._writing = asyncio.Lock()

    async def serve(self) -> None:
        try:
            while True:
                self._take(await _read(self._call))
        finally:
            for task in (*self._asking, *(run.task for run in self._runs.values())):
                task.cancel()

    async def _send(self, message: bytes) -> None:
        async with self._writing:
            await self._call.write(message)

    def _take(self, down: attach_pb2.AttachResponse) -> None:
        match down.WhichOneof("message"):
            case "run":
                run_id = down.run.context.run_id
                run = _Run(self._plugin, down, self._initial_credit, self._send)
                self._runs[run_id] = run
                run.task.add_done_callback(lambda _: self._runs.pop(run_id, None))
            case "credit" if down.credit.run_id in self._runs:
                self._runs[down.credit.run_id].allow(down.credit.results)
            case "cancel" if down.cancel.run_id in self._runs:
                self._runs[down.cancel.run_id].task.cancel()
            case "interrupt":
                asking = asyncio.create_task(self._interrupt(down.interrupt))
                self._asking.add(asking)
                asking.add_done_callback(self._asking.discard)

    async def _interrupt(self, request: run_pb2.InterruptRequest) -> None:
        was_active = False
        # One that cannot be interrupted is cancelled by the host after the grace.
        with contextlib.suppress(grpc.aio.AioRpcError):
            answer = await self._runner.Interrupt(request, timeout=_seconds(request.grace))
            was_active = answer.was_active
        answered = attach_pb2.AttachInterruptAnswer(run_id=request.run_id, was_active=was_active)
        await self._send(attach_pb2.AttachRequest(interrupt_answer=answered).SerializeToString())


class _Run:
    """One run: a call of the plugin, its results sent on as far as the host allows."""

    def __init__(
        self,
        plugin: grpc.aio.Channel,
        down: attach_pb2.AttachResponse,
        credit: int,
        send: _Send,
    ) -> None:
        self._run_id = down.run.context.run_id
        self._credit = credit
        self._allowed = asyncio.Event()
        self._send = send
        # Results stay the bytes they are: what is wrong with them is for the host to say.
        open_call: Any = plugin.unary_stream(
            _RUN, request_serializer=run_pb2.RunRequest.SerializeToString
        )
        call = open_call(
            down.run,
            metadata=tuple(down.metadata.items()),
            timeout=_seconds(down.run.timeout) if down.run.HasField("timeout") else None,
        )
        self.task = asyncio.create_task(self._relay(call), name=f"run {self._run_id}")

    def allow(self, results: int) -> None:
        self._credit += results
        self._allowed.set()

    async def _relay(self, call: Any) -> None:
        try:
            with contextlib.suppress(grpc.aio.AioRpcError):
                async for frame in call:
                    await self._pass_on(_results_in(frame))
            code, text = await call.code(), await call.details()
        finally:
            # Nobody reads on: the plugin shall hear of it.
            call.cancel()
        if code is grpc.StatusCode.UNAVAILABLE:
            # If its process has ended, the stream does, which tells more.
            await asyncio.sleep(_EXIT_NOTICE_SECONDS)
        ended = attach_pb2.AttachRunEnded(
            run_id=self._run_id, status_code=code.value[0], status_message=text
        )
        await self._send(attach_pb2.AttachRequest(run_ended=ended).SerializeToString())

    async def _pass_on(self, results: list[Entry]) -> None:
        while results:
            while self._credit <= 0:
                self._allowed.clear()
                await self._allowed.wait()
            now, results = results[: self._credit], results[self._credit :]
            self._credit -= len(now)
            run_id = Entry(_RUN_ID_FIELD, DELIMITED, self._run_id.encode())
            content = write_entries([run_id, *now])
            await self._send(write_entries([Entry(_RESULTS_FIELD, DELIMITED, content)]))


def _results_in(frame: bytes) -> list[Entry]:
    """The results of a `RunResponse`, as they stand in `AttachResults`."""
    try:
        return [Entry(_RESULTS_FIELD, DELIMITED, each.content) for each in entries(frame)]
    except Malformed:
        # It is passed on as what it is not.
        return [Entry(_RESULTS_FIELD, DELIMITED, frame)]


async def _handshake(
    channel: grpc.aio.Channel, greeting: discovery_pb2.HandshakeRequest
) -> discovery_pb2.HandshakeResponse:
    """Asks a process that listens, or is about to, who it is."""
    answer: Awaitable[discovery_pb2.HandshakeResponse]
    answer = DiscoveryServiceStub(channel).Handshake(
        greeting, timeout=_CALL_SECONDS, wait_for_ready=True
    )
    return await answer


async def _read(call: Any) -> attach_pb2.AttachResponse:
    """The next message from the host.

    Raises:
        grpc.aio.AioRpcError: The host has ended the stream.
    """
    message = await call.read()
    if isinstance(message, bytes):
        return attach_pb2.AttachResponse.FromString(message)
    code, text = await call.code(), await call.details()
    raise grpc.aio.AioRpcError(
        code, await call.initial_metadata(), await call.trailing_metadata(), details=text
    )


def _seconds(duration: Duration) -> float:
    return duration.seconds + duration.nanos / 1e9
