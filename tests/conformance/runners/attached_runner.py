"""A runner without any SDK that attaches, and keeps to its stream, or breaks that in one way."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import grpc
import grpc.aio
from runmesh.v1 import attach_pb2, attach_pb2_grpc, result_pb2, run_pb2

from tests.conformance.runners.raw_runner import RawRunner

_PAUSE_SECONDS = 0.05


class AttachedRunner:
    """Echoes over one stream.

    Args:
        host: Where it attaches.
        token: With what.
        fault: What it does wrong; empty: nothing.
    """

    def __init__(self, host: str, token: str, fault: str = "") -> None:
        self._host = host
        self._token = token
        self._fault = fault
        self._raw = RawRunner(fault, notes=True, calls_host=True)
        self._up: asyncio.Queue[attach_pb2.AttachRequest] = asyncio.Queue()
        self._runs: dict[str, asyncio.Task[None]] = {}
        self._answers: list[asyncio.Task[None]] = []
        self._credit: dict[str, int] = {}
        self._credited = asyncio.Condition()
        self._initial = 0
        self._task = asyncio.create_task(self._keep())

    async def close(self) -> None:
        """Ends it."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _keep(self) -> None:
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):
                await self._attach()
            if self._fault == "does_not_come_back":
                return
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _attach(self) -> None:
        async with grpc.aio.insecure_channel(self._host) as channel:
            stub = attach_pb2_grpc.AttachServiceStub(channel)
            self._up = asyncio.Queue()
            self._up.put_nowait(await self._hello())
            if self._fault == "second_hello":
                self._up.put_nowait(await self._hello())
            metadata = [("authorization", f"Bearer {self._token}")]
            try:
                async for down in stub.Attach(self._say(), metadata=metadata):
                    await self._take(down)
            finally:
                tasks = [*self._runs.values(), *self._answers]
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                self._runs.clear()

    async def _hello(self) -> attach_pb2.AttachRequest:
        context = None
        handshake = await self._raw.Handshake(
            attach_pb2.AttachWelcome().host,
            context,  # type: ignore[arg-type]
        )
        listed = await self._raw.ListRunners(None, context)  # type: ignore[arg-type]
        if self._fault == "picks_version":
            handshake.protocol_version = "1"
        versions = ["0"] if self._fault == "old_version" else ["1"]
        return attach_pb2.AttachRequest(
            hello=attach_pb2.AttachHello(
                protocol_versions=versions, handshake=handshake, runners=listed.runners
            )
        )

    async def _say(self) -> AsyncIterator[attach_pb2.AttachRequest]:
        while True:
            yield await self._up.get()

    async def _take(self, down: attach_pb2.AttachResponse) -> None:
        kind = down.WhichOneof("message")
        if kind == "welcome":
            self._initial = down.welcome.initial_credit
        elif kind == "run":
            run_id = down.run.context.run_id
            self._credit[run_id] = self._initial
            self._runs[run_id] = asyncio.create_task(self._run(down.run))
        elif kind == "credit":
            async with self._credited:
                self._credit[down.credit.run_id] += down.credit.results
                self._credited.notify_all()
        elif kind == "cancel":
            self._cancel(down.cancel.run_id)
        elif kind == "interrupt":
            self._answers.append(asyncio.create_task(self._interrupt(down.interrupt)))

    def _cancel(self, run_id: str) -> None:
        if run_id in self._runs:
            self._runs[run_id].cancel()

    async def _interrupt(self, request: run_pb2.InterruptRequest) -> None:
        answer = await self._raw.Interrupt(request, None)  # type: ignore[arg-type]
        self._up.put_nowait(
            attach_pb2.AttachRequest(
                interrupt_answer=attach_pb2.AttachInterruptAnswer(
                    run_id=request.run_id, was_active=answer.was_active
                )
            )
        )

    async def _run(self, request: run_pb2.RunRequest) -> None:
        run_id = request.context.run_id
        context = _Refusing()
        ended = attach_pb2.AttachRunEnded(run_id=run_id)
        try:
            async for response in self._raw.Run(request, context):  # type: ignore[arg-type]
                for result in response.results:
                    await self._send(run_id, result)
        except _Refused as refused:
            ended.status_code, ended.status_message = refused.code.value[0], refused.details
        self._up.put_nowait(attach_pb2.AttachRequest(run_ended=ended))
        self._runs.pop(run_id, None)

    async def _send(self, run_id: str, result: result_pb2.RunResult) -> None:
        async with self._credited:
            if self._fault != "ignores_credit":
                await self._credited.wait_for(lambda: self._credit[run_id] > 0)
            self._credit[run_id] -= 1
        results = attach_pb2.AttachResults(run_id=run_id, results=[result])
        self._up.put_nowait(attach_pb2.AttachRequest(results=results))


class _Refused(Exception):
    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details


class _Refusing:
    """What the raw runner knows of a call: that it can end it."""

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        raise _Refused(code, details)
