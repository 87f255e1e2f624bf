"""AdminService's calls about documents of knowledge bases."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

from runmesh.admin.v1 import admin_pb2, knowledge_pb2

from host_service import wire_knowledge
from host_service.admin_audit import AdminAudit
from host_service.admin_catalogue import CatalogueCalls
from host_service.agents.agent import Agent
from host_service.agents.directory import AgentDirectory
from host_service.agents.selectors import grant_knowledge_base, revoke_knowledge_base
from host_service.capabilities.knowledge import DEFAULT_HITS, hit_message
from host_service.catalogue.knowledge_base import KnowledgeBase
from host_service.errors import FieldFault, InvalidArgument, NotFound, PayloadTooLarge
from host_service.interceptors import Context
from host_service.knowledge.desk import KnowledgeDesk
from host_service.knowledge.ingest import IncomingDocument
from host_service.limits import Limits
from host_service.pages import PageTokens
from host_service.registry.registry import Registry
from host_service.registry.schemas import ConfigSchemas
from host_service.requests import RequestCheck

_INFO_FIRST = "what is said of the document in the first message, and only there"
_MOST_DOCUMENTS = 100


class KnowledgeCalls(CatalogueCalls):
    """Decodes, does one thing, encodes. A part of `AdminServicer`, which gives it what it needs.

    Attributes:
        _knowledge: Takes documents in, and searches them.
        _directory: What is declared.
        _schemas: Know which fields of a configuration select knowledge bases.
        _registry: Knows what runners can do.
        _check: Refuses bad requests.
        _pages: Makes page tokens.
        _audit: Where changes are written down.
        _limits: How large a document may be.
    """

    _knowledge: KnowledgeDesk
    _directory: AgentDirectory
    _schemas: ConfigSchemas
    _registry: Registry
    _check: RequestCheck
    _pages: PageTokens
    _audit: AdminAudit
    _limits: Limits

    async def DeleteKnowledgeBase(
        self, request: admin_pb2.DeleteKnowledgeBaseRequest, context: Context
    ) -> admin_pb2.DeleteKnowledgeBaseResponse:
        """Remove a knowledge base with its documents, and take it from every agent."""
        response = await super().DeleteKnowledgeBase(request, context)
        for agent in list(self._directory.agents.values()):
            without = self._without(agent, request.knowledge_base_id)
            if without != agent:
                await self._directory.change_agent(
                    agent.id, lambda now: self._without(now, request.knowledge_base_id)
                )
        return response

    def _without(self, agent: Agent, knowledge_base_id: str) -> Agent:
        schema = self._schemas.of(agent.runner_id)
        return revoke_knowledge_base(agent, schema, knowledge_base_id)

    async def AddDocument(  # type: ignore[override]  # written to the context, as the edge needs it
        self, requests: AsyncIterator[knowledge_pb2.AddDocumentRequest], context: Context
    ) -> None:
        """Take a document in."""
        info = await self._info(requests)
        base = self._base(info.knowledge_base_id)
        ingest = self._knowledge.ingest
        named = f"document {info.document_id} of knowledge base {base.id}"
        with self._audit.watched("AddDocument", named):
            async with ingest.turns:
                content = await self._content(requests)
                size = len(content)
                await context.write(
                    knowledge_pb2.AddDocumentResponse(
                        step=knowledge_pb2.DOCUMENT_STEP_RECEIVED, done=size, total=size
                    )
                )
                async with aclosing(ingest.add(base, _incoming(info, content))) as steps:
                    async for progress in steps:
                        await context.write(wire_knowledge.progress_message(progress))

    async def ListDocuments(
        self, request: knowledge_pb2.ListDocumentsRequest, context: Context
    ) -> knowledge_pb2.ListDocumentsResponse:
        """List documents by id."""
        self._check.require(request)
        base = self._base(request.knowledge_base_id)
        page = await self._knowledge.store.documents(
            base.id,
            after=self._pages.read(request),
            limit=min(self._pages.size(request.page_size), _MOST_DOCUMENTS),
        )
        return knowledge_pb2.ListDocumentsResponse(
            documents=map(wire_knowledge.document_message, page.items),
            next_page_token=self._pages.issue(request, page.next_cursor),
        )

    async def DeleteDocument(
        self, request: knowledge_pb2.DeleteDocumentRequest, context: Context
    ) -> knowledge_pb2.DeleteDocumentResponse:
        """Remove a document."""
        self._check.require(request)
        base = self._base(request.knowledge_base_id)
        named = f"document {request.document_id} of knowledge base {base.id}"
        with self._audit.watched("DeleteDocument", named):
            existed = await self._knowledge.store.remove_document(base.id, request.document_id)
        return knowledge_pb2.DeleteDocumentResponse(existed=existed)

    async def CountDocuments(
        self, request: knowledge_pb2.CountDocumentsRequest, context: Context
    ) -> knowledge_pb2.CountDocumentsResponse:
        """Say what a knowledge base has."""
        self._check.require(request)
        base = self._base(request.knowledge_base_id)
        counts = await self._knowledge.store.counts(base.id, base.embedding_model or None)
        return wire_knowledge.counts_message(counts, has_model=bool(base.embedding_model))

    async def EmbedDocuments(  # type: ignore[override]  # written to the context, as the edge needs it
        self, request: knowledge_pb2.EmbedDocumentsRequest, context: Context
    ) -> None:
        """Have missing vectors made."""
        self._check.require(request)
        base = self._base(request.knowledge_base_id)
        if not base.embedding_model:
            rule = "a knowledge base with an embedding model"
            raise InvalidArgument([FieldFault("knowledge_base_id", rule, f"{base.id!r}")])
        with self._audit.watched("EmbedDocuments", f"knowledge base {base.id}"):
            async with aclosing(self._knowledge.missing.fill(base)) as steps:
                async for made in steps:
                    await context.write(
                        knowledge_pb2.EmbedDocumentsResponse(done=made.done, total=made.total)
                    )

    async def SearchKnowledge(
        self, request: knowledge_pb2.SearchKnowledgeRequest, context: Context
    ) -> knowledge_pb2.SearchKnowledgeResponse:
        """Search knowledge bases."""
        self._check.require(request)
        for each in request.knowledge_base_ids:
            self._base(each)
        found = await self._knowledge.retrieval.search(
            request.knowledge_base_ids,
            request.query,
            top_k=request.top_k or DEFAULT_HITS,
            filters_json=request.filters_json if request.HasField("filters_json") else None,
        )
        return knowledge_pb2.SearchKnowledgeResponse(
            hits=map(hit_message, found.hits), vectors_missing=found.vectors_missing
        )

    async def GrantKnowledgeBase(
        self, request: knowledge_pb2.GrantKnowledgeBaseRequest, context: Context
    ) -> knowledge_pb2.GrantKnowledgeBaseResponse:
        """Give a knowledge base to an agent."""
        self._check.require(request)
        base = self._base(request.knowledge_base_id)
        granted_in, was_granted = "", False

        def grant(agent: Agent) -> Agent:
            nonlocal granted_in, was_granted
            changed, granted_in = grant_knowledge_base(
                agent, self._schemas.of(agent.runner_id), base.id
            )
            was_granted = changed == agent
            return changed

        with self._audit.watched("GrantKnowledgeBase", f"agent {request.agent_id}"):
            agent = await self._directory.change_agent(request.agent_id, grant)
        return knowledge_pb2.GrantKnowledgeBaseResponse(
            granted_in=granted_in,
            was_granted=was_granted,
            warning=wire_knowledge.lacks_retrieval(self._registry.manifest(agent.runner_id), agent),
        )

    def _base(self, knowledge_base_id: str) -> KnowledgeBase:
        base = self._directory.shelf.knowledge_bases.get(knowledge_base_id)
        if base is None:
            raise NotFound("knowledge base", knowledge_base_id)
        return base

    async def _info(
        self, requests: AsyncIterator[knowledge_pb2.AddDocumentRequest]
    ) -> knowledge_pb2.DocumentInfo:
        async for request in requests:
            self._check.require(request)
            if not request.HasField("info"):
                raise InvalidArgument([FieldFault("item", _INFO_FIRST, "a chunk")])
            return request.info
        raise InvalidArgument([FieldFault("item", _INFO_FIRST, "no message")])

    async def _content(self, requests: AsyncIterator[knowledge_pb2.AddDocumentRequest]) -> bytes:
        content = bytearray()
        async for request in requests:
            self._check.require(request)
            if request.HasField("info"):
                raise InvalidArgument([FieldFault("item", _INFO_FIRST, "another one")])
            content += request.chunk
            if len(content) > self._limits.document_bytes:
                raise PayloadTooLarge(
                    "the document (limits.document_bytes)",
                    size_bytes=len(content),
                    limit_bytes=self._limits.document_bytes,
                )
        return bytes(content)


def _incoming(info: knowledge_pb2.DocumentInfo, content: bytes) -> IncomingDocument:
    return IncomingDocument(
        document_id=info.document_id,
        name=info.name or info.document_id,
        source=info.source,
        mime_type=info.mime_type,
        metadata_json=info.metadata_json,
        content=content,
    )
