"""The promises of blob stores, on all of them."""

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stores.blobs import BlobName, BlobStore, Declared
from stores.blobs.reading import stream
from stores.errors import BlobLost, ContentMismatch, ContentTooLarge, InvalidRecord, StoreClosed
from tests.conformance.stores.blob_stores import (
    CREDENTIALS,
    KINDS,
    MOST,
    files_in,
    in_chunks,
    make_blobs,
    put,
    s3_server,
)

MEBIBYTE = 1024 * 1024
# More than two blocks of any store, and the parts of an upload in several parts.
LARGE = random.Random(1).randbytes(11 * MEBIBYTE + 17)


@pytest.fixture(scope="module")
def s3_address() -> Iterator[str]:
    """Runs an S3-shaped server for the module and gives its address."""
    with s3_server() as address:
        yield address


@pytest.fixture(params=KINDS)
async def blobs(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[BlobStore]:
    """Gives each of the blob stores, empty."""
    address = ""
    if request.param == "s3":
        address = request.getfixturevalue("s3_address")
        for name, value in CREDENTIALS.items():
            monkeypatch.setenv(name, value)
    opened = make_blobs(request.param, tmp_path, address=address)
    yield opened
    await opened.close()


async def names_in(blobs: BlobStore) -> list[BlobName]:
    return sorted([blob.name async for blob in blobs.scan()])


async def test_bytes_come_back_as_they_were(blobs: BlobStore) -> None:
    for content in (b"", b"x", LARGE):
        name = await put(blobs, content)
        assert name.sha256 == hashlib.sha256(content).digest()
        chunks = [chunk async for chunk in stream(blobs, name, offset=0, length=len(content))]
        assert b"".join(chunks) == content
        found = await blobs.find(name)
        assert found is not None
        assert found.size_bytes == len(content)
    assert len(await names_in(blobs)) == 3


async def test_any_range_of_any_chunking_comes_back(blobs: BlobStore) -> None:
    names: dict[int, BlobName] = {}

    async def check(size: int, offset: int, length: int) -> None:
        content = LARGE[:size]
        if size not in names:
            names[size] = await put(blobs, content)
        length = min(length, max(size - offset, 0))
        expected = content[offset : offset + length]
        if length:
            assert await blobs.read(names[size], offset, length) == expected
        chunks = [c async for c in stream(blobs, names[size], offset=offset, length=length)]
        assert b"".join(chunks) == expected

    generator = random.Random(2)
    for size in (1, 65_537, 9 * MEBIBYTE + 1):
        for _ in range(5):
            await check(size, generator.randint(0, size), generator.randint(0, size))


async def test_blob_that_is_not_there_or_too_short_is_told(blobs: BlobStore) -> None:
    unknown = BlobName.new(hashlib.sha256(b"unknown").digest())
    with pytest.raises(BlobLost, match="is not in the"):
        await blobs.read(unknown, 0, 1)
    assert await blobs.find(unknown) is None
    name = await put(blobs, b"12345")
    for offset, length in ((0, 6), (5, 1), (9, 2)):
        with pytest.raises(BlobLost, match=r"has \d bytes only"):
            await blobs.read(name, offset, length)


@pytest.mark.parametrize(
    ("declared", "told"),
    [
        (Declared(most_bytes=9), "has more than 9 bytes"),
        (Declared(most_bytes=MOST, size_bytes=9), "size_bytes at least 10, declared was 9"),
        (Declared(most_bytes=MOST, size_bytes=11), "size_bytes 10, declared was 11"),
        (Declared(most_bytes=MOST, sha256=b"\1" * 32), "sha256 84d89877.*declared was 0101"),
    ],
)
async def test_other_bytes_than_declared_are_refused_and_not_kept(
    blobs: BlobStore, tmp_path: Path, declared: Declared, told: str
) -> None:
    with pytest.raises((ContentMismatch, ContentTooLarge), match=told):
        async with blobs.stage(in_chunks(b"0123456789", 1), declared):
            pytest.fail("they were taken")
    assert files_in(tmp_path) == []


async def test_content_too_large_is_told_before_it_ends(blobs: BlobStore) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 65_536

    with pytest.raises(ContentTooLarge):
        async with blobs.stage(endless(), Declared(most_bytes=4 * MEBIBYTE)):
            pytest.fail("they were taken")


async def test_failing_source_leaves_nothing(blobs: BlobStore, tmp_path: Path) -> None:
    async def failing() -> AsyncIterator[bytes]:
        yield LARGE
        raise ConnectionError("the caller went away")

    with pytest.raises(ConnectionError):
        async with blobs.stage(failing(), Declared(most_bytes=MOST)):
            pytest.fail("they were taken")
    assert files_in(tmp_path) == []


async def test_cancelled_upload_leaves_nothing(blobs: BlobStore, tmp_path: Path) -> None:
    started = asyncio.Event()

    async def stalling() -> AsyncIterator[bytes]:
        yield LARGE
        started.set()
        await asyncio.Event().wait()

    async def upload() -> None:
        async with blobs.stage(stalling(), Declared(most_bytes=MOST)):
            pytest.fail("they were taken")

    task = asyncio.create_task(upload())
    await started.wait()
    assert len(files_in(tmp_path)) == 1
    # Twice: the clean-up itself is cancelled as well.
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await blobs.close()
    assert files_in(tmp_path) == []


async def test_unpublished_bytes_are_gone(blobs: BlobStore, tmp_path: Path) -> None:
    async with blobs.stage(in_chunks(LARGE), Declared(most_bytes=MOST)) as staged:
        assert staged.size_bytes == len(LARGE)
        assert [path.stat().st_mode & 0o777 for path in files_in(tmp_path)] == [0o600]
    assert files_in(tmp_path) == []
    assert await names_in(blobs) == []


async def test_writers_of_the_same_bytes_under_one_name_all_succeed(blobs: BlobStore) -> None:
    name = BlobName.new(hashlib.sha256(LARGE).digest())

    async def write() -> None:
        async with blobs.stage(in_chunks(LARGE), Declared(most_bytes=MOST)) as staged:
            await blobs.publish(staged, name)

    await asyncio.gather(*(write() for _ in range(4)))
    assert await names_in(blobs) == [name]
    assert await blobs.read(name, 0, len(LARGE)) == LARGE


async def test_name_for_other_bytes_is_refused(blobs: BlobStore) -> None:
    name = BlobName.new(hashlib.sha256(b"others").digest())
    async with blobs.stage(in_chunks(b"these"), Declared(most_bytes=MOST)) as staged:
        with pytest.raises(ValueError, match="is not for bytes with digest"):
            await blobs.publish(staged, name)
    assert await names_in(blobs) == []


async def test_deleted_blob_is_gone_and_others_stay(blobs: BlobStore) -> None:
    gone, stays = await put(blobs, b"gone"), await put(blobs, b"stays")
    await blobs.delete(gone)
    await blobs.delete(gone)
    assert await names_in(blobs) == [stays]
    with pytest.raises(BlobLost):
        await blobs.read(gone, 0, 1)


async def test_reader_may_stop_in_the_middle(blobs: BlobStore) -> None:
    name = await put(blobs, LARGE)
    for _ in range(3):
        async for chunk in stream(blobs, name, offset=3, length=len(LARGE) - 3):
            assert LARGE[3:].startswith(chunk)
            break


async def test_store_that_closes_over_an_upload_keeps_nothing_of_it(
    blobs: BlobStore, tmp_path: Path
) -> None:
    async def closing() -> AsyncIterator[bytes]:
        yield LARGE
        await blobs.close()
        yield LARGE

    with pytest.raises(StoreClosed):
        async with blobs.stage(closing(), Declared(most_bytes=MOST)):
            pytest.fail("they were taken")
    assert files_in(tmp_path) == []


async def test_closed_store_says_so(blobs: BlobStore) -> None:
    await blobs.close()
    await blobs.close()
    with pytest.raises(StoreClosed):
        await blobs.find(BlobName.new(b"\0" * 32))
    with pytest.raises(StoreClosed):
        await put(blobs, b"late")


@given(text=st.text() | st.from_regex(r"[0-9a-fA-F./\\%\x00]{81}", fullmatch=True))
def test_no_other_text_is_a_name(text: str) -> None:
    with pytest.raises(InvalidRecord):
        BlobName(text)
