"""Files go in with events and out of runs, over the wire, and never further than they may."""

import asyncio
import base64
import hashlib
import os
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from runmesh.admin.v1 import admin_pb2
from runmesh.v1 import event_pb2, gateway_pb2, host_api_pb2, types_pb2

from stores import Stores
from tests.integration.host.calls import END, Answer, Caller, calling, message, scripted, whole
from tests.integration.host.files import CHUNK_BYTES, download, filing_run, pieces, upload
from tests.integration.host.host_process import HostProcess
from tests.integration.host.refusals import refused
from tests.integration.host.waiting import eventually

READER = [types_pb2.ARTIFACT_PERMISSION_METADATA, types_pb2.ARTIFACT_PERMISSION_READ]
PICTURE = os.urandom(300_000)


def place(**fields: Any) -> dict[str, Any]:
    """A conversation that no other test has."""
    return {"conversation_id": uuid.uuid4().hex} | fields


def attached(*refs: types_pb2.ArtifactRef, **fields: Any) -> dict[str, Any]:
    """Fields of an event with attachments."""
    return {"input": event_pb2.EventInput(text="look", attachments=refs), **fields}


def created(data: bytes, **fields: Any) -> dict[str, Any]:
    """A step of a script: an inline artifact."""
    inline = {"data": base64.b64encode(data).decode(), "mimeType": "image/png", **fields}
    return {"send": [{"artifactCreated": {"inline": inline}}]}


def refs_in(answer: Answer) -> list[types_pb2.ArtifactRef]:
    """The artifacts that a run told of."""
    return [
        each.artifact_created.ref for each in answer.results if each.HasField("artifact_created")
    ]


async def test_callers_file_goes_to_the_run_and_the_runs_file_to_the_caller(
    caller: Caller, tmp_path: Path
) -> None:
    ref = await upload(caller, pieces(PICTURE), type="image", mime_type="image/png", name="a.png")
    assert (ref.size_bytes, ref.sha256) == (len(PICTURE), hashlib.sha256(PICTURE).digest())
    here = place()
    async with filing_run(caller, tmp_path / "go", **attached(ref), **here) as run:
        (given,) = run.heard.attachments
        assert given == ref
        assert list(given.permissions) == READER
        assert await run.describe(given.artifact_id) == ref
        assert await run.stream(given.artifact_id) == PICTURE
        assert (await run.read(given.artifact_id, offset=7, length=9)).data == PICTURE[7:16]
        made = await run.create(pieces(PICTURE[::-1]), summary="the other way round")
        await run.end()
    assert await download(caller, made.artifact_id) == PICTURE[::-1]
    assert await download(caller, made.artifact_id, 299_990) == PICTURE[9::-1]
    # A later run of the conversation sees both; one of another conversation neither.
    async with filing_run(caller, tmp_path / "later", **here) as later:
        assert await later.stream(ref.artifact_id, 299_999) == PICTURE[-1:]
        assert await later.describe(made.artifact_id) == made
        await later.end()
    async with filing_run(caller, tmp_path / "other", **place()) as other:
        for artifact_id in (ref.artifact_id, made.artifact_id, "nothing"):
            told = {
                (await refused(call(artifact_id))).reason
                for call in (other.describe, other.read, other.stream)
            }
            assert told == {"NOT_FOUND"}
        await other.end()


async def test_inline_bytes_of_an_event_reach_run_and_store_by_reference(
    caller: Caller, stores: Stores, tmp_path: Path
) -> None:
    part = types_pb2.ContentPart(
        inline=types_pb2.InlineContent(data=PICTURE, mime_type="image/png", name="a.png")
    )
    content = event_pb2.EventInput(text="look", parts=[part])
    event_id, here = uuid.uuid4().hex, place()
    async with filing_run(caller, tmp_path / "go", input=content, event_id=event_id, **here) as run:
        ref = run.heard.parts[0].artifact
        assert (ref.type, ref.name, ref.size_bytes) == ("image", "a.png", len(PICTURE))
        assert await run.stream(ref.artifact_id) == PICTURE
        answer = await run.end()
    logged = await stores.events.get("", "", "api", event_id)
    assert logged is not None
    assert len(logged.envelope) < 10_000
    again = scripted(input=content, event_id=event_id, **here)
    again.data_json = _script_of(logged.envelope)
    repeated = await caller.submit(again, "filing")
    assert (repeated.run_id, repeated.duplicate) == (answer.run_id, True)
    again.input.parts[0].inline.data = PICTURE + b"."
    refusal = await refused(caller.submit(again, "filing"))
    assert (refusal.code, refusal.reason) == ("ALREADY_EXISTS", "ALREADY_EXISTS")
    kept = await stores.artifacts.list_of_conversation(answer.accepted.conversation_key)
    assert [each.artifact_id for each in kept.items] == [ref.artifact_id]


