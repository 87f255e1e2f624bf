"""Attaches any runner to a host: a program that listens, behind a program that dials.

`python -m tests.integration.host.runners.bridge COMMAND...` starts the command with a socket of
its own in `RUNMESH_LISTEN`, calls it as a host would, and passes on what it says, byte by byte,
over one attached stream to the host in `RUNMESH_ATTACH`. So a test that knows nothing of attaching
sees the same runner through it. It ends when the command does, or the stream.
"""

import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from runmesh.v1 import attach_pb2, discovery_pb2, discovery_pb2_grpc, run_pb2, run_pb2_grpc

from host_service.validation.wire_texts import Entry, Malformed, entries, varint, write_entries

DELIMITED = 2
MESSAGE_BYTES = 16 * 1024 * 1024
FRAME_BYTES = 3 * 1024 * 1024
POLL_SECONDS = 0.01
EXIT_SECONDS = 0.3
LARGE = [
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    ("grpc.max_send_message_length", 64 * 1024 * 1024),
    ("grpc.use_local_subchannel_pool", 1),
]

Command = asyncio.subprocess.Process


class Bridge:
    """One attached stream, and the calls that its runs are.

    Args:
        up: The call of `AttachService.Attach`.
        local: A channel to the runner.
        command: The runner's process.
    """

    def __init__(self, *, up: Any, local: grpc.aio.Channel, command: Command) -> None:
        self._up = up
        self._local = local
        self._command = command
        self._messages: asyncio.Queue[bytes] = asyncio.Queue(8)
        self._credit: dict[str, asyncio.Semaphore] = {}
        self._calls: dict[str, Any] = {}
        self._initial = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Says hello, and passes on until the stream ends."""
        await self._up.write((await self._hello()).SerializeToString())
        welcome = attach_pb2.AttachResponse.FromString(await self._up.read())
        self._initial = welcome.welcome.initial_credit
        self._begin(self._write())
        while isinstance(data := await self._up.read(), bytes):
            self._heed(attach_pb2.AttachResponse.FromString(data))

    async def flush(self) -> None:
        """Waits until all that was said is sent."""
        await self._messages.join()

    async def _hello(self) -> attach_pb2.AttachRequest:
        discovery = discovery_pb2_grpc.DiscoveryServiceStub(self._local)
        request = discovery_pb2.HandshakeRequest(protocol_versions=["1"])
        answer = await discovery.Handshake(request)
        listed = await discovery.ListRunners(discovery_pb2.ListRunnersRequest())
        return attach_pb2.AttachRequest(
            hello=attach_pb2.AttachHello(
                protocol_versions=[answer.protocol_version],
                handshake=answer,
                runners=listed.runners,
                host_address=os.environ["RUNMESH_ATTACH"],
            )
        )

    def _begin(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write(self) -> None:
        while True:
            data = await self._messages.get()
            await self._up.write(data)
            self._messages.task_done()

    def _heed(self, message: attach_pb2.AttachResponse) -> None:
        match message.WhichOneof("message"):
            case "run":
                self._begin(self._run(message.run, dict(message.metadata)))
            case "credit":
                credit = self._credit.get(message.credit.run_id)
                if credit is not None:
                    for _ in range(message.credit.results):
                        credit.release()
            case "cancel":
                call = self._calls.get(message.cancel.run_id)
                if call is not None:
                    call.cancel()
            case "interrupt":
                self._begin(self._interrupt(message.interrupt))

    async def _run(self, request: run_pb2.RunRequest, metadata: dict[str, str]) -> None:
        run_id = request.context.run_id
        open_call: Any = self._local.unary_stream(
            "/runmesh.v1.RunService/Run",
            request_serializer=run_pb2.RunRequest.SerializeToString,
        )
        timeout = request.timeout.ToNanoseconds() / 1e9 if request.HasField("timeout") else None
        call = open_call(request, timeout=timeout, metadata=tuple(metadata.items()))
        self._calls[run_id], self._credit[run_id] = call, asyncio.Semaphore(self._initial)
        code, details = grpc.StatusCode.OK, ""
        try:
            while isinstance(frame := await call.read(), bytes):
                await self._pass_on(run_id, frame)
        except grpc.aio.AioRpcError as error:
            code, details = error.code(), error.details() or ""
        except (ValueError, asyncio.CancelledError) as error:
            call.cancel()
            code, details = grpc.StatusCode.RESOURCE_EXHAUSTED, str(error)
        if code is grpc.StatusCode.UNAVAILABLE and await self._has_ended():
            await self.flush()
            os._exit(1)
        ended = attach_pb2.AttachRunEnded(
            run_id=run_id, status_code=code.value[0], status_message=details
        )
        await self._messages.put(attach_pb2.AttachRequest(run_ended=ended).SerializeToString())
        del self._calls[run_id], self._credit[run_id]

    async def _has_ended(self) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._command.wait(), EXIT_SECONDS)
        return self._command.returncode is not None

    async def _pass_on(self, run_id: str, frame: bytes) -> None:
        for count, piece in pieces(frame, self._initial):
            for _ in range(count):
                await self._credit[run_id].acquire()
            message = up_results(run_id, piece)
            if len(message) > MESSAGE_BYTES:
                raise ValueError(f"Received message larger than max ({len(message)})")
            await self._messages.put(message)

    async def _interrupt(self, request: run_pb2.InterruptRequest) -> None:
        was_active = request.run_id in self._calls
        with contextlib.suppress(grpc.aio.AioRpcError):
            stub = run_pb2_grpc.RunServiceStub(self._local)
            was_active = (await stub.Interrupt(request)).was_active
        answer = attach_pb2.AttachInterruptAnswer(run_id=request.run_id, was_active=was_active)
        await self._messages.put(
            attach_pb2.AttachRequest(interrupt_answer=answer).SerializeToString()
        )


def pieces(frame: bytes, most: int) -> Iterator[tuple[int, bytes]]:
    """Yields a frame's results as they stand in a message, at most so many together."""
    try:
        results = [Entry(2, DELIMITED, entry.content) for entry in entries(frame)]
    except Malformed:
        # No frame at all: it is passed on as it is.
        yield 1, frame
        return
    for begin in range(0, len(results), most):
        some = results[begin : begin + most]
        yield len(some), write_entries(some)


