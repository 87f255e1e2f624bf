"""Blob stores to test with: a folder, and object stores down to a server that speaks S3."""

import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

from obstore.store import LocalStore, MemoryStore

from stores.blobs import BlobName, BlobStore, Declared, open_blobs
from stores.blobs.objects import ObjectBlobs

KINDS = ("folder", "local objects", "objects in memory", "s3")

# What the S3-shaped server takes for credentials, and its client reads from the environment.
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "not a secret"}

MOST = 1024 * 1024 * 1024


@contextmanager
def s3_server() -> Iterator[str]:
    """Run a server that speaks S3, with a bucket `runmesh`, and give its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        env={**os.environ, **CREDENTIALS},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        address = f"http://127.0.0.1:{port}"
        _wait_until_listening(port, server)
        urlopen(Request(f"{address}/runmesh", method="PUT")).close()
        yield address
    finally:
        server.kill()
        server.wait()


def _wait_until_listening(port: int, server: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and server.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError("the S3-shaped server did not start")


def s3_url(address: str) -> str:
    """Return the URL of a blob store on the server that nobody else uses."""
    return f"s3://runmesh/{secrets.token_hex(4)}/blobs?region=us-east-1&endpoint={address}"


def make_blobs(kind: str, folder: Path, *, address: str = "") -> BlobStore:
    """Return an empty blob store of a kind, whose files are all in the folder."""
    staging = folder / "staging"
    if kind == "folder":
        return open_blobs((folder / "blobs").as_uri())
    if kind == "s3":
        return open_blobs(s3_url(address), staging_folder=staging)
    objects = LocalStore(folder / "blobs", mkdir=True) if "local" in kind else MemoryStore()
    return ObjectBlobs(objects, staging_folder=staging)


async def in_chunks(content: bytes, size: int = 65_536) -> AsyncIterator[bytes]:
    """Give content in chunks of a size."""
    for start in range(0, len(content), size):
        yield content[start : start + size]


async def put(blobs: BlobStore, content: bytes) -> BlobName:
    """Store content under a new name."""
    async with blobs.stage(in_chunks(content), Declared(most_bytes=MOST)) as staged:
        name = BlobName.new(staged.sha256)
        await blobs.publish(staged, name)
    return name


def files_in(folder: Path) -> list[Path]:
    """Return all files in a folder and below."""
    return sorted(path for path in folder.rglob("*") if not path.is_dir())
