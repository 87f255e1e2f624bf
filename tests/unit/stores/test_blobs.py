"""Blob stores beyond their common promises: URLs, crashes, memory, links, and any chunking."""

import asyncio
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from obstore.store import MemoryStore

from stores.blobs import BlobName, BlobStore, Declared, open_blobs
from stores.blobs.folder import FolderBlobs
from stores.blobs.objects import ObjectBlobs
from stores.blobs.reading import stream
from stores.errors import BlobLost, InvalidBlobsUrl, StoreUnavailable
from tests.conformance.stores.blob_stores import (
    CREDENTIALS,
    MOST,
    files_in,
    in_chunks,
    put,
    s3_server,
    s3_url,
)

ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent
MEBIBYTE = 1024 * 1024


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("", "of kind '' are not known"),
        ("/some/folder", "of kind '' are not known"),
        ("ftp://host/x", "of kind 'ftp' are not known"),
        ("file:relative", "absolute path"),
        ("file:///", "absolute path"),
        ("file:///a%00b", "absolute path"),
        ("file://host/x", "nothing but a path"),
        ("file:///x?y=z", "nothing but a path"),
        ("s3://", "names no bucket"),
        ("s3:///prefix", "names no bucket"),
        ("s3://bucket/x?colour=red", "option 'colour'"),
        ("s3://[bucket/x", "cannot be read"),
    ],
)
def test_url_of_another_form_is_refused_with_the_forms_that_are_known(url: str, told: str) -> None:
    with pytest.raises(InvalidBlobsUrl, match=told) as caught:
        open_blobs(url)
    assert "use file:///path/to/folder or s3://bucket/prefix" in str(caught.value)


def test_credentials_in_a_url_are_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidBlobsUrl, match="AWS_SECRET_ACCESS_KEY") as caught:
        open_blobs("s3://me:canary@bucket/x")
    assert "canary" not in str(caught.value)


async def test_object_store_that_is_not_there_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    blobs = open_blobs(s3_url("http://127.0.0.1:1"), staging_folder=tmp_path)
    with pytest.raises(StoreUnavailable, match="cannot look for a blob in the object") as caught:
        await blobs.find(BlobName.new(bytes(32)))
    assert "\n" not in str(caught.value)
    assert "not a secret" not in str(caught.value)
    await blobs.close()


async def test_full_or_closed_folder_is_told_without_its_path(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    blobs = FolderBlobs(tmp_path / "file" / "blobs")
    with pytest.raises(StoreUnavailable, match=r"cannot write a blob's temporary file: ") as caught:
        await put(blobs, b"content")
    assert str(tmp_path) not in str(caught.value)
    await blobs.close()


async def test_folders_and_files_are_nobody_elses(tmp_path: Path) -> None:
    blobs = FolderBlobs(tmp_path / "data" / "blobs")
    await put(blobs, b"content")
    for path in tmp_path.joinpath("data").rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600)
    await blobs.close()


def linked(root: Path, name: BlobName, part: str) -> None:
    """Put a symbolic link that leads outside where a part of a blob's path would be."""
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / name.text).write_bytes(b"secret!")
    if part == "incoming":
        root.mkdir()
        (root / "incoming").symlink_to(outside)
    elif part == "shard":
        root.mkdir()
        (root / name.shard).symlink_to(outside)
    else:
        (root / name.shard).mkdir(parents=True)
        (root / name.path).symlink_to(outside / name.text)


@pytest.mark.parametrize("part", ["incoming", "shard", "blob"])
async def test_symbolic_link_below_the_root_leads_nowhere(tmp_path: Path, part: str) -> None:
    root = tmp_path / "root"
    blobs = FolderBlobs(root)
    name = BlobName.new(hashlib.sha256(b"content").digest())
    linked(root, name, part)
    with pytest.raises(BlobLost):
        await blobs.read(name, 0, 7)
    try:
        async with blobs.stage(in_chunks(b"content"), Declared(most_bytes=MOST)) as staged:
            await blobs.publish(staged, name)
    except StoreUnavailable:
        assert part != "blob"
    else:
        assert part == "blob"
        assert await blobs.read(name, 0, 7) == b"content"
    assert [path.name for path in files_in(tmp_path / "outside")] == [name.text]
    assert (tmp_path / "outside" / name.text).read_bytes() == b"secret!"
    await blobs.close()


async def test_what_is_no_file_is_no_blob(tmp_path: Path) -> None:
    blobs = FolderBlobs(tmp_path)
    name = await put(blobs, b"content")
    (tmp_path / name.path).unlink()
    os.mkfifo(tmp_path / name.path)
    with pytest.raises(BlobLost, match="is no regular file"):
        await blobs.read(name, 0, 1)
    assert await blobs.find(name) is None
    (tmp_path / name.shard / "notes.txt").touch()
    (tmp_path / "README").touch()
    assert [blob async for blob in blobs.scan()] == []
    await blobs.close()


