"""Taking documents in.

    bytes -> read and cut, in a process of its own -> staged, batch by batch, each with its vectors
          -> finished: from one moment to the next it is what is searched

What was staged is kept when the host ends. Adding the same bytes again goes on behind the last
passage that was stored; until it is finished, the version before it is searched. A model that gives
no vectors keeps no document out: its passages are found by their text, and `MissingVectors` asks
again.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from host_service.catalogue.knowledge_base import KnowledgeBase
from host_service.errors import Conflict, FieldFault, HostError, InvalidArgument, NotFound
from host_service.knowledge.errors import DocumentRefused, DocumentUnreadable
from host_service.knowledge.kinds import type_of
from host_service.knowledge.places import kept_headings
from host_service.knowledge.reading import CutDocument, DocumentReader
from host_service.knowledge.vectors import Embedding, MissingVectors
from host_service.limits import Limits
from stores.errors import InvalidRecord, MissingReference, StagingLost
from stores.knowledge import Knowledge
from stores.knowledge_records import Document, DocumentHeader, DocumentStatus, NewChunk

_log = logging.getLogger("runmesh.knowledge")

# Part of what a version is known by: what another reader would read differently is read again.
_READER = "1"
# Passages of a knowledge base without vectors that are stored at a time.
_STORED_AT_ONCE = 500
_FAILURE_BYTES = 2000


class Step(Enum):
    """What has been done with a document."""

    UNCHANGED = auto()
    CUT = auto()
    STORED = auto()
    READY = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a document has come.

    Attributes:
        step: What has been done.
        done: Passages that are stored.
        total: All its passages.
        document: With the last step, the document.
        vectors_missing: With the last step, why passages have no vectors yet; empty: none lacks one
            that it should have.
    """

    step: Step
    done: int = 0
    total: int = 0
    document: Document | None = None
    vectors_missing: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingDocument:
    """A document that comes in.

    Attributes:
        document_id: Its id within the knowledge base.
        name: A name to show, whose end may say what kind it is.
        source: Where it came from.
        mime_type: Its type; empty: not known.
        metadata_json: A JSON object.
        content: Its bytes.
    """

    document_id: str
    name: str
    source: str
    mime_type: str
    metadata_json: str
    content: bytes


