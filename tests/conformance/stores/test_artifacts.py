"""The promises of artifacts, on both engines, with their bytes in a folder and in a bucket."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from stores import Stores, open_stores
from stores.errors import (
    AlreadyExists,
    BlobLost,
    ContentMismatch,
    ContentTooLarge,
    InvalidRecord,
    StoreUnavailable,
)
from stores.records import ArtifactHeader, ArtifactRecord, Collected
from stores.sql.artifacts import SqlArtifacts
from stores.sql.orphans import Orphans
from tests.conformance.stores.blob_stores import (
    CREDENTIALS,
    files_in,
    in_chunks,
    s3_server,
    s3_url,
)
from tests.conformance.stores.samples import at

GRACE = timedelta(hours=1)


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = at(0)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
def s3_address() -> Iterator[str]:
    """Runs an S3-shaped server for the module and gives its address."""
    with s3_server() as address:
        yield address


@pytest.fixture(params=["folder", "s3"])
def blobs_url(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """Gives the URL of an empty blob store."""
    if request.param == "folder":
        return (tmp_path / "root").as_uri()
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    return s3_url(request.getfixturevalue("s3_address"))


@pytest.fixture
async def stores(database_url: str, blobs_url: str, clock: Clock) -> AsyncIterator[Stores]:
    """Gives open stores, with nothing in them."""
    opened = await open_stores(database_url, blobs_url=blobs_url, clock=clock)
    yield opened
    await opened.close()


def a_header(artifact_id: str = "artifact-1", **changes: Any) -> ArtifactHeader:
    """Return the header of an artifact that the run `run-1` made in the conversation `talk`."""
    header = ArtifactHeader(
        artifact_id=artifact_id,
        workspace="acme",
        bot="helper",
        conversation_key="talk",
        type="file",
        created_at=at(0),
        mime_type="text/plain; charset=utf-8",
        name="ein Bericht.txt",
        summary="what happened",
        run_id="run-1",
    )
    return replace(header, **changes)


async def written(
    stores: Stores, artifact_id: str = "artifact-1", content: bytes = b"content", **changes: Any
) -> ArtifactRecord:
    header = a_header(artifact_id, **changes)
    return await stores.artifacts.write(header, in_chunks(content))


async def blobs_in(stores: Stores) -> int:
    artifacts = stores.artifacts
    assert isinstance(artifacts, SqlArtifacts)
    return len([blob async for blob in artifacts._blobs.scan()])


async def content_of(stores: Stores, artifact_id: str) -> bytes | None:
    opened = await stores.artifacts.open(artifact_id)
    return None if opened is None else b"".join([chunk async for chunk in opened[1]])


async def test_artifact_is_read_as_it_was_written(stores: Stores) -> None:
    content = b"0123456789" * 300_000
    record = await written(stores, content=content, expires_at=at(60))
    assert record == ArtifactRecord(
        artifact_id="artifact-1",
        workspace="acme",
        bot="helper",
        conversation_key="talk",
        type="file",
        created_at=at(0),
        mime_type="text/plain; charset=utf-8",
        name="ein Bericht.txt",
        summary="what happened",
        run_id="run-1",
        expires_at=at(60),
        size_bytes=3_000_000,
        sha256=hashlib.sha256(content).digest(),
    )
    assert await stores.artifacts.get("artifact-1") == record
    opened = await stores.artifacts.open("artifact-1")
    assert opened is not None
    assert opened[0] == record
    assert await content_of(stores, "artifact-1") == content


async def test_unknown_artifact_is_none(stores: Stores) -> None:
    for artifact_id in ("unknown", "", "../x", "a\0b", "\ud800"):
        assert await stores.artifacts.get(artifact_id) is None
        assert await stores.artifacts.read(artifact_id, offset=0, length=1) is None
        assert await stores.artifacts.open(artifact_id) is None
        assert await stores.artifacts.delete(artifact_id) is False


async def test_range_is_cut_at_the_end(stores: Stores) -> None:
    await written(stores, content=b"0123456789")
    for offset, length in ((0, 10), (0, 99), (3, 4), (9, 1), (9, 5), (10, 1), (99, 1), (3, 0)):
        expected = b"0123456789"[offset : offset + length]
        read = await stores.artifacts.read("artifact-1", offset=offset, length=length)
        assert read == expected
        opened = await stores.artifacts.open("artifact-1", offset=offset, length=length)
        assert opened is not None
        assert b"".join([chunk async for chunk in opened[1]]) == expected
    for offset, length in ((-1, 1), (1, -1)):
        with pytest.raises(InvalidRecord, match="must not be negative, is -1"):
            await stores.artifacts.read("artifact-1", offset=offset, length=length)
        with pytest.raises(InvalidRecord, match="must not be negative, is -1"):
            await stores.artifacts.open("artifact-1", offset=offset, length=length)


async def test_taken_id_is_told_before_bytes_are_taken(stores: Stores) -> None:
    await written(stores)

    chunks = in_chunks(b"other bytes")
    with pytest.raises(AlreadyExists) as caught:
        await stores.artifacts.write(a_header(), chunks)
    assert await anext(chunks) == b"other bytes"
    assert caught.value.field == "artifact_id"
    assert await content_of(stores, "artifact-1") == b"content"


async def test_id_is_taken_once_by_writers_at_the_same_time(stores: Stores) -> None:
    outcomes = await asyncio.gather(
        *(written(stores, content=b"%d" % number) for number in range(5)), return_exceptions=True
    )
    taken = [outcome for outcome in outcomes if isinstance(outcome, AlreadyExists)]
    assert len(taken) == 4
    record = await stores.artifacts.get("artifact-1")
    assert record in outcomes


async def test_same_bytes_are_stored_once(stores: Stores) -> None:
    content = b"shared" * 400_000
    await asyncio.gather(*(written(stores, f"artifact-{n}", content) for n in range(6)))
    await written(stores, "artifact-6", content)
    assert await blobs_in(stores) == 1
    for number in range(6):
        assert await stores.artifacts.delete(f"artifact-{number}") is True
    await stores.artifacts.collect_orphans(grace_seconds=-1)
    assert await content_of(stores, "artifact-6") == content


async def test_refused_bytes_leave_neither_artifact_nor_blob(stores: Stores) -> None:
    write = stores.artifacts.write
    with pytest.raises(ContentMismatch, match=r"sha256 ed7002b4.*declared was 0000"):
        await write(a_header(), in_chunks(b"content"), sha256=bytes(32))
    with pytest.raises(ContentMismatch, match="size_bytes 7, declared was 8"):
        await write(a_header(), in_chunks(b"content"), size_bytes=8)
    with pytest.raises(ContentTooLarge, match="more than 6 bytes"):
        await write(a_header(), in_chunks(b"content"), most_bytes=6)
    assert await stores.artifacts.get("artifact-1") is None
    assert await blobs_in(stores) == 0
    digest = hashlib.sha256(b"content").digest()
    await write(a_header(), in_chunks(b"content"), size_bytes=7, sha256=digest, most_bytes=7)


async def test_expired_artifact_is_as_if_it_did_not_exist(stores: Stores, clock: Clock) -> None:
    await written(stores, expires_at=at(60))
    await written(stores, "artifact-2", expires_at=at(61))
    clock.now = at(60)
    assert await stores.artifacts.get("artifact-1") is None
    assert await stores.artifacts.read("artifact-1", offset=0, length=1) is None
    assert await stores.artifacts.open("artifact-1") is None
    assert await stores.artifacts.delete("artifact-1") is False
    for page in (
        await stores.artifacts.list_of_run("run-1"),
        await stores.artifacts.list_of_conversation("talk"),
        await stores.artifacts.list_of_workspace("acme"),
    ):
        assert [artifact.artifact_id for artifact in page.items] == ["artifact-2"]


async def test_lists_are_paged_oldest_first_then_by_id(stores: Stores) -> None:
    for artifact_id, seconds in (("c", 1), ("b", 2), ("a", 2), ("d", 3)):
        await written(stores, artifact_id, created_at=at(seconds))
    await written(stores, "other", run_id=None, conversation_key="elsewhere", workspace="others")
    artifacts = stores.artifacts
    for list_of, of in (
        (artifacts.list_of_run, "run-1"),
        (artifacts.list_of_conversation, "talk"),
        (artifacts.list_of_workspace, "acme"),
    ):
        found: list[str] = []
        after = None
        while True:
            page = await list_of(of, after=after, limit=2)
            found += [artifact.artifact_id for artifact in page.items]
            after = page.next_cursor
            if after is None:
                break
        assert found == ["c", "a", "b", "d"]
        assert (await list_of("unknown")).items == ()
        with pytest.raises(InvalidRecord, match="must be a page's next_cursor"):
            await list_of(of, after="some cursor")
        with pytest.raises(InvalidRecord, match="must be 1 to 10000, is 0"):
            await list_of(of, limit=0)


async def test_oldest_artifacts_of_a_workspace_are_deleted_a_few_at_a_time(stores: Stores) -> None:
    for number in range(5):
        await written(stores, f"artifact-{number}", created_at=at(number))
    await written(stores, "other", workspace="others")
    delete = stores.artifacts.delete_created_before
    assert [await delete("acme", at(3), limit=2) for _ in range(3)] == [2, 1, 0]
    page = await stores.artifacts.list_of_workspace("acme")
    assert [artifact.artifact_id for artifact in page.items] == ["artifact-3", "artifact-4"]
    assert await stores.artifacts.get("other") is not None


async def test_orphans_are_collected_after_the_grace(stores: Stores, clock: Clock) -> None:
    await written(stores, "deleted", b"of a deleted one")
    await written(stores, "expired", b"of an expired one", expires_at=at(10))
    await written(stores, "stays", b"of one that stays")
    await written(stores, "shares", b"of one that stays", expires_at=at(10))
    await stores.artifacts.delete("deleted")
    clock.now += GRACE
    assert await stores.artifacts.collect_orphans() == Collected(2, 0, 0)
    assert await blobs_in(stores) == 3
    # The grace of the expired one's blob began with its deletion.
    clock.now += timedelta(seconds=1)
    assert await stores.artifacts.collect_orphans() == Collected(0, 1, len(b"of a deleted one"))
    clock.now += GRACE
    assert await stores.artifacts.collect_orphans() == Collected(0, 1, len(b"of an expired one"))
    assert await stores.artifacts.collect_orphans() == Collected(0, 0, 0)
    assert await blobs_in(stores) == 1
    assert await content_of(stores, "stays") == b"of one that stays"


async def test_many_orphans_are_collected_in_batches(stores: Stores, clock: Clock) -> None:
    for number in range(12):
        await written(stores, f"artifact-{number}", b"%d" % number)
        if number % 3:
            await stores.artifacts.delete(f"artifact-{number}")
    clock.now += 2 * GRACE
    collected = await stores.artifacts.collect_orphans(batch=2)
    assert (collected.blobs, await blobs_in(stores)) == (8, 4)


async def test_writer_between_blob_and_row_keeps_its_bytes(
    stores: Stores, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifacts = stores.artifacts
    assert isinstance(artifacts, SqlArtifacts)
    insert, collected = artifacts._insert, []

    async def insert_late(*arguments: Any) -> None:
        clock.now += GRACE
        collected.append(await artifacts.collect_orphans())
        await insert(*arguments)

    monkeypatch.setattr(artifacts, "_insert", insert_late)
    await written(stores)
    assert collected == [Collected(0, 0, 0)]
    assert await content_of(stores, "artifact-1") == b"content"


async def test_blob_that_is_shared_while_orphans_are_looked_for_is_kept(
    stores: Stores, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await written(stores)
    await stores.artifacts.delete("artifact-1")
    clock.now += 2 * GRACE
    read = Orphans._read

    async def read_and_share(orphans: Orphans, *arguments: Any, **values: Any) -> Any:
        rows = await read(orphans, *arguments, **values)
        if "untouched_since" in values and rows:
            await written(stores, "artifact-2")
        return rows

    monkeypatch.setattr(Orphans, "_read", read_and_share)
    assert await stores.artifacts.collect_orphans() == Collected(0, 0, 0)
    assert await content_of(stores, "artifact-2") == b"content"


async def test_writer_beyond_the_grace_is_told_and_leaves_no_artifact(
    stores: Stores, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifacts = stores.artifacts
    assert isinstance(artifacts, SqlArtifacts)
    insert = artifacts._insert

    async def insert_too_late(*arguments: Any) -> None:
        clock.now += 2 * GRACE
        await artifacts.collect_orphans()
        await insert(*arguments)

    monkeypatch.setattr(artifacts, "_insert", insert_too_late)
    with pytest.raises(StoreUnavailable, match="longer than the grace"):
        await written(stores)
    assert await stores.artifacts.get("artifact-1") is None


async def test_late_deletion_does_not_hit_a_later_writer_of_the_same_bytes(
    stores: Stores, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifacts = stores.artifacts
    assert isinstance(artifacts, SqlArtifacts)
    await written(stores)
    await artifacts.delete("artifact-1")
    clock.now += 2 * GRACE
    blobs = artifacts._blobs
    delete, condemned, go_on = blobs.delete, asyncio.Event(), asyncio.Event()

    async def delete_late(name: Any) -> None:
        condemned.set()
        await go_on.wait()
        await delete(name)

    monkeypatch.setattr(blobs, "delete", delete_late)
    collection = asyncio.create_task(artifacts.collect_orphans())
    await condemned.wait()
    await written(stores, "artifact-2")
    go_on.set()
    assert (await collection).blobs == 1
    assert await content_of(stores, "artifact-2") == b"content"
    assert await blobs_in(stores) == 1


async def test_collection_goes_on_where_a_dead_one_stopped(
    stores: Stores, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifacts = stores.artifacts
    assert isinstance(artifacts, SqlArtifacts)
    await written(stores)
    await artifacts.delete("artifact-1")
    clock.now += 2 * GRACE

    async def die(name: Any) -> None:
        raise ConnectionError(name)

    with monkeypatch.context() as patched:
        patched.setattr(artifacts._blobs, "delete", die)
        with pytest.raises(ConnectionError):
            await artifacts.collect_orphans()
    assert await blobs_in(stores) == 1
    assert await artifacts.collect_orphans() == Collected(0, 1, 7)
    assert await blobs_in(stores) == 0


async def test_lost_bytes_are_told(stores: Stores) -> None:
    artifacts = stores.artifacts
    assert isinstance(artifacts, SqlArtifacts)
    await written(stores)
    async for blob in artifacts._blobs.scan():
        await artifacts._blobs.delete(blob.name)
    with pytest.raises(BlobLost, match="restore the blob store from a backup"):
        await artifacts.read("artifact-1", offset=0, length=1)
    with pytest.raises(BlobLost):
        await content_of(stores, "artifact-1")
    # Who writes the same bytes again mends it.
    await written(stores, "artifact-2")
    assert await content_of(stores, "artifact-1") == b"content"


HOSTILE = ["../x", "%2e%2e/x", "..", ".", "/etc/passwd", "a/../../x", "..\\x", "a\0b", "\ud800"]


async def test_path_in_a_name_is_refused_by_its_rule(stores: Stores, tmp_path: Path) -> None:
    for field in ("artifact_id", "type", "name"):
        for value in HOSTILE:
            with pytest.raises(InvalidRecord, match=f"artifact: field {field} must"):
                await stores.artifacts.write(a_header(**{field: value}), in_chunks(b"content"))
    assert (await stores.artifacts.list_of_workspace("acme")).items == ()
    assert all("stores.db" in path.name for path in files_in(tmp_path))


async def test_path_in_another_field_is_data_and_leads_nowhere(
    stores: Stores, tmp_path: Path
) -> None:
    for field in ("workspace", "bot", "conversation_key", "run_id", "mime_type", "summary"):
        for number, value in enumerate(HOSTILE):
            artifact_id = f"{field}-{number}"
            header = a_header(artifact_id, **{field: value})
            if value in ("a\0b", "\ud800"):
                with pytest.raises(InvalidRecord, match=f"artifact: field {field} must"):
                    await stores.artifacts.write(header, in_chunks(b"content"))
            else:
                record = await stores.artifacts.write(header, in_chunks(b"content"))
                assert getattr(record, field) == value
                assert await stores.artifacts.get(artifact_id) == record
    outside = [path for path in files_in(tmp_path) if tmp_path / "root" not in path.parents]
    assert all("stores.db" in path.name for path in outside)


async def test_header_that_breaks_a_rule_is_refused(stores: Stores) -> None:
    no_zone = datetime(2026, 1, 1)  # noqa: DTZ001
    cases: list[tuple[dict[str, Any], str]] = [
        ({"artifact_id": "a" * 256}, "must be at most 255 bytes, is 256"),
        ({"artifact_id": ""}, "must be letters, digits"),
        ({"type": ""}, "must be a word"),
        ({"type": "t" * 101}, "must be a word"),
        ({"name": "n" * 256}, "must be at most 255 bytes"),
        ({"name": "a\r\nb"}, "no control characters"),
        ({"mime_type": "text/plain\r\nX-Other: 1"}, "must be printable ASCII"),
        ({"conversation_key": "k" * 2_049}, "must be at most 2048 bytes"),
        ({"created_at": no_zone}, "must have a time zone"),
        ({"expires_at": no_zone}, "must have a time zone"),
    ]
    for changes, told in cases:
        with pytest.raises(InvalidRecord, match=told):
            await written(stores, **changes)


async def test_times_come_back_in_utc(stores: Stores) -> None:
    record = await written(stores, created_at=at(0).astimezone())
    assert record.created_at == at(0)
    assert record.created_at.tzinfo is UTC


async def test_without_a_blob_store_what_to_do_is_told(database_url: str) -> None:
    if database_url.startswith("sqlite"):
        pytest.skip("SQLite has a folder beside it")
    stores = await open_stores(database_url)
    with pytest.raises(StoreUnavailable, match="open the stores with blobs_url"):
        await stores.artifacts.write(a_header(), in_chunks(b"content"))
    assert await stores.artifacts.get("artifact-1") is None
    await stores.close()
