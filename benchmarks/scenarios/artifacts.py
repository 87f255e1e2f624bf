"""A large artifact up and down, against bare streaming of the same chunks."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from time import perf_counter

from runmesh.v1 import gateway_pb2, gateway_pb2_grpc, host_api_pb2

from benchmarks.floors.files import CHUNK_BYTES
from benchmarks.floors.transport import open_channel
from benchmarks.processes import anonymous_memory_bytes, running, wait_until_served
from benchmarks.report import Row, at_least, at_most
from benchmarks.rounds import Plan, take_turns
from benchmarks.stage import Stage
from benchmarks.ways import Metadata, WrongRun

_GOAL, _MEMORY_GOAL = at_least(0.75), at_most(32)
_CHUNKS, _QUICK_CHUNKS = 1024, 96
_UNIT = "MiB/s"
_LOOK_SECONDS = 0.05
_MIB = 1024 * 1024


async def measure(stage: Stage, plan: Plan) -> Sequence[Row]:
    """Measures both directions, and how much the host's memory grows meanwhile."""
    chunks = _QUICK_CHUNKS if plan.quick else _CHUNKS
    address = f"unix:{stage.folder}/files.sock"
    bare_words = ("benchmarks.floors.files", address)
    async with running("files", *bare_words, folder=stage.folder) as program:
        await wait_until_served(program, address)
        return await _compare(stage, plan, address, chunks)


async def _compare(stage: Stage, plan: Plan, address: str, chunks: int) -> Sequence[Row]:
    async with open_channel(address) as channel:
        host = _Files(stage.echo.gateway, stage.echo.metadata, chunks)
        bare = _Files(gateway_pb2_grpc.GatewayServiceStub(channel), (), chunks)
        bare.artifact_id = str(chunks)
        watched = _Highest(stage.host.program.pid)
        up = await take_turns({"host": host.put, "bare": bare.put}, plan.rounds)
        down = await take_turns({"host": host.get, "bare": bare.get}, plan.rounds)
        grown = watched.grown_mib()
    what = f"artifact of {chunks} MiB"
    rows = [
        Row(f"{what} {way}; bare stream", _UNIT, measured["host"], measured["bare"], _GOAL)
        for way, measured in (("up", up), ("down", down))
    ]
    if grown is not None:
        rows.append(Row(f"{what}, growth of the host", "MiB", [grown], goal=_MEMORY_GOAL))
    return rows


class _Files:
    """Puts files somewhere and gets them back."""

    def __init__(
        self, gateway: gateway_pb2_grpc.GatewayServiceStub, metadata: Metadata, chunks: int
    ) -> None:
        self._gateway = gateway
        self._metadata = metadata
        self._chunks = chunks
        self.artifact_id = ""

    async def put(self) -> float:
        """Returns how many MiB a second went up. Each file is another one."""
        begin = perf_counter()
        answer = await self._gateway.CreateArtifact(self._requests(), metadata=self._metadata)
        _check(answer.artifact.size_bytes, self._chunks)
        self.artifact_id = self.artifact_id or answer.artifact.artifact_id
        return self._chunks / (perf_counter() - begin)

    async def _requests(
        self,
    ) -> AsyncIterator[gateway_pb2.GatewayServiceCreateArtifactRequest]:
        make = gateway_pb2.GatewayServiceCreateArtifactRequest
        yield make(header=host_api_pb2.ArtifactHeader(type="file"))
        yield make(chunk=os.urandom(16) + bytes(CHUNK_BYTES - 16))
        chunk = bytes(CHUNK_BYTES)
        for _ in range(self._chunks - 1):
            yield make(chunk=chunk)

    async def get(self) -> float:
        """Returns how many MiB a second came down."""
        begin, size = perf_counter(), 0
        request = gateway_pb2.GatewayServiceReadArtifactRequest(artifact_id=self.artifact_id)
        async for part in self._gateway.ReadArtifact(request, metadata=self._metadata):
            size += len(part.data)
        _check(size, self._chunks)
        return self._chunks / (perf_counter() - begin)


def _check(size: int, chunks: int) -> None:
    if size != chunks * CHUNK_BYTES:
        raise WrongRun(f"{size} bytes went through instead of {chunks * CHUNK_BYTES}")


class _Highest:
    """Watches how much memory a process takes at most."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before = self._highest = anonymous_memory_bytes(pid) or 0
        self._task = asyncio.create_task(self._look())

    def grown_mib(self) -> float | None:
        """Stops, and returns by how many MiB it grew; None where the system does not tell."""
        self._task.cancel()
        return (self._highest - self._before) / _MIB if self._before else None

    async def _look(self) -> None:
        while True:
            self._highest = max(self._highest, anonymous_memory_bytes(self._pid) or 0)
            await asyncio.sleep(_LOOK_SECONDS)