class Ingest:
    """Takes documents in.

    Args:
        store: Where they are kept.
        reader: Reads and cuts them.
        embedding: Has vectors made.
        missing: Makes those later that cannot be had now.
        limits: How many passages are embedded at a time, and documents taken in at once.
    """

    def __init__(
        self,
        *,
        store: Knowledge,
        reader: DocumentReader,
        embedding: Embedding,
        missing: MissingVectors,
        limits: Limits,
    ) -> None:
        self._store = store
        self._reader = reader
        self._embedding = embedding
        self._missing = missing
        self._limits = limits
        #: To be held from before a document's bytes are taken: they lie in memory until it is in.
        self.turns = asyncio.Semaphore(limits.documents_at_once)

    async def add(
        self, base: KnowledgeBase, incoming: IncomingDocument
    ) -> AsyncGenerator[Progress, None]:
        """Take one document in; yield how far it has come.

        Raises:
            DocumentRefused: It cannot be read.
            InvalidArgument: What is said of it cannot be stored.
            NotFound: The knowledge base was removed meanwhile.
            Conflict: Another call takes in the same document.
        """
        header = _header(base, incoming)
        there = await self._store.get_document(base.id, incoming.document_id)
        if there is not None and _is_same(there, header):
            self._missing.look()
            yield Progress(step=Step.UNCHANGED, document=there)
            return
        cut = await self._read(base, incoming, header)
        total = len(cut.passages)
        yield Progress(step=Step.CUT, total=total)
        try:
            async for progress in self._store_all(base, header, cut):
                yield progress
        except (StagingLost, MissingReference, InvalidRecord) as error:
            raise _told(error, base) from error

    async def _read(
        self, base: KnowledgeBase, incoming: IncomingDocument, header: DocumentHeader
    ) -> CutDocument:
        try:
            return await self._reader.read(
                incoming.content,
                name=incoming.name,
                mime_type=incoming.mime_type,
                chunk_characters=base.chunk_characters,
                overlap_characters=base.overlap_characters,
            )
        except DocumentUnreadable as error:
            try:
                await self._note_failure(header, error.message)
            except (StagingLost, MissingReference, InvalidRecord) as worse:
                raise _told(worse, base) from worse
            raise DocumentRefused(incoming.name, error) from error

    async def _note_failure(self, header: DocumentHeader, reason: str) -> None:
        staged = await self._store.stage(header)
        told = reason.encode()[:_FAILURE_BYTES].decode(errors="ignore")
        await self._store.fail(staged, told)

    async def _store_all(
        self, base: KnowledgeBase, header: DocumentHeader, cut: CutDocument
    ) -> AsyncGenerator[Progress, None]:
        staged = await self._store.stage(header)
        total, trouble = len(cut.passages), ""
        model = base.embedding_model
        while staged.chunk_count < total:
            # Where there are no vectors to wait for, larger steps are faster.
            size = self._limits.embedded_passages if model and not trouble else _STORED_AT_ONCE
            chunks = _chunks(cut, staged.chunk_count, size)
            if model and not trouble:
                chunks, trouble = await self._with_vectors(base, chunks)
            staged = await self._store.add_chunks(staged, chunks)
            yield Progress(step=Step.STORED, done=staged.chunk_count, total=total)
        document = await self._store.finish(staged)
        if model:
            # Those of an earlier attempt may lack some, too.
            self._missing.look()
        yield Progress(
            step=Step.READY, done=total, total=total, document=document, vectors_missing=trouble
        )

    async def _with_vectors(
        self, base: KnowledgeBase, chunks: Sequence[NewChunk]
    ) -> tuple[Sequence[NewChunk], str]:
        """Return chunks with their vectors, or as they are and why they have none."""
        model = base.embedding_model
        try:
            vectors = await self._embedding.of_passages(
                model, [(chunk.heading, chunk.text) for chunk in chunks]
            )
        except HostError as error:
            _log.warning("knowledge base %s: no vectors for now: %s", base.id, error)
            return chunks, error.message
        return [
            NewChunk(
                position=chunk.position,
                length=chunk.length,
                text=chunk.text,
                heading=chunk.heading,
                vector=vector,
                vector_model=model,
            )
            for chunk, vector in zip(chunks, vectors, strict=True)
        ], ""


def _header(base: KnowledgeBase, incoming: IncomingDocument) -> DocumentHeader:
    cutting = f"{_READER}/{base.chunk_characters}/{base.overlap_characters}"
    return DocumentHeader(
        knowledge_base_id=base.id,
        document_id=incoming.document_id,
        name=incoming.name,
        source=incoming.source,
        mime_type=type_of(incoming.content, name=incoming.name, mime_type=incoming.mime_type),
        size_bytes=len(incoming.content),
        sha256=hashlib.sha256(incoming.content).digest(),
        settings=hashlib.sha256(cutting.encode()).digest(),
        metadata_json=incoming.metadata_json or "{}",
    )


def _is_same(there: Document, header: DocumentHeader) -> bool:
    return (
        there.is_searchable
        and there.status is DocumentStatus.READY
        and (there.sha256, there.settings) == (header.sha256, header.settings)
        and (there.name, there.source, there.mime_type, there.metadata_json)
        == (header.name, header.source, header.mime_type, header.metadata_json)
    )


def _chunks(cut: CutDocument, first: int, count: int) -> Sequence[NewChunk]:
    return [
        NewChunk(
            position=passage.position,
            length=passage.length,
            text=cut.text[passage.position : passage.position + passage.length],
            heading=kept_headings(passage.part),
        )
        for passage in cut.passages[first : first + count]
    ]


def _told(error: StagingLost | MissingReference | InvalidRecord, base: KnowledgeBase) -> HostError:
    if isinstance(error, MissingReference):
        return NotFound("knowledge base", base.id)
    if isinstance(error, InvalidRecord):
        return InvalidArgument([FieldFault(f"info.{error.field}", error.rule, "another value")])
    return Conflict("the same document is taken in by another call, or was removed meanwhile")