def _script_of(envelope: bytes) -> str:
    return event_pb2.EventEnvelope.FromString(envelope).data_json


async def test_event_whose_bytes_come_twice_at_once_runs_once_with_one_artifact(
    caller: Caller, stores: Stores
) -> None:
    part = types_pb2.ContentPart(
        inline=types_pb2.InlineContent(data=os.urandom(5000), mime_type="a/b")
    )
    event = message(
        input=event_pb2.EventInput(text="look", parts=[part]), event_id=uuid.uuid4().hex, **place()
    )
    answers = await asyncio.gather(*(caller.dispatch(event) for _ in range(8)))
    assert len({answer.run_id for answer in answers}) == 1
    assert {answer.failure for answer in answers} == {""}
    kept = await stores.artifacts.list_of_conversation(answers[0].accepted.conversation_key)
    assert len(kept.items) == 1


async def test_refused_event_without_an_id_leaves_no_artifact(
    caller: Caller, stores: Stores
) -> None:
    part = types_pb2.ContentPart(
        inline=types_pb2.InlineContent(data=os.urandom(5000), mime_type="a/b")
    )
    workspace = uuid.uuid4().hex
    event = message(input=event_pb2.EventInput(parts=[part]), workspace_id=workspace, **place())
    assert (await refused(caller.submit(event, "nobody"))).reason == "NOT_FOUND"
    assert not (await stores.artifacts.list_of_workspace(workspace)).items


async def test_what_a_run_makes_is_shown_by_reference_and_goes_with_its_message(
    caller: Caller,
) -> None:
    steps = (created(PICTURE, name="a.png"), {"send": [whole("see")]}, created(b"alone"), END)
    answer = await caller.dispatch(scripted(*steps, **place()), "filing")
    assert answer.failure == ""
    assert answer.kinds == [
        "artifact_created",
        "message_completed",
        "artifact_created",
        "message_completed",
        "run_completed",
    ]
    first, second = refs_in(answer)
    messages = [
        each.message_completed.message
        for each in answer.results
        if each.HasField("message_completed")
    ]
    assert [list(each.artifacts) for each in messages] == [[first], [second]]
    assert await download(caller, first.artifact_id) == PICTURE
    assert await download(caller, second.artifact_id) == b"alone"
    replayed = await caller.watch(answer.run_id)
    assert replayed.results == answer.results


async def test_artifact_is_readable_the_moment_it_is_shown(caller: Caller) -> None:
    steps = [created(b"%d" % number) for number in range(20)]
    call = caller.open(scripted(*steps, END, **place()), "filing")
    numbers = []
    while (item := await call.read()) is not grpc.aio.EOF:
        for result in item.results.results:
            if result.HasField("artifact_created"):
                ref = result.artifact_created.ref
                numbers.append(int(await download(caller, ref.artifact_id)))
    assert numbers == list(range(20))


async def test_reference_to_another_conversations_file_is_dropped_with_a_warning(
    caller: Caller,
) -> None:
    theirs = await caller.dispatch(scripted(created(b"secret"), END, **place()), "filing")
    (ref,) = refs_in(theirs)
    lie = {"artifactId": ref.artifact_id, "type": "file", "sha256": "A" * 43 + "="}
    content = {"role": "CHAT_ROLE_ASSISTANT", "parts": [{"text": "see"}], "artifacts": [lie]}
    steps = (
        {"send": [{"artifactCreated": {"ref": lie}}, {"messageCompleted": {"message": content}}]},
    )
    answer = await caller.dispatch(scripted(*steps, END, **place()), "filing")
    assert answer.kinds == ["message_completed", "run_completed"]
    assert answer.warnings == ["artifact_unknown"] * 2
    assert not answer.results[0].message_completed.message.artifacts


async def test_event_cannot_name_another_conversations_file(caller: Caller) -> None:
    made = await caller.dispatch(scripted(created(b"secret"), END, **place()), "filing")
    (ref,) = refs_in(made)
    free = await upload(caller, [b"free"])
    nothing = types_pb2.ArtifactRef(artifact_id="nothing", type="file", sha256=ref.sha256)
    told = []
    for each in (ref, nothing):
        event = message(**attached(free, each), **place())
        refusal = await refused(caller.submit(event, "filing"))
        assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", "INVALID_ARGUMENT")
        told.append(refusal.fields)
    assert told[0] == told[1]
    assert list(told[0]) == ["event.input.attachments[1].artifact_id"]
    # Nothing of a refused event has happened.
    assert (await caller.dispatch(message(**attached(free), **place()))).failure == ""


