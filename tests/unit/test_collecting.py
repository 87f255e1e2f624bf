"""Hosts remove what has expired and what no artifact refers to, again and again, side by side."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from host_service.collecting import keep_collected, keep_documents_collected
from host_service.limits import Limits
from stores import Stores, open_stores
from stores.errors import StoreUnavailable
from stores.knowledge import Knowledge
from stores.knowledge_records import CollectedKnowledge
from stores.records import ArtifactHeader, Collected

SOON = Limits(artifact_collection_seconds=0.01, artifact_grace_seconds=0.0)


async def bytes_of(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def write(stores: Stores, artifact_id: str, data: bytes, **changes: Any) -> None:
    fields: dict[str, Any] = {
        "artifact_id": artifact_id,
        "workspace": "",
        "bot": "",
        "conversation_key": "",
        "type": "file",
        "created_at": datetime.now(UTC),
    }
    await stores.artifacts.write(ArtifactHeader(**(fields | changes)), bytes_of(data))


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(10):
        while not await holds():  # noqa: ASYNC110 - files tell nobody that they are gone
            await asyncio.sleep(0.01)


def blobs_in(folder: Path) -> int:
    return len([path for path in folder.rglob("*") if path.is_file()])


async def end(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_expired_and_deleted_artifacts_go_with_their_bytes_and_others_stay(
    tmp_path: Path,
) -> None:
    url, folder = f"sqlite:///{tmp_path / 'shared.db'}", tmp_path / "kept"
    here = await open_stores(url, blobs_url=folder.as_uri())
    there = await open_stores(url, blobs_url=folder.as_uri())
    await write(here, "kept", b"kept")
    soon = datetime.now(UTC) + timedelta(seconds=0.2)
    for number in range(20):
        await write(here, f"brief-{number}", b"brief %d" % number, expires_at=soon)
    await write(here, "deleted", b"deleted")
    await here.artifacts.delete("deleted")
    assert blobs_in(folder) == 22
    tasks = [
        asyncio.create_task(keep_collected(artifacts=each.artifacts, limits=SOON))
        for each in (here, there)
    ]

    async def one_is_left() -> bool:
        return blobs_in(folder) == 1

    await until(one_is_left)
    assert not any(task.done() for task in tasks)
    await end(*tasks)
    assert await here.artifacts.read("kept", offset=0, length=9) == b"kept"
    await here.close()
    await there.close()


class Failing:
    """Artifacts whose first collection fails."""

    def __init__(self) -> None:
        self.collections = 0
        self.graces: set[float] = set()
        self.again = asyncio.Event()

    async def collect_orphans(self, *, grace_seconds: float) -> Collected:
        self.collections += 1
        self.graces.add(grace_seconds)
        if self.collections == 1:
            raise StoreUnavailable("the bucket is away")
        self.again.set()
        return Collected(0, 0, 0)


async def test_collection_that_fails_is_told_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    artifacts: Any = Failing()
    limits = Limits(artifact_collection_seconds=0.01, artifact_grace_seconds=7.0)
    with caplog.at_level(logging.WARNING):
        task = asyncio.create_task(keep_collected(artifacts=artifacts, limits=limits))
        await asyncio.wait_for(artifacts.again.wait(), 10)
        await end(task)
    assert "the bucket is away" in caplog.text
    assert artifacts.graces == {7.0}


async def test_what_is_left_of_documents_is_collected_again_after_a_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stores = await open_stores(f"sqlite:///{tmp_path / 'stores.db'}")
    collect, times = stores.knowledge.collect, list[int]()
    done = asyncio.Event()

    class Failing:
        """The store, which cannot be reached the first time."""

        async def collect(self) -> CollectedKnowledge:
            times.append(1)
            if len(times) == 1:
                raise StoreUnavailable("away")
            await collect()
            done.set()
            return CollectedKnowledge(versions=1, chunks=2)

    caplog.set_level(logging.INFO, "runmesh.host")
    task = asyncio.create_task(
        keep_documents_collected(knowledge=cast("Knowledge", Failing()), limits=SOON)
    )
    await done.wait()
    await asyncio.sleep(0)
    await end(task)
    await stores.close()
    told = [record.getMessage() for record in caplog.records]
    assert told[:2] == [
        "documents could not be collected, and are tried again: away",
        "collected 1 versions of documents with 2 passages",
    ]
