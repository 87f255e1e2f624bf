"""GatewayService: events in, results out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

from runmesh.v1 import event_pb2, gateway_pb2, gateway_pb2_grpc

from host_service import wire
from host_service.authorization.callers import Caller
from host_service.caller_files import CallerFiles
from host_service.caller_transcript import CallerTranscript
from host_service.errors import (
    FieldFault,
    HostError,
    InvalidArgument,
    NotFound,
    Unauthorized,
)
from host_service.interceptors import Context, current_caller, refuse_missing
from host_service.limits import Limits
from host_service.pages import PageTokens, foreign_token
from host_service.requests import RequestCheck
from host_service.runs.intake import EventIntake
from host_service.runs.log import Batch, Bookmark, Ended, Reader
from host_service.runs.orchestrator import CALLER_LEFT, Orchestrator, Started
from host_service.runs.watching import RunWatcher
from stores.errors import InvalidRecord
from stores.ledger import RunLedger
from stores.records import RunQuery, RunRecord, RunStatus

_STATUSES = frozenset(int(status) for status in RunStatus)


@refuse_missing
class GatewayServicer(gateway_pb2_grpc.GatewayServiceServicer):
    """Decodes, hands to the orchestrator, encodes.

    Args:
        orchestrator: Starts and cancels runs.
        intake: Takes events in.
        files: Stores and reads files.
        transcript: Reads conversations.
        watcher: Reads runs.
        ledger: Lists runs.
        check: Refuses bad requests.
        pages: Makes page tokens.
        limits: How much is too much.
    """

    def __init__(
        self,
        *,
        orchestrator: Orchestrator,
        intake: EventIntake,
        files: CallerFiles,
        transcript: CallerTranscript,
        watcher: RunWatcher,
        ledger: RunLedger,
        check: RequestCheck,
        pages: PageTokens,
        limits: Limits,
    ) -> None:
        self._orchestrator = orchestrator
        self._intake = intake
        self._files = files
        self._transcript = transcript
        self._watcher = watcher
        self._ledger = ledger
        self._check = check
        self._pages = pages
        self._limits = limits

    # Responses are written rather than yielded: a caller who leaves then ends the code right here,
    # and what is encoded already goes out as it is.
    async def Dispatch(  # type: ignore[override]
        self, request: gateway_pb2.DispatchRequest, context: Context
    ) -> None:
        """Start a run and stream what comes of it."""
        self._check.require(request)
        ends_with_caller = request.on_disconnect == gateway_pb2.ON_DISCONNECT_CANCEL
        started = await self._start(
            request,
            with_reader=True,
            ends_with_caller=ends_with_caller,
        )
        run = started.run
        try:
            await context.write(
                gateway_pb2.DispatchResponse(
                    accepted=wire.run_message(run, duplicate=started.duplicate)
                )
            )
            if started.reader is not None:
                take, write, ended = started.reader.take, context.write, False
                while not ended:
                    item = await take()
                    ended = isinstance(item, Ended)
                    await write(_dispatch_item(item, duplicate=started.duplicate))
                return
            async for item in self._items(started):
                await context.write(_dispatch_item(item, duplicate=started.duplicate))
        except asyncio.CancelledError:
            if ends_with_caller:
                self._orchestrator.give_up(started.own_run_id, CALLER_LEFT)
            raise
        finally:
            if started.reader is not None:
                started.reader.close()

    async def SubmitEvent(
        self, request: gateway_pb2.SubmitEventRequest, context: Context
    ) -> gateway_pb2.SubmitEventResponse:
        """Start a run and answer with it."""
        self._check.require(request)
        started = await self._start(request)
        return gateway_pb2.SubmitEventResponse(
            run=wire.run_message(started.run, duplicate=started.duplicate)
        )

    async def WatchRun(  # type: ignore[override]
        self, request: gateway_pb2.WatchRunRequest, context: Context
    ) -> None:
        """Replay a run and follow it."""
        self._check.require(request)
        record = await self._run(request.run_id)
        if request.after_sequence < 0:
            raise InvalidArgument(
                [FieldFault("after_sequence", "0 or more", str(request.after_sequence))]
            )
        await context.write(gateway_pb2.WatchRunResponse(accepted=wire.run_message(record)))
        async for item in self._watcher.watch(request.run_id, request.after_sequence):
            await context.write(_watch_item(item))

    async def CancelRun(
        self, request: gateway_pb2.CancelRunRequest, context: Context
    ) -> gateway_pb2.CancelRunResponse:
        """Cancel a run and answer when it has ended."""
        self._check.require(request)
        await self._run(request.run_id)
        record = await self._orchestrator.cancel(request.run_id, request.reason)
        return gateway_pb2.CancelRunResponse(run=wire.run_message(record))

    async def GetRun(
        self, request: gateway_pb2.GetRunRequest, context: Context
    ) -> gateway_pb2.GetRunResponse:
        """Read one run."""
        self._check.require(request)
        return gateway_pb2.GetRunResponse(run=wire.run_message(await self._run(request.run_id)))

    async def ListRuns(
        self, request: gateway_pb2.ListRunsRequest, context: Context
    ) -> gateway_pb2.ListRunsResponse:
        """List runs, newest first."""
        self._check.require(request)
        caller = current_caller()
        query = RunQuery(
            workspace=caller.workspace,
            bot=caller.bot,
            agent_id=request.agent_id or None,
            conversation_key=request.conversation_key or None,
            statuses=tuple(RunStatus(status) for status in request.statuses if status in _STATUSES),
            created_after=wire.from_timestamp(request.created_after)
            if request.HasField("created_after")
            else None,
            created_before=wire.from_timestamp(request.created_before)
            if request.HasField("created_before")
            else None,
        )
        size, cursor = self._pages.size(request.page_size), self._pages.read(request)
        try:
            page = await self._ledger.list(query, limit=size, after=cursor)
        except InvalidRecord as error:
            raise foreign_token("a token made by hand") from error
        runs = [wire.run_message(self._orchestrator.view(record)) for record in page.items]
        return gateway_pb2.ListRunsResponse(
            runs=runs, next_page_token=self._pages.issue(request, page.next_cursor)
        )

    async def PageConversation(  # type: ignore[override]
        self, request: gateway_pb2.PageConversationRequest, context: Context
    ) -> bytes:
        """Page through the transcript of a conversation; the answer is encoded."""
        self._check.require(request)
        return await self._transcript.page(current_caller(), request)

    async def CreateArtifact(
        self,
        request_iterator: AsyncIterator[gateway_pb2.GatewayServiceCreateArtifactRequest],
        context: Context,
    ) -> gateway_pb2.GatewayServiceCreateArtifactResponse:
        """Store a file."""
        return await self._files.create(current_caller(), request_iterator)

    async def ReadArtifact(  # type: ignore[override]
        self, request: gateway_pb2.GatewayServiceReadArtifactRequest, context: Context
    ) -> None:
        """Stream a file."""
        self._check.require(request)
        async with aclosing(self._files.read(current_caller(), request)) as responses:
            async for response in responses:
                await context.write(response)

    async def _start(
        self,
        request: gateway_pb2.DispatchRequest | gateway_pb2.SubmitEventRequest,
        *,
        with_reader: bool = False,
        ends_with_caller: bool = False,
    ) -> Started:
        caller = current_caller()
        _within_reach(caller, request.event)
        event = await self._intake.take_in(request.event, caller)
        try:
            return await self._orchestrator.start(
                event,
                agent_id=request.agent_id,
                # A value of a later version is as good as none.
                follow_up=wire.enum_word(gateway_pb2.FollowUp, request.follow_up),
                with_reader=with_reader,
                ends_with_caller=ends_with_caller,
            )
        except HostError as refusal:
            if event.stored:
                await self._intake.give_back(event, refusal)
            raise

    async def _items(self, started: Started) -> AsyncIterator[Batch | Bookmark | Ended]:
        if started.reader is None:
            async for item in self._watcher.watch(started.run.run_id):
                yield item
            return
        async for item in _read_out(started.reader):
            yield item

    async def _run(self, run_id: str) -> RunRecord:
        """Return a run that the caller may see; one beyond its reach looks like none."""
        record = await self._orchestrator.get(run_id)
        if record is None or not current_caller().reaches(
            workspace=record.workspace, bot=record.bot
        ):
            raise NotFound("run", run_id)
        return record


async def _read_out(reader: Reader) -> AsyncIterator[Batch | Bookmark | Ended]:
    while not isinstance(item := await reader.take(), Ended):
        yield item
    yield item


def _dispatch_item(
    item: Batch | Bookmark | Ended, *, duplicate: bool
) -> gateway_pb2.DispatchResponse | bytes:
    if isinstance(item, Batch):
        return wire.encode_results(item.encoded)
    if isinstance(item, Bookmark):
        return gateway_pb2.DispatchResponse(bookmark=item.sequence)
    return gateway_pb2.DispatchResponse(ended=wire.run_message(item.run, duplicate=duplicate))


def _watch_item(item: Batch | Bookmark | Ended) -> gateway_pb2.WatchRunResponse | bytes:
    if isinstance(item, Batch):
        return wire.encode_results(item.encoded)
    if isinstance(item, Bookmark):
        return gateway_pb2.WatchRunResponse(bookmark=item.sequence)
    return gateway_pb2.WatchRunResponse(ended=wire.run_message(item.run))


def _within_reach(caller: Caller, envelope: event_pb2.EventEnvelope) -> None:
    if not caller.reaches(workspace=envelope.workspace_id, bot=envelope.bot_id):
        raise Unauthorized(
            "this API key is limited to "
            + " and ".join(
                f"{name} {value!r}"
                for name, value in (("workspace", caller.workspace), ("bot", caller.bot))
                if value is not None
            )
        )
