"""What writes documents: pieces of work for the journal, each whole by itself.

A document's row points to the version that is searched and to the one that is staged. What neither
points to is dropped, and deleted later by `stores.sql.knowledge_collecting`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql import ClauseElement

from stores.errors import MissingReference, StagingLost
from stores.knowledge_records import Document, DocumentStatus, StagedDocument
from stores.records import CatalogueKind
from stores.sql.connection import Connection, Row
from stores.sql.knowledge_blocks import Places, note_vectors, show_and_drop, take_places
from stores.sql.knowledge_postings import Postings, add_postings
from stores.sql.knowledge_rows import SELECT_DOCUMENTS, document
from stores.sql.orphans import delete_artifacts
from stores.sql.tables import (
    artifacts,
    catalogue_items,
    is_kept_base,
    knowledge_bases,
    knowledge_chunks,
    knowledge_documents,
    knowledge_metadata,
    knowledge_ranges,
    knowledge_vectors,
    knowledge_versions,
)

_documents = knowledge_documents.c
_versions = knowledge_versions.c
_HEADER = (
    "name",
    "source",
    "mime_type",
    "size_bytes",
    "sha256",
    "settings",
    "metadata",
    "artifact_id",
)


def _insert(table: sa.Table, *, without: tuple[str, ...] = ()) -> sa.Insert:
    names = [column.name for column in table.c if column.name not in without]
    return sa.insert(table).inline().values({name: sa.bindparam(name) for name in names})


_FIND_IN_CATALOGUE = sa.select(catalogue_items.c.id).where(
    catalogue_items.c.kind == sa.literal_column(f"'{CatalogueKind.KNOWLEDGE_BASE.value}'"),
    catalogue_items.c.id == sa.bindparam("of_id"),
)
_FIND_ARTIFACT = sa.select(artifacts.c.artifact_id).where(
    artifacts.c.artifact_id == sa.bindparam("of_artifact"),
    sa.or_(artifacts.c.expires_at.is_(None), artifacts.c.expires_at > sa.bindparam("now")),
)
_KEEP_ARTIFACT = (
    sa.update(artifacts)
    .where(artifacts.c.artifact_id == sa.bindparam("of_artifact"))
    .values(expires_at=sa.null())
)
_FIND_OWNER = (
    sa.select(_versions.number).where(_versions.artifact_id == sa.bindparam("of_artifact")).limit(1)
)
FIND_BASE = sa.select(knowledge_bases.c.number).where(
    is_kept_base, knowledge_bases.c.knowledge_base_id == sa.bindparam("of_base")
)
_INSERT_BASE = _insert(knowledge_bases, without=("number",)).returning(knowledge_bases.c.number)
_REMOVE_BASE = (
    sa.update(knowledge_bases)
    .where(is_kept_base, knowledge_bases.c.knowledge_base_id == sa.bindparam("of_base"))
    .values(removed_at=sa.bindparam("now"))
)
_is_document = sa.and_(
    _documents.base == sa.bindparam("of_number"),
    _documents.document_id == sa.bindparam("of_document"),
)
_FIND_DOCUMENT = sa.select(
    _documents.number, _documents.current_version, _documents.staged_version
).where(_is_document)
_INSERT_DOCUMENT = _insert(knowledge_documents, without=("number",)).returning(_documents.number)
_POINT = (
    sa.update(knowledge_documents)
    .where(_documents.number == sa.bindparam("of_number"))
    .values(
        {
            name: sa.bindparam(f"to_{name}")
            for name in ("status", "reason", "current_version", "staged_version", "updated_at")
        }
    )
)
_DELETE_DOCUMENT = sa.delete(knowledge_documents).where(
    _documents.number == sa.bindparam("of_number")
)
_FIND_VERSION = sa.select(_versions.sha256, _versions.settings, _versions.chunk_count).where(
    _versions.number == sa.bindparam("of_version")
)
_INSERT_VERSION = _insert(knowledge_versions, without=("number",)).returning(_versions.number)
_is_version = _versions.number == sa.bindparam("of_version")
_CHANGE_HEADER = (
    sa.update(knowledge_versions)
    .where(_is_version)
    .values({name: sa.bindparam(f"to_{name}") for name in (*_HEADER, "touched_at")})
)
_FIND_ARTIFACT_OF = sa.select(_versions.artifact_id).where(_is_version)
_GROW = (
    sa.update(knowledge_versions)
    .where(_is_version)
    .values(chunk_count=sa.bindparam("to_count"), touched_at=sa.bindparam("now"))
)
_DROP = sa.update(knowledge_versions).where(_is_version).values(dropped=sa.true())
# A copy, without chunks.
_copied = [column for column in _versions if column.name != "number"]
_changed: dict[str, sa.ColumnElement[int]] = {
    "chunk_count": sa.literal_column("0", sa.Integer),
    "touched_at": sa.bindparam("now"),
}
_INSERT_EMPTY = (
    sa.insert(knowledge_versions)
    .inline()
    .from_select(
        [column.name for column in _copied],
        sa.select(*(_changed.get(column.name, column) for column in _copied)).where(_is_version),
    )
    .returning(_versions.number)
)
_FIND_STAGED = (
    sa.select(
        _versions.chunk_count,
        _versions.base,
        _documents.number,
        _documents.current_version,
    )
    .select_from(knowledge_versions)
    .join(knowledge_documents, _documents.staged_version == _versions.number)
    .join(knowledge_bases, knowledge_bases.c.number == _versions.base)
    .where(_is_version, is_kept_base)
)
_RANGES = (
    sa.select(knowledge_ranges.c.first, knowledge_ranges.c.count)
    .where(knowledge_ranges.c.version == sa.bindparam("of_version"))
    .order_by(knowledge_ranges.c.first)
)
_INSERT_RANGE = _insert(knowledge_ranges)
_INSERT_CHUNK = _insert(knowledge_chunks)
_INSERT_METADATA = _insert(knowledge_metadata)
_DELETE_METADATA = sa.delete(knowledge_metadata).where(
    knowledge_metadata.c.version == sa.bindparam("of_version")
)
_DELETE_VECTOR = sa.delete(knowledge_vectors).where(
    knowledge_vectors.c.number == sa.bindparam("of_chunk")
)
_INSERT_VECTOR = _insert(knowledge_vectors)
_SELECT_DOCUMENT = SELECT_DOCUMENTS.where(_documents.document_id == sa.bindparam("of_document"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Coming:
    """What is said of a document that comes, encoded."""

    knowledge_base_id: str
    document_id: str
    row: dict[str, Any]
    digests: Sequence[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComingChunks:
    """Chunks that come, encoded.

    Attributes:
        rows: Their own columns.
        vectors: Those that have one: which of the chunks, its model, and the vector.
        postings: What they are found by.
    """

    rows: Sequence[dict[str, Any]]
    vectors: Sequence[tuple[int, str, bytes]]
    postings: Postings


def stage(connection: Connection, coming: Coming, now: int) -> StagedDocument:
    """Begin to take in a document, or go on; see the protocol."""
    _check_references(connection, coming, now)
    if coming.row["artifact_id"] is not None:
        connection.run(_KEEP_ARTIFACT, {"of_artifact": coming.row["artifact_id"]})
    base = _base(connection, coming.knowledge_base_id)
    number, current, staged = _document(connection, base, coming.document_id, now)
    version, count = _goes_on(connection, coming, staged, now)
    if version is None:
        if staged is not None:
            _drop(connection, staged)
        version = _returned(
            connection,
            _INSERT_VERSION,
            {
                **coming.row, "base": base, "document": number, "chunk_count": 0,
                "touched_at": now, "dropped": False,
            },
        )  # fmt: skip
    connection.run_many(
        _INSERT_METADATA,
        [{"base": base, "digest": digest, "version": version} for digest in coming.digests],
    )
    _point(connection, number, DocumentStatus.INGESTING, now, current=current, staged=version)
    return StagedDocument(
        knowledge_base_id=coming.knowledge_base_id,
        document_id=coming.document_id,
        version=version,
        chunk_count=count,
    )


def _check_references(connection: Connection, coming: Coming, now: int) -> None:
    base = coming.knowledge_base_id
    if connection.first(_FIND_IN_CATALOGUE, {"of_id": base}) is None:
        raise MissingReference("document", coming.document_id, "knowledge base", base)
    artifact = coming.row["artifact_id"]
    if artifact is None:
        return
    if connection.first(_FIND_ARTIFACT, {"of_artifact": artifact, "now": now}) is None:
        raise MissingReference("document", coming.document_id, "artifact", artifact)


def _base(connection: Connection, knowledge_base_id: str) -> int:
    found = connection.first(FIND_BASE, {"of_base": knowledge_base_id})
    if found is not None:
        return int(found[0])
    row = {"knowledge_base_id": knowledge_base_id, "removed_at": None}
    return _returned(connection, _INSERT_BASE, row)


def _document(connection: Connection, base: int, document_id: str, now: int) -> Row:
    found = connection.first(_FIND_DOCUMENT, {"of_number": base, "of_document": document_id})
    if found is not None:
        return found
    row = {
        "base": base, "document_id": document_id, "status": DocumentStatus.INGESTING.value,
        "reason": None, "current_version": None, "staged_version": None, "created_at": now,
        "updated_at": now,
    }  # fmt: skip
    return _returned(connection, _INSERT_DOCUMENT, row), None, None


def _goes_on(
    connection: Connection, coming: Coming, staged: int | None, now: int
) -> tuple[int | None, int]:
    """Return the staged version and how many chunks it has, if it is of the same bytes."""
    if staged is None:
        return None, 0
    of_version = {"of_version": staged}
    found = connection.first(_FIND_VERSION, of_version)
    wanted = (coming.row["sha256"], coming.row["settings"])
    if found is None or (bytes(found[0]), bytes(found[1])) != wanted:
        return None, 0
    header = {f"to_{name}": coming.row[name] for name in _HEADER}
    before = connection.first(_FIND_ARTIFACT_OF, of_version)
    connection.run(_CHANGE_HEADER, {**of_version, **header, "to_touched_at": now})
    connection.run(_DELETE_METADATA, of_version)
    if before is not None:
        release_artifact(connection, before[0], now)
    return staged, int(found[2])


def add_chunks(
    connection: Connection, staged: StagedDocument, coming: ComingChunks, now: int
) -> StagedDocument:
    """Store the next chunks of a staged document; see the protocol."""
    count, base, *_ = _staged(connection, staged)
    taken = take_places(connection, base, coming.postings.lengths)
    numbers = [places.number + at for places in taken for at in range(places.size)]
    connection.run_many(
        _INSERT_CHUNK,
        [
            {**row, "number": number, "version": staged.version, "ordinal": count + at}
            for at, (number, row) in enumerate(zip(numbers, coming.rows, strict=True))
        ],
    )
    connection.run_many(
        _INSERT_RANGE,
        [
            {"version": staged.version, "first": places.number, "count": places.size}
            for places in taken
        ],
    )
    add_postings(connection, coming.postings, taken)
    connection.run_many(
        _INSERT_VECTOR,
        [
            {"number": numbers[at], "model": model, "vector": vector}
            for at, model, vector in coming.vectors
        ],
    )
    if coming.vectors:
        note_vectors(connection, (places.block for places in taken))
    total = count + len(numbers)
    connection.run(_GROW, {"of_version": staged.version, "to_count": total, "now": now})
    return StagedDocument(
        knowledge_base_id=staged.knowledge_base_id,
        document_id=staged.document_id,
        version=staged.version,
        chunk_count=total,
    )


def finish(connection: Connection, staged: StagedDocument, now: int) -> Document:
    """Let a staged document take the place of what was before it; see the protocol."""
    _, _, number, current = _staged(connection, staged)
    before = [] if current is None else _places(connection, current)
    show_and_drop(connection, shown=_places(connection, staged.version), dropped=before)
    if current is not None:
        connection.run(_DROP, {"of_version": current})
    _point(connection, number, DocumentStatus.READY, now, current=staged.version, staged=None)
    return _stored(connection, staged)


def fail(connection: Connection, staged: StagedDocument, reason: str, now: int) -> Document:
    """Note that a document cannot be taken in; see the protocol."""
    found = connection.first(_FIND_STAGED, {"of_version": staged.version})
    if found is None:
        raise StagingLost(staged.document_id)
    _point(
        connection,
        found[2],
        DocumentStatus.FAILED,
        now,
        current=found[3],
        staged=staged.version,
        reason=reason,
    )
    return _stored(connection, staged)


def set_vectors(
    connection: Connection, numbers: Sequence[int], model: str, vectors: Sequence[bytes]
) -> None:
    """Store vectors of chunks that are there, each in place of the one that is."""
    connection.run_many(_DELETE_VECTOR, [{"of_chunk": number} for number in numbers])
    connection.run_many(
        _INSERT_VECTOR,
        [
            {"number": number, "model": model, "vector": vector}
            for number, vector in zip(numbers, vectors, strict=True)
        ],
    )
    note_vectors(connection, (Places.of(number, 1).block for number in numbers))


def remove_document(connection: Connection, knowledge_base_id: str, document_id: str) -> bool:
    """Remove a document; False if there is none."""
    base = connection.first(FIND_BASE, {"of_base": knowledge_base_id})
    if base is None:
        return False
    of_document = {"of_number": base[0], "of_document": document_id}
    found = connection.first(_FIND_DOCUMENT, of_document)
    if found is None:
        return False
    for version in found[1:]:
        if version is not None:
            _drop(connection, version)
    connection.run(_DELETE_DOCUMENT, {"of_number": found[0]})
    return True


def remove_base(connection: Connection, knowledge_base_id: str, now: int) -> bool:
    """Remove all documents of a knowledge base; False if it has none."""
    return connection.run(_REMOVE_BASE, {"of_base": knowledge_base_id, "now": now}) == 1


def leave(connection: Connection, version: int, reason: str, now: int) -> None:
    """Drop what was staged and left, but for what was said of it."""
    found = connection.first(_FIND_STAGED, {"of_version": version})
    if found is None:
        return
    number = version
    if found[0]:
        number = _returned(connection, _INSERT_EMPTY, {"of_version": version, "now": now})
        _drop(connection, version)
    _point(
        connection,
        found[2],
        DocumentStatus.FAILED,
        now,
        current=found[3],
        staged=number,
        reason=reason,
    )


def release_artifact(connection: Connection, artifact_id: str | None, now: int) -> None:
    """Delete an artifact that belonged to a version, unless it belongs to another."""
    if artifact_id is None:
        return
    if connection.first(_FIND_OWNER, {"of_artifact": artifact_id}) is None:
        delete_artifacts([artifact_id], now, connection)


def _drop(connection: Connection, version: int) -> None:
    show_and_drop(connection, dropped=_places(connection, version))
    connection.run(_DROP, {"of_version": version})


def _places(connection: Connection, version: int) -> list[Places]:
    rows = connection.all(_RANGES, {"of_version": version})
    return [Places.of(first, count) for first, count in rows]


def _staged(connection: Connection, staged: StagedDocument) -> Row:
    found = connection.first(_FIND_STAGED, {"of_version": staged.version})
    if found is None or found[0] != staged.chunk_count:
        raise StagingLost(staged.document_id)
    return found


def _point(
    connection: Connection,
    number: int,
    status: DocumentStatus,
    now: int,
    *,
    current: int | None,
    staged: int | None,
    reason: str | None = None,
) -> None:
    values = {
        "to_status": status.value, "to_reason": reason, "to_current_version": current,
        "to_staged_version": staged, "to_updated_at": now,
    }  # fmt: skip
    connection.run(_POINT, {"of_number": number, **values})


def _stored(connection: Connection, staged: StagedDocument) -> Document:
    values = {"of_base": staged.knowledge_base_id, "of_document": staged.document_id}
    row = connection.first(_SELECT_DOCUMENT, values)
    assert row is not None  # noqa: S101 - it was just written
    return document(row)


def _returned(connection: Connection, statement: ClauseElement, row: dict[str, Any]) -> int:
    found = connection.first(statement, row)
    assert found is not None  # noqa: S101 - an insertion returns its row
    return int(found[0])
