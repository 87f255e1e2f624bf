"""Files of any size go through a host in constant memory, both ways, for callers and for runs."""

import hashlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from runmesh.v1 import gateway_pb2, host_api_pb2, types_pb2

from tests.integration.host.calls import Caller, calling
from tests.integration.host.files import filing_run, upload
from tests.integration.host.host_process import HostProcess
from tests.integration.host.plugins import write_scripted_plugin

MEBIBYTE = 1024 * 1024
# `RUNMESH_TEST_MEBIBYTES=1024` goes up to what an artifact may have.
MEBIBYTES = int(os.environ.get("RUNMESH_TEST_MEBIBYTES", "96"))
MOST_GROWTH = 32 * MEBIBYTE

_AGENTS = """\
agents:
- {id: filing, runner_id: "plugin:acme/scripted/filing"}
"""


class File:
    """Bytes that are made as they are sent, and known by their digest."""

    def __init__(self, mebibytes: int) -> None:
        self._mebibytes = mebibytes
        self._chunk = os.urandom(MEBIBYTE - 8)
        self.sha256 = hashlib.sha256()
        self.size_bytes = mebibytes * MEBIBYTE

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yields chunks of 1 MiB, no two alike."""
        for number in range(self._mebibytes):
            chunk = number.to_bytes(8, "big") + self._chunk
            self.sha256.update(chunk)
            yield chunk


def peak(pid: int) -> int:
    """The most memory that a process ever had, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the process has ended")


async def digest_of(call: Any) -> bytes:
    """Reads a stream of chunks to its end."""
    digest = hashlib.sha256()
    async for response in call:
        digest.update(response.data)
    return digest.digest()


async def through_the_gateway(caller: Caller, mebibytes: int) -> types_pb2.ArtifactRef:
    file = File(mebibytes)
    ref = await upload(caller, file.chunks())
    assert (ref.size_bytes, ref.sha256) == (file.size_bytes, file.sha256.digest())
    request = gateway_pb2.GatewayServiceReadArtifactRequest(artifact_id=ref.artifact_id)
    call = caller.gateway.ReadArtifact(request, metadata=caller.metadata)
    assert await digest_of(call) == ref.sha256
    return ref


async def through_host_api(caller: Caller, mebibytes: int, go: Path) -> None:
    file = File(mebibytes)
    async with filing_run(caller, go, conversation_id="room") as run:
        ref = await run.create(file.chunks())
        assert (ref.size_bytes, ref.sha256) == (file.size_bytes, file.sha256.digest())
        request = host_api_pb2.StreamArtifactRequest(artifact_id=ref.artifact_id)
        call = caller.host_api.StreamArtifact(request, metadata=run.metadata)
        assert await digest_of(call) == ref.sha256
        await run.end()


@pytest.mark.parametrize("way", ["gateway", "host_api"])
async def test_large_file_goes_up_and_down_in_constant_memory(
    make_host: Callable[..., HostProcess], tmp_path: Path, way: str
) -> None:
    write_scripted_plugin(tmp_path / "plugins")
    host = make_host(plugins=tmp_path / "plugins", config=_AGENTS).start()

    async def go(caller: Caller, mebibytes: int) -> None:
        if way == "gateway":
            await through_the_gateway(caller, mebibytes)
        else:
            await through_host_api(caller, mebibytes, tmp_path / f"go-{mebibytes}")

    async with calling(host.addresses["grpc"], host.key) as caller:
        # What it takes for any file at all is there before.
        await go(caller, 4)
        before = peak(host.pid)
        await go(caller, MEBIBYTES)
        assert peak(host.pid) - before < MOST_GROWTH
