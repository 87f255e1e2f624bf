"""Records of knowledge: documents, their passages (chunks), and what a search finds."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class DocumentStatus(StrEnum):
    """How the last attempt to take in a document stands.

    A document that was ready before stays searchable, as it was, under any of them.
    """

    INGESTING = "ingesting"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentHeader:
    """What is said of a document by who takes it in.

    Attributes:
        knowledge_base_id: The knowledge base, which the catalogue must have.
        document_id: Its id within the base, 1 to 255 bytes: the same for the same source, so that
            taking it in again replaces it.
        name: A name to show.
        source: Where it came from: a path or a URI.
        mime_type: Media type of its bytes, or empty.
        size_bytes: How many bytes it has.
        sha256: Digest of these bytes.
        settings: Digest of whatever else its chunks depend on, such as how it was cut.
        metadata_json: A JSON object, kept as the text it came as; each value is a text, a number,
            true, false, null, or a list of these.
        artifact_id: The artifact that keeps its bytes, which then stays while the document does.
    """

    knowledge_base_id: str
    document_id: str
    name: str
    source: str
    sha256: bytes
    settings: bytes = b""
    mime_type: str = ""
    size_bytes: int = 0
    metadata_json: str = "{}"
    artifact_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Document(DocumentHeader):
    """A document that is stored.

    What is said of it is of the version that is searched; of the one that is coming in where there
    is none before it.

    Attributes:
        chunk_count: How many chunks that version has.
        status: How the last attempt to take it in stands.
        reason: Why that failed; `None` unless it did.
        is_searchable: Whether there is a version that is searched.
        created_at: When the document first came.
        updated_at: When its status, or the version that is searched, last changed.
    """

    chunk_count: int
    status: DocumentStatus
    reason: str | None
    is_searchable: bool
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NewChunk:
    """A passage of a document.

    Attributes:
        position: Where it begins in the document's text, in characters from its beginning.
        length: How many characters of the document's text it stands for.
        text: The passage; any text without U+0000 and lone surrogates, 1 to 65,536 characters.
        heading: The headings that it stands under, outermost first; it is found by them as well.
        vector: Its vector as `pack_vector` gives it, if it is known already.
        vector_model: Id of the model that the vector is from; given with it.
    """

    position: int
    length: int
    text: str
    heading: tuple[str, ...] = ()
    vector: bytes | None = None
    vector_model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredChunk:
    """A passage as it is stored, without its vector.

    Attributes:
        number: Its number, which no other chunk of the database ever has.
        document_id: Its document.
        ordinal: Which passage of the document it is, from 0.
        position: Where it begins in the document's text, in characters.
        length: How many characters of that it stands for.
        text: The passage.
        heading: The headings that it stands under, outermost first.
    """

    number: int
    document_id: str
    ordinal: int
    position: int
    length: int
    text: str
    heading: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChunkVector:
    """The vector of a chunk: its number, and the vector as `pack_vector` gives it."""

    number: int
    vector: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedDocument:
    """A version of a document that is coming in.

    Attributes:
        knowledge_base_id: Its knowledge base.
        document_id: Its document.
        version: Its number, which no other version ever has.
        chunk_count: How many chunks are stored; more than 0 at first when the same bytes were
            staged with the same settings before, and were not finished.
    """

    knowledge_base_id: str
    document_id: str
    version: int
    chunk_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeHit:
    """A passage that was found.

    Attributes:
        knowledge_base_id: Where.
        document: The document, as it is searched.
        chunk: The passage.
        score: Larger is better. Of a text, BM25 over its knowledge base; of a vector, the cosine.
    """

    knowledge_base_id: str
    document: Document
    chunk: StoredChunk
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeCounts:
    """What a knowledge base has.

    Attributes:
        documents: Documents, those that are still coming in or failed included.
        searchable_documents: Those that are searched.
        chunks: Passages that are searched.
        chunks_with_vectors: How many of these have vectors of the model asked for.
        size_bytes: How many bytes the documents had that are searched.
    """

    documents: int = 0
    searchable_documents: int = 0
    chunks: int = 0
    chunks_with_vectors: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CollectedKnowledge:
    """What a collection deleted: versions of documents, and chunks."""

    versions: int = 0
    chunks: int = 0


def pack_vector(values: Iterable[float]) -> bytes:
    """Return a vector as it is stored: its numbers as float32, the lowest byte first."""
    packed = array("f", values)
    if packed.itemsize != 4:  # pragma: no cover - no Python is known that differs
        raise TypeError("float32 is needed for vectors, and this Python's floats are not")
    if not _IS_LITTLE:
        packed.byteswap()
    return packed.tobytes()


def unpack_vector(vector: bytes) -> array[float]:
    """Return the numbers of a stored vector."""
    unpacked = array("f")
    unpacked.frombytes(vector)
    if not _IS_LITTLE:
        unpacked.byteswap()
    return unpacked


_IS_LITTLE = array("H", [1]).tobytes() == b"\x01\x00"
