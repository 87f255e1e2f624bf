"""Artifacts, as runners read and create them."""

import asyncio
import hashlib
import tracemalloc
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from runmesh.v1 import host_api_pb2 as api
from runmesh.v1 import types_pb2

from runner_sdk import errors
from runner_sdk._host.calls import HostCalls
from runner_sdk.host import ArtifactFile
from runner_sdk.testing import StandInHost
from tests.unit.runner_sdk.loopback import a_host_api, a_run

_MIB = 1 << 20


def _bytes(count: int) -> bytes:
    return bytes(range(256)) * (count // 256) + bytes(count % 256)


async def test_an_artifact_is_described_and_read_in_ranges() -> None:
    async with a_run() as (host, ctx):
        ref = host.add_artifact(b"0123456789", name="n.txt", mime_type="text/plain", summary="s")
        artifacts = ctx.host.artifacts
        described = await artifacts.metadata(ref.artifact_id)
        head = await artifacts.read_range(ref, length=4)
        tail = await artifacts.read_range(ref.artifact_id, 8)
        past = await artifacts.read_range(ref, 99)

    assert described == ref
    assert (described.name, described.mime_type, described.summary) == ("n.txt", "text/plain", "s")
    assert (head.data, tail.data, past.data) == (b"0123", b"89", b"")
    assert {head.size_bytes, tail.size_bytes, past.size_bytes} == {10}


async def test_what_is_not_there_or_has_expired_cannot_be_found() -> None:
    async with a_run() as (_, ctx):
        artifacts = ctx.host.artifacts
        expired = await artifacts.create(b"x", expires_at=datetime.now(UTC) - timedelta(seconds=1))
        for artifact in (expired, "nowhere"):
            with pytest.raises(errors.NotFound):
                await artifacts.metadata(artifact)
            with pytest.raises(errors.NotFound):
                await artifacts.read_range(artifact)
            with pytest.raises(errors.NotFound):
                async with artifacts.open(artifact):
                    pass


async def test_a_range_over_the_limit_is_refused_with_size_and_limit() -> None:
    async with a_run() as (host, ctx):
        ref = host.add_artifact(b"x")
        with pytest.raises(errors.PayloadTooLarge) as caught:
            await ctx.host.artifacts.read_range(ref, length=_MIB + 1)

    assert caught.value.metadata == {"size": str(_MIB + 1), "limit": str(_MIB)}


@pytest.mark.parametrize("size", [0, 1, 256 * 1024, 256 * 1024 + 1, 3 * _MIB + 7])
async def test_an_open_artifact_is_iterated_over_whole(size: int) -> None:
    content = _bytes(size)
    async with a_run() as (host, ctx):
        ref = host.add_artifact(content)
        async with ctx.host.artifacts.open(ref) as file:
            assert (file.size, file.offset) == (size, 0)
            chunks = [chunk async for chunk in file]
            assert file.offset == size
        methods = [call.method for call in host.calls]

    assert b"".join(chunks) == content
    assert all(0 < len(chunk) <= _MIB for chunk in chunks)
    # A small artifact costs one call.
    assert methods == ["ReadArtifact"] + ["StreamArtifact"] * (size > 256 * 1024)


async def test_an_open_artifact_is_read_in_any_steps() -> None:
    content = _bytes(700_000)
    async with a_run() as (host, ctx):
        ref = host.add_artifact(content)
        async with ctx.host.artifacts.open(ref, offset=3) as file:
            assert await file.read(5) == content[3:8]
            assert await file.read(0) == b""
            assert await file.read(400_000) == content[8:400_008]
            file.seek(10)
            assert await anext(file) == content[10 : 10 + 256 * 1024]
            file.seek(699_990)
            assert await file.read(100) == content[699_990:]
            assert await file.read() == b""
            file.seek(0)
            assert await file.read() == content
            with pytest.raises(ValueError, match="must not be negative"):
                file.seek(-1)
        [first, *_] = host.calls

    assert first.request.offset == 3


async def test_an_artifact_that_is_not_open_has_no_size() -> None:
    async with a_run() as (_, ctx):
        with pytest.raises(ValueError, match="is not open"):
            _ = ctx.host.artifacts.open("a").size


async def test_reading_goes_on_where_a_broken_stream_ended() -> None:
    content = _bytes(2 * _MIB)
    offsets: list[int] = []

    async def read(request: Any, _: Any) -> api.ReadArtifactResponse:
        return api.ReadArtifactResponse(data=content[:1000], size_bytes=len(content))

    async def breaks(request: Any, context: Any) -> None:
        offsets.append(request.offset)
        end = request.offset + 500_000
        await context.write(api.StreamArtifactResponse(data=content[request.offset : end]))
        if len(offsets) == 1:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "gone")
        if len(offsets) > 2:
            await context.write(api.StreamArtifactResponse(data=content[end:]))

    async def take_all(file: ArtifactFile, got: bytearray) -> None:
        async for chunk in file:
            got += chunk

    got = bytearray()
    async with (
        a_host_api({"ReadArtifact": read, "StreamArtifact": breaks}) as address,
        a_run(address=address) as (_, ctx),
        ctx.host.artifacts.open("a") as file,
    ):
        for said in ("gone", "ended after 1001000 of 2097152 bytes"):
            with pytest.raises(errors.HostUnavailable, match=said):
                await take_all(file, got)
        await take_all(file, got)

    assert bytes(got) == content
    assert offsets == [1000, 501_000, 1_001_000]


