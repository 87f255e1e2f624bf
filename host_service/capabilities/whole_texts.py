"""Texts that are too long for a page: their beginning, and an artifact that has the whole.

The artifact is made when it is first asked for. Its id follows from the item's: whoever asks again,
or at the same time, is given the same. It is as old as the item, so that it goes when the item
would, and where it went first it is made again.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from datetime import UTC

from runmesh.v1 import host_api_pb2

from host_service.errors import Unavailable
from host_service.limits import KIB, Limits
from host_service.runs.artifact_refs import artifact_ref
from host_service.runs.conversation import Conversation
from stores.artifacts import Artifacts
from stores.errors import AlreadyExists
from stores.records import ArtifactHeader, ArtifactRecord

#: The type of these artifacts.
WHOLE_TEXT = "text"

_CHUNK_BYTES = 256 * KIB


class WholeTexts:
    """Cuts the texts of transcript items.

    Args:
        artifacts: Where whole texts go.
        limits: How long a text may be in a page.
    """

    def __init__(self, *, artifacts: Artifacts, limits: Limits) -> None:
        self._artifacts = artifacts
        self._limits = limits

    async def cut(self, item: host_api_pb2.TranscriptItem, conversation: Conversation) -> None:
        """Cut an item's text if it is too long, and refer to the whole before all else.

        Raises:
            Unavailable: The whole text could not be stored.
        """
        limit = self._limits.page_item_text_bytes
        whole = item.text.encode()
        if len(whole) <= limit:
            return
        ref = artifact_ref(await self._stored(item, conversation, whole))
        # What is left of a character that was cut in two is no text.
        item.text = whole[:limit].decode(errors="ignore")
        item.truncated = True
        others = list(item.artifacts)
        # The artifact has the parts that are text as well.
        parts = [part for part in item.parts if not part.HasField("text")]
        del item.artifacts[:], item.parts[:]
        item.artifacts.extend([ref, *others])
        item.parts.extend(parts)

    async def _stored(
        self, item: host_api_pb2.TranscriptItem, conversation: Conversation, whole: bytes
    ) -> ArtifactRecord:
        artifact_id = f"text-{hashlib.sha256(item.transcript_id.encode()).hexdigest()[:32]}"
        header = ArtifactHeader(
            artifact_id=artifact_id,
            workspace=conversation.workspace,
            bot=conversation.bot,
            conversation_key=conversation.key,
            type=WHOLE_TEXT,
            created_at=item.created_at.ToDatetime(UTC),
            mime_type="text/plain; charset=utf-8",
            name="message.txt",
        )
        record = await self._artifacts.get(artifact_id)
        if record is None:
            try:
                record = await self._artifacts.write(header, _chunks(whole))
            except AlreadyExists:
                # Somebody else made it meanwhile.
                record = await self._artifacts.get(artifact_id)
        if record is None:
            raise Unavailable("a long text could not be stored; try again")
        return record


async def _chunks(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), _CHUNK_BYTES):
        yield data[start : start + _CHUNK_BYTES]