def up_results(run_id: str, results: bytes) -> bytes:
    """A message with results of a run that may be any bytes."""
    content = write_entries([Entry(1, DELIMITED, run_id.encode())]) + results
    return varint(2 << 3 | DELIMITED) + varint(len(content)) + content


async def wait_until_serving(local: grpc.aio.Channel) -> None:
    """Returns once the runner says SERVING."""
    stub: Any = health_pb2_grpc.HealthStub(local)
    while True:
        with contextlib.suppress(grpc.aio.AioRpcError):
            answer = await stub.Check(health_pb2.HealthCheckRequest())
            if answer.status == health_pb2.HealthCheckResponse.SERVING:
                return
        await asyncio.sleep(POLL_SECONDS)


async def main(command_line: list[str]) -> None:
    """Starts the command and bridges it."""
    with tempfile.TemporaryDirectory(prefix="bridge-") as folder:
        listen = f"unix:{Path(folder) / 'runner.sock'}"
        command = await asyncio.create_subprocess_exec(
            *command_line, env={**os.environ, "RUNMESH_LISTEN": listen}
        )
        try:
            await bridge(listen, command)
        finally:
            if command.returncode is None:
                command.kill()
                await command.wait()


async def bridge(listen: str, command: Command) -> None:
    """Bridges a process that listens, until it or the stream ends."""
    metadata = (("authorization", f"Bearer {os.environ['RUNMESH_ATTACH_TOKEN']}"),)
    async with (
        grpc.aio.insecure_channel(
            listen, options=[*LARGE, ("grpc.default_authority", "localhost")]
        ) as local,
        grpc.aio.insecure_channel(os.environ["RUNMESH_ATTACH"], options=LARGE) as far,
    ):
        exiting = asyncio.ensure_future(command.wait())
        starting = asyncio.ensure_future(wait_until_serving(local))
        await asyncio.wait({starting, exiting}, return_when=asyncio.FIRST_COMPLETED)
        starting.cancel()
        if exiting.done():
            return
        up: Any = far.stream_stream("/runmesh.v1.AttachService/Attach")
        bridged = Bridge(up=up(metadata=metadata), local=local, command=command)
        serving = asyncio.ensure_future(bridged.serve())
        await asyncio.wait({serving, exiting}, return_when=asyncio.FIRST_COMPLETED)
        if exiting.done():
            # What it said last is on its way.
            await asyncio.sleep(EXIT_SECONDS / 3)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(bridged.flush(), EXIT_SECONDS)
        serving.cancel()
        exiting.cancel()


if __name__ == "__main__":
    with contextlib.suppress(grpc.aio.AioRpcError):
        asyncio.run(main(sys.argv[1:]))