async def test_a_read_that_fails_loses_nothing() -> None:
    content = _bytes(_MIB)
    tries = 0

    async def read(_: Any, __: Any) -> api.ReadArtifactResponse:
        return api.ReadArtifactResponse(data=content[:1000], size_bytes=len(content))

    async def breaks_once(request: Any, context: Any) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "gone")
        await context.write(api.StreamArtifactResponse(data=content[request.offset :]))

    async with (
        a_host_api({"ReadArtifact": read, "StreamArtifact": breaks_once}) as address,
        a_run(address=address) as (_, ctx),
        ctx.host.artifacts.open("a") as file,
    ):
        with pytest.raises(errors.HostUnavailable):
            await file.read(5000)
        assert file.offset == 0
        assert await file.read(5000) == content[:5000]


async def _pieces(content: bytes, step: int) -> AsyncIterator[bytes]:
    for start in range(0, len(content), step):
        yield content[start : start + step]


@pytest.mark.parametrize("size", [0, 1, 512 * 1024, 3 * _MIB + 7])
@pytest.mark.parametrize("form", ["bytes", "buffer", "path", "iterator"])
async def test_an_artifact_is_created_from_any_content(
    size: int, form: str, tmp_path: Path
) -> None:
    content = _bytes(size)
    path = tmp_path / "report.bin"
    path.write_bytes(content)
    given: Any = {
        "bytes": content,
        "buffer": memoryview(bytearray(content)),
        "path": path,
        "iterator": _pieces(content, 700_000),
    }[form]
    async with a_run() as (host, ctx):
        ref = await ctx.host.artifacts.create(given, type="report", summary="all of it")
        assert host.artifact(ref) == content
        header, *chunks = host.calls[0].request

    assert (ref.size_bytes, ref.sha256) == (size, hashlib.sha256(content).digest())
    assert (ref.type, ref.summary) == ("report", "all of it")
    assert ref.name == ("report.bin" if form == "path" else "")
    assert all(0 < len(part.chunk) <= _MIB for part in chunks)
    assert header.header.HasField("sha256") is (form != "iterator")


async def test_what_is_no_content_is_named() -> None:
    async with a_run() as (host, ctx):
        with pytest.raises(TypeError, match="content: must be bytes, a path or an async iterator"):
            await ctx.host.artifacts.create("text")  # type: ignore[arg-type]
        with pytest.raises(FileNotFoundError):
            await ctx.host.artifacts.create(Path("/nowhere/at/all"))
        with pytest.raises(ValueError, match="expires_at: must have a time zone"):
            await ctx.host.artifacts.create(b"x", expires_at=datetime(2030, 1, 1))  # noqa: DTZ001
        assert host.calls == []


@pytest.mark.parametrize(("later", "field"), [(b"x" * 1001, "size_bytes"), (b"y" * 1000, "sha256")])
async def test_a_file_that_changes_while_it_is_sent_is_not_stored(
    later: bytes, field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 1000)
    begin = HostCalls.upload

    def begin_late(*args: Any, **kwargs: Any) -> Any:
        # By now it has been measured.
        path.write_bytes(later)
        return begin(*args, **kwargs)

    monkeypatch.setattr(HostCalls, "upload", begin_late)
    async with a_run() as (host, ctx):
        with pytest.raises(errors.InvalidArgument, match=field):
            await ctx.host.artifacts.create(path)
        assert host._world.artifacts.refs == {}


async def test_other_bytes_than_were_sent_are_told() -> None:
    other = api.CreateArtifactResponse(
        artifact=types_pb2.ArtifactRef(artifact_id="a", size_bytes=3, sha256=b"\0" * 32)
    )
    async with a_run() as (host, ctx):
        host.answer("CreateArtifact", other)
        for content in (b"abc", _pieces(b"abc", 2)):
            with pytest.raises(errors.RuntimeFailure, match="3 bytes were sent"):
                await ctx.host.artifacts.create(content)