async def test_keys_reach_bounds_what_is_read_and_what_is_given(caller: Caller) -> None:
    workspace, other = uuid.uuid4().hex, uuid.uuid4().hex
    _, secret = await caller.new_key(admin_pb2.ROLE_INGRESS, workspace_id=workspace)
    _, beside = await caller.new_key(admin_pb2.ROLE_INGRESS, workspace_id=other)
    _, looking = await caller.new_key(admin_pb2.ROLE_VIEWER, workspace_id=workspace)
    mine, theirs = caller.with_key(secret), caller.with_key(beside)
    ref = await upload(mine, [b"mine"])
    assert await download(mine, ref.artifact_id) == b"mine"
    assert await download(caller.with_key(looking), ref.artifact_id) == b"mine"
    missing = await refused(download(theirs, "nothing"))
    foreign = await refused(download(theirs, ref.artifact_id))
    assert (foreign.code, foreign.reason) == (missing.code, missing.reason) == ("NOT_FOUND",) * 2
    assert foreign.message == missing.message.replace("nothing", ref.artifact_id)
    assert (await refused(upload(caller.with_key(looking), [b"x"]))).reason == "UNAUTHORIZED"
    event = message(**attached(ref), workspace_id=other, **place())
    assert (await refused(theirs.submit(event))).reason == "INVALID_ARGUMENT"
    event = message(**attached(ref), workspace_id=workspace, **place())
    answer = await mine.dispatch(event)
    assert answer.failure == ""
    # What nobody limited brought is beyond whoever is limited.
    unlimited = await upload(caller, [b"free"])
    assert (await refused(download(mine, unlimited.artifact_id))).reason == "NOT_FOUND"


async def test_run_without_a_conversation_sees_what_its_event_brought_and_what_it_made(
    caller: Caller, tmp_path: Path
) -> None:
    one, other = await upload(caller, [b"one"]), await upload(caller, [b"other"])
    fields = attached(one, type="api.invoked")
    async with filing_run(caller, tmp_path / "go", **fields) as run:
        assert await run.stream(one.artifact_id) == b"one"
        assert (await refused(run.stream(other.artifact_id))).reason == "NOT_FOUND"
        made = await run.create([b"made"])
        assert await run.stream(made.artifact_id) == b"made"
        await run.end()
    async with filing_run(caller, tmp_path / "next", **fields) as later:
        assert await later.stream(one.artifact_id) == b"one"
        assert (await refused(later.stream(made.artifact_id))).reason == "NOT_FOUND"
        await later.end()


@pytest.mark.parametrize(
    "artifact_id",
    ["../x", "%2e%2e/x", "/etc/passwd", "..", "../../secret.key", "..%2fsecret.key", "a" * 255],
)
async def test_id_that_looks_like_a_path_leads_nowhere(
    caller: Caller, artifact_id: str, tmp_path: Path
) -> None:
    assert (await refused(download(caller, artifact_id))).reason == "NOT_FOUND"
    ref = types_pb2.ArtifactRef(artifact_id=artifact_id, type="file", sha256=b"x" * 32)
    refusal = await refused(caller.submit(message(**attached(ref), **place())))
    assert refusal.reason == "INVALID_ARGUMENT"
    async with filing_run(caller, tmp_path / "go", **place()) as run:
        for call in (run.describe, run.read, run.stream):
            assert (await refused(call(artifact_id))).reason == "NOT_FOUND"
        await run.end()


@pytest.mark.parametrize("value", ["../x", "/etc/passwd", "..", "a\\b", "a\0b", "a\nb"])
async def test_name_that_is_a_path_is_refused_by_field(
    caller: Caller, value: str, tmp_path: Path
) -> None:
    refusal = await refused(upload(caller, [b"x"], name=value))
    assert (refusal.reason, list(refusal.fields)) == ("INVALID_ARGUMENT", ["header.name"])
    inline = types_pb2.InlineContent(data=b"x", mime_type="a/b", name=value)
    content = event_pb2.EventInput(parts=[types_pb2.ContentPart(inline=inline)])
    refusal = await refused(caller.submit(message(input=content, **place())))
    assert list(refusal.fields) == ["event.input.parts[0].inline.name"]
    async with filing_run(caller, tmp_path / "go", **place()) as run:
        refusal = await refused(run.create([b"x"], name=value))
        assert list(refusal.fields) == ["header.name"]
        await run.end()


