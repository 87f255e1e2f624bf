"""Tests of `host_service.capabilities.artifacts`: what a run sees, ranges, streams and uploads."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from runmesh.v1 import host_api_pb2 as pb
from runmesh.v1 import types_pb2

from host_service.authorization.snapshot import EventIdentity
from host_service.authorization.tokens import RunAccess, RunTokens
from host_service.capabilities.artifacts import Artifacts
from host_service.capabilities.gate import Gate
from host_service.capabilities.uploads import Uploads
from host_service.errors import (
    HostError,
    InvalidArgument,
    NotFound,
    PayloadTooLarge,
    Unauthenticated,
    Unauthorized,
)
from host_service.limits import Limits
from host_service.validation import Validator
from stores import Stores
from stores.records import ArtifactHeader, ArtifactRecord
from tests.unit.capabilities.test_gate import rights

ALL = frozenset({"metadata", "read", "create"})
HOSTILE = ("../x", "%2e%2e/x", "/etc/passwd", "..", "a\\..\\b", "C:\\x", "a" * 255)


def header(**changes: Any) -> pb.CreateArtifactRequest:
    fields: dict[str, Any] = {"type": "file", "name": "a.bin", "mime_type": "application/x-a"}
    return pb.CreateArtifactRequest(header=pb.ArtifactHeader(**(fields | changes)))


def chunk(data: bytes) -> pb.CreateArtifactRequest:
    return pb.CreateArtifactRequest(chunk=data)


class Desk:
    """Artifacts behind the gate, and the access of a run."""

    def __init__(self, stores: Stores, **limits: Any) -> None:
        self.limits = Limits(**limits)
        self.stores = stores
        uploads = Uploads(
            artifacts=stores.artifacts, limits=self.limits, clock=lambda: datetime.now(UTC)
        )
        self.artifacts = Artifacts(artifacts=stores.artifacts, uploads=uploads, limits=self.limits)
        self.gate = Gate(
            audit=stores.audit,
            validator=Validator(self.limits.as_mapping()),
            clock=lambda: datetime.now(UTC),
        )
        self.access = self.open()

    def open(self, *, granted: frozenset[str] = ALL, **changes: Any) -> RunAccess:
        """Return the access of a run; changes are of its snapshot, or of where it belongs."""
        own = EventIdentity.__dataclass_fields__
        snapshot = rights(
            permissions={"artifacts": granted},
            **{name: value for name, value in changes.items() if name not in own},
        )
        place = {name: value for name, value in changes.items() if name in own}
        snapshot = replace(snapshot, identity=replace(snapshot.identity, **place))
        tokens = RunTokens(limits=self.limits)
        token = tokens.issue(snapshot=snapshot, instance_token="i")
        return tokens.check(authorization=f"Bearer {token}", instance_token="i")

    async def store(self, artifact_id: str = "a", data: bytes = b"bytes", **changes: Any) -> None:
        """Store an artifact of the run's conversation, made by another run."""
        fields: dict[str, Any] = {
            "artifact_id": artifact_id,
            "workspace": "acme",
            "bot": "",
            "conversation_key": "acme/room",
            "run_id": "run-0",
            "type": "file",
            "created_at": datetime.now(UTC),
        }

        async def chunks() -> AsyncIterator[bytes]:
            yield data

        await self.stores.artifacts.write(ArtifactHeader(**(fields | changes)), chunks())

    async def describe(
        self, artifact_id: str, access: RunAccess | None = None
    ) -> types_pb2.ArtifactRef:
        request = pb.GetArtifactMetadataRequest(artifact_id=artifact_id)
        response = await self.gate.answer(
            "GetArtifactMetadata", access or self.access, request, self.artifacts.describe
        )
        return response.artifact

    async def read(
        self, artifact_id: str, access: RunAccess | None = None, **fields: Any
    ) -> pb.ReadArtifactResponse:
        request = pb.ReadArtifactRequest(artifact_id=artifact_id, **fields)
        return await self.gate.answer(
            "ReadArtifact", access or self.access, request, self.artifacts.read
        )

    async def stream(
        self, artifact_id: str, access: RunAccess | None = None, **fields: Any
    ) -> list[bytes]:
        request = pb.StreamArtifactRequest(artifact_id=artifact_id, **fields)
        chunks: list[bytes] = []

        async def write(response: pb.StreamArtifactResponse) -> None:
            chunks.append(response.data)

        await self.gate.stream(
            "StreamArtifact", access or self.access, request, self.artifacts.stream, write
        )
        return chunks

    async def create(
        self, *requests: pb.CreateArtifactRequest | Exception, access: RunAccess | None = None
    ) -> types_pb2.ArtifactRef:
        async def come() -> AsyncIterator[pb.CreateArtifactRequest]:
            for request in requests:
                if isinstance(request, Exception):
                    raise request
                yield request

        response = await self.gate.take_in(
            "CreateArtifact",
            access or self.access,
            come(),
            self.artifacts.create,
            is_plain=self.artifacts.is_chunk,
        )
        return response.artifact

    async def kept(self) -> list[ArtifactRecord]:
        """Return the artifacts that there are."""
        return list((await self.stores.artifacts.list_of_workspace("acme")).items)


