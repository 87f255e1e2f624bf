"""AttachService: for runners that dial the host instead of being dialled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

import grpc.aio
from google.protobuf.message import DecodeError
from runmesh.v1 import attach_pb2

from host_service.authorization.attach_tokens import AttachGrants
from host_service.errors import (
    DeadlineExceeded,
    FieldFault,
    HostError,
    Incompatible,
    InvalidArgument,
    Unauthorized,
    Unavailable,
)
from host_service.interceptors import Context, current_attach_token
from host_service.registry.attachments import (
    AttachedStream,
    Attachments,
    Read,
    Ticket,
    Write,
)
from host_service.registry.errors import PluginIncompatible, PluginRefused
from host_service.requests import RequestCheck
from stores.audit import Audit, AuditOutcome, AuditRecord
from stores.records import AttachTokenRecord

_HELLO_SECONDS = 15.0


class AttachServicer:
    """Takes the hello, judges it by the token, and hands the stream on.

    Args:
        attachments: Serves streams.
        grants: Knows attach tokens.
        check: Refuses bad requests.
        audit: Where it is written down who attached.
        clock: Tells the time.
    """

    def __init__(
        self,
        *,
        attachments: Attachments,
        grants: AttachGrants,
        check: RequestCheck,
        audit: Audit,
        clock: Callable[[], datetime],
    ) -> None:
        self._attachments = attachments
        self._grants = grants
        self._check = check
        self._audit = audit
        self._clock = clock

    async def Attach(self, _requests: object, context: Context) -> None:
        """Serve one instance for as long as its stream lasts."""
        token = current_attach_token()
        with self._audited(token):
            hello = await self._take_hello(token, context)
            stream = self._admit(token, hello)
        self._grants.note_use(token.token_id)
        try:
            await self._attachments.serve(stream, read=_reading(context), write=_writing(context))
        except ConnectionError:
            # Nobody is there to tell; the instance is lost already.
            return

    def _admit(self, token: AttachTokenRecord, hello: attach_pb2.AttachHello) -> AttachedStream:
        ticket = Ticket(
            token_id=token.token_id,
            plugin_id=token.plugin_id,
            seconds_left=self._grants.seconds_left(token),
            is_unrevoked=lambda: self._grants.is_unrevoked(token.token_id),
        )
        try:
            return self._attachments.admit(ticket, hello)
        except PluginIncompatible as error:
            raise Incompatible(str(error)) from error
        except PluginRefused as error:
            fault = FieldFault("hello", "what the contract says of it", str(error))
            raise InvalidArgument([fault]) from error

    @contextmanager
    def _audited(self, token: AttachTokenRecord) -> Iterator[None]:
        began, at, refused = time.monotonic(), self._clock(), ""
        try:
            yield
        except HostError as error:
            refused = error.reason
            if not isinstance(error, Unavailable):
                self._attachments.refuse(token.plugin_id, error)
            raise
        finally:
            self._audit.append(
                AuditRecord(
                    at=at,
                    rpc="Attach",
                    outcome=AuditOutcome.REFUSED if refused else AuditOutcome.DONE,
                    caller=token.token_id,
                    resource=f"plugin {token.plugin_id}",
                    reason=refused,
                    duration_seconds=time.monotonic() - began,
                )
            )

    async def _take_hello(
        self, token: AttachTokenRecord, context: Context
    ) -> attach_pb2.AttachHello:
        try:
            async with asyncio.timeout(_HELLO_SECONDS):
                data = await context.read()
        except TimeoutError:
            raise DeadlineExceeded(f"no hello came within {_HELLO_SECONDS:g} s") from None
        hello = _hello_of(data)
        self._check.require(hello)
        if hello.handshake.plugin_id != token.plugin_id:
            raise Unauthorized(
                f"the attach token was issued for {token.plugin_id!r}, "
                f"and the hello names {hello.handshake.plugin_id!r}",
                facts={"resource": token.plugin_id},
            )
        return hello


def _reading(context: Context) -> Read:
    async def read() -> bytes | None:
        try:
            data = await context.read()
        except grpc.aio.BaseError as error:
            raise ConnectionError("the runner's connection is gone") from error
        return data if isinstance(data, bytes) else None

    return read


def _writing(context: Context) -> Write:
    async def write(message: attach_pb2.AttachResponse) -> None:
        try:
            await context.write(message)
        except grpc.aio.BaseError as error:
            raise ConnectionError("the runner's connection is gone") from error

    return write


def _hello_of(data: object) -> attach_pb2.AttachHello:
    if isinstance(data, bytes):
        try:
            message = attach_pb2.AttachRequest.FromString(data)
        except DecodeError as error:
            rule = "must be a runmesh.v1.AttachRequest on the wire"
            raise InvalidArgument(
                [FieldFault("request", rule, f"{len(data)} other bytes")]
            ) from error
        if message.HasField("hello"):
            return message.hello
    raise InvalidArgument([FieldFault("hello", "the first message", "another, or none")])
