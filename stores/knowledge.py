"""Knowledge: documents, the passages that they are cut into, and searching these.

**Versions.** A document is found by its knowledge base and id. Taking it in again stages a version
beside the one that is searched; `finish` lets it take that one's place, in one transaction. Every
search sees one version of a document, whole, and never two. What was staged and not finished, since
the process ended, goes on where it was when the same bytes are staged again, and is collected when
nobody does.

**Removing** takes effect in one transaction, for every reader; the rows go in small batches after
that, in the background. When the catalogue deletes a knowledge base, its documents are removed in
the same transaction. Documents do not expire.

**Searching text** ranks by BM25 (k1 = 1.2, b = 0.75), over the terms of `stores.search_text`: case
and width are folded, and what is written without spaces is found by its pairs of characters. Any
term may match; rarer ones weigh more. A query is data: there is no syntax. Statistics (how many
passages, how long, how many have a term) are those of each knowledge base at that moment, exactly,
filters aside. Scores of several knowledge bases are each by their own statistics.

**Searching vectors** compares with every vector of the same model, exactly, by their cosine. Of a
knowledge base with more than `StoreLimits.unindexed_passages`, PostgreSQL with pgvector looks
through an index instead, which may pass over some of the nearest, one in twenty at most in tests;
what it finds has its exact score and passes the filters, and every change is seen at once.

Otherwise both give the same passages in the same order with the same scores on either database.
Scores have nine digits behind the point. Of equal scores, the passage that was stored first comes
first.

**Bounds.** The first 64 different terms of a query count. Where these stand together in more than
4 million places, the rarest are taken first and the rest is left out, so that a search looks at so
many at most. Vectors are kept in memory up to `StoreLimits.vector_cache_bytes`; what does not fit
is read for every search, on SQLite inside the database where sqlite-vec can be loaded.

**Filters** are a JSON object of name to value. A document passes that has, under each name, that
value, or one of them where the filter has a list; where the document has a list, any of its values
may be it. Texts, numbers, booleans and null are different. Numbers are compared by their exact
value, however they are written: 1, 1.0 and 1e0 are one number, 9007199254740993 and
9007199254740992 two, and neither 1, "1" nor true is another. A name that a document lacks is not
null. `{}` is no filter.

**Text** is any Unicode without U+0000 and lone surrogates, as everywhere in the stores: who reads
documents replaces these before (U+FFFD).

Methods may raise `StoreUnavailable` and `StoreClosed`, and those that write `StoreOverloaded`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

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
from stores.records import Page

STAGED_GRACE_SECONDS = 86_400.0


class Knowledge(Protocol):
    """Writes, reads and searches documents."""

    async def put_document(self, header: DocumentHeader, chunks: Iterable[NewChunk]) -> Document:
        """Store a document with all its chunks, in place of the one that is there.

        It is staged in steps of bounded size and then finished. The same bytes and settings may be
        there already: who does not want to store them again asks `get_document` before.

        Raises:
            InvalidRecord: A field or a chunk breaks its rule.
            MissingReference: The catalogue has no such knowledge base, or there is no such
                artifact.
            StagingLost: The document was staged anew, or removed, meanwhile.
        """

    async def stage(self, header: DocumentHeader) -> StagedDocument:
        """Begin to take in a document, or go on.

        A version that was staged before goes on if its bytes and settings are the same, whatever
        else is said of it now; any other is dropped. The document's status becomes `ingesting`.

        Raises:
            InvalidRecord: A field breaks its rule; nothing was written.
            MissingReference: The catalogue has no such knowledge base, or there is no such
                artifact.
        """

    async def add_chunks(
        self, staged: StagedDocument, chunks: Sequence[NewChunk]
    ) -> StagedDocument:
        """Store the next chunks of a staged document; they are durable when it returns.

        Chunks are numbered in the order in which they come. Give some hundred at a time.

        Returns:
            The staged document, to go on with.

        Raises:
            InvalidRecord: A chunk breaks its rule; nothing was written.
            StagingLost: It is not staged any more, or another one added to it.
        """

    async def finish(self, staged: StagedDocument) -> Document:
        """Let a staged document, which may have no chunks, take the place of what was before it.

        Raises:
            StagingLost: It is not staged any more, or another one added to it.
        """

    async def fail(self, staged: StagedDocument, reason: str) -> Document:
        """Note that a document cannot be taken in; what was staged stays for another attempt.

        Raises:
            InvalidRecord: The reason has over 2,048 bytes, or cannot be stored.
            StagingLost: It is not staged any more.
        """

    async def set_vectors(
        self, knowledge_base_id: str, model: str, vectors: Sequence[ChunkVector]
    ) -> int:
        """Store vectors of chunks, each in place of the one that is there, and return how many.

        Chunks that are not there, or not of this knowledge base, are passed over.

        Args:
            knowledge_base_id: The knowledge base.
            model: Id of the model that they are from. A chunk has vectors of one model.
            vectors: The vectors: 1 to 16,384 finite numbers each, not all of them 0.

        Raises:
            InvalidRecord: A vector breaks these rules; nothing was written.
        """

    async def without_vectors(
        self, knowledge_base_id: str, model: str, *, after: int = 0, limit: int = 100
    ) -> Page[StoredChunk, int]:
        """Return chunks without a vector of a model, staged ones included, by their number."""

    async def get_document(self, knowledge_base_id: str, document_id: str) -> Document | None:
        """Return a document, or `None`."""

    async def documents(
        self, knowledge_base_id: str, *, after: str | None = None, limit: int = 50
    ) -> Page[Document, str]:
        """Return documents by id, in the order of its bytes.

        Args:
            knowledge_base_id: The knowledge base; an unknown one has none.
            after: Only ids behind this one: the `next_cursor` of the page before.
            limit: How many at most, 1 to 10,000.
        """

    async def chunks(
        self, knowledge_base_id: str, document_id: str, *, first: int = 0, limit: int = 50
    ) -> Sequence[StoredChunk]:
        """Return passages of a document that is searched, from an ordinal on, in their order."""

    async def remove_document(self, knowledge_base_id: str, document_id: str) -> bool:
        """Remove a document, and whatever of it is staged; False if there is none."""

    async def remove_base(self, knowledge_base_id: str) -> bool:
        """Remove all documents of a knowledge base; False if it has none.

        The catalogue keeps the knowledge base itself.
        """

    async def counts(self, knowledge_base_id: str, model: str | None = None) -> KnowledgeCounts:
        """Return what a knowledge base has; vectors are those of one model, if one is given."""

    async def search_text(
        self,
        knowledge_base_ids: Sequence[str],
        query: str,
        *,
        filters_json: str | None = None,
        limit: int = 10,
    ) -> Sequence[KnowledgeHit]:
        """Return the passages that answer a query best, best first.

        Args:
            knowledge_base_ids: Where to look; an unknown one has nothing.
            query: Any text; only its first 1,024 characters count.
            filters_json: Which documents, by their metadata; `None` or `{}` for all.
            limit: How many at most, 1 to 1,000.

        Raises:
            InvalidRecord: The filters or the limit break their rule, or the query cannot be stored.
        """

    async def search_vectors(
        self,
        knowledge_base_ids: Sequence[str],
        model: str,
        vector: bytes,
        *,
        filters_json: str | None = None,
        limit: int = 10,
    ) -> Sequence[KnowledgeHit]:
        """Return the passages whose vectors are nearest to one, nearest first.

        Passages without a vector of the model, or with one of another length, are passed over.

        Args:
            knowledge_base_ids: Where to look.
            model: Id of the model that the vector is from.
            vector: The vector, as `pack_vector` gives it.
            filters_json: As for `search_text`.
            limit: How many at most, 1 to 1,000.

        Raises:
            InvalidRecord: As `search_text`, or the vector breaks the rules of `set_vectors`.
        """

    async def collect(
        self, *, staged_grace_seconds: float = STAGED_GRACE_SECONDS
    ) -> CollectedKnowledge:
        """Delete the rows of what was removed or replaced, and what was staged and left.

        All of it goes in the background as well; this waits for it. It goes in small batches, and
        may end at any point.

        Args:
            staged_grace_seconds: For how long nobody touched a staged document that is dropped.
        """
