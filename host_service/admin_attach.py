"""AdminService's calls about attach tokens: made, listed, revoked."""

from __future__ import annotations

from datetime import timedelta

from runmesh.admin.v1 import admin_pb2_grpc, attach_tokens_pb2

from host_service import wire
from host_service.admin_audit import AdminAudit
from host_service.authorization.attach_tokens import AttachGrants
from host_service.errors import NotFound
from host_service.interceptors import Context
from host_service.pages import PageTokens, descending, page_of
from host_service.registry.attachments import Attachments
from host_service.requests import RequestCheck


class AttachCalls(admin_pb2_grpc.AdminServiceServicer):
    """Decodes, does one thing, encodes. A part of `AdminServicer`, which gives it what it needs.

    Attributes:
        _grants: Issues and knows attach tokens.
        _attachments: Ends what is attached with a token that is revoked.
        _check: Refuses bad requests.
        _pages: Makes page tokens.
        _audit: Where changes are written down.
    """

    _grants: AttachGrants
    _attachments: Attachments
    _check: RequestCheck
    _pages: PageTokens
    _audit: AdminAudit

    async def CreateAttachToken(
        self, request: attach_tokens_pb2.CreateAttachTokenRequest, context: Context
    ) -> attach_tokens_pb2.CreateAttachTokenResponse:
        """Make a token for a plugin."""
        self._check.require(request)
        lifetime = None
        if request.HasField("lifetime"):
            lifetime = timedelta(microseconds=request.lifetime.ToMicroseconds())
        with self._audit.watched("CreateAttachToken", f"plugin {request.plugin_id}") as made:
            record, secret = await self._grants.issue(request.plugin_id, lifetime)
            made.append(f"attach token {record.token_id} of {request.plugin_id}")
        return attach_tokens_pb2.CreateAttachTokenResponse(
            token=wire.attach_token_message(record), secret=secret
        )

    async def ListAttachTokens(
        self, request: attach_tokens_pb2.ListAttachTokensRequest, context: Context
    ) -> attach_tokens_pb2.ListAttachTokensResponse:
        """List attach tokens, newest first."""
        self._check.require(request)
        # Ids are UUIDv7: in reverse order they are newest first.
        records = sorted(await self._grants.all(), key=lambda each: each.token_id, reverse=True)
        page, cursor = page_of(
            records,
            cursor=self._pages.read(request),
            size=self._pages.size(request.page_size),
            keys=[descending(record.token_id) for record in records],
        )
        return attach_tokens_pb2.ListAttachTokensResponse(
            tokens=[wire.attach_token_message(record) for record in page],
            next_page_token=self._pages.issue(request, cursor),
        )

    async def RevokeAttachToken(
        self, request: attach_tokens_pb2.RevokeAttachTokenRequest, context: Context
    ) -> attach_tokens_pb2.RevokeAttachTokenResponse:
        """Revoke a token, and cut off what is attached with it."""
        self._check.require(request)
        with self._audit.watched("RevokeAttachToken", f"attach token {request.token_id}"):
            record = await self._grants.revoke(request.token_id)
            if record is None:
                raise NotFound("attach token", request.token_id)
            self._attachments.end_token(request.token_id)
        return attach_tokens_pb2.RevokeAttachTokenResponse(token=wire.attach_token_message(record))