@pytest.fixture
def desk(stores: Stores) -> Desk:
    return Desk(stores)


async def test_artifact_comes_back_as_it_was_stored(desk: Desk) -> None:
    data = bytes(range(256)) * 1000
    expires = datetime(2100, 1, 1, tzinfo=UTC)
    request = header(summary="всё 🦉", size_bytes=len(data), sha256=hashlib.sha256(data).digest())
    request.header.expires_at.FromDatetime(expires)
    ref = await desk.create(
        request, *(chunk(data[at : at + 999]) for at in range(0, len(data), 999))
    )
    assert (ref.type, ref.name, ref.mime_type) == ("file", "a.bin", "application/x-a")
    assert (ref.size_bytes, ref.sha256) == (len(data), hashlib.sha256(data).digest())
    assert (ref.summary, ref.expires_at.ToDatetime(UTC)) == ("всё 🦉", expires)
    assert await desk.describe(ref.artifact_id) == ref
    assert (await desk.read(ref.artifact_id)).data == data
    assert b"".join(await desk.stream(ref.artifact_id)) == data
    (record,) = await desk.kept()
    assert (record.run_id, record.workspace, record.bot) == ("run-1", "acme", "")
    assert record.conversation_key == "acme/room"


async def test_same_bytes_again_are_another_artifact(desk: Desk) -> None:
    one = await desk.create(header(), chunk(b"x"))
    other = await desk.create(header(), chunk(b"x"))
    assert one.artifact_id != other.artifact_id
    assert one.sha256 == other.sha256


async def test_ref_says_what_the_run_may_do(desk: Desk) -> None:
    await desk.store()
    metadata, read = (
        types_pb2.ARTIFACT_PERMISSION_METADATA,
        types_pb2.ARTIFACT_PERMISSION_READ,
    )
    assert list((await desk.describe("a")).permissions) == [metadata, read]
    narrow = desk.open(granted=frozenset({"metadata"}))
    assert list((await desk.describe("a", narrow)).permissions) == [metadata]
    blind = desk.open(granted=frozenset({"create"}))
    assert not (await desk.create(header(), chunk(b"x"), access=blind)).permissions


