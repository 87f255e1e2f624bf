"""Knowledge on SQL.

What flows where::

    chunks --> terms (a thread) --> journal: places, rows, postings --> finish: made visible
    query --> terms --> searchers: blocks, postings, scores, passages, at one moment --> hits

What searches works with numpy, which is imported by the first search or the first chunks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa

from stores.errors import InvalidRecord
from stores.knowledge import STAGED_GRACE_SECONDS
from stores.knowledge_filters import parse_filters
from stores.knowledge_records import (
    ChunkVector,
    CollectedKnowledge,
    Document,
    DocumentHeader,
    KnowledgeCounts,
    KnowledgeHit,
    NewChunk,
    StagedDocument,
    StoredChunk,
)
from stores.limits import StoreLimits
from stores.records import Page
from stores.search_text import ranking_terms
from stores.sql import knowledge_writing as writing
from stores.sql.connection import Connection
from stores.sql.dialect import Dialect
from stores.sql.journal import SqlJournal
from stores.sql.knowledge_collecting import KnowledgeCollector
from stores.sql.knowledge_postings import find_postings
from stores.sql.knowledge_rows import (
    CHUNK_COLUMNS,
    SELECT_DOCUMENTS,
    among,
    check_vector,
    chunk,
    chunk_row,
    digests,
    document,
    version_row,
)
from stores.sql.readers import Readers
from stores.sql.tables import (
    is_kept_base,
    knowledge_bases,
    knowledge_chunks,
    knowledge_documents,
    knowledge_vectors,
    knowledge_versions,
)
from stores.sql.values import check_ids, check_keys, check_limit, check_text, microseconds
from stores.sql.vector_indexing import VectorIndexer

if TYPE_CHECKING:
    from stores.sql.knowledge_search import KnowledgeSearch

T = TypeVar("T")

# A step is a transaction: so many chunks, and about so many characters, hold up others for some
# ten milliseconds.
_STEP_CHUNKS = 128
_STEP_CHARACTERS = 128 * 1024
_MOST_HITS = 1_000

_documents = knowledge_documents.c
_DOCUMENT = SELECT_DOCUMENTS.where(_documents.document_id == sa.bindparam("of_document"))
_DOCUMENTS = (
    SELECT_DOCUMENTS.where(_documents.document_id > sa.bindparam("after"))
    .order_by(_documents.document_id)
    .limit(sa.bindparam("most"))
)
_of_base = sa.and_(is_kept_base, knowledge_bases.c.knowledge_base_id == sa.bindparam("of_base"))
_CHUNKS = (
    sa.select(*CHUNK_COLUMNS)
    .select_from(knowledge_documents)
    .join(knowledge_bases, knowledge_bases.c.number == _documents.base)
    .join(knowledge_chunks, knowledge_chunks.c.version == _documents.current_version)
    .where(
        _of_base,
        _documents.document_id == sa.bindparam("of_document"),
        knowledge_chunks.c.ordinal >= sa.bindparam("first"),
    )
    .order_by(knowledge_chunks.c.ordinal)
    .limit(sa.bindparam("most"))
)
_has_vector = (
    sa.exists()
    .where(
        knowledge_vectors.c.number == knowledge_chunks.c.number,
        knowledge_vectors.c.model == sa.bindparam("of_model"),
    )
    .correlate(knowledge_chunks)
)
_WITHOUT_VECTORS = (
    sa.select(_documents.document_id, *CHUNK_COLUMNS)
    .select_from(knowledge_chunks)
    .join(knowledge_versions, knowledge_versions.c.number == knowledge_chunks.c.version)
    .join(knowledge_documents, _documents.number == knowledge_versions.c.document)
    .join(knowledge_bases, knowledge_bases.c.number == knowledge_versions.c.base)
    .where(
        _of_base,
        sa.not_(knowledge_versions.c.dropped),
        knowledge_chunks.c.number > sa.bindparam("after"),
        sa.not_(_has_vector),
    )
    .order_by(knowledge_chunks.c.number)
    .limit(sa.bindparam("most"))
)
_COUNTS = (
    sa.select(
        sa.func.count(),
        sa.func.count(_documents.current_version),
        sa.func.coalesce(sa.func.sum(knowledge_versions.c.chunk_count), 0),
        sa.func.coalesce(sa.func.sum(knowledge_versions.c.size_bytes), 0),
    )
    .select_from(knowledge_documents)
    .join(knowledge_bases, knowledge_bases.c.number == _documents.base)
    .outerjoin(knowledge_versions, knowledge_versions.c.number == _documents.current_version)
    .where(_of_base)
)
_COUNT_VECTORS = (
    sa.select(sa.func.count())
    .select_from(knowledge_documents)
    .join(knowledge_bases, knowledge_bases.c.number == _documents.base)
    .join(knowledge_chunks, knowledge_chunks.c.version == _documents.current_version)
    .where(_of_base, _has_vector)
)


class SqlKnowledge:
    """Implements `stores.knowledge.Knowledge`."""

    def __init__(
        self,
        *,
        journal: SqlJournal,
        readers: Readers,
        searchers: Readers,
        collector: KnowledgeCollector,
        dialect: Dialect,
        clock: Callable[[], datetime],
        limits: StoreLimits,
        indexer: VectorIndexer | None,
    ) -> None:
        """Take the ways to write, to read and to search, and what works in the background."""
        self._journal = journal
        self._readers = readers
        self._searchers = searchers
        self._collector = collector
        self._dialect = dialect
        self._clock = clock
        self._limits = limits
        self._indexer = indexer
        self._search: KnowledgeSearch | None = None
        living = (
            "SELECT c.number FROM knowledge_chunks c"
            " JOIN knowledge_versions v ON v.number = c.version"
            " JOIN knowledge_bases b ON b.number = v.base"
            " WHERE b.knowledge_base_id = :of_base AND b.removed_at IS NULL AND NOT v.dropped AND "
        )
        self._find_living = sa.text(living + dialect.among("c.number", "numbers"))

    async def put_document(self, header: DocumentHeader, chunks: Iterable[NewChunk]) -> Document:
        """Store a document with all its chunks; see the protocol."""
        staged = await self.stage(header)
        left = iter(chunks)
        # What was stored before is the same: the bytes and the settings are.
        await asyncio.to_thread(_skip, left, staged.chunk_count)
        while step := await asyncio.to_thread(list, islice(left, _STEP_CHUNKS)):
            staged = await self.add_chunks(staged, step)
        return await self.finish(staged)

    async def stage(self, header: DocumentHeader) -> StagedDocument:
        """Begin to take in a document, or go on; see the protocol."""
        coming = writing.Coming(
            knowledge_base_id=header.knowledge_base_id,
            document_id=header.document_id,
            row=version_row(header),
            digests=digests(header),
        )
        staged = await self._write(partial(writing.stage, coming=coming, now=self._now()))
        self._collector.wake()
        return staged

    async def add_chunks(
        self, staged: StagedDocument, chunks: Sequence[NewChunk]
    ) -> StagedDocument:
        """Store the next chunks of a staged document; see the protocol."""
        # All of them are checked before any is written.
        rows = await asyncio.to_thread(lambda: [chunk_row(each) for each in chunks])
        first = 0
        for step in _steps(chunks):
            coming = writing.ComingChunks(
                rows=rows[first : first + len(step)],
                vectors=[
                    (at, each.vector_model, each.vector)
                    for at, each in enumerate(step)
                    if each.vector is not None and each.vector_model is not None
                ],
                postings=await asyncio.to_thread(find_postings, step),
            )
            size = sum(len(each.text) + len(each.vector or b"") for each in step)
            work = partial(writing.add_chunks, staged=staged, coming=coming, now=self._now())
            staged = await self._write(work, size=size)
            first += len(step)
        return staged

    async def finish(self, staged: StagedDocument) -> Document:
        """Let a staged document take the place of what was before it; see the protocol."""
        found = await self._write(partial(writing.finish, staged=staged, now=self._now()))
        self._collector.wake()
        self._vectors_changed()
        return found

    async def fail(self, staged: StagedDocument, reason: str) -> Document:
        """Note that a document cannot be taken in; see the protocol."""
        check_keys("document", reason=reason)
        work = partial(writing.fail, staged=staged, reason=reason, now=self._now())
        return await self._write(work)

    async def set_vectors(
        self, knowledge_base_id: str, model: str, vectors: Sequence[ChunkVector]
    ) -> int:
        """Store vectors of chunks; see the protocol."""
        check_ids("vectors", model=model)
        await asyncio.to_thread(_check_vectors, vectors)
        done = 0
        for first in range(0, len(vectors), _STEP_CHUNKS):
            step = {each.number: each.vector for each in vectors[first : first + _STEP_CHUNKS]}
            work = partial(
                self._set_vectors, knowledge_base_id=knowledge_base_id, model=model, step=step
            )
            done += await self._write(work, size=sum(map(len, step.values())))
        self._vectors_changed()
        return done

    def _set_vectors(
        self,
        connection: Connection,
        *,
        knowledge_base_id: str,
        model: str,
        step: dict[int, bytes],
    ) -> int:
        values = {"of_base": knowledge_base_id, "numbers": among(step)}
        living = sorted(row[0] for row in connection.all(self._find_living, values))
        writing.set_vectors(connection, living, model, [step[number] for number in living])
        return len(living)

    async def without_vectors(
        self, knowledge_base_id: str, model: str, *, after: int = 0, limit: int = 100
    ) -> Page[StoredChunk, int]:
        """Return chunks without a vector of a model; see the protocol."""
        check_limit(limit)
        values = {
            "of_base": knowledge_base_id, "of_model": model, "after": after, "most": limit + 1,
        }  # fmt: skip
        rows = await self._searchers.all(_WITHOUT_VECTORS, values)
        found = tuple(chunk(row[0], row[1:]) for row in rows[:limit])
        return Page(found, found[-1].number if len(rows) > limit else None)

    async def get_document(self, knowledge_base_id: str, document_id: str) -> Document | None:
        """Return a document, or `None`."""
        values = {"of_base": knowledge_base_id, "of_document": document_id}
        row = await self._readers.first(_DOCUMENT, values)
        return None if row is None else document(row)

    async def documents(
        self, knowledge_base_id: str, *, after: str | None = None, limit: int = 50
    ) -> Page[Document, str]:
        """Return documents by id; see the protocol."""
        check_limit(limit)
        values = {"of_base": knowledge_base_id, "after": after or "", "most": limit + 1}
        rows = await self._readers.all(_DOCUMENTS, values)
        found = tuple(document(row) for row in rows[:limit])
        return Page(found, found[-1].document_id if len(rows) > limit else None)

    async def chunks(
        self, knowledge_base_id: str, document_id: str, *, first: int = 0, limit: int = 50
    ) -> Sequence[StoredChunk]:
        """Return passages of a document; see the protocol."""
        check_limit(limit)
        values = {
            "of_base": knowledge_base_id, "of_document": document_id, "first": first, "most": limit,
        }  # fmt: skip
        rows = await self._readers.all(_CHUNKS, values)
        return [chunk(document_id, row) for row in rows]

    async def remove_document(self, knowledge_base_id: str, document_id: str) -> bool:
        """Remove a document; see the protocol."""
        check_ids("document", knowledge_base_id=knowledge_base_id, document_id=document_id)
        work = partial(
            writing.remove_document, knowledge_base_id=knowledge_base_id, document_id=document_id
        )
        removed = await self._write(work)
        self._collector.wake()
        return removed

    async def remove_base(self, knowledge_base_id: str) -> bool:
        """Remove all documents of a knowledge base; see the protocol."""
        check_ids("knowledge base", knowledge_base_id=knowledge_base_id)
        work = partial(writing.remove_base, knowledge_base_id=knowledge_base_id, now=self._now())
        removed = await self._write(work)
        self._collector.wake()
        self._vectors_changed()
        return removed

    async def counts(self, knowledge_base_id: str, model: str | None = None) -> KnowledgeCounts:
        """Return what a knowledge base has; see the protocol."""
        values = {"of_base": knowledge_base_id, "of_model": model}
        row = await self._searchers.first(_COUNTS, values)
        if row is None:
            return KnowledgeCounts()
        with_vectors = (
            None if model is None else await self._searchers.first(_COUNT_VECTORS, values)
        )
        return KnowledgeCounts(
            documents=int(row[0]),
            searchable_documents=int(row[1]),
            chunks=int(row[2]),
            size_bytes=int(row[3]),
            chunks_with_vectors=0 if with_vectors is None else int(with_vectors[0]),
        )

    async def search_text(
        self,
        knowledge_base_ids: Sequence[str],
        query: str,
        *,
        filters_json: str | None = None,
        limit: int = 10,
    ) -> Sequence[KnowledgeHit]:
        """Return the passages that answer a query best; see the protocol."""
        check_text("search", "query", query)
        bases = _bases(knowledge_base_ids, limit)
        filters = parse_filters(filters_json)
        search = await self._searching()
        terms = ranking_terms(query, most=search.most_terms)
        if not terms or not bases:
            return []
        return await self._searchers.at_one_moment(
            partial(search.by_text, bases=bases, terms=terms, filters=filters, limit=limit)
        )

    async def search_vectors(
        self,
        knowledge_base_ids: Sequence[str],
        model: str,
        vector: bytes,
        *,
        filters_json: str | None = None,
        limit: int = 10,
    ) -> Sequence[KnowledgeHit]:
        """Return the passages whose vectors are nearest to one; see the protocol."""
        check_ids("search", model=model)
        check_vector("search", vector)
        bases = _bases(knowledge_base_ids, limit)
        filters = parse_filters(filters_json)
        search = await self._searching()
        return await self._searchers.at_one_moment(
            partial(
                search.by_vector,
                bases=bases,
                model=model,
                vector=vector,
                filters=filters,
                limit=limit,
            )
        )

    async def collect(
        self, *, staged_grace_seconds: float = STAGED_GRACE_SECONDS
    ) -> CollectedKnowledge:
        """Delete the rows of what was removed, replaced, or left; see the protocol."""
        before = self._clock() - timedelta(seconds=staged_grace_seconds)
        left_before = microseconds("clock", "now", before)
        return await self._collector.collect(left_before=left_before)

    async def _searching(self) -> KnowledgeSearch:
        if self._search is None:
            await asyncio.to_thread(_import_search)
        if self._search is None:
            from stores.sql.knowledge_search import KnowledgeSearch

            self._search = KnowledgeSearch(dialect=self._dialect, limits=self._limits)
        return self._search

    async def _write(self, work: Callable[[Connection], T], *, size: int = 0) -> T:
        await self._journal.room()
        return await self._journal.submit(work, size=size)

    def _vectors_changed(self) -> None:
        if self._indexer is not None:
            self._indexer.wake()

    def _now(self) -> int:
        return microseconds("knowledge", "now", self._clock())


def _import_search() -> None:
    # In a thread: the first time it takes a while.
    import stores.sql.knowledge_search  # noqa: F401


def _bases(knowledge_base_ids: Sequence[str], limit: int) -> tuple[str, ...]:
    if not 1 <= limit <= _MOST_HITS:
        raise InvalidRecord("search", "limit", f"must be 1 to {_MOST_HITS}, is {limit}")
    for each in knowledge_base_ids:
        check_ids("search", knowledge_base_id=each)
    return tuple(dict.fromkeys(knowledge_base_ids))


def _check_vectors(vectors: Sequence[ChunkVector]) -> None:
    for each in vectors:
        check_vector("vectors", each.vector)


def _steps(chunks: Sequence[NewChunk]) -> Iterator[Sequence[NewChunk]]:
    """Cut chunks into what is written in one transaction each."""
    first = characters = 0
    for at, each in enumerate(chunks):
        is_full = at - first == _STEP_CHUNKS or characters >= _STEP_CHARACTERS
        if is_full:
            yield chunks[first:at]
            first, characters = at, 0
        characters += len(each.text)
    if first < len(chunks):
        yield chunks[first:]


def _skip(items: Iterator[Any], count: int) -> None:
    next(islice(items, count, count), None)