def test_killed_writer_leaves_whole_blobs_and_temporary_files_that_are_swept(
    tmp_path: Path,
) -> None:
    stored: list[str] = []
    left: list[str] = []
    died_writing = 0
    for _ in range(6):
        with subprocess.Popen(
            [sys.executable, str(HERE / "writing_blobs.py"), str(tmp_path)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            stored += [process.stdout.readline().strip() for _ in range(3)]
            # The files of dead writers go. A living one's may go as well in the moment between
            # making and locking it; it then makes another, and what it tells of is there.
            assert asyncio.run(swept(tmp_path)) >= len(left)
            time.sleep(int.from_bytes(os.urandom(1), "big") / 5_000)
            process.kill()
            stored += process.stdout.read().split()
        left = [path.name for path in files_in(tmp_path / "incoming")]
        assert all(name.endswith(".part") for name in left)
        died_writing += len(left)
    assert asyncio.run(swept(tmp_path)) == len(left)
    assert died_writing > 0
    found = {path.name: path.read_bytes() for path in files_in(tmp_path)}
    assert set(stored) <= set(found)
    for name, content in found.items():
        assert BlobName(name).sha256 == hashlib.sha256(content).digest()


async def swept(root: Path) -> int:
    blobs = FolderBlobs(root)
    count = await blobs.sweep()
    await blobs.close()
    return count


@pytest.mark.parametrize(("kind", "mebibytes"), [("folder", 256), ("s3", 128)])
def test_memory_does_not_grow_with_what_is_streamed(
    tmp_path: Path, kind: str, mebibytes: int
) -> None:
    if kind == "folder":
        assert grown(tmp_path.as_uri(), mebibytes) < 32 * 1024
        return
    with s3_server() as address:
        assert grown(s3_url(address), mebibytes) < 32 * 1024


def grown(url: str, mebibytes: int) -> int:
    script = [sys.executable, str(HERE / "streaming_memory.py"), url, str(mebibytes)]
    environment = {**os.environ, **CREDENTIALS, "PYTHONPATH": str(ROOT)}
    return int(subprocess.check_output(script, cwd=ROOT, env=environment))


class Loop:
    """Runs coroutines one after the other, for tests whose examples are not coroutines."""

    def __init__(self, blobs: BlobStore) -> None:
        self.runner = asyncio.Runner()
        self.blobs = blobs
        # Few enough that small content, which is what most examples have, is many blocks.
        self.blobs.block_bytes = 10

    def there_and_back(self, chunks: list[bytes], offset: int, length: int) -> bytes:
        return self.runner.run(self._there_and_back(chunks, offset, length))

    async def _there_and_back(self, chunks: list[bytes], offset: int, length: int) -> bytes:
        async def source() -> AsyncIterator[bytes]:
            for chunk in chunks:
                yield chunk

        async with self.blobs.stage(source(), Declared(most_bytes=MOST)) as staged:
            name = BlobName.new(staged.sha256)
            await self.blobs.publish(staged, name)
        size = min(length, max(staged.size_bytes - offset, 0))
        return b"".join([c async for c in stream(self.blobs, name, offset=offset, length=size)])


@pytest.mark.parametrize("kind", ["folder", "objects"])
def test_any_range_of_any_chunks_comes_back(tmp_path: Path, kind: str) -> None:
    blobs: BlobStore = FolderBlobs(tmp_path)
    if kind == "objects":
        blobs = ObjectBlobs(MemoryStore(), staging_folder=tmp_path)
    loop = Loop(blobs)

    @settings(max_examples=40, deadline=None)
    @given(
        chunks=st.lists(st.binary(max_size=100), max_size=8),
        offset=st.integers(0, 300),
        length=st.integers(0, 900),
    )
    def check(chunks: list[bytes], offset: int, length: int) -> None:
        expected = b"".join(chunks)[offset : offset + length]
        assert loop.there_and_back(chunks, offset, length) == expected

    check()
    loop.runner.run(blobs.close())
    loop.runner.close()


@given(size=st.integers(-3, 3), chunk=st.sampled_from([1_000, 65_536, MEBIBYTE, 3 * MEBIBYTE]))
@settings(max_examples=12, deadline=None)
def test_content_around_a_block_is_digested_whole(
    tmp_path_factory: pytest.TempPathFactory, size: int, chunk: int
) -> None:
    content = os.urandom(MEBIBYTE + size)

    async def digest() -> bytes:
        blobs = FolderBlobs(tmp_path_factory.mktemp("blobs"))
        name = await put(blobs, content)
        read = await blobs.read(name, 0, len(content))
        await blobs.close()
        assert read == content
        return name.sha256

    assert asyncio.run(digest()) == hashlib.sha256(content).digest()