SEEN: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "of the conversation": ({}, {}),
    "of the conversation, from a caller": ({"run_id": None}, {}),
    "made by the run": ({"conversation_key": "", "run_id": "run-1"}, {"conversation_key": ""}),
    "brought by the event": (
        {"conversation_key": "", "run_id": None},
        {"conversation_key": "", "artifacts": frozenset({"a"})},
    ),
    "among its files": (
        {"conversation_key": "other", "workspace": "x"},
        {"files": frozenset({"a"})},
    ),
}
UNSEEN: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "of another conversation": ({"conversation_key": "acme/other"}, {}),
    "of another workspace": ({"workspace": "other"}, {}),
    "of another bot": ({"bot": "other"}, {}),
    "of no conversation": ({"conversation_key": ""}, {}),
    "of no conversation, and the run has none": (
        {"conversation_key": ""},
        {"conversation_key": ""},
    ),
    "expired": ({"expires_at": datetime(2020, 1, 1, tzinfo=UTC)}, {}),
    "expired, and the run's own": (
        {"expires_at": datetime(2020, 1, 1, tzinfo=UTC), "run_id": "run-1"},
        {"files": frozenset({"a"})},
    ),
}


@pytest.mark.parametrize("name", SEEN)
async def test_run_sees_what_is_its_own(desk: Desk, name: str) -> None:
    of_artifact, of_run = SEEN[name]
    await desk.store(**of_artifact)
    access = desk.open(**of_run)
    assert (await desk.describe("a", access)).artifact_id == "a"
    assert (await desk.read("a", access)).data == b"bytes"
    assert await desk.stream("a", access) == [b"bytes"]


@pytest.mark.parametrize("name", UNSEEN)
async def test_what_is_not_its_own_looks_as_if_it_did_not_exist(desk: Desk, name: str) -> None:
    of_artifact, of_run = UNSEEN[name]
    await desk.store(**of_artifact)
    access = desk.open(**of_run)
    for call in (desk.describe, desk.read, desk.stream):
        told = []
        for artifact_id in ("a", "b"):
            with pytest.raises(NotFound) as refused:
                await call(artifact_id, access)
            error = refused.value
            told.append((error.message.replace(repr(artifact_id), "?"), sorted(error.facts)))
        assert told[0] == told[1]


async def test_size_is_looked_at_only_of_what_the_run_sees(desk: Desk) -> None:
    await desk.store(conversation_key="acme/other")
    for artifact_id in ("a", "b"):
        with pytest.raises(NotFound):
            await desk.read(artifact_id, length=2**40)
    await desk.store("c")
    with pytest.raises(PayloadTooLarge) as refused:
        await desk.read("c", length=desk.limits.range_bytes + 1)
    assert refused.value.facts == {
        "size": str(desk.limits.range_bytes + 1),
        "limit": str(desk.limits.range_bytes),
    }


async def test_range_is_cut_at_the_end_and_by_the_limit(stores: Stores) -> None:
    desk = Desk(stores, range_bytes=8)
    await desk.store(data=b"0123456789")
    for offset, length, data in (
        (0, None, b"01234567"),
        (0, 8, b"01234567"),
        (4, None, b"456789"),
        (4, 3, b"456"),
        (9, 8, b"9"),
        (10, None, b""),
        (2**62, 8, b""),
        (0, 0, b""),
    ):
        fields: dict[str, Any] = {"offset": offset} | ({} if length is None else {"length": length})
        response = await desk.read("a", **fields)
        assert (response.data, response.size_bytes) == (data, 10)


@pytest.mark.parametrize("fields", [{"offset": -1}, {"length": -1}, {"offset": -(2**63)}])
async def test_negative_range_is_refused_by_name(desk: Desk, fields: dict[str, Any]) -> None:
    await desk.store()
    with pytest.raises(InvalidArgument) as refused:
        await desk.read("a", **fields)
    assert [fault.field for fault in refused.value.faults] == list(fields)
    if "offset" in fields:
        with pytest.raises(InvalidArgument):
            await desk.stream("a", **fields)


async def test_stream_comes_in_chunks_from_any_offset(stores: Stores) -> None:
    desk = Desk(stores, chunk_bytes=4)
    await desk.store(data=b"0123456789")
    assert await desk.stream("a") == [b"0123", b"4567", b"89"]
    assert await desk.stream("a", offset=3) == [b"3456", b"789"]
    assert await desk.stream("a", offset=10) == []
    assert await desk.stream("a", offset=2**62) == []