@pytest.mark.parametrize("reads", [0, 1, 3])
async def test_an_upload_that_is_refused_says_why_however_it_meets_the_refusal(reads: int) -> None:
    begun = closed = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal begun, closed
        begun += 1
        try:
            while True:
                yield bytes(_MIB)
        finally:
            closed += 1

    async def refuse(requests: Any, context: Any) -> None:
        for _ in range(reads):
            await anext(aiter(requests))
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, "no")

    async with (
        a_host_api({"CreateArtifact": refuse}) as address,
        a_run(address=address) as (_, ctx),
    ):
        # Whether a write is under way when the refusal comes is a matter of chance.
        for _ in range(100):
            with pytest.raises(errors.Unauthorized, match="no"):
                await asyncio.wait_for(ctx.host.artifacts.create(endless()), 10)

    assert closed == begun


async def test_an_upload_goes_no_faster_than_the_host_takes_it() -> None:
    made = 0
    release = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        nonlocal made
        while True:
            made += 1
            yield bytes(_MIB)

    async def take_one(requests: Any, _: Any) -> api.CreateArtifactResponse:
        await anext(aiter(requests))
        await release.wait()
        return api.CreateArtifactResponse()

    async with (
        a_host_api({"CreateArtifact": take_one}) as address,
        a_run(address=address) as (_, ctx),
    ):
        creating = asyncio.create_task(ctx.host.artifacts.create(endless()))
        await asyncio.sleep(0.3)
        stalled = made
        await asyncio.sleep(0.2)
        assert made == stalled < 20
        release.set()
        creating.cancel()
        with pytest.raises(asyncio.CancelledError):
            await creating


async def test_a_cancelled_upload_ends_the_call_and_closes_the_content() -> None:
    ended, closed, begun = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        try:
            yield b"x"
            begun.set()
            await asyncio.Event().wait()
        finally:
            closed.set()

    async def take_in(requests: Any, _: Any) -> api.CreateArtifactResponse:
        try:
            async for _ in requests:
                pass
        finally:
            ended.set()
        return api.CreateArtifactResponse()

    async with (
        a_host_api({"CreateArtifact": take_in}) as address,
        a_run(address=address) as (_, ctx),
    ):
        creating = asyncio.create_task(ctx.host.artifacts.create(slow()))
        await begun.wait()
        creating.cancel()
        with pytest.raises(asyncio.CancelledError):
            await creating
        await asyncio.wait_for(ended.wait(), 2)

    assert closed.is_set()


async def test_content_that_fails_is_told_as_it_is_and_nothing_is_stored() -> None:
    async def fails() -> AsyncIterator[bytes]:
        yield b"x"
        raise ZeroDivisionError

    async with a_run() as (host, ctx):
        with pytest.raises(ZeroDivisionError):
            await ctx.host.artifacts.create(fails())
        await ctx.host.prompt.get()
        assert host._world.artifacts.refs == {}


async def test_a_large_artifact_goes_both_ways_in_constant_memory() -> None:
    count, stored = 48, 0

    async def read(_: Any, __: Any) -> api.ReadArtifactResponse:
        return api.ReadArtifactResponse(size_bytes=count * _MIB)

    async def stream(_: Any, context: Any) -> None:
        for _ in range(count):
            await context.write(api.StreamArtifactResponse(data=bytes(_MIB)))

    async def create(requests: Any, _: Any) -> api.CreateArtifactResponse:
        nonlocal stored
        digest = hashlib.sha256()
        async for request in requests:
            digest.update(request.chunk)
            stored += len(request.chunk)
        ref = types_pb2.ArtifactRef(size_bytes=stored, sha256=digest.digest())
        return api.CreateArtifactResponse(artifact=ref)

    handlers = {"ReadArtifact": read, "StreamArtifact": stream, "CreateArtifact": create}
    async with (
        a_host_api(handlers) as address,
        a_run(address=address) as (_, ctx),
        ctx.host.artifacts.open("a") as file,
    ):
        tracemalloc.start()
        try:
            # What is read is sent on, chunk by chunk.
            await ctx.host.artifacts.create(file)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert stored == count * _MIB
    assert peak < 16 * _MIB


async def test_the_stand_in_shows_what_runs_created() -> None:
    async with a_run() as (host, ctx):
        assert isinstance(host, StandInHost)
        ref = await ctx.host.artifacts.create(b"abc", name="../../etc/passwd")
        assert host.artifact(ref.artifact_id) == b"abc"
        assert ref.name == "../../etc/passwd"
