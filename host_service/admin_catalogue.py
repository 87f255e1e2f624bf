"""AdminService's calls for tool servers, knowledge bases and policies.

All three are read, listed and removed alike, and changed by `Apply`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from google.protobuf.message import Message
from runmesh.admin.v1 import admin_pb2, admin_pb2_grpc

from host_service import wire_catalogue
from host_service.admin_audit import AdminAudit
from host_service.agents.directory import AgentDirectory
from host_service.errors import NotFound
from host_service.interceptors import Context
from host_service.pages import PageTokens, page_of
from host_service.requests import RequestCheck
from stores.records import CatalogueKind
from stores.secrets import Secrets

Thing = TypeVar("Thing")


class CatalogueCalls(admin_pb2_grpc.AdminServiceServicer):
    """Decodes, does one thing, encodes.

    Args:
        directory: What is declared.
        secrets: Knows which secrets are stored.
        check: Refuses bad requests.
        pages: Makes page tokens.
        audit: Where changes are written down.
    """

    def __init__(
        self,
        *,
        directory: AgentDirectory,
        secrets: Secrets,
        check: RequestCheck,
        pages: PageTokens,
        audit: AdminAudit,
    ) -> None:
        self._directory = directory
        self._secrets = secrets
        self._check = check
        self._pages = pages
        self._audit = audit

    async def GetToolServer(
        self, request: admin_pb2.GetToolServerRequest, context: Context
    ) -> admin_pb2.GetToolServerResponse:
        """Read one tool server."""
        self._check.require(request)
        servers = self._directory.shelf.tool_servers
        server = _found(servers, "tool server", request.tool_server_id)
        return admin_pb2.GetToolServerResponse(
            tool_server=wire_catalogue.tool_server_message(server)
        )

    async def ListToolServers(
        self, request: admin_pb2.ListToolServersRequest, context: Context
    ) -> admin_pb2.ListToolServersResponse:
        """List tool servers by id."""
        servers, token = self._page(request, self._directory.shelf.tool_servers)
        return admin_pb2.ListToolServersResponse(
            tool_servers=map(wire_catalogue.tool_server_message, servers), next_page_token=token
        )

    async def DeleteToolServer(
        self, request: admin_pb2.DeleteToolServerRequest, context: Context
    ) -> admin_pb2.DeleteToolServerResponse:
        """Remove a tool server."""
        existed = await self._delete(request, CatalogueKind.TOOL_SERVER, request.tool_server_id)
        return admin_pb2.DeleteToolServerResponse(existed=existed)

    async def GetKnowledgeBase(
        self, request: admin_pb2.GetKnowledgeBaseRequest, context: Context
    ) -> admin_pb2.GetKnowledgeBaseResponse:
        """Read one knowledge base."""
        self._check.require(request)
        bases = self._directory.shelf.knowledge_bases
        base = _found(bases, "knowledge base", request.knowledge_base_id)
        return admin_pb2.GetKnowledgeBaseResponse(
            knowledge_base=wire_catalogue.knowledge_base_message(base)
        )

    async def ListKnowledgeBases(
        self, request: admin_pb2.ListKnowledgeBasesRequest, context: Context
    ) -> admin_pb2.ListKnowledgeBasesResponse:
        """List knowledge bases by id."""
        bases, token = self._page(request, self._directory.shelf.knowledge_bases)
        return admin_pb2.ListKnowledgeBasesResponse(
            knowledge_bases=map(wire_catalogue.knowledge_base_message, bases),
            next_page_token=token,
        )

    async def DeleteKnowledgeBase(
        self, request: admin_pb2.DeleteKnowledgeBaseRequest, context: Context
    ) -> admin_pb2.DeleteKnowledgeBaseResponse:
        """Remove a knowledge base."""
        existed = await self._delete(
            request, CatalogueKind.KNOWLEDGE_BASE, request.knowledge_base_id
        )
        return admin_pb2.DeleteKnowledgeBaseResponse(existed=existed)

    async def GetPolicy(
        self, request: admin_pb2.GetPolicyRequest, context: Context
    ) -> admin_pb2.GetPolicyResponse:
        """Read the policy of one workspace."""
        self._check.require(request)
        policy = _found(self._directory.shelf.policies, "policy", request.workspace_id)
        return admin_pb2.GetPolicyResponse(policy=wire_catalogue.policy_message(policy))

    async def ListPolicies(
        self, request: admin_pb2.ListPoliciesRequest, context: Context
    ) -> admin_pb2.ListPoliciesResponse:
        """List policies by workspace."""
        policies, token = self._page(request, self._directory.shelf.policies)
        return admin_pb2.ListPoliciesResponse(
            policies=map(wire_catalogue.policy_message, policies), next_page_token=token
        )

    async def DeletePolicy(
        self, request: admin_pb2.DeletePolicyRequest, context: Context
    ) -> admin_pb2.DeletePolicyResponse:
        """Remove the policy of a workspace."""
        existed = await self._delete(request, CatalogueKind.POLICY, request.workspace_id)
        return admin_pb2.DeletePolicyResponse(existed=existed)

    def _page(self, request: Any, things: Mapping[str, Thing]) -> tuple[Sequence[Thing], str]:
        self._check.require(request)
        ids = sorted(things)
        page, cursor = page_of(
            ids,
            cursor=self._pages.read(request),
            size=self._pages.size(request.page_size),
            keys=ids,
        )
        return [things[each] for each in page], self._pages.issue(request, cursor)

    async def _delete(self, request: Message, kind: CatalogueKind, id: str) -> bool:
        self._check.require(request)
        named = f"{kind.replace('_', ' ')} {id}"
        with self._audit.watched(f"Delete{_PASCAL[kind]}", named):
            return await self._directory.delete_item(kind, id)


_PASCAL = {
    CatalogueKind.TOOL_SERVER: "ToolServer",
    CatalogueKind.KNOWLEDGE_BASE: "KnowledgeBase",
    CatalogueKind.POLICY: "Policy",
}


def _found(things: Mapping[str, Thing], kind: str, id: str) -> Thing:
    thing = things.get(id)
    if thing is None:
        raise NotFound(kind, id)
    return thing
