"""Removes artifacts that have expired, bytes that none refers to, and what is left of documents."""

from __future__ import annotations

import asyncio
import logging
import random

from host_service.limits import Limits
from stores.artifacts import Artifacts
from stores.errors import StoreError
from stores.knowledge import Knowledge

_log = logging.getLogger("runmesh.host")

# Hosts of one database that started together need not look together.
_EARLIEST = 0.5


async def keep_collected(*, artifacts: Artifacts, limits: Limits) -> None:
    """Collect again and again until cancelled, which may come at any point.

    Several hosts may do so on one database: what one has collected is nothing to the others.

    Args:
        artifacts: Where they are kept.
        limits: How often, and after which grace.
    """
    while True:
        await _wait(limits)
        try:
            collected = await artifacts.collect_orphans(grace_seconds=limits.artifact_grace_seconds)
        except StoreError as error:
            _log.warning("artifacts could not be collected, and are tried again: %s", error)
            continue
        if collected.artifacts or collected.blobs:
            _log.info(
                "collected %d expired artifacts and %d blobs of %d bytes",
                collected.artifacts,
                collected.blobs,
                collected.size_bytes,
            )


async def keep_documents_collected(*, knowledge: Knowledge, limits: Limits) -> None:
    """Collect what is left of documents that were removed, or whose coming in was given up.

    Like `keep_collected`.

    Args:
        knowledge: Where they are kept.
        limits: How often.
    """
    while True:
        await _wait(limits)
        try:
            collected = await knowledge.collect()
        except StoreError as error:
            _log.warning("documents could not be collected, and are tried again: %s", error)
            continue
        if collected.versions:
            _log.info(
                "collected %d versions of documents with %d passages",
                collected.versions,
                collected.chunks,
            )


async def _wait(limits: Limits) -> None:
    interval = limits.artifact_collection_seconds
    await asyncio.sleep(interval * random.uniform(_EARLIEST, 1.0))  # noqa: S311 - no secret
