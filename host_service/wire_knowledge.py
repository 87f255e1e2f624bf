"""Documents of knowledge bases as messages."""

from __future__ import annotations

from collections.abc import Mapping

from runmesh.admin.v1 import knowledge_pb2
from runmesh.v1 import manifest_pb2

from host_service import wire
from host_service.agents.agent import Agent
from host_service.knowledge.ingest import Progress, Step
from stores.knowledge_records import Document, DocumentStatus, KnowledgeCounts

_STEPS: Mapping[Step, knowledge_pb2.DocumentStep.ValueType] = {
    Step.UNCHANGED: knowledge_pb2.DOCUMENT_STEP_UNCHANGED,
    Step.CUT: knowledge_pb2.DOCUMENT_STEP_CUT,
    Step.STORED: knowledge_pb2.DOCUMENT_STEP_STORED,
    Step.READY: knowledge_pb2.DOCUMENT_STEP_READY,
}
_STATUSES: Mapping[DocumentStatus, knowledge_pb2.DocumentStatus.ValueType] = {
    DocumentStatus.INGESTING: knowledge_pb2.DOCUMENT_STATUS_INGESTING,
    DocumentStatus.READY: knowledge_pb2.DOCUMENT_STATUS_READY,
    DocumentStatus.FAILED: knowledge_pb2.DOCUMENT_STATUS_FAILED,
}


def progress_message(progress: Progress) -> knowledge_pb2.AddDocumentResponse:
    """Return how far a document has come as a message."""
    return knowledge_pb2.AddDocumentResponse(
        step=_STEPS[progress.step],
        done=progress.done,
        total=progress.total,
        document=document_message(progress.document) if progress.document else None,
        vectors_missing=progress.vectors_missing,
    )


def document_message(document: Document) -> knowledge_pb2.Document:
    """Return a document as a message."""
    return knowledge_pb2.Document(
        document_id=document.document_id,
        name=document.name or document.document_id,
        source=document.source,
        mime_type=document.mime_type,
        size_bytes=document.size_bytes,
        sha256=document.sha256.hex(),
        metadata_json=document.metadata_json,
        passages=document.chunk_count,
        status=_STATUSES[document.status],
        failure=document.reason or "",
        is_searchable=document.is_searchable,
        created_at=wire.timestamp(document.created_at),
        updated_at=wire.timestamp(document.updated_at),
    )


def counts_message(
    counts: KnowledgeCounts, *, has_model: bool
) -> knowledge_pb2.CountDocumentsResponse:
    """Return what a knowledge base has as a message; without a model it has no vectors."""
    return knowledge_pb2.CountDocumentsResponse(
        documents=counts.documents,
        searchable_documents=counts.searchable_documents,
        passages=counts.chunks,
        passages_with_vectors=counts.chunks_with_vectors if has_model else 0,
        size_bytes=counts.size_bytes,
    )


def lacks_retrieval(manifest: manifest_pb2.RunnerManifest | None, agent: Agent) -> str:
    """Return why the runs of an agent would not get a knowledge base; empty: they would."""
    if manifest is None:
        return f"runner {agent.runner_id!r} is not here: what it can do is not known"
    searches = (
        manifest.capabilities.knowledge_retrieval
        and manifest_pb2.KNOWLEDGE_BASE_PERMISSION_RETRIEVE in manifest.permissions.knowledge_bases
    )
    return "" if searches else f"runner {agent.runner_id!r} does not search knowledge bases"
