"""Documents and chunks on their way into rows and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any

import sqlalchemy as sa

from stores.errors import InvalidRecord, ValueTooLarge
from stores.knowledge_filters import metadata_digests
from stores.knowledge_records import (
    Document,
    DocumentHeader,
    DocumentStatus,
    NewChunk,
    StoredChunk,
    unpack_vector,
)
from stores.search_text import TEXT_CHARACTERS
from stores.sql.connection import Row
from stores.sql.tables import (
    knowledge_bases,
    knowledge_chunks,
    knowledge_documents,
    knowledge_versions,
)
from stores.sql.values import check_ids, check_integers, check_keys, check_text, time

MOST_DIMENSIONS = 16_384
_DIGEST_BYTES = 64
_HEADING_BYTES = 16 * 1024

# What `document` takes, in its order.
DOCUMENT_COLUMNS = (
    knowledge_bases.c.knowledge_base_id,
    knowledge_documents.c.document_id,
    knowledge_documents.c.status,
    knowledge_documents.c.reason,
    knowledge_documents.c.current_version,
    knowledge_documents.c.created_at,
    knowledge_documents.c.updated_at,
    knowledge_versions.c.name,
    knowledge_versions.c.source,
    knowledge_versions.c.mime_type,
    knowledge_versions.c.size_bytes,
    knowledge_versions.c.sha256,
    knowledge_versions.c.settings,
    knowledge_versions.c.metadata,
    knowledge_versions.c.artifact_id,
    knowledge_versions.c.chunk_count,
)
SELECT_DOCUMENTS = (
    sa.select(*DOCUMENT_COLUMNS)
    .select_from(knowledge_documents)
    .join(knowledge_bases, knowledge_bases.c.number == knowledge_documents.c.base)
    .join(
        knowledge_versions,
        knowledge_versions.c.number
        == sa.func.coalesce(
            knowledge_documents.c.current_version, knowledge_documents.c.staged_version
        ),
    )
    .where(
        knowledge_bases.c.removed_at.is_(None),
        knowledge_bases.c.knowledge_base_id == sa.bindparam("of_base"),
    )
)

# What `chunk` takes, in its order, behind the id of the document.
CHUNK_COLUMNS = (
    knowledge_chunks.c.number,
    knowledge_chunks.c.ordinal,
    knowledge_chunks.c.position,
    knowledge_chunks.c.length,
    knowledge_chunks.c.text,
    knowledge_chunks.c.heading,
)


def version_row(header: DocumentHeader) -> dict[str, Any]:
    """Return what a version keeps of what is said of a document, checked.

    Raises:
        InvalidRecord: A field breaks its rule.
    """
    check_ids(
        "document",
        knowledge_base_id=header.knowledge_base_id,
        document_id=header.document_id,
        mime_type=header.mime_type,
        artifact_id=header.artifact_id,
    )
    for field in ("knowledge_base_id", "document_id"):
        if not getattr(header, field):
            raise InvalidRecord("document", field, "must not be empty")
    check_keys("document", name=header.name, source=header.source)
    check_integers("document", size_bytes=header.size_bytes)
    if header.size_bytes < 0:
        raise InvalidRecord("document", "size_bytes", "must not be negative")
    if not header.sha256:
        raise InvalidRecord("document", "sha256", "must not be empty")
    for field in ("sha256", "settings"):
        size = len(getattr(header, field))
        if size > _DIGEST_BYTES:
            raise ValueTooLarge("document", field, size, _DIGEST_BYTES)
    return {
        "name": header.name,
        "source": header.source,
        "mime_type": header.mime_type,
        "size_bytes": header.size_bytes,
        "sha256": header.sha256,
        "settings": header.settings,
        "metadata": header.metadata_json,
        "artifact_id": header.artifact_id,
    }


def digests(header: DocumentHeader) -> list[bytes]:
    """Return what filters find a document by, in order."""
    return sorted(metadata_digests(header.metadata_json))


def document(row: Row) -> Document:
    """Return the document of a row of `DOCUMENT_COLUMNS`."""
    return Document(
        knowledge_base_id=row[0],
        document_id=row[1],
        status=DocumentStatus(row[2]),
        reason=row[3],
        is_searchable=row[4] is not None,
        created_at=time(row[5]),
        updated_at=time(row[6]),
        name=row[7],
        source=row[8],
        mime_type=row[9],
        size_bytes=row[10],
        sha256=bytes(row[11]),
        settings=bytes(row[12]),
        metadata_json=row[13],
        artifact_id=row[14],
        chunk_count=row[15],
    )


def chunk_row(chunk: NewChunk) -> dict[str, Any]:
    """Return a chunk's own columns, checked.

    Raises:
        InvalidRecord: A field breaks its rule.
    """
    check_text("chunk", "text", chunk.text)
    if not 1 <= len(chunk.text) <= TEXT_CHARACTERS:
        rule = f"must have 1 to {TEXT_CHARACTERS} characters, has {len(chunk.text)}"
        raise InvalidRecord("chunk", "text", rule)
    for heading in chunk.heading:
        check_text("chunk", "heading", heading)
    written = json.dumps(chunk.heading, ensure_ascii=False)
    if len(written.encode()) > _HEADING_BYTES:
        raise ValueTooLarge("chunk", "heading", len(written.encode()), _HEADING_BYTES)
    check_integers("chunk", position=chunk.position, length=chunk.length)
    if chunk.position < 0 or chunk.length < 0:
        raise InvalidRecord("chunk", "position", "and length must not be negative")
    if (chunk.vector is None) != (chunk.vector_model is None):
        raise InvalidRecord("chunk", "vector", "and vector_model must be given together")
    if chunk.vector is not None:
        check_ids("chunk", vector_model=chunk.vector_model)
        check_vector("chunk", chunk.vector)
    return {
        "position": chunk.position,
        "length": chunk.length,
        "text": chunk.text,
        "heading": written,
    }


def chunk(document_id: str, row: Row) -> StoredChunk:
    """Return the chunk of a row of `CHUNK_COLUMNS`."""
    return StoredChunk(
        number=row[0],
        document_id=document_id,
        ordinal=row[1],
        position=row[2],
        length=row[3],
        text=row[4],
        heading=tuple(json.loads(row[5])),
    )


def check_vector(record: str, vector: bytes) -> None:
    """Check that a vector can be compared with others.

    Raises:
        InvalidRecord: It has no numbers or too many, or one that is not finite, or only zeros.
    """
    if not vector or len(vector) % 4 or len(vector) > MOST_DIMENSIONS * 4:
        rule = f"must be 1 to {MOST_DIMENSIONS} numbers of 4 bytes"
        raise InvalidRecord(record, "vector", rule)
    values = unpack_vector(vector)
    if not all(map(isfinite, values)):
        raise InvalidRecord(record, "vector", "must have finite numbers only")
    if not any(values):
        raise InvalidRecord(record, "vector", "must not be all zeros")


def among(numbers: Mapping[int, Any] | list[int]) -> str:
    """Return numbers as `Dialect.among` takes them."""
    return "{" + ",".join(map(str, numbers)) + "}"