async def test_nothing_is_ever_outside_the_folder_of_bytes(
    caller: Caller, host: HostProcess
) -> None:
    before = names_in(host.data)
    await upload(caller, [os.urandom(1000)])
    new = names_in(host.data) - before
    assert {path.parts[0] for path in new} == {"blobs"}


def names_in(folder: Path) -> set[Path]:
    """The files below a folder, without those of its database."""
    return {
        path.relative_to(folder)
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith("runmesh.db")
    }


async def test_upload_that_is_given_up_in_the_middle_leaves_nothing(
    caller: Caller, host: HostProcess, stores: Stores
) -> None:
    before = names_in(host.data)
    held = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield os.urandom(CHUNK_BYTES)
        held.set()
        await asyncio.Event().wait()

    for _ in range(5):
        held.clear()
        call = asyncio.create_task(upload(caller, endless(), summary="given up"))
        await held.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    await eventually(lambda: names_in(host.data) == before)
    assert not await given_up(stores)


async def test_upload_whose_connection_breaks_leaves_nothing(
    caller: Caller, host: HostProcess, stores: Stores
) -> None:
    before = names_in(host.data)
    for chunks in (1, 3, 10, 30, 60):
        sent = asyncio.Event()

        async def some(chunks: int = chunks, sent: asyncio.Event = sent) -> AsyncIterator[bytes]:
            for _ in range(chunks):
                yield os.urandom(CHUNK_BYTES)
            sent.set()
            await asyncio.Event().wait()

        async with calling(host.addresses["grpc"], host.key) as another:
            call = asyncio.create_task(upload(another, some(), summary="given up"))
            await sent.wait()
            await another.channel.close(None)
            with pytest.raises((asyncio.CancelledError, grpc.aio.AioRpcError, grpc.aio.UsageError)):
                await call
    await eventually(lambda: names_in(host.data) == before)
    assert not await given_up(stores)


async def given_up(stores: Stores) -> list[str]:
    """The artifacts that there are of uploads that were given up."""
    found, after = [], None
    while True:
        page = await stores.artifacts.list_of_workspace("", after=after)
        found += [each.artifact_id for each in page.items if each.summary == "given up"]
        if (after := page.next_cursor) is None:
            return found


async def test_stream_ends_when_its_run_ends(caller: Caller, tmp_path: Path) -> None:
    big = await upload(caller, [b"x" * CHUNK_BYTES] * 512)
    async with filing_run(caller, tmp_path / "go", **attached(big), **place()) as run:
        request = host_api_pb2.StreamArtifactRequest(artifact_id=big.artifact_id)
        call = caller.host_api.StreamArtifact(request, metadata=run.metadata)
        assert await call.read()
        await run.end()

        async def to_the_end() -> None:
            while await call.read() is not grpc.aio.EOF:
                pass

        refusal = await refused(to_the_end())
    assert (refusal.code, refusal.reason) == ("UNAUTHENTICATED", "UNAUTHENTICATED")


async def test_caller_that_leaves_a_download_costs_nothing(caller: Caller) -> None:
    ref = await upload(caller, [b"x" * CHUNK_BYTES] * 256)
    for _ in range(20):
        request = gateway_pb2.GatewayServiceReadArtifactRequest(artifact_id=ref.artifact_id)
        call = caller.gateway.ReadArtifact(request, metadata=caller.metadata)
        assert await call.read()
        call.cancel()
    assert len(await download(caller, ref.artifact_id)) == 256 * CHUNK_BYTES


async def test_too_large_an_upload_is_refused_before_its_bytes_came(caller: Caller) -> None:
    refusal = await refused(upload(caller, [b"x"], size_bytes=2**30 + 1))
    assert (refusal.code, refusal.reason) == ("RESOURCE_EXHAUSTED", "PAYLOAD_TOO_LARGE")
    assert refusal.facts == {"size": str(2**30 + 1), "limit": str(2**30)}


async def test_too_large_a_chunk_is_refused(caller: Caller, tmp_path: Path) -> None:
    async with filing_run(caller, tmp_path / "go", **place()) as run:
        for call in (upload(caller, [b"x" * (2**20 + 1)]), run.create([b"x" * (2**20 + 1)])):
            refusal = await refused(call)
            assert (refusal.code, refusal.reason) == ("RESOURCE_EXHAUSTED", "PAYLOAD_TOO_LARGE")
            assert refusal.facts == {"size": str(2**20 + 1), "limit": str(2**20)}
        await run.end()
