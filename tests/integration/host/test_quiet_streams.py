"""Peers that ping through a long silence are not shown the door."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from runmesh.v1 import gateway_pb2

from tests.integration.host.calls import (
    END,
    calling,
    collect,
    collect_until,
    say,
    scripted,
)
from tests.integration.host.host_process import HostProcess
from tests.integration.host.waiting import eventually

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEADER_BYTES = 9
_KINDS = {0x0: "DATA", 0x6: "PING", 0x7: "GOAWAY"}
_ACK = 0x1


@dataclass(slots=True)
class Overheard:
    """The HTTP/2 frames that went through a proxy, by side and kind; answers to pings apart."""

    from_client: Counter[str] = field(default_factory=Counter)
    from_host: Counter[str] = field(default_factory=Counter)


@asynccontextmanager
async def overhearing(target: str) -> AsyncIterator[tuple[str, Overheard]]:
    """A proxy in front of an address; yields where it listens, and what it hears."""
    overheard = Overheard()
    host, _, port = target.rpartition(":")
    writers: list[asyncio.StreamWriter] = []

    async def pass_on(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, heard: Counter[str]
    ) -> None:
        try:
            while True:
                header = await reader.readexactly(_HEADER_BYTES)
                payload = await reader.readexactly(int.from_bytes(header[:3], "big"))
                kind = _KINDS.get(header[3], "other")
                if not (kind == "PING" and header[4] & _ACK):
                    heard[kind] += 1
                writer.write(header + payload)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_host, to_host = await asyncio.open_connection(host, int(port))
        writers.extend((writer, to_host))
        to_host.write(await reader.readexactly(len(_PREFACE)))
        await asyncio.gather(
            pass_on(reader, to_host, overheard.from_client),
            pass_on(from_host, writer, overheard.from_host),
        )

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    name = server.sockets[0].getsockname()
    try:
        yield f"127.0.0.1:{name[1]}", overheard
    finally:
        server.close()
        for writer in writers:
            writer.close()
            await writer.wait_closed()


async def test_client_that_pings_every_second_of_a_silence_stays_connected(
    host: HostProcess, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    options = {
        "keepalive_time_ms": 1000,
        "keepalive_timeout_ms": 5000,
        "keepalive_permit_without_calls": 1,
        "http2__max_pings_without_data": 0,
        "http2__min_time_between_pings_ms": 1000,
    }
    async with (
        overhearing(host.addresses["grpc"]) as (address, overheard),
        calling(address, host.key, **options) as caller,
    ):
        call = caller.open(
            scripted(say("before the silence, "), {"await": str(go)}, say("after it"), END),
            "scripted",
        )
        answer = await collect_until(call, lambda so_far: bool(so_far.results))
        data_before = overheard.from_host["DATA"]
        await eventually(lambda: overheard.from_client["PING"] >= 5)
        # gRPC counts pings only while it sends nothing itself.
        assert overheard.from_host["DATA"] == data_before
        assert overheard.from_host["GOAWAY"] == 0
        go.touch()
        answer = await collect(call, answer)
        assert answer.ended.status == gateway_pb2.RUN_STATUS_COMPLETED
        assert answer.shown == "before the silence, after it"
        assert overheard.from_host["GOAWAY"] == 0
