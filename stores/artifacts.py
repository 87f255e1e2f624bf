"""Artifacts: bytes with a name, a type, a size and a digest, passed by reference.

What is known of an artifact is in the database, its bytes are in a blob store (`stores.blobs`),
and artifacts with the same bytes share one blob. The order of a write keeps the two together:

1. the bytes are staged and checked
2. the database gives their blob a name: the one that it has, or a new one
3. the bytes are published under it
4. the artifact is inserted

Whoever dies in between leaves a blob that no artifact refers to: an orphan. `collect_orphans`
deletes those that nobody has touched for a grace, which is longer than any writer needs from 2 to
4. It first *condemns* a blob in the database, in a transaction in which no artifact refers to it,
and deletes the bytes after; a condemned name is given to nobody, so that a late deletion hits
nothing that a later writer stored.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from datetime import datetime
from typing import Protocol

from stores.records import ArtifactHeader, ArtifactRecord, Collected, Page

MOST_BYTES = 1024 * 1024 * 1024
GRACE_SECONDS = 3_600.0


class Artifacts(Protocol):
    """Writes and reads artifacts.

    An expired artifact is, for every method, as if it did not exist. Methods may raise
    `StoreUnavailable`, of the database or of the blob store, and `StoreClosed`.
    """

    async def write(
        self,
        header: ArtifactHeader,
        chunks: AsyncIterable[bytes],
        *,
        size_bytes: int | None = None,
        sha256: bytes | None = None,
        most_bytes: int = MOST_BYTES,
    ) -> ArtifactRecord:
        """Store an artifact: its bytes, in constant memory, and what is said of it.

        When it returns, both are durable; when it raises, no such artifact exists. The errors of
        `chunks` come through, and end the write.

        Args:
            header: What is said of it.
            chunks: The bytes, in pieces of any size.
            size_bytes: How many there must be, if that is known.
            sha256: Which digest they must have, if that is known.
            most_bytes: How many there may be.

        Raises:
            InvalidRecord: A field of the header breaks its rule; nothing was taken from `chunks`.
            AlreadyExists: The artifact id is taken, by an expired artifact as well.
            ContentTooLarge: There are more than may be, told as soon as one too many came.
            ContentMismatch: Their size or digest is not the declared one.
        """

    async def get(self, artifact_id: str) -> ArtifactRecord | None:
        """Return what is known of an artifact, or `None`."""

    async def read(self, artifact_id: str, *, offset: int, length: int) -> bytes | None:
        """Return a range of an artifact's bytes, or `None` without such an artifact.

        The range is cut at the end of the artifact, and empty behind it.

        Raises:
            InvalidRecord: Offset or length is negative.
            BlobLost: The blob store has lost the bytes.
        """

    async def open(
        self, artifact_id: str, *, offset: int = 0, length: int | None = None
    ) -> tuple[ArtifactRecord, AsyncIterator[bytes]] | None:
        """Return an artifact and an iterator over its bytes, or `None` without such an artifact.

        The range is cut as `read` does; without a length it goes to the end. The iterator holds
        two blocks of some MiB, and nothing open between them. It may be left at any time. Bytes
        whose artifact is deleted or expires meanwhile stay readable for the grace of
        `collect_orphans`.

        Raises:
            InvalidRecord: Offset or length is negative.
            BlobLost: Raised by the iterator; the blob store has lost the bytes.
        """

    async def list_of_run(
        self, run_id: str, *, after: str | None = None, limit: int = 100
    ) -> Page[ArtifactRecord, str]:
        """Return artifacts that a run created, oldest first, then by id.

        Args:
            run_id: The run.
            after: The cursor of the page before; `None` for the first one.
            limit: How many, 1 to 10,000.

        Raises:
            InvalidRecord: The limit or the cursor is no such thing.
        """

    async def list_of_conversation(
        self, conversation_key: str, *, after: str | None = None, limit: int = 100
    ) -> Page[ArtifactRecord, str]:
        """Return artifacts of a conversation, as `list_of_run` does."""

    async def list_of_workspace(
        self, workspace: str, *, after: str | None = None, limit: int = 100
    ) -> Page[ArtifactRecord, str]:
        """Return artifacts of a workspace, as `list_of_run` does."""

    async def adopt(
        self, artifact_ids: Sequence[str], *, workspace: str, bot: str, conversation_key: str
    ) -> Sequence[str]:
        """Give artifacts that nobody has to a conversation, all or none.

        Nobody has an artifact that no run created and that belongs to no conversation. Its
        workspace and bot must be the conversation's, or empty; then they become the conversation's.
        One that belongs to the conversation already stays as it is.

        Args:
            artifact_ids: Which.
            workspace: The conversation's workspace.
            bot: Its bot.
            conversation_key: The conversation. Empty: they only get workspace and bot, and can
                still be given to a conversation of these.

        Returns:
            Those that cannot be given; empty when all are the conversation's now.

        Raises:
            InvalidRecord: A key cannot be stored.
        """

    async def delete(self, artifact_id: str) -> bool:
        """Delete an artifact; False without such an artifact.

        Its bytes go with the next collection of orphans, unless another artifact shares them.
        """

    async def delete_created_before(self, workspace: str, time: datetime, *, limit: int) -> int:
        """Delete the oldest artifacts of a workspace that were created before a time.

        Returns:
            How many were deleted; fewer than the limit mean that none are left.
        """

    async def collect_orphans(
        self, *, grace_seconds: float = GRACE_SECONDS, batch: int = 200
    ) -> Collected:
        """Delete expired artifacts, blobs that no artifact refers to, and what dead writers left.

        Goes in small batches, so that others write in between. May be cancelled, or die, at any
        point: the next collection goes on. Several may run at once.

        Args:
            grace_seconds: How long nobody may have touched a blob: written it, shared it, or
                deleted an artifact that it was of.
            batch: How many rows are read or written at once, 1 to 10,000.
        """