async def test_empty_artifact_is_one(desk: Desk) -> None:
    ref = await desk.create(header(size_bytes=0))
    assert (ref.size_bytes, ref.sha256) == (0, hashlib.sha256().digest())
    assert await desk.stream(ref.artifact_id) == []
    assert (await desk.read(ref.artifact_id)).size_bytes == 0


BROKEN: dict[str, tuple[list[pb.CreateArtifactRequest], str]] = {
    "no message": ([], "item"),
    "no header": ([chunk(b"x")], "item"),
    "header later": ([chunk(b"x"), header()], "item"),
    "two headers": ([header(), header()], "item"),
    "header among chunks": ([header(), chunk(b"x"), header()], "item"),
    "nothing in a message": ([header(), pb.CreateArtifactRequest()], "item"),
    "too few bytes": ([header(size_bytes=3), chunk(b"xx")], "header.size_bytes"),
    "too many bytes": ([header(size_bytes=3), chunk(b"xxxx")], "header.size_bytes"),
    "other bytes": ([header(sha256=b"x" * 32), chunk(b"xx")], "header.sha256"),
    "digest of another kind": ([header(sha256=b"x" * 31), chunk(b"xx")], "header.sha256"),
    "empty digest": ([header(sha256=b""), chunk(b"xx")], "header.sha256"),
    "negative size": ([header(size_bytes=-1), chunk(b"xx")], "header.size_bytes"),
    "no type": ([header(type="")], "header.type"),
    "type that is no word": ([header(type="a/b")], "header.type"),
    "path in the name": ([header(name="../x"), chunk(b"xx")], "header.name"),
    "absolute name": ([header(name="/etc/passwd"), chunk(b"xx")], "header.name"),
    "U+0000 in the name": ([header(name="a\0b"), chunk(b"xx")], "header.name"),
    "line break in the media type": ([header(mime_type="a/b\r\nx: y")], "header.mime_type"),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_broken_upload_names_the_field_and_leaves_nothing(
    desk: Desk, name: str, tmp_path: Path
) -> None:
    requests, field = BROKEN[name]
    with pytest.raises(InvalidArgument) as refused:
        await desk.create(*requests)
    assert [fault.field for fault in refused.value.faults] == [field]
    await leaves_nothing(desk, tmp_path)


async def leaves_nothing(desk: Desk, folder: Path) -> None:
    assert await desk.kept() == []
    assert all(name.startswith("stores.db") for name in files_in(folder))


def files_in(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file()]


async def test_too_large_an_upload_is_refused_with_the_first_byte_beyond(
    stores: Stores, tmp_path: Path
) -> None:
    desk = Desk(stores, artifact_bytes=10)
    with pytest.raises(PayloadTooLarge) as refused:
        await desk.create(
            header(), chunk(b"12345"), chunk(b"123456"), AssertionError("more was taken")
        )
    assert refused.value.facts == {"size": "11", "limit": "10"}
    with pytest.raises(PayloadTooLarge) as refused:
        await desk.create(header(size_bytes=11), AssertionError("more was taken"))
    assert refused.value.facts == {"size": "11", "limit": "10"}
    await leaves_nothing(desk, tmp_path)
    assert (await desk.create(header(size_bytes=10), chunk(b"1234567890"))).size_bytes == 10


async def test_too_large_a_chunk_is_refused(stores: Stores, tmp_path: Path) -> None:
    desk = Desk(stores, chunk_bytes=4)
    with pytest.raises(PayloadTooLarge) as refused:
        await desk.create(header(), chunk(b"12345"))
    assert refused.value.facts == {"size": "5", "limit": "4"}
    await leaves_nothing(desk, tmp_path)


async def test_chunks_are_not_looked_through(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[str | None] = []
    find = Validator.find_violations

    def counted(validator: Validator, request: Any, **more: Any) -> Any:
        looked_at.append(request.WhichOneof("item"))
        return find(validator, request, **more)

    monkeypatch.setattr(Validator, "find_violations", counted)
    await desk.create(header(), chunk(b""), *(chunk(b"\0" * 2**20) for _ in range(5)))
    assert looked_at == ["header"]


async def test_upload_whose_sender_breaks_off_leaves_nothing(desk: Desk, tmp_path: Path) -> None:
    with pytest.raises(ConnectionResetError):
        await desk.create(header(), chunk(b"x" * 2**20), ConnectionResetError())
    await leaves_nothing(desk, tmp_path)


async def test_upload_ends_with_its_run_and_leaves_nothing(desk: Desk, tmp_path: Path) -> None:
    begun, never = asyncio.Event(), asyncio.Event()

    async def come() -> AsyncIterator[pb.CreateArtifactRequest]:
        yield header()
        yield chunk(b"x" * 2**20)
        begun.set()
        await never.wait()

    call = asyncio.create_task(
        desk.gate.take_in("CreateArtifact", desk.access, come(), desk.artifacts.create)
    )
    await begun.wait()
    desk.access.end(Unauthenticated("the run has ended"))
    with pytest.raises(Unauthenticated):
        await call
    await leaves_nothing(desk, tmp_path)


async def test_stream_ends_with_its_run(stores: Stores) -> None:
    desk = Desk(stores, chunk_bytes=4)
    await desk.store(data=b"x" * 4000)
    taken: list[bytes] = []

    async def write(response: pb.StreamArtifactResponse) -> None:
        taken.append(response.data)
        if len(taken) == 3:
            desk.access.end(Unauthenticated("the run has ended"))
        await asyncio.sleep(0)

    request = pb.StreamArtifactRequest(artifact_id="a")
    with pytest.raises(Unauthenticated):
        await desk.gate.stream("StreamArtifact", desk.access, request, desk.artifacts.stream, write)
    assert len(taken) == 3


@pytest.mark.parametrize("artifact_id", HOSTILE)
async def test_id_that_looks_like_a_path_is_an_id_that_there_is_not(
    desk: Desk, artifact_id: str, tmp_path: Path
) -> None:
    outside = tmp_path / "x"
    outside.write_bytes(b"secret")
    for call in (desk.describe, desk.read, desk.stream):
        with pytest.raises(NotFound):
            await call(artifact_id)
    assert outside.read_bytes() == b"secret"


@pytest.mark.parametrize("artifact_id", ["a\0b", "", "a" * 256])
async def test_id_that_is_none_is_refused_by_name(desk: Desk, artifact_id: str) -> None:
    for call in (desk.describe, desk.read, desk.stream):
        with pytest.raises(InvalidArgument) as refused:
            await call(artifact_id)
        assert [fault.field for fault in refused.value.faults] == ["artifact_id"]


@pytest.mark.parametrize("permission", ["metadata", "read", "create"])
async def test_each_call_needs_its_own_permission(desk: Desk, permission: str) -> None:
    await desk.store()
    access = desk.open(granted=ALL - {permission})
    refused: set[str] = set()
    calls: dict[str, Any] = {
        "metadata": lambda: desk.describe("a", access),
        "read": lambda: desk.read("a", access),
        "create": lambda: desk.create(header(), access=access),
    }
    for name, call in calls.items():
        try:
            await call()
        except Unauthorized:
            refused.add(name)
    assert refused == {permission}
    if permission == "read":
        with pytest.raises(Unauthorized):
            await desk.stream("b", access)


async def test_artifact_that_expires_is_gone(desk: Desk) -> None:
    await desk.store(expires_at=datetime.now(UTC) + timedelta(seconds=1))
    assert (await desk.describe("a")).HasField("expires_at")
    await asyncio.sleep(1.05)
    for call in (desk.describe, desk.read, desk.stream):
        with pytest.raises(HostError) as refused:
            await call("a")
        assert refused.value.reason == "NOT_FOUND"
